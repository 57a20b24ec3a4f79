"""Documents that were deleted by their ids: they stay out of every index of a data set that still holds them.

Each data set has a list of its own. Lists that are read together stand by what the ids of their sets begin with then:
`SET/`, or nothing where a set is alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from corag_ray.errors import DataError
from corag_ray.indexing.versions import read_json, write_json

DELETED = "deleted.json"


def deleted_documents(lists: Mapping[str, Path]) -> frozenset[str]:
    """The ids of the documents that the lists name, each begun as its set's ids are; none where there is no list.

    Raises:
        DataError: a file that lists them is damaged.
    """
    return frozenset(prefix + doc_id for prefix, folder in lists.items() for doc_id in _listed(folder))


def change_deleted(
    lists: Mapping[str, Path], known: Iterable[str], delete: Iterable[str], restore: Iterable[str]
) -> None:
    """Delete and restore documents by id: all of them, or none if an id is wrong; indexes follow at their next update.

    Args:
        lists: the folder of each list, by what the ids of its set begin with; held by the caller against other writers.
        known: ids of all documents that the corpus holds.
        delete: ids that are to go.
        restore: ids that were deleted and are to come back.

    Raises:
        DataError: an id to delete is not in the corpus, or one to restore was not deleted.
    """
    before = deleted_documents(lists)
    known, delete, restore = set(known), set(delete), set(restore)
    if strange := sorted(delete - known - before):
        near = _nearest(strange[0], known)
        hint = f" (did you mean '{near}'?)" if near else ""
        raise DataError(f"the corpus holds no document '{strange[0]}'{hint}: nothing was deleted.")
    if strange := sorted(restore - before):
        raise DataError(f"the document '{strange[0]}' was not deleted: nothing was restored.")
    if both := sorted(delete & restore):
        raise DataError(f"the document '{both[0]}' cannot be deleted and restored at once: nothing was changed.")
    left = (before | delete) - restore
    for prefix, folder in sorted(lists.items(), reverse=True):  # `a/b/` before `a/`, which begins its ids too
        own = {doc_id for doc_id in left if doc_id.startswith(prefix)}
        left -= own
        if (ids := {doc_id.removeprefix(prefix) for doc_id in own}) != _listed(folder):
            write_json(folder / DELETED, {"doc_ids": sorted(ids)})


def _nearest(typed: str, known: Iterable[str]) -> str | None:
    """The id that was meant, if one is near: a file's is its path, of which people write the end."""
    ends = sorted(doc_id for doc_id in known if doc_id.endswith(f"/{typed}"))
    return next(iter(ends or difflib.get_close_matches(typed, known, n=1)), None)


def _listed(folder: Path) -> frozenset[str]:
    path = folder / DELETED
    if not path.exists():
        return frozenset()
    ids = read_json(path).get("doc_ids")
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise DataError(f"{path} is damaged: delete it, which restores every document, and delete them again by id.")
    return frozenset(ids)
