"""A data folder: `corpus` (passages) and `queries` (questions), as JSON lines, plain or gzipped, or as parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.records import Record, read_jsonl, read_parquet
from corag_ray.errors import DataError

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


def is_data_folder(folder: Path) -> bool:
    """Whether a corpus file is there."""
    return bool(_all_of(folder, "corpus"))


def load_data_folder(folder: Path, questions: bool) -> Dataset:
    """Load the folder; without `questions` it may lack its queries file.

    Raises:
        DataError: a file is missing, stands there in several forms, or is broken.
    """
    corpus, queries = _one_of(folder, "corpus"), _one_of(folder, "queries") if questions else None
    return assemble(folder.resolve().name, str(folder), _read(corpus), _read(queries) if queries else None)


def read_queries(folder: Path) -> Iterator[Record] | None:
    """The records of the folder's queries file, where it has one.

    Raises:
        DataError: it has several.
    """
    path = _find(folder, "queries")
    return _read(path) if path else None


def _read(path: Path) -> Iterator[Record]:
    return read_parquet(path) if path.suffix == ".parquet" else read_jsonl(path)


def _all_of(folder: Path, stem: str) -> list[Path]:
    return [folder / f"{stem}{suffix}" for suffix in SUFFIXES if (folder / f"{stem}{suffix}").is_file()]


def _find(folder: Path, stem: str) -> Path | None:
    found = _all_of(folder, stem)
    if len(found) > 1:
        raise DataError(f"{folder} holds {' and '.join(path.name for path in found)}: leave one of them.")
    return found[0] if found else None


def _one_of(folder: Path, stem: str) -> Path:
    if (path := _find(folder, stem)) is None:
        raise DataError(f"{folder} has no {' or '.join(stem + suffix for suffix in SUFFIXES)}.")
    return path
