"""Whether a checkpoint may run the Python files that came with it: only those that the configuration pins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corag_ray.errors import ConfigError, unknown_name
from corag_ray.models.paper_rerankers import PAPER_RERANKERS, PaperReranker

_COMMIT = re.compile(r"[0-9a-f]{40}")
WHAT_TO_WRITE = "the commit of 40 hexadecimal digits whose code you have read"


def check_allow_list(allowed: Mapping[str, str], own: set[str]) -> None:
    """Refuse an allow-list that pins nothing, or that names nothing which could run code.

    `allowed` gives a commit by the hub's name of a row of `PAPER_RERANKERS`, or by the name of one of the user's `own`
    cross-encoders.

    Raises:
        ConfigError: a name that is neither, or a revision that is no commit: what a branch or tag means can change.
    """
    known = own | {row.hub_id for row in PAPER_RERANKERS.values() if row.remote_code}
    for name, revision in allowed.items():
        if name not in known:
            raise ConfigError(f"remote_code: {unknown_name('model', name, known)}")
        if not _COMMIT.fullmatch(revision):
            raise ConfigError(f"remote_code.{name} must be {WHAT_TO_WRITE}, not '{revision[:60]}'.")


def may_run_code(name: str, folder: Path, row: PaperReranker | None, revision: str | None) -> bool:
    """Whether the cross-encoder `name` runs code in its folder: it does where it has any and `revision` pins it.

    Only JSON is read for it, and never of the hub: code elsewhere would be in no fingerprint.

    Raises:
        ConfigError: code that no revision pins, that is not in the folder, that was downloaded at another commit, or
            that the row knows nothing of.
    """
    references = set(_code_references(folder))
    if row is not None and not row.remote_code and references:
        raise ConfigError(f"'{name}': {folder} comes with code, which {row.hub_id} has not: it holds another model.")
    if revision is None and (references or (row is not None and row.remote_code)):
        raise ConfigError(_unpinned(name, folder, row))
    for reference in sorted(references):
        repository, dashes, _ = reference.rpartition("--")
        if dashes:
            raise ConfigError(
                f"'{name}': {folder} takes its code from the hub's {repository}: put those .py files into the folder, "
                f"and strike '{repository}--' out of its configuration."
            )
    from_checkpoint = row is None or str(row.code).startswith(f"{row.hub_id}@")
    for commit in sorted(_commits_told_by(folder, from_checkpoint)) if references else ():
        if commit != revision:
            raise ConfigError(f"'{name}': the code in {folder} is of commit {commit}; remote_code pins {revision}.")
    return bool(references)


def _unpinned(name: str, folder: Path, row: PaperReranker | None) -> str:
    """The sentence about code that nobody allowed."""
    if row is None:
        return (
            f"'{name}': {folder} comes with code, which is not run unasked: allow it by "
            f"`remote_code: {{{name}: REVISION}}`, {WHAT_TO_WRITE}."
        )
    licence = f", and its licence, {row.licence}, forbids commercial use" if row.forbids_commercial_use else ""
    return (
        f"'{name}': {row.hub_id} runs code of its own, of {row.code}, which is not run unasked{licence}: allow it by "
        f"`remote_code: {{{row.hub_id}: REVISION}}`, {WHAT_TO_WRITE}."
    )


def _code_references(folder: Path) -> Iterator[str]:
    """What the folder's configurations name as classes of its own: `FILE.CLASS`, or `REPOSITORY--FILE.CLASS`."""
    for path in sorted(folder.glob("*config.json")):
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read as JSON: fetch the checkpoint again.") from error
        yield from _texts(list(_auto_maps(found)))


def _auto_maps(value: Any) -> Iterator[Any]:
    """The values of every key `auto_map`, at any depth: configurations hold those of their parts."""
    if isinstance(value, dict) and "auto_map" in value:
        yield value["auto_map"]
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _auto_maps(part)


def _texts(value: Any) -> Iterator[str]:
    """The texts in nested lists and mappings: a slow and a fast tokenizer stand in one list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _commits_told_by(folder: Path, from_checkpoint: bool) -> set[str]:
    """The commits that the hub's client noted for the folder's code: beside it, or in the name of its cache's folder.

    The latter is the checkpoint's, so it tells nothing of code that is `from_checkpoint` not. A folder that was copied
    by hand tells none.
    """
    notes = (folder / ".cache" / "huggingface" / "download").glob("**/*.py.metadata")
    told = {note.read_text("utf-8").partition("\n")[0].strip() for note in notes}
    place = folder.resolve()
    in_cache = from_checkpoint and place.parent.name == "snapshots" and _COMMIT.fullmatch(place.name)
    return told | ({place.name} if in_cache else set())
