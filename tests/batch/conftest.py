"""One run of `corag bench` over a tiny corpus, as a user starts it, for all tests that look at a run."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_run import config_values, write_folder

from corag_ray.build import default_index_folder
from corag_ray.config import Config
from corag_ray.datasets.folder import Dataset, load_dataset

CORAG = Path(sys.executable).parent / "corag"


@dataclass(frozen=True)
class Run:
    """A finished `corag bench`, with an index of its own."""

    root: Path
    folder: Path
    index: Path
    printed: str


def run_corag(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a Ray of its own if it needs one."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    command = [str(CORAG), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.fixture(scope="session")
def corag():
    return run_corag


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="session")
def tiny_config(tiny_folder: Path) -> Config:
    return Config.model_validate(config_values(tiny_folder))


@pytest.fixture(scope="session")
def tiny_yaml(tiny_folder: Path) -> Path:
    path = tiny_folder / "tiny.yaml"
    path.write_text(json.dumps(config_values(tiny_folder)))  # JSON is YAML
    return path


@pytest.fixture(scope="session")
def tiny_dataset(tiny_folder: Path) -> Dataset:
    return load_dataset(str(tiny_folder))


@pytest.fixture(scope="session")
def whole_run(
    tiny_yaml: Path, tiny_config: Config, tiny_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """An uninterrupted run, from nothing to the report."""
    root = tmp_path_factory.mktemp("root")
    done = run_corag("bench", tiny_yaml, "--root", root, "--out", root / "run")
    assert done.returncode == 0, done.stderr
    return Run(root, root / "run", default_index_folder(root, tiny_config, tiny_dataset), done.stdout)


@pytest.fixture(scope="session")
def tiny_index(whole_run: Run) -> Path:
    return whole_run.index
