"""One writer a folder: a second run is refused in one sentence."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corag_ray.errors import DataError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; the lock goes with the process, however it ends.

    Raises:
        DataError: the folder cannot be written, or another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"another run is writing to {folder}: wait until it is done.") from error
        yield
