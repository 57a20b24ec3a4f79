"""How long work tells its progress."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int, int], None]
"""Told (done, in all) whenever a unit of work is done."""


def untold(done: int, total: int) -> None:
    """The progress that nobody looks at."""
