"""Writes the row log so that a killed run goes on: a group of questions is appended as a whole, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from corag_ray.batch.folder_lock import locked
from corag_ray.errors import DataError
from corag_ray.evaluation.row_log import Row, read_rows
from corag_ray.indexing.durable import write_atomically

ROWS = "rows.jsonl"

Groups = Mapping[int, Sequence[str]]
"""Group number to the ids of its questions; a group is the unit of batches and of resume."""


class RowWriter:
    """The row log of one run folder; use `open_row_writer`."""

    def __init__(self, path: Path, groups: Groups, kept: Sequence[Row]) -> None:
        """`kept` are the rows of groups that an earlier run finished, those beyond this run's limit included."""
        self._path = path
        self._rows = {row["question_id"]: row for row in kept}
        self._groups = groups

    @property
    def missing_groups(self) -> list[int]:
        """Groups that still have to be run, in order."""
        return [group for group, ids in self._groups.items() if any(i not in self._rows for i in ids)]

    @property
    def rows(self) -> list[Row]:
        """The groups' rows so far, by position."""
        return _ordered(self._rows[i] for ids in self._groups.values() for i in ids if i in self._rows)

    def append(self, rows: Sequence[Row]) -> None:
        """Add a group's rows; on disk when this returns."""
        with self._path.open("a", encoding="utf-8") as log:
            log.write("".join(map(_line, rows)))
            log.flush()
            os.fsync(log.fileno())
        self._rows |= {row["question_id"]: row for row in rows}

    def close(self) -> None:
        """Rewrite the log in the order of the questions."""
        _replace(self._path, _ordered(self._rows.values()))


@contextmanager
def open_row_writer(folder: Path, fingerprint: str, groups: Groups) -> Iterator[RowWriter]:
    """The row log of a run folder, locked against a second run; half-written groups of an earlier run are dropped.

    Raises:
        DataError: the folder cannot be written, is in use, or holds rows of another configuration or a line that is no
            row or repeats a question.
    """
    path = folder / ROWS
    with locked(folder):
        kept = _finished_rows(_readable_rows(path), fingerprint, groups, folder)
        _replace(path, kept)
        writer = RowWriter(path, groups, kept)
        yield writer
        writer.close()


def count_rows(folder: Path) -> int:
    """Rows that a run folder holds already.

    Raises:
        DataError: a line of its row log is no row, or repeats a question.
    """
    return len(_readable_rows(folder / ROWS))


def _readable_rows(path: Path) -> list[Row]:
    return read_rows(path, cut_off=True) if path.exists() else []


def _finished_rows(rows: Sequence[Row], fingerprint: str, groups: Groups, folder: Path) -> list[Row]:
    """The rows without those of unfinished groups; what a smaller limit leaves out is kept."""
    there = {row["question_id"] for row in rows}
    others = {row["fingerprint"] for row in rows} - {fingerprint}
    if others:
        raise DataError(
            f"{folder} holds rows of another configuration ({others.pop()}, this one is {fingerprint}): "
            "choose another folder."
        )
    unfinished = {i for ids in groups.values() if any(i not in there for i in ids) for i in ids}
    return _ordered(row for row in rows if row["question_id"] not in unfinished)


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["position"])


def _replace(path: Path, rows: Sequence[Row]) -> None:
    write_atomically(path, "".join(map(_line, rows)))


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
