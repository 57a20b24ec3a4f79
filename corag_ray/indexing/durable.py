"""Writes files so that they are there whole or as they were, also after a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Wait until a file's content, or the names that stand in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_in_place(scratch: Path, target: Path) -> None:
    """Give a file that is written its name; whoever finds it under that name finds all of it."""
    to_disk(scratch)  # first: a name can reach the disk before the content
    scratch.replace(target)
    to_disk(target.parent)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file.

    Raises:
        OSError: it cannot be written; the file is named, also where the system does not, as when the disk is full.
    """
    scratch = path.with_suffix(".partial")
    try:
        scratch.write_text(text, encoding="utf-8")
        put_in_place(scratch, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
