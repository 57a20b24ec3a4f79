"""The log of a comparison: a JSON line for each question, method and budget, so that a killed run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from corag_ray.errors import DataError
from corag_ray.indexing.durable import write_atomically

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Row:
    """What a method selected for a question at a budget, in numbers.

    Attributes:
        fingerprint: of all that the numbers depend on but the question.
        data: name of the data set.
        tokens: cost of the selection; None, as are recall and precision, where candidates would have fitted and none of
            them could be scored.
        recall: covered share of the evidence, 0..1.
        precision: share of the selected chunks with evidence, 0..1; None too where nothing is selected.
        pairs: distinct combinations that were asked for, singles included.
        unscored: pairs that could not be scored.
    """

    fingerprint: str
    data: str
    question_id: str
    method: str
    budget_tokens: int
    tokens: int | None
    recall: float | None
    precision: float | None
    pairs: int
    unscored: int
    schema_version: int = SCHEMA_VERSION


_ROW = TypeAdapter(Row)


class RowLog:
    """The rows of a file, those of other fingerprints included; the caller holds its folder."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a last line that a kill cut short is dropped, from the file too.

        Raises:
            DataError: another line is no row; names file and line.
        """
        self._path = path
        self._rows: dict[tuple[str, str], Row] = {}
        lines = path.read_text("utf-8", "replace").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            write_atomically(path, "".join(lines[:-1]))
            del lines[-1]
        for number, line in enumerate(lines, start=1):
            self._keep(_row_of(line, f"{path}:{number}"))

    def find(self, fingerprint: str, question_id: str) -> Row | None:
        """The row, if it is there."""
        return self._rows.get((fingerprint, question_id))

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows; on disk when this returns."""
        with self._path.open("a", encoding="utf-8") as log:
            log.write("".join(json.dumps(asdict(row)) + "\n" for row in rows))
            log.flush()
            os.fsync(log.fileno())
        for row in rows:
            self._keep(row)

    def _keep(self, row: Row) -> None:
        self._rows[row.fingerprint, row.question_id] = row


def _row_of(line: str, place: str) -> Row:
    try:
        return _ROW.validate_json(line, strict=True)
    except ValidationError as error:
        raise DataError(f"{place} is no row of this job ({error.errors()[0]['msg']}): delete the line.") from error
