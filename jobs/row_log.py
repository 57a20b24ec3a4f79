"""The log of a job: a JSON line for each thing computed of a question, so that a killed run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from corag_ray.errors import DataError
from corag_ray.indexing.durable import write_atomically


class Keyed(Protocol):
    """A frozen dataclass of numbers, told from others by a hash of all that they depend on but the question."""

    @property
    def fingerprint(self) -> str:
        """Of all that the numbers depend on but the question."""
        ...

    @property
    def question_id(self) -> str:
        """Within its data set, which is among the fingerprint."""
        ...


R = TypeVar("R", bound=Keyed)


class RowLog(Generic[R]):
    """The rows of a file, those of other fingerprints included; the caller holds its folder."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        """Read what is there; a last line that a kill cut short is dropped, from the file too.

        Args:
            path: of the file, which need not be there yet.
            kind: the dataclass of its rows.

        Raises:
            DataError: another line is no row; names file and line.
        """
        self._path = path
        self._adapter: TypeAdapter[R] = TypeAdapter(kind)
        self._rows: dict[tuple[str, str], R] = {}
        lines = path.read_text("utf-8", "replace").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            write_atomically(path, "".join(lines[:-1]))
            del lines[-1]
        for number, line in enumerate(lines, start=1):
            self._keep(self._row_of(line, f"{path}:{number}"))

    def find(self, fingerprint: str, question_id: str) -> R | None:
        """The row, if it is there."""
        return self._rows.get((fingerprint, question_id))

    def append(self, rows: Sequence[R]) -> None:
        """Add rows; on disk when this returns."""
        with self._path.open("a", encoding="utf-8") as log:
            log.write("".join(json.dumps(asdict(cast(Any, row))) + "\n" for row in rows))
            log.flush()
            os.fsync(log.fileno())
        for row in rows:
            self._keep(row)

    def _keep(self, row: R) -> None:
        self._rows[row.fingerprint, row.question_id] = row

    def _row_of(self, line: str, place: str) -> R:
        try:
            return self._adapter.validate_json(line, strict=True)
        except ValidationError as error:
            raise DataError(f"{place} is no row of this job ({error.errors()[0]['msg']}): delete the line.") from error
