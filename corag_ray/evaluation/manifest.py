"""The manifest of a run: everything needed to make it again, and where it was made."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    """What a run was made with; `facts` are added as they are (index manifest, seconds, ..)."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "fingerprint": fingerprint,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "config": dict(config),
        "versions": {"python": platform.python_version()} | {p: _version(p) for p in _PACKAGES},
        "machine": {"processor": _processor(), "cpus": os.cpu_count(), "system": platform.platform()},
        **facts,
    }


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write it to the run folder."""
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _commit() -> str | None:
    """The checkout's commit, with `+changes` where files differ from it; None outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
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
