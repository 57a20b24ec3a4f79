"""MS MARCO: question answering (JSON, versions 1.1 and 2.1) and passage ranking (three tables)."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.records import (
    Record,
    no_key_twice,
    open_bytes,
    read_jsonl,
    read_lines,
    read_tsv,
    text_of,
    texts_of,
)
from corag_ray.errors import DataError

NO_ANSWER = "No Answer Present."
QA_NAMES = ("*_v1.1.json", "*_v2.1.json", "*_v2.1_public.json")
_GRADE = re.compile(r"-?[0-9]{1,9}")


def is_passage_ranking(folder: Path) -> bool:
    """Whether the collection is there."""
    return bool(_files(folder, "collection*.tsv"))


def load_passage_ranking(folder: Path, questions: bool) -> Dataset:
    """`collection.tsv`, and of `queries*.tsv` what `qrels*.tsv` judge; `least_relevant` of each table is evidence."""
    collections = _files(folder, "collection*.tsv")
    passages = (
        (place, {"passage_id": passage_id, "doc_id": passage_id, "text": text})
        for path in collections
        for place, (passage_id, text) in read_tsv(path, 2)
    )
    return assemble(folder.resolve().name, str(folder), passages, _judged(folder) if questions else None)


def least_relevant(grades: Iterable[int]) -> int:
    """The grade from which a passage of one table of judgements is evidence: 2 where grades of 2 or more occur, else 1.

    MS MARCO's own tables know 1 alone, marked as relevant. TREC Deep Learning grades from 0 to 3, where 1 is "related":
    on the question's subject without answering it. Its measures that know only relevant or not begin at 2.
    """
    return 2 if any(grade >= 2 for grade in grades) else 1


def _judged(folder: Path) -> Iterator[Record]:
    """The queries that are judged; the published tables overlap, so a query may stand in several with one text."""
    relevant = _relevant(folder)
    asked: dict[str, tuple[Path, str]] = {}
    for path in _files(folder, "queries*.tsv"):
        for place, (query_id, question) in read_tsv(path, 2):
            before, text = asked.get(query_id, (path, question))
            if query_id not in relevant or (before != path and text == question):
                continue
            asked[query_id] = (path, question)
            yield place, {"query_id": query_id, "question": question, "relevant_passage_ids": relevant[query_id]}
    if unasked := relevant.keys() - asked.keys():
        raise DataError(f"{folder}: {len(unasked)} judged queries stand in no queries*.tsv: '{min(unasked)}'.")


def _relevant(folder: Path) -> dict[str, list[str]]:
    """The relevant passages of every judged query, in the order of the files; each table has its own scale."""
    before: dict[tuple[str, str], int] = {}
    relevant: dict[str, list[str]] = {}
    for path in _files(folder, "qrels*.tsv"):
        table = list(_judgements(path))
        least = least_relevant(grade for *_, grade in table)
        for place, query_id, passage_id, grade in table:
            if before.setdefault((query_id, passage_id), grade) != grade:
                raise DataError(f"{place}: passage '{passage_id}' has another grade for query '{query_id}' before.")
            found = relevant.setdefault(query_id, [])
            if grade >= least:
                found.append(passage_id)
    if not relevant:
        raise DataError(f"{folder} has no qrels*.tsv with judgements.")
    return relevant


def _judgements(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """(place, query, passage, grade) of every line of one table."""
    for place, line in read_lines(path):
        fields = line.split()
        if len(fields) != 4 or not _GRADE.fullmatch(fields[3]):
            raise DataError(f"{place}: expected query, 0, passage and a grade, found '{line.strip()[:60]}'.")
        query_id, _, passage_id, grade = fields
        yield place, query_id, passage_id, int(grade)


def is_question_answering(folder: Path) -> bool:
    """Whether a file of version 1.1 or 2.1 is there."""
    return bool(_qa_files(folder))


def load_question_answering(folder: Path, questions: bool) -> Dataset:
    """Every query's own passages are the corpus; those marked `is_selected` are its evidence.

    The files give passages no ids, so a text that several queries came with stands in the corpus once for each of
    them, and only the copy of the query that marks it is that query's evidence.
    """
    entries = [entry for path in _qa_files(folder) for entry in _entries(path)]
    passages = (passage for place, entry in entries for passage in _passages(place, entry))
    queries = (_query(place, entry) for place, entry in entries)
    return assemble(folder.resolve().name, str(folder), passages, queries if questions else None)


def _entries(path: Path) -> Iterator[Record]:
    """Version 2.1 is one object of columns, {"query": {"0": ..}, ..}; version 1.1 an object a line."""
    if _is_lines(path):
        yield from read_jsonl(path)
        return
    try:
        with open_bytes(path) as content:
            whole = json.loads(content.read().decode("utf-8-sig"), object_pairs_hook=no_key_twice)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise DataError(f"{path}: neither a JSON object a line nor one of columns ({error}).") from error
    rows = whole.get("query") if isinstance(whole, dict) else None
    if not isinstance(rows, dict):
        raise DataError(f"{path}: expected one JSON object of columns, with one called 'query'.")
    for name, column in whole.items():
        if not isinstance(column, dict) or column.keys() != rows.keys():
            raise DataError(f"{path}: column '{name}' must be an object with the rows of the column 'query'.")
    for row in rows:
        yield f"{path} row {row}", {name: column[row] for name, column in whole.items()}


def _is_lines(path: Path) -> bool:
    """Whether the first line is JSON by itself and no object of columns."""
    _, line = next(read_lines(path))
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return not isinstance(first, dict) or not isinstance(first.get("query"), dict)


def _passage_list(place: str, entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    passages = entry.get("passages")
    if not isinstance(passages, list) or not all(isinstance(passage, dict) for passage in passages):
        raise DataError(f"{place}: 'passages' must be a list of objects {{passage_text, is_selected}}.")
    return passages


def _passages(place: str, entry: Mapping[str, Any]) -> Iterator[Record]:
    for number, passage in enumerate(_passage_list(place, entry)):
        passage_id = f"{text_of(place, entry, 'query_id')}-{number}"
        if "passage_text" not in passage:
            raise DataError(f"{place}: passage {number} has no 'passage_text'.")
        yield place, {"passage_id": passage_id, "doc_id": passage_id, "text": passage["passage_text"]}


def _query(place: str, entry: Mapping[str, Any]) -> Record:
    marks = [passage.get("is_selected") for passage in _passage_list(place, entry)]
    if not all(mark in (None, 0, 1) for mark in marks):
        raise DataError(f"{place}: 'is_selected' of a passage must be 0 or 1.")
    given = texts_of(place, entry, "answers")
    answers = [answer for answer in given if answer != NO_ANSWER]
    return place, {
        "query_id": entry.get("query_id"),
        "question": entry.get("query"),
        "answers": answers,
        "answerable": bool(answers) if given else None,  # without an answer or its words for none it says nothing
        "relevant_passage_ids": [f"{entry.get('query_id')}-{n}" for n, mark in enumerate(marks) if mark],
        "meta": {"kind": entry["query_type"]} if isinstance(entry.get("query_type"), str) else {},
    }


def _qa_files(folder: Path) -> list[Path]:
    return [path for name in QA_NAMES for path in _files(folder, name)]


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])
