"""MS MARCO: question answering (JSON, versions 1.1 and 2.1) and passage ranking (three tables)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.records import Record, open_bytes, read_jsonl, read_lines, read_tsv
from corag_ray.errors import DataError

NO_ANSWER = "No Answer Present."
QA_NAMES = ("*_v1.1.json", "*_v1.1.json.gz", "*_v2.1.json", "*_v2.1.json.gz")


def is_passage_ranking(folder: Path) -> bool:
    """Whether the collection is there."""
    return bool(_files(folder, "collection*.tsv"))


def load_passage_ranking(folder: Path, questions: bool) -> Dataset:
    """`collection.tsv`, and of `queries*.tsv` what `qrels*.tsv` judge; a grade of 1 or more is relevant."""
    collections = _files(folder, "collection*.tsv")
    passages = (
        (place, {"passage_id": passage_id, "doc_id": passage_id, "text": text})
        for path in collections
        for place, (passage_id, text) in read_tsv(path, 2)
    )
    return assemble(folder.resolve().name, str(folder), passages, _judged(folder) if questions else None)


def _judged(folder: Path) -> Iterator[Record]:
    relevant: dict[str, list[str]] = {}
    for path in _files(folder, "qrels*.tsv"):
        for place, line in read_lines(path):
            fields = line.split()
            if len(fields) != 4 or not fields[3].lstrip("-").isdigit():
                raise DataError(f"{place}: expected query, 0, passage and a grade, found '{line.strip()[:60]}'.")
            query_id, _, passage_id, grade = fields
            found = relevant.setdefault(query_id, [])
            if int(grade) >= 1:
                found.append(passage_id)
    if not relevant:
        raise DataError(f"{folder} has no qrels*.tsv with judgements.")
    unasked = set(relevant)
    for path in _files(folder, "queries*.tsv"):
        for place, (query_id, question) in read_tsv(path, 2):
            if query_id in relevant:
                unasked.discard(query_id)
                yield (
                    place,
                    {
                        "query_id": query_id,
                        "question": question,
                        "relevant_passage_ids": list(dict.fromkeys(relevant[query_id])),
                    },
                )
    if unasked:
        raise DataError(f"{folder}: {len(unasked)} judged queries stand in no queries*.tsv: '{min(unasked)}'.")


def is_question_answering(folder: Path) -> bool:
    """Whether a file of version 1.1 or 2.1 is there."""
    return bool(_qa_files(folder))


def load_question_answering(folder: Path, questions: bool) -> Dataset:
    """Every query's own passages are the corpus; those marked `is_selected` are its evidence."""
    entries = [entry for path in _qa_files(folder) for entry in _entries(path)]
    passages = (passage for place, entry in entries for passage in _passages(place, entry))
    queries = (_query(place, entry) for place, entry in entries)
    return assemble(folder.resolve().name, str(folder), passages, queries if questions else None)


def _entries(path: Path) -> Iterator[Record]:
    """Version 2.1 is one object of columns, {"query": {"0": ..}, ..}; version 1.1 an object a line."""
    with open_bytes(path) as content:
        try:
            whole = json.loads(content.read().decode("utf-8-sig"))
        except (ValueError, OSError, EOFError, RecursionError):
            whole = None  # lines, or broken: the reader of lines names the place
    if not isinstance(whole, dict) or not isinstance(whole.get("query"), dict):
        yield from read_jsonl(path)
        return
    for row in whole["query"]:
        try:
            yield f"{path} row {row}", {key: column[row] for key, column in whole.items()}
        except (KeyError, TypeError) as error:
            raise DataError(f"{path} row {row}: a column lacks this row.") from error


def _passage_list(place: str, entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    passages = entry.get("passages")
    if not isinstance(passages, list) or not all(isinstance(passage, dict) for passage in passages):
        raise DataError(f"{place}: 'passages' must be a list of objects {{passage_text, is_selected}}.")
    return passages


def _passages(place: str, entry: Mapping[str, Any]) -> Iterator[Record]:
    for number, passage in enumerate(_passage_list(place, entry)):
        passage_id = f"{entry.get('query_id')}-{number}"
        if "passage_text" not in passage:
            raise DataError(f"{place}: passage {number} has no 'passage_text'.")
        yield place, {"passage_id": passage_id, "doc_id": passage_id, "text": passage["passage_text"]}


def _query(place: str, entry: Mapping[str, Any]) -> Record:
    selected = [n for n, passage in enumerate(_passage_list(place, entry)) if passage.get("is_selected") == 1]
    answers = entry.get("answers") or []
    if not isinstance(answers, list):
        raise DataError(f"{place}: 'answers' must be a list, found {type(answers).__name__}.")
    return place, {
        "query_id": entry.get("query_id"),
        "question": entry.get("query"),
        "answers": [answer for answer in answers if answer != NO_ANSWER],
        "relevant_passage_ids": [f"{entry.get('query_id')}-{n}" for n in selected],
        "meta": {"kind": entry["query_type"]} if isinstance(entry.get("query_type"), str) else {},
    }


def _qa_files(folder: Path) -> list[Path]:
    return sorted(path for name in QA_NAMES for path in folder.glob(name))


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])
