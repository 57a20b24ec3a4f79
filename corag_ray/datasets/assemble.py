"""From records of passages and queries to a corpus and its questions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corag_ray.datasets.records import Record, flag_of, text_of, texts_of
from corag_ray.errors import DataError
from corag_ray.types import Document, Evidence, Question, Span

_DIGITS = "0123456789"


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
class _Passage:
    """A passage as its record gives it; `title` is empty where there is none."""

    passage_id: str
    title: str
    text: str

    @property
    def number(self) -> str:
        """The digits at the end of its id; empty where there are none."""
        return self.passage_id[len(self.passage_id.rstrip(_DIGITS)) :]


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a passage's text stands in its rebuilt document."""

    span: Span
    text: str


def assemble(name: str, source: str, passages: Iterable[Record], queries: Iterable[Record] | None) -> Dataset:
    """The data set of the given records; `source` names where they come from, for errors.

    Args:
        name: of the data set.
        source: file or library.
        passages: objects with `passage_id`, `text`, and optionally `doc_id` and `title`.
        queries: objects with `query_id`, `question`, and what is known of the answer; None when none are wanted.

    Raises:
        DataError: a record is broken or an id is used twice (the place is named), or there is none.
    """
    documents, placed = _read_corpus(source, passages)
    whole = {d.doc_id: _Placed(Span(d.doc_id, 0, len(d.text)), d.text) for d in documents}
    asked, missing = ((), 0) if queries is None else _read_questions(source, queries, placed, whole)
    return Dataset(
        name,
        documents,
        asked,
        missing,
        fingerprint=hash_of([d.doc_id, d.text] for d in documents),
        questions_fingerprint=hash_of(asdict(question) for question in asked),
    )


def hash_of(records: Iterable[object]) -> str:
    """A fingerprint of what records say, and of their order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record).encode())
    return digest.hexdigest()[:16]


def _read_corpus(source: str, passages: Iterable[Record]) -> tuple[tuple[Document, ...], dict[str, _Placed]]:
    """Documents in file order, and each passage's place in its document.

    Passages of one `doc_id` whose ids differ only in the number at their end are one document, in the order of those
    numbers; others are documents of their own.
    """
    by_document: dict[str, list[_Passage]] = defaultdict(list)
    places: dict[str, str] = {}
    for place, record in passages:
        passage_id = text_of(place, record, "passage_id")
        if passage_id in places:
            raise DataError(f"{place}: passage_id '{passage_id}' was already used at {places[passage_id]}.")
        places[passage_id] = place
        passage = _Passage(passage_id, text_of(place, record, "title", "").strip(), text_of(place, record, "text"))
        by_document[text_of(place, record, "doc_id", passage_id)].append(passage)
    if not by_document:
        raise DataError(f"{source}: the corpus is empty: it holds no passage.")

    documents: list[Document] = []
    placed: dict[str, _Placed] = {}
    for doc_id, parts in by_document.items():
        documents += [_rebuild(name, together, placed) for name, together in _joined(doc_id, parts)]
    twice = [doc_id for doc_id, times in Counter(d.doc_id for d in documents).items() if times > 1]
    if twice:
        raise DataError(f"{source}: '{twice[0]}' names two documents, one by its doc_id and one by its passage_id.")
    return tuple(documents), placed


def _joined(doc_id: str, passages: Sequence[_Passage]) -> list[tuple[str, Sequence[_Passage]]]:
    """What of one `doc_id` is one document, by the document's id: the passages whose ids differ in their number alone.

    Others are documents of their own: `d#0~2` does not come between `d#0` and `d#1`, and `d-0-400` and `d-300-700` are
    windows that overlap. All are, where two sequences or another passage would be named as the document is.
    """
    if len(passages) == 1:
        return [(doc_id, passages)]
    by_stem: dict[str, list[_Passage]] = defaultdict(list)
    for passage in passages:
        by_stem[passage.passage_id.rstrip(_DIGITS)].append(passage)
    sequences = [group for group in by_stem.values() if len(group) > 1 and _are_numbered(group)]
    sequence = sequences[0] if len(sequences) == 1 else []
    joined = {passage.passage_id for passage in sequence}
    apart = [passage for passage in passages if passage.passage_id not in joined]
    if any(passage.passage_id == doc_id for passage in apart):
        sequence, apart = [], list(passages)
    whole = [(doc_id, sorted(sequence, key=_place))] if sequence else []
    return [*whole, *((passage.passage_id, [passage]) for passage in apart)]


def _are_numbered(passages: Sequence[_Passage]) -> bool:
    """Whether each ends in a number, and none in another's (`d#1`, `d#01`)."""
    return all(passage.number for passage in passages) and len(set(map(_place, passages))) == len(passages)


