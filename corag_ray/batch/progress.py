"""How long work tells its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable

Advance = Callable[[int, int], None]
"""Told (done, in all) whenever a unit of work is done."""

stages = logging.getLogger("corag_ray.stages")
"""Told at INFO, in two or three words, what takes seconds and has no units to count: Ray's start, the models' loading.

A logger, for no call but the command's need know of it: whoever shows progress listens, to everybody else it is quiet.
"""


def untold(done: int, total: int) -> None:
    """The progress that nobody looks at."""
