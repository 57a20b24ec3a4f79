"""Several data sets as one: their documents and questions together, ids prefixed by the set's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from corag_ray.datasets.assemble import Dataset, hash_of
from corag_ray.errors import DataError
from corag_ray.types import Document, Evidence, Question, Span

NAME_CHARACTERS = 60
"""A longer list of names is cut, and told apart by a hash: it names a folder."""


def union(datasets: Sequence[Dataset]) -> Dataset:
    """The sets one after the other; document and question ids become `SET/ID`, and spans follow.

    Raises:
        DataError: two sets have the same name, so that their ids could not be told apart.
    """
    names = [dataset.name for dataset in datasets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two data sets are named '{twice[0]}': rename the folder of one, or leave it out.")
    return Dataset(
        name=_joined(names),
        documents=tuple(Document(f"{d.name}/{doc.doc_id}", doc.text) for d in datasets for doc in d.documents),
        questions=tuple(_prefixed(d.name, question) for d in datasets for question in d.questions),
        missing_evidence=sum(d.missing_evidence for d in datasets),
        fingerprint=hash_of([[(d.name, d.fingerprint) for d in datasets]]),
        questions_fingerprint=hash_of([[(d.name, d.questions_fingerprint) for d in datasets]]),
    )


def _joined(names: Sequence[str]) -> str:
    whole = "+".join(names)
    return whole if len(whole) <= NAME_CHARACTERS else f"{whole[: NAME_CHARACTERS - 9]}-{hash_of([whole])[:8]}"


def _prefixed(name: str, question: Question) -> Question:
    evidence = tuple(
        Evidence(_span(name, e.span), None if e.answer is None else _span(name, e.answer), e.text)
        for e in question.evidence
    )
    return replace(question, question_id=f"{name}/{question.question_id}", evidence=evidence)


def _span(name: str, span: Span) -> Span:
    return replace(span, doc_id=f"{name}/{span.doc_id}")
