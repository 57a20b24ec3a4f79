"""A data folder: `corpus.jsonl[.gz]` (passages) and `queries.jsonl[.gz]` (questions), one JSON object a line."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corag_ray.errors import DataError, unknown_name
from corag_ray.types import Document, Evidence, Question, Span

SAMPLE = "sample"
"""Name of the corpus that comes with the package."""
DATA_VARIABLE = "CORAG_DATA"
_PLACE = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A corpus and its questions.

    `fingerprint` is a hash of the documents, their order and texts, `questions_fingerprint` of the questions with
    answers and evidence. `missing_evidence` counts relevant passages that are named and not in the corpus.
    """

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    missing_evidence: int
    fingerprint: str
    questions_fingerprint: str


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a passage's text stands in its rebuilt document."""

    span: Span
    text: str


def load_dataset(name_or_path: str, *, questions: bool = True) -> Dataset:
    """The sample, a folder by path, or a folder by name under `$CORAG_DATA` (default `data/`).

    Args:
        name_or_path: which data.
        questions: whether they are wanted; without, a folder may lack its queries file.

    Raises:
        ConfigError: no such name; the message suggests one.
        DataError: a file is missing, empty or broken (file and line are named).
    """
    folder = _find_folder(name_or_path)
    documents, passages = _read_corpus(_one_of(folder, "corpus"))
    asked, missing = _read_questions(_one_of(folder, "queries"), passages) if questions else ((), 0)
    return Dataset(
        folder.resolve().name,
        documents,
        asked,
        missing,
        fingerprint=_hash([d.doc_id, d.text] for d in documents),
        questions_fingerprint=_hash(asdict(question) for question in asked),
    )


def _hash(records: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record).encode())
    return digest.hexdigest()[:16]


def _find_folder(name_or_path: str) -> Path:
    if name_or_path == SAMPLE:
        return Path(__file__).parent / SAMPLE
    root = Path(os.environ.get(DATA_VARIABLE, "data"))
    for path in (Path(name_or_path), root / name_or_path):
        if os.path.isdir(path):  # unlike Path.is_dir, False for a name that no file system takes
            return path
    known = [p.name for p in root.iterdir() if p.is_dir()] if root.is_dir() else []
    raise unknown_name(f"data set (looked in '{root}', which {DATA_VARIABLE} sets)", name_or_path, [SAMPLE, *known])


def _one_of(folder: Path, stem: str) -> Path:
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has no {stem}.jsonl or {stem}.jsonl.gz.")


