"""WikiPassageQA (Cohen, Yang and Croft, SIGIR 2018) in its official layout: tables and a file of passages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.records import Record, no_key_twice, open_bytes, read_tsv
from corag_ray.errors import DataError

PASSAGES = "document_passages.json"
SPLITS = ("train.tsv", "dev.tsv", "test.tsv")
COLUMNS = ["QID", "Question", "DocumentID", "DocumentName", "RelevantPassages"]


def is_wikipassageqa(folder: Path) -> bool:
    """Whether the file of passages is there."""
    return (folder / PASSAGES).is_file()


def load_wikipassageqa(folder: Path, questions: bool) -> Dataset:
    """The questions of every split that is there; relevant passages that the file lacks count as missing evidence."""
    splits = [folder / name for name in SPLITS if (folder / name).is_file()]
    if questions and not splits:
        raise DataError(f"{folder} has none of {', '.join(SPLITS)}.")
    return assemble(
        folder.resolve().name, str(folder), _passages(folder / PASSAGES), _queries(splits) if questions else None
    )


def _passages(path: Path) -> Iterator[Record]:
    try:
        with open_bytes(path) as content:
            documents = json.loads(content.read().decode("utf-8-sig"), object_pairs_hook=no_key_twice)
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(f"{path}: not a JSON object in UTF-8 ({error}).") from error
    if not isinstance(documents, dict) or not all(isinstance(passages, dict) for passages in documents.values()):
        raise DataError(f"{path}: expected an object of documents, each an object of passages by number.")
    for doc_id, passages in documents.items():
        for number, text in passages.items():
            if not _is_number(number):
                raise DataError(f"{path} document {doc_id}: '{number}' is no passage number.")
            yield (
                f"{path} document {doc_id} passage {number}",
                {
                    "passage_id": f"{doc_id}_{number}",
                    "doc_id": doc_id,
                    "text": text,
                },
            )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _queries(splits: list[Path]) -> Iterator[Record]:
    for path in splits:
        rows = read_tsv(path, len(COLUMNS))
        place, header = next(rows)
        if header != COLUMNS:
            raise DataError(f"{place}: the first line must name the columns {', '.join(COLUMNS)}.")
        for place, (query_id, question, doc_id, _, relevant) in rows:
            numbers = [number.strip() for number in relevant.split(",") if number.strip()]
            if not all(_is_number(number) for number in numbers):
                raise DataError(f"{place}: RelevantPassages must be numbers parted by commas, found '{relevant[:40]}'.")
            yield (
                place,
                {
                    "query_id": query_id,
                    "question": question,
                    "relevant_passage_ids": [f"{doc_id}_{number}" for number in numbers],
                },
            )
