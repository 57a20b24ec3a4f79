"""The README's commands of Ray exist, with the options that it gives them."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from ray.scripts.scripts import cli as ray_cli
from ray.serve.scripts import cli as serve_cli

README = (Path(__file__).parent.parent.parent / "README.md").read_text("utf-8")
LINES = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("ray ", "serve "))
]


def test_the_readme_goes_from_up_to_down():
    assert [" ".join(line.split()[:2]) for line in LINES] == [
        "ray get-auth-token",
        "ray up",
        "ray dashboard",
        "serve deploy",
        "ray job",
        "ray attach",
        "ray down",
    ]


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_ray_has_the_options_that_the_readme_gives_it(line):
    programme, *words = shlex.split(line, comments=True)
    ours = words[: words.index("--")] if "--" in words else words
    command = ours[:2] if ours[0] == "job" else ours[:1]
    shown = CliRunner().invoke(ray_cli if programme == "ray" else serve_cli, [*command, "--help"])
    assert shown.exit_code == 0
    options = [word for word in ours if word.startswith("-")]
    assert [option for option in options if not re.search(rf"(^|\s){option}[\s,]", shown.output)] == []
