"""The README is true: its commands parse, its YAML loads, its files exist and all of them are named."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from corag_ray.cli import app
from corag_ray.config import Config
from corag_ray.core.policy_tree import PRESETS
from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
from corag_ray.names import RERANKERS, STRATEGIES
from corag_ray.prompts import PROMPTS
from jobs.publish_results import BEGIN, END, RESULTS, results_text

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [line for block in blocks("bash") for line in block.splitlines() if line.strip()]


def test_there_are_two_commands_and_one_that_serves_and_make_knows_them():
    made = [shlex.split(line, comments=True) for line in COMMANDS if line.startswith("make ")]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [words[1] for words in made] == ["demo", "test", "serve"]
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for _, target in made)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("corag ")])
def test_every_corag_command_has_the_options_that_the_readme_gives_it(line):
    _, command, *arguments = shlex.split(line, comments=True)
    help_text = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, [command, "--help"])
    assert help_text.exit_code == 0
    assert [a for a in arguments if a.startswith("--") and a not in help_text.output] == []


def test_every_file_that_a_command_names_exists():
    words = [word for line in COMMANDS for word in shlex.split(line, comments=True)]
    named = [w for w in words if re.fullmatch(r"(jobs|constraints)/\S+", w)]
    named += [w.replace(".", "/") + ".py" for w in words if re.fullmatch(r"jobs\.\w+", w)]
    assert len(named) > 4
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_example_experiment_loads():
    config = Config.model_validate(yaml.safe_load(blocks("yaml")[0]))
    assert config.methods["corag"].strategy.params.iterations == 20


def test_the_example_of_a_server_loads():
    [_, example] = blocks("yaml")
    assert Config.model_validate(yaml.safe_load(example)).generation.server.model == "my-model"


def test_every_strategy_reranker_and_prompt_stands_in_the_readme():
    named = set(re.findall(r"`(\w+)`", README))
    assert set(STRATEGIES) | set(RERANKERS) | set(PACKAGED_RERANKERS) | set(PROMPTS) <= named


def test_the_file_tree_names_every_module_and_room_that_exists():
    [tree] = blocks("text")
    package = ROOT / "corag_ray"
    rooms = [p for p in package.iterdir() if p.suffix == ".py" or (p.is_dir() and list(p.glob("*.py")))]
    names = [p.name for p in rooms if p.name != "__init__.py"]
    assert [name for name in names if not re.search(rf"(^|\s){re.escape(name)}(/|\s)", tree)] == []
    listed = re.findall(r"^  (\w+)/", tree, flags=re.MULTILINE)
    assert [name for name in listed if not (package / name).is_dir()] == []


def test_the_results_are_those_of_the_published_runs():
    shown = README.partition(BEGIN)[2].partition(END)[0]
    assert shown == "\n" + results_text(ROOT / RESULTS)
    assert "| method |" in shown


def test_a_file_beside_the_published_runs_is_no_run(tmp_path):
    published = shutil.copytree(ROOT / RESULTS, tmp_path / "results")
    (published / "figures.json").write_text("{}")
    assert results_text(published) == results_text(ROOT / RESULTS)


def test_every_preset_is_in_the_table():
    assert all(f"`{name}`" in README for name in PRESETS)