def _place(passage: _Passage) -> tuple[int, str]:
    """Sorts passages by the number that their ids end in, however long it is."""
    digits = passage.number.lstrip("0")
    return len(digits), digits


def _rebuild(doc_id: str, passages: Sequence[_Passage], placed: dict[str, _Placed]) -> Document:
    """Their texts, a line end between them; a title is a line before its text where it is not the last one again.

    A title that the text itself begins with is not written twice.
    """
    lines: list[str] = []
    length, heading = 0, ""
    for passage in passages:
        if passage.title and passage.title != heading:
            heading = passage.title
            if not passage.text.lstrip().startswith(heading):
                lines.append(heading)
                length += len(heading) + 1
        placed[passage.passage_id] = _Placed(Span(doc_id, length, length + len(passage.text)), passage.text)
        lines.append(passage.text)
        length += len(passage.text) + 1
    return Document(doc_id, "\n".join(lines))


def _read_questions(
    source: str, queries: Iterable[Record], passages: Mapping[str, _Placed], documents: Mapping[str, _Placed]
) -> tuple[tuple[Question, ...], int]:
    """The questions, and how many of the passages that they call relevant the corpus does not hold."""
    questions: dict[str, Question] = {}
    missing = 0
    for place, record in queries:
        question = _question(place, record, passages, documents)
        if question.question_id in questions:
            raise DataError(f"{place}: query_id '{question.question_id}' was used before.")
        questions[question.question_id] = question
        missing += sum(p not in passages for p in set(texts_of(place, record, "relevant_passage_ids")))
    if not questions:
        raise DataError(f"{source}: the file of queries holds no question.")
    return tuple(questions.values()), missing


def _question(
    place: str, record: Mapping[str, Any], passages: Mapping[str, _Placed], documents: Mapping[str, _Placed]
) -> Question:
    """A query line. Evidence is what its `evidence` quotes, else its whole relevant passages that the corpus holds.

    In those an answer is marked that stands there once. An empty `evidence` quotes nothing, as in a column that only
    other rows fill. What is named twice is evidence once.
    """
    meta = record.get("meta") if isinstance(record.get("meta"), dict) else {}
    entries = record.get("evidence", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{place}: 'evidence' must be a list of objects {{passage_id, quote}}.")
    answers = tuple(texts_of(place, record, "answers"))
    if entries:
        evidence = [_quoted(place, entry, passages, documents) for entry in entries]
    else:
        relevant = texts_of(place, record, "relevant_passage_ids")
        evidence = [_whole(passages[p], answers) for p in relevant if p in passages]
    return Question(
        question_id=text_of(place, record, "query_id"),
        text=text_of(place, record, "question"),  # a blank one fails in its row alone, and is counted there
        answers=answers,
        evidence=tuple(dict.fromkeys(evidence)),
        language=text_of(place, record, "language", "en"),
        kind=text_of(place, meta, "kind") if meta and meta.get("kind") is not None else None,
        answerable=flag_of(place, record, "answerable"),
    )


def _whole(passage: _Placed, answers: Sequence[str]) -> Evidence:
    """A relevant passage, the first answer marked that stands in it once, word for word.

    One that stands there more than once marks no place, and one that is nowhere is the set's own wording.
    """
    marked = next((answer for answer in answers if answer.strip() and passage.text.count(answer) == 1), None)
    place = None if marked is None else _within(passage.span, passage.text.index(marked), marked)
    return Evidence(passage.span, place, passage.text)


def _quoted(
    place: str, entry: Mapping[str, Any], passages: Mapping[str, _Placed], documents: Mapping[str, _Placed]
) -> Evidence:
    """An entry `{passage_id, quote, answer}`: the supporting words and, optional, the answer within them.

    `doc_id` in the place of `passage_id` quotes a whole document.
    """
    by_document = "doc_id" in entry and "passage_id" not in entry
    kind, within = ("document", documents) if by_document else ("passage", passages)
    name, quote = text_of(place, entry, "doc_id" if by_document else "passage_id"), text_of(place, entry, "quote")
    passage = within.get(name)
    if passage is None or not quote or quote not in passage.text:
        raise DataError(f"{place}: the quote '{quote[:40]}' does not stand in {kind} '{name}'.")
    answer = text_of(place, entry, "answer", "")
    if answer not in quote:
        raise DataError(f"{place}: the answer '{answer[:40]}' does not stand in its quote.")
    span = _within(passage.span, passage.text.index(quote), quote)
    return Evidence(span, _within(span, quote.index(answer), answer) if answer else None, quote)


def _within(outer: Span, offset: int, text: str) -> Span:
    return Span(outer.doc_id, outer.start + offset, outer.start + offset + len(text))
