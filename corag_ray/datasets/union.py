"""Several data sets as one: their documents and questions together, ids prefixed by the set's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corag_ray.datasets.assemble import Dataset, hash_of
from corag_ray.errors import DataError
from corag_ray.types import Document, Evidence, Question, Span

NAME_CHARACTERS = 60
"""A longer list of names is cut, and told apart by a hash: it names a folder."""


def prefixes(datasets: Sequence[Dataset]) -> list[str]:
    """What each set's ids begin with in the union: `SET/`, and nothing where a set is alone."""
    return [f"{dataset.name}/" for dataset in datasets] if len(datasets) > 1 else [""]


def union(datasets: Sequence[Dataset]) -> Dataset:
    """The sets one after the other; document and question ids become `SET/ID`, and spans follow. One alone stays as is.

    Raises:
        DataError: two sets have the same name, so that their ids could not be told apart.
    """
    if len(datasets) == 1:
        return datasets[0]
    names = [dataset.name for dataset in datasets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two data sets are named '{twice[0]}': rename the folder of one, or leave it out.")
    parts = list(zip(prefixes(datasets), datasets, strict=True))
    return Dataset(
        name=_joined(names),
        documents=tuple(Document(prefix + doc.doc_id, doc.text) for prefix, d in parts for doc in d.documents),
        questions=tuple(_prefixed(prefix, question) for prefix, d in parts for question in d.questions),
        missing_evidence=sum(d.missing_evidence for d in datasets),
        fingerprint=hash_of([[(d.name, d.fingerprint) for d in datasets]]),
        questions_fingerprint=hash_of([[(d.name, d.questions_fingerprint) for d in datasets]]),
    )


def _joined(names: Sequence[str]) -> str:
    whole = "+".join(names)
    return whole if len(whole) <= NAME_CHARACTERS else f"{whole[: NAME_CHARACTERS - 9]}-{hash_of([whole])[:8]}"


def _prefixed(prefix: str, question: Question) -> Question:
    evidence = tuple(
        Evidence(_span(prefix, e.span), None if e.answer is None else _span(prefix, e.answer), e.text)
        for e in question.evidence
    )
    return replace(question, question_id=prefix + question.question_id, evidence=evidence)


def _span(prefix: str, span: Span) -> Span:
    return replace(span, doc_id=prefix + span.doc_id)
