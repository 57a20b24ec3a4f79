"""The constraints pin every package, without local versions, and nothing has to be compiled."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PINS = [
    line.strip()
    for name in ("cpu.txt", "models.txt")
    for line in (ROOT / "constraints" / name).read_text("utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]
SOURCE_ONLY = "rouge-score"
"""The one package without a wheel: an sdist of pure Python."""

OLDEST_OF_EACH = ["3.11.0", "3.12.0"]
"""Some releases ask for a later patch of a Python than a distribution may have, and pip then searches without end."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_line_is_an_exact_pin_without_a_local_version():
    assert [pin for pin in PINS if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", pin)] == []


def test_every_package_that_the_extras_bring_is_pinned():
    pinned = {canonical(pin.split("==")[0]) for pin in PINS}
    waiting, seen = [("corag_ray", frozenset({"local", "dev"}))], set()
    while waiting:
        name, extras = waiting.pop()
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            wanted = any(
                requirement.marker is None or requirement.marker.evaluate({"extra": extra})
                for extra in (extras or {""})
            )
            key = (canonical(requirement.name), frozenset(requirement.extras))
            if wanted and key not in seen:
                seen.add(key)
                waiting.append(key)
    brought = {name for name, _ in seen}
    assert len(brought) > 80
    assert brought - pinned == {"corag-ray"}  # the extra dev names two of our own


def test_the_source_only_package_compiles_nothing():
    files = importlib.metadata.files(SOURCE_ONLY)
    assert files
    assert [f for f in files if f.suffix in {".so", ".pyd"}] == []


@pytest.mark.registry
@pytest.mark.parametrize("python", OLDEST_OF_EACH)
def test_every_other_pin_has_a_wheel_for_the_oldest_python_of_each_kind(tmp_path, python):
    wheels = tmp_path / "pins.txt"
    wheels.write_text("\n".join(pin for pin in PINS if canonical(pin.split("==")[0]) != SOURCE_ONLY))
    target = ["--target", str(tmp_path / "nothing")]  # without it pip of Python 3.11.2 refuses another Python's wheels
    flags = ["--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:", "--quiet", "-r", str(wheels)]
    command = [sys.executable, "-m", "pip", "install", "--python-version", python, *target, *flags]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if "connection" in run.stderr.lower() or "timed out" in run.stderr.lower():
        pytest.skip("NO REGISTRY WAS REACHED: that every pin has a wheel was not checked")
    assert run.returncode == 0, run.stderr


def test_the_pythons_whose_wheels_are_looked_for_are_those_that_the_package_allows():
    [line] = [line for line in (ROOT / "pyproject.toml").read_text("utf-8").splitlines() if "requires-python" in line]
    allowed = SpecifierSet(line.split('"')[1])
    minors = sorted({f"3.{minor}.0" for minor in range(30) if f"3.{minor}.0" in allowed})
    assert minors == OLDEST_OF_EACH
