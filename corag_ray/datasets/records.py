"""Records as the formats give them: an object with the keys of the JSONL format, and the place where it stands."""

from __future__ import annotations

import gzip
import importlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from corag_ray.errors import DataError, MissingModelError

Record = tuple[str, Mapping[str, Any]]
"""(place, object); a place reads `file:line`, `file row n` or what a library calls its own."""
ROWS_A_BATCH = 1024


def optional_library(name: str) -> Any:
    """A library of the extra `data`.

    Raises:
        MissingModelError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingModelError(f"this data needs the library {name}: pip install 'corag_ray[data]'.") from error


def read_jsonl(path: Path) -> Iterator[Record]:
    """The object of every line that is not blank.

    Raises:
        DataError: a line is no JSON object in UTF-8; file and line are named.
    """
    for place, line in read_lines(path):
        try:
            record = json.loads(line, object_pairs_hook=no_key_twice)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: not a line of JSON in UTF-8 ({error}).") from error
        if not isinstance(record, dict):
            raise DataError(f"{place}: expected a JSON object, found {type(record).__name__}.")
        yield place, record


def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of JSON that these pairs make.

    Raises:
        ValueError: a key stands twice, so that one of its values would be lost.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def read_tsv(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    """(place, fields) of every line that is not blank; quotes mean nothing.

    Raises:
        DataError: a line has not `columns` fields, or is no UTF-8; file and line are named.
    """
    for place, line in read_lines(path):
        fields = [field.strip() for field in line.rstrip("\r\n").split("\t")]
        if len(fields) != columns:
            raise DataError(f"{place}: expected {columns} fields parted by tabs, found {len(fields)}.")
        yield place, fields


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of every line that is not blank, plain or gzipped.

    Raises:
        DataError: the file cannot be read, has no such line, or a line is no UTF-8.
    """
    place, empty = f"{path}:1", True
    try:
        with open_bytes(path) as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{path}:{number}"
                if line.strip():
                    empty = False
                    yield place, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not a line of text in UTF-8 ({error}).") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{place}: cannot be read ({error}).") from error
    if empty:
        raise DataError(f"{path}: the file is empty: it holds no line.")


def open_bytes(path: Path) -> BinaryIO | gzip.GzipFile:
    """A file for reading, unpacked where its name ends in `.gz`."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def read_parquet(path: Path) -> Iterator[Record]:
    """The rows of a parquet file.

    Raises:
        DataError: it is no parquet file that can be read whole, or a column stands twice.
    """
    number = 0
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        if len(set(names)) < len(names):  # a row would keep one of its values
            raise ValueError("a column stands twice")
        for batch in file.iter_batches(ROWS_A_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield f"{path} row {number}", without_nulls(row)
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} after row {number}: not a parquet file that can be read ({reason}).") from error


def without_nulls(value: Any) -> Any:
    """A row without the keys that are null, at any depth: columns hold a null where JSON lines leave the key out."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def text_of(place: str, record: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A string of a record; a whole number serves as an id.

    Raises:
        DataError: it is missing, no string, an id without a character, or holds half of a character.
    """
    value, is_id = record.get(key, default), key.endswith(("_id", "_ids"))
    if isinstance(value, int) and not isinstance(value, bool) and is_id:
        return str(value)
    if key not in record and default is None:
        raise DataError(f"{place}: the key '{key}' is missing; found {', '.join(map(str, record)) or 'none'}.")
    if not isinstance(value, str):
        raise DataError(f"{place}: '{key}' must be a string, found {json.dumps(value, default=repr)[:60]}.")
    if is_id and not value.strip():
        raise DataError(f"{place}: '{key}' is empty.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: '{key}' holds half of a character (a lone surrogate) at {error.start}.") from error
    return value


def flag_of(place: str, record: Mapping[str, Any], key: str) -> bool | None:
    """True or false; None where it is missing or null.

    Raises:
        DataError: it is neither.
    """
    value = record.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise DataError(f"{place}: '{key}' must be true or false, found {json.dumps(value, default=repr)[:60]}.")


def texts_of(place: str, record: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings of a record; `[]` where it is missing or null.

    Raises:
        DataError: it is no list of strings.
    """
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise DataError(f"{place}: '{key}' must be a list, found {type(value).__name__}.")
    return [text_of(place, {key: item}, key) for item in value]
