"""One `corag ask` and one `corag bench` over a tiny corpus, as a user starts them, for all tests of a run."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_run import QUESTIONS, config_values, write_folder

from corag_ray.batch.index_folder import open_corpus
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.datasets.load import load_dataset

CORAG = Path(sys.executable).parent / "corag"


@dataclass(frozen=True)
class Asked:
    """A finished `corag ask --json`."""

    question: str
    root: Path
    printed: str
    told: str


@dataclass(frozen=True)
class Run:
    """A finished `corag bench`."""

    root: Path
    folder: Path
    index: Path
    printed: str
    told: str


def run_corag(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a Ray of its own if it needs one."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    command = [str(CORAG), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)


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
def asked(tiny_yaml: Path, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """`corag ask --json` in a new root: it starts Ray and builds the index on the way."""
    root = tmp_path_factory.mktemp("root")
    question = QUESTIONS["q2"][0]
    done = run_corag("ask", question, "--config", tiny_yaml, "--root", root, "--method", "naive_rag", "--json")
    assert done.returncode == 0, done.stderr
    return Asked(question, root, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def whole_run(asked: Asked, tiny_yaml: Path, tiny_config: Config) -> Run:
    """An uninterrupted run to the report, over the index that `ask` built."""
    root = asked.root
    done = run_corag("bench", tiny_yaml, "--root", root, "--out", root / "run")
    assert done.returncode == 0, done.stderr
    _, index = open_corpus(root, tiny_config)
    return Run(root, root / "run", index, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def tiny_index(whole_run: Run) -> Path:
    return whole_run.index
