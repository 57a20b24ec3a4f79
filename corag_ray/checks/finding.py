"""What a check finds: one sentence about one line of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

Place = tuple[Any, ...]
"""The keys and positions that lead to an entry of a YAML file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1; the sentence says what is wrong and what to do. A warning may be meant as it is.

    `place` is that of the entry that it is about, the whole file's where it is about none.
    """

    path: Path
    line: int
    sentence: str
    is_error: bool = True
    place: Place = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {'error' if self.is_error else 'warning'}: {self.sentence}"
