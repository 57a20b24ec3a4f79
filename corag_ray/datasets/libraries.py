"""Data sets of two libraries: any id of `ir_datasets`, and any set of the Hugging Face hub with our keys as columns."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.records import Record
from corag_ray.errors import ConfigError, DataError, MissingModelError

LEAST_RELEVANT = 1


def load_ir_datasets(name: str, questions: bool) -> Dataset:
    """`ir_datasets:ID`: documents, queries and judgements of one id; a grade of 1 or more is relevant.

    Raises:
        ConfigError: no such id, or it has no documents or queries.
        DataError: its files could not be fetched or read.
    """
    library = _library("ir_datasets")
    try:
        found = library.load(name)
    except KeyError as error:
        raise ConfigError(f"ir_datasets knows no '{name}': its ids are listed on ir-datasets.com.") from error
    wanted = (found.has_docs(), not questions or found.has_queries(), not questions or found.has_qrels())
    if not all(wanted):
        raise ConfigError(f"ir_datasets' '{name}' has no documents, queries or judgements: name one that has.")
    source = f"ir_datasets:{name}"
    return assemble(source, source, _ir_passages(found, source), _ir_queries(found, source) if questions else None)


def _ir_passages(found: Any, source: str) -> Iterator[Record]:
    for number, doc in enumerate(_fetched(found.docs_iter(), source), start=1):
        record = {
            "passage_id": doc.doc_id,
            "doc_id": doc.doc_id,
            "title": getattr(doc, "title", "") or "",
            "text": doc.text if hasattr(doc, "text") else doc.default_text(),
        }
        yield f"{source} document {number}", record


def _ir_queries(found: Any, source: str) -> Iterator[Record]:
    relevant: dict[str, list[str]] = {}
    for judgement in _fetched(found.qrels_iter(), source):
        if judgement.relevance >= LEAST_RELEVANT:
            relevant.setdefault(judgement.query_id, []).append(judgement.doc_id)
    for number, query in enumerate(_fetched(found.queries_iter(), source), start=1):
        yield (
            f"{source} query {number}",
            {
                "query_id": query.query_id,
                "question": query.text if hasattr(query, "text") else query.default_text(),
                "relevant_passage_ids": list(dict.fromkeys(relevant.get(query.query_id, []))),
            },
        )


def load_hub(name: str, questions: bool) -> Dataset:
    """`hub:NAME`: a set, or a local folder of one, with the configurations `corpus` and `queries`.

    Raises:
        DataError: it cannot be fetched or read.
    """
    source = f"hub:{name}"
    queries = _hub_rows(name, "queries") if questions else None
    return assemble(source, source, _hub_rows(name, "corpus"), queries)


def _hub_rows(name: str, configuration: str) -> Iterator[Record]:
    library = _library("datasets")
    try:
        splits = library.load_dataset(name, configuration)
    except Exception as error:  # the library raises whatever its transports and builders raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        raise DataError(
            f"hub:{name} ('{configuration}') cannot be loaded ({reason}): check the name, and that the hub is reached "
            "or the set lies in the library's cache."
        ) from error
    for split, rows in splits.items():
        for number, row in enumerate(rows, start=1):
            yield f"hub:{name} {configuration}/{split} row {number}", {k: v for k, v in row.items() if v is not None}


def _fetched(rows: Iterator[Any], source: str) -> Iterator[Any]:
    """What the library gives; its failures to fetch or parse as one sentence."""
    try:
        yield from rows
    except Exception as error:  # the library raises whatever its transports and parsers raise
        raise DataError(
            f"{source} cannot be fetched or read ({type(error).__name__}: {str(error)[:150]}): "
            "fetch it on a machine with internet and copy ir_datasets' folder here."
        ) from error


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingModelError(f"this data needs the library {name}: pip install 'corag_ray[data]'.") from error
