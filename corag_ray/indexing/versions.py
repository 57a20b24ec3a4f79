"""The versions of an index: each a folder of its own, and one pointer file, replaced atomically, names the current one.

    INDEX/CURRENT                the name of the current version
    INDEX/versions/000002/       chunks, dense and lexical index, token vectors, token ids, manifest
    INDEX/versions/000003/       the next one, while it is built: it has no manifest yet

A reader resolves the pointer once and then reads one folder, so it never sees a mixture. The version before the current
one is kept, for readers that are just opening it; files that a reader has mapped stay readable after their removal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from corag_ray.errors import DataError
from corag_ray.indexing.chunking import Chunking
from corag_ray.indexing.durable import to_disk, write_atomically
from corag_ray.indexing.token_vectors import TokenVectorFormat

SCHEMA_VERSION = 3
CURRENT, VERSIONS, MANIFEST = "CURRENT", "versions", "manifest.json"
UNFINISHED = "unfinished"
"""Folder, within a version, of what only its building needs."""
KEPT_VERSIONS = 2
"""The current one and the one before it."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """What an index's numbers depend on; stored in its manifest and compared when it is opened.

    Versions of one index may differ in their corpus alone.
    """

    corpus: str
    chunking: Chunking
    embedder: str
    dtype: str
    cost_tokenizer: str
    token_vectors: TokenVectorFormat
    schema_version: int = SCHEMA_VERSION


def is_finished(index: Path) -> bool:
    """Whether the folder holds a version that can be read."""
    return bool(_finished(index))


def current_version(index: Path) -> Path:
    """The folder of the current version.

    Raises:
        DataError: there is none.
    """
    if not (finished := _finished(index)):
        raise DataError(f"{index} holds no finished index: build it with `corag index`.")
    return finished[0]


def read_manifest(index: Path) -> dict[str, object]:
    """The manifest of the current version.

    Raises:
        DataError: there is none, or it is damaged.
    """
    return read_json(current_version(index) / MANIFEST)


def find_version(index: Path, spec: IndexSpec) -> Path:
    """The version that was made as `spec` says: the current one, or one that is still kept.

    A run that began before an update so finds its corpus again when one of its actors is started anew.

    Raises:
        DataError: there is none; names the first difference of the current one.
    """
    for version in _finished(index):
        if _fits(version, spec):
            return version
    check_settings(index, read_manifest(index), spec)
    raise DataError(f"the index in {index} was made of another corpus: bring it up to date with `corag index`.")


def holds_version(index: Path, spec: IndexSpec) -> bool:
    """Whether `find_version` finds one."""
    return any(_fits(version, spec) for version in _finished(index))


def check_settings(index: Path, found: Mapping[str, object], wanted: IndexSpec) -> None:
    """Refuse an index made with other settings than the ones asked for; its corpus may be another.

    Raises:
        DataError: names the first difference.
    """
    key = _difference({**found, "corpus": wanted.corpus}, wanted)
    if key is not None:
        raise DataError(
            f"the index in {index} was made with {key} = {found.get(key)!r}, not {asdict(wanted)[key]!r}: "
            "delete that folder."
        )


def next_version(index: Path) -> Path:
    """The folder of the version after the highest finished one; a half-built one is found there again."""
    highest = max((int(version.name) for version in _finished(index)), default=0)
    return index / VERSIONS / f"{highest + 1:06d}"


def publish(index: Path, version: Path) -> None:
    """Make a finished version the current one: for every reader at once, and safe against a loss of power."""
    sync(version)
    to_disk(version.parent)
    write_atomically(index / CURRENT, version.name + "\n")
    shutil.rmtree(version / UNFINISHED, ignore_errors=True)  # not before: until here, a killed build goes on from it
    others = sorted((v for v in _finished(index) if v != version), key=lambda v: v.name, reverse=True)
    for old in others[KEPT_VERSIONS - 1 :]:
        (old / MANIFEST).unlink()  # first: a half-removed folder must not look like a version
        shutil.rmtree(old)


def sync(version: Path) -> None:
    """Wait until a version's files are on the disk, but for those that only its building needs."""
    for path in [version, *sorted(version.rglob("*"))]:
        if UNFINISHED not in path.relative_to(version).parts:
            to_disk(path)


def read_json(path: Path) -> dict[str, object]:
    """A manifest's content.

    Raises:
        DataError: it is damaged.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged: delete the folder {path.parent}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: delete the folder {path.parent}.")
    return content


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a manifest, all or nothing."""
    write_atomically(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def _finished(index: Path) -> list[Path]:
    """The folders of all finished versions, the current one first; none before the first was made current."""
    try:
        name = (index / CURRENT).read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:
        raise DataError(f"{index / CURRENT} is damaged: delete the folder {index}.") from error
    # A copy that somebody made beside them (`000002 old`) is none of ours.
    found = (path.parent for path in (index / VERSIONS).glob(f"*/{MANIFEST}"))
    versions = sorted(version for version in found if version.name.isdecimal())
    if index / VERSIONS / name not in versions:
        raise DataError(f"{index / CURRENT} names a version that is not there: delete the folder {index}.")
    return sorted(versions, key=lambda version: version.name != name)


def _fits(version: Path, spec: IndexSpec) -> bool:
    try:
        return _difference(read_json(version / MANIFEST), spec) is None
    except FileNotFoundError:  # an old version that an update removes at this moment
        return False


def _difference(found: Mapping[str, object], wanted: IndexSpec) -> str | None:
    """The first key of the specification whose value is another."""
    return next((key for key, value in asdict(wanted).items() if found.get(key) != value), None)
