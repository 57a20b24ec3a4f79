"""Documents that were deleted by their ids: they stay out of every index of a data set that still holds them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from corag_ray.errors import DataError
from corag_ray.indexing.versions import read_json, write_json

DELETED = "deleted.json"


def deleted_documents(folder: Path) -> frozenset[str]:
    """The ids of the documents that the list in `folder` names; none where there is no list.

    Raises:
        DataError: the file that lists them is damaged.
    """
    path = folder / DELETED
    if not path.exists():
        return frozenset()
    ids = read_json(path).get("doc_ids")
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise DataError(f"{path} is damaged: delete it, which restores every document, and delete them again by id.")
    return frozenset(ids)


def change_deleted(folder: Path, known: Iterable[str], delete: Iterable[str], restore: Iterable[str]) -> None:
    """Delete and restore documents by id: all of them, or none if an id is wrong; indexes follow at their next update.

    Args:
        folder: where the list is kept, held by the caller against other writers.
        known: ids of all documents that the corpus holds.
        delete: ids that are to go.
        restore: ids that were deleted and are to come back.

    Raises:
        DataError: an id to delete is not in the corpus, or one to restore was not deleted.
    """
    before = deleted_documents(folder)
    delete, restore = set(delete), set(restore)
    if strange := sorted(delete - set(known) - before):
        raise DataError(f"the corpus holds no document '{strange[0]}': nothing was deleted.")
    if strange := sorted(restore - before):
        raise DataError(f"the document '{strange[0]}' was not deleted: nothing was restored.")
    if both := sorted(delete & restore):
        raise DataError(f"the document '{both[0]}' cannot be deleted and restored at once: nothing was changed.")
    write_json(folder / DELETED, {"doc_ids": sorted((before | delete) - restore)})
