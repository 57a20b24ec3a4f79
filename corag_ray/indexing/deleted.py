"""Documents that were deleted from an index by their ids: they stay out of it while the corpus still holds them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from corag_ray.errors import DataError
from corag_ray.indexing.versions import read_json, write_json

DELETED = "deleted.json"


def deleted_documents(index: Path) -> frozenset[str]:
    """The ids of the deleted documents.

    Raises:
        DataError: the file that lists them is damaged.
    """
    path = index / DELETED
    if not path.exists():
        return frozenset()
    ids = read_json(path).get("doc_ids")
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise DataError(f"{path} is damaged: delete it, which restores every document, and delete them again by id.")
    return frozenset(ids)


def change_deleted(index: Path, known: Iterable[str], delete: Iterable[str], restore: Iterable[str]) -> None:
    """Delete and restore documents by id: all of them, or none if an id is wrong; the next update carries it out.

    Args:
        index: the index's folder, held by the caller against other writers.
        known: ids of all documents that the corpus holds.
        delete: ids that are to go.
        restore: ids that were deleted and are to come back.

    Raises:
        DataError: an id to delete is not in the corpus, or one to restore was not deleted.
    """
    before = deleted_documents(index)
    delete, restore = set(delete), set(restore)
    if strange := sorted(delete - set(known) - before):
        raise DataError(f"the corpus holds no document '{strange[0]}': nothing was deleted.")
    if strange := sorted(restore - before):
        raise DataError(f"the document '{strange[0]}' was not deleted: nothing was restored.")
    if both := sorted(delete & restore):
        raise DataError(f"the document '{both[0]}' cannot be deleted and restored at once: nothing was changed.")
    write_json(index / DELETED, {"doc_ids": sorted((before | delete) - restore)})