def _read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every line that is not blank; a place reads `file:line`."""
    place = f"{path}:1"
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{path}:{number}"
                if line.strip():
                    record = json.loads(line.decode("utf-8-sig"))
                    if not isinstance(record, dict):
                        raise DataError(f"{place}: expected a JSON object, found {type(record).__name__}.")
                    yield place, record
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:  # ValueError: JSON and UTF-8
        raise DataError(f"{place}: not a line of JSON in UTF-8 ({error}).") from error


def _text(place: str, record: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = record.get(key, default)
    if isinstance(value, int) and not isinstance(value, bool) and key.endswith(("_id", "_ids")):
        return str(value)
    if not isinstance(value, str):
        raise DataError(f"{place}: '{key}' must be a string, found {json.dumps(value)[:60]}.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: '{key}' holds half of a character (a lone surrogate) at {error.start}.") from error
    return value


def _texts(place: str, record: Mapping[str, Any], key: str) -> list[str]:
    value = record.get(key) or []
    if not isinstance(value, list):
        raise DataError(f"{place}: '{key}' must be a list, found {type(value).__name__}.")
    return [_text(place, {key: item}, key) for item in value]


def _read_corpus(path: Path) -> tuple[tuple[Document, ...], dict[str, _Placed]]:
    """Documents in file order, and each passage's place in its document.

    Passages of one `doc_id` whose ids end in a number are one document, in the order of those numbers; others are
    documents of their own. A title that the text does not begin with becomes the document's first line.
    """
    by_document: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    places: dict[str, str] = {}
    for place, record in _read_lines(path):
        passage_id = _text(place, record, "passage_id")
        if passage_id in places:
            raise DataError(f"{place}: passage_id '{passage_id}' was already used at {places[passage_id]}.")
        places[passage_id] = place
        row = (passage_id, _text(place, record, "title", ""), _text(place, record, "text"))
        by_document[_text(place, record, "doc_id", passage_id)].append(row)
    if not by_document:
        raise DataError(f"{path} holds no passage: the corpus is empty.")

    documents: list[Document] = []
    placed: dict[str, _Placed] = {}
    for doc_id, rows in by_document.items():
        if all(_PLACE.search(passage_id) for passage_id, _, _ in rows):
            rows.sort(key=lambda row: _place(row[0]))
            documents.append(_rebuild(doc_id, rows, placed))
        elif len(rows) == 1:
            documents.append(_rebuild(doc_id, rows, placed))
        else:
            documents += [_rebuild(row[0], [row], placed) for row in rows]
    twice = [doc_id for doc_id, times in Counter(d.doc_id for d in documents).items() if times > 1]
    if twice:
        raise DataError(f"{path}: '{twice[0]}' names two documents, one by its doc_id and one by its passage_id.")
    return tuple(documents), placed


def _place(passage_id: str) -> tuple[int, str]:
    """Sorts ids by the number that they end in, however long it is."""
    found = _PLACE.search(passage_id)
    digits = found[1].lstrip("0") if found else ""
    return len(digits), digits


def _rebuild(doc_id: str, rows: list[tuple[str, str, str]], placed: dict[str, _Placed]) -> Document:
    title = rows[0][1].strip()
    parts = [title] if title and not rows[0][2].lstrip().startswith(title) else []
    length = sum(len(part) + 1 for part in parts)
    for passage_id, _, text in rows:
        placed[passage_id] = _Placed(Span(doc_id, length, length + len(text)), text)
        parts.append(text)
        length += len(text) + 1
    return Document(doc_id, "\n".join(parts))


def _read_questions(path: Path, passages: Mapping[str, _Placed]) -> tuple[tuple[Question, ...], int]:
    """The questions, and how many of the passages that they call relevant the corpus does not hold."""
    questions: dict[str, Question] = {}
    missing = 0
    for place, record in _read_lines(path):
        question = _question(place, record, passages)
        if question.question_id in questions:
            raise DataError(f"{place}: query_id '{question.question_id}' was used before.")
        questions[question.question_id] = question
        missing += sum(p not in passages for p in _texts(place, record, "relevant_passage_ids"))
    if not questions:
        raise DataError(f"{path} holds no question.")
    return tuple(questions.values()), missing


def _question(place: str, record: Mapping[str, Any], passages: Mapping[str, _Placed]) -> Question:
    """A query line. Evidence is what its `evidence` quotes, else its whole relevant passages that the corpus holds."""
    meta = record.get("meta") if isinstance(record.get("meta"), dict) else {}
    if "evidence" in record:
        entries = record["evidence"]
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise DataError(f"{place}: 'evidence' must be a list of objects {{passage_id, quote}}.")
        evidence = [_quoted(place, entry, passages) for entry in entries]
    else:
        relevant = _texts(place, record, "relevant_passage_ids")
        evidence = [Evidence(passages[p].span, text=passages[p].text) for p in relevant if p in passages]
    return Question(
        question_id=_text(place, record, "query_id"),
        text=_text(place, record, "question"),
        answers=tuple(_texts(place, record, "answers")),
        evidence=tuple(evidence),
        language=_text(place, record, "language", "en"),
        kind=_text(place, meta, "kind") if meta and meta.get("kind") is not None else None,
    )


def _quoted(place: str, entry: Mapping[str, Any], passages: Mapping[str, _Placed]) -> Evidence:
    """An entry `{passage_id, quote, answer}`: the supporting words and, optional, the answer within them."""
    passage_id, quote = _text(place, entry, "passage_id"), _text(place, entry, "quote")
    passage = passages.get(passage_id)
    if passage is None or not quote or quote not in passage.text:
        raise DataError(f"{place}: the quote '{quote[:40]}' does not stand in passage '{passage_id}'.")
    answer = _text(place, entry, "answer", "")
    if answer not in quote:
        raise DataError(f"{place}: the answer '{answer[:40]}' does not stand in its quote.")
    span = _within(passage.span, passage.text.index(quote), quote)
    return Evidence(span, _within(span, quote.index(answer), answer) if answer else None, quote)


def _within(outer: Span, offset: int, text: str) -> Span:
    return Span(outer.doc_id, outer.start + offset, outer.start + offset + len(text))
