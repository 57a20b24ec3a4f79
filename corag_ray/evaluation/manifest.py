"""The manifest of a run: everything needed to make it again, and where it was made."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corag_ray.errors import DataError

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
_PACKAGES = (
    "corag_ray",
    "ray",
    "torch",
    "transformers",
    "tokenizers",
    "faiss-cpu",
    "bm25s",
    "pyarrow",
    "rouge-score",
    "numpy",
)


def make_manifest(name: str, fingerprint: str, config: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """What a run was made with; `facts` are added as they are (data, index manifest, ..)."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "fingerprint": fingerprint,
        "config": dict(config),
        **facts,
        "sessions": [],
    }


def begin_session(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest with one more session: a run that was killed and started again lists both.

    A session tells when, by which command, at which commit, with which versions and on which machine. `end_session`
    completes it; one without `finished` was killed.
    """
    path = folder / MANIFEST
    if path.exists():
        try:
            earlier = json.loads(path.read_text("utf-8"))
            same = earlier["fingerprint"] == manifest["fingerprint"]
            manifest["sessions"] = list(earlier["sessions"]) if same else []
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is damaged: delete it, the rows beside it stay valid.") from error
    manifest["sessions"].append(
        {
            "started": _now(),
            "command": _command(),
            "commit": _commit(),
            "versions": {"python": platform.python_version()} | {p: package_version(p) for p in _PACKAGES},
            "machine": {"processor": _processor(), "cpus": os.cpu_count(), "system": platform.platform()},
        }
    )
    _write(path, manifest)


def end_session(folder: Path, manifest: dict[str, Any]) -> None:
    """Note when the session ended."""
    manifest["sessions"][-1]["finished"] = _now()
    _write(folder / MANIFEST, manifest)


def _command() -> str:
    """The command line as a person would type it."""
    program = Path(sys.argv[0])
    name = f"python -m jobs.{program.stem}" if program.parent.name == "jobs" else program.name
    return shlex.join([*name.split(), *sys.argv[1:]])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _write(path: Path, manifest: Mapping[str, Any]) -> None:
    scratch = path.with_suffix(".partial")
    scratch.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    scratch.replace(path)


def _commit() -> str | None:
    """The commit of the checkout that this package is part of, with `+changes` where files differ; None without one."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # an environment may lie, ignored, in another project's checkout
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def package_version(package: str) -> str | None:
    """The installed version; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name, where the system says it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
