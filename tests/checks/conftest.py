"""What `corag check` says of a text, one line a finding, without the file's name."""

import pytest

from corag_ray.checks.check import check_files


@pytest.fixture
def said(tmp_path):
    """Of the first text, beside the others: `LINE: error: ..`; `file.yaml` stands for the file's path."""

    def check(text, *others):
        paths = [tmp_path / name for name in ("file.yaml", "other.yaml", "third.yaml")]
        texts = [text, *others]
        for path, content in zip(paths, texts, strict=False):
            path.write_text(content, "utf-8")
        found = check_files(paths[: len(texts)])
        return [str(one).removeprefix(f"{paths[0]}:") for one in found]

    return check


@pytest.fixture
def serve_said(said):
    """Of one deployment's options, in YAML's flow style, which stand in line 5."""

    def check(options):
        head = "http_options: {host: 127.0.0.1}\napplications:\n- import_path: shop:app\n  deployments:\n"
        return said(f"{head}  - {{name: till, {options}}}\n")

    return check
