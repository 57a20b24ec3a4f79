"""One writer a folder, run folders and index folders alike."""

import subprocess
import sys

import pytest

from corag_ray.batch.folder_lock import locked
from corag_ray.batch.index_folder import ensure_index
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import DataError
from corag_ray.types import Document


def test_a_folder_is_made_held_and_let_go_whatever_happens_inside(tmp_path):
    folder = tmp_path / "new" / "run"
    with pytest.raises(ZeroDivisionError), locked(folder):
        with (
            pytest.raises(DataError, match=r"^another run is writing to .*run: wait until it is done\.$"),
            locked(folder),
        ):
            pass
        raise ZeroDivisionError
    with locked(folder), locked(tmp_path / "other"):
        pass


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path):
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from corag_ray.batch.folder_lock import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataError, match="another run is writing"), locked(tmp_path):
            pass
        other.kill()
    with locked(tmp_path):
        pass


def test_an_index_that_another_process_builds_is_refused_before_anything_is_read(tmp_path):
    data = Dataset("d", (Document("a", "text"),), (), 0, "c0", "q0")
    with locked(tmp_path), pytest.raises(DataError, match="another run is writing"):
        ensure_index(Config(deterministic=True), data, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
