"""Data sets of two libraries: any id of `ir_datasets`, and any set of the Hugging Face hub with our keys as columns."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from corag_ray.datasets.assemble import Dataset, assemble
from corag_ray.datasets.msmarco import least_relevant
from corag_ray.datasets.records import Record, optional_library, without_nulls
from corag_ray.errors import ConfigError, DataError, unknown_name

_log = logging.getLogger(__name__)
RELATED_IS_NOT_RELEVANT = "msmarco-passage"
"""How the ids of sets begin whose passages TREC Deep Learning may grade; of its documents, grade 1 is relevant."""


def load_ir_datasets(name: str, questions: bool) -> Dataset:
    """`ir_datasets:ID`: documents, judgements, and the queries that are judged, of one id.

    A grade of 1 or more is relevant, but where the passages of MS MARCO are judged: there `least_relevant` tells. A
    query without any judgement is left out, as in MS MARCO's own tables: nothing is known of it.

    Raises:
        ConfigError: no such id, or it has no documents or queries.
        DataError: its files could not be fetched or read.
    """
    library = optional_library("ir_datasets")
    try:
        found = library.load(name)
    except KeyError as error:
        raise ConfigError(f"ir_datasets knows no '{name}': its ids are listed on ir-datasets.com.") from error
    wanted = (found.has_docs(), not questions or found.has_queries(), not questions or found.has_qrels())
    if not all(wanted):
        raise ConfigError(f"ir_datasets' '{name}' has no documents, queries or judgements: name one that has.")
    source = f"ir_datasets:{name}"
    return assemble(source, source, _ir_passages(found, source), _ir_queries(found, name) if questions else None)


def _ir_passages(found: Any, source: str) -> Iterator[Record]:
    for number, doc in enumerate(_fetched(found.docs_iter, source), start=1):
        doc_id = _unmarked(doc.doc_id)
        record = {
            "passage_id": doc_id,
            "doc_id": doc_id,
            "title": getattr(doc, "title", "") or "",
            "text": doc.text if hasattr(doc, "text") else doc.default_text(),
        }
        yield f"{source} document {number}", record


def _ir_queries(found: Any, name: str) -> Iterator[Record]:
    source = f"ir_datasets:{name}"
    relevant = _ir_relevant(found, name)
    stated = found.queries_lang()  # None where the library knows of none, or of several
    unasked = set(relevant)
    for number, query in enumerate(_fetched(found.queries_iter, source), start=1):
        query_id = _unmarked(query.query_id)
        if query_id not in relevant:
            continue
        unasked.discard(query_id)
        yield (
            f"{source} query {number}",
            {
                "query_id": query_id,
                "question": query.text if hasattr(query, "text") else query.default_text(),
                "relevant_passage_ids": relevant[query_id],
            }
            | ({"language": stated} if stated else {}),
        )
    if unasked:
        _log.warning("%s: %d judged queries are not among its queries: %s", source, len(unasked), min(unasked))


def _ir_relevant(found: Any, name: str) -> dict[str, list[str]]:
    """The relevant documents of every judged query."""
    source = f"ir_datasets:{name}"
    judgements = list(_fetched(found.qrels_iter, source))
    if not judgements:
        raise DataError(f"{source} holds no judgement: name a set that does.")
    least = least_relevant(j.relevance for j in judgements) if name.startswith(RELATED_IS_NOT_RELEVANT) else 1
    relevant: dict[str, list[str]] = {}
    for judgement in judgements:
        judged = relevant.setdefault(_unmarked(judgement.query_id), [])
        if judgement.relevance >= least:
            judged.append(judgement.doc_id)
    return relevant


def _unmarked(name: str) -> str:
    """An id without the byte order mark that the library leaves at the head of a file's first one."""
    return name.removeprefix("\ufeff")


def load_hub(name: str, questions: bool) -> Dataset:
    """`hub:NAME[:SPLIT]`: a set, or a local folder of one, with the configurations `corpus` and `queries`.

    The corpus is taken whole; of the queries, every split, or the one that is named.

    Raises:
        ConfigError: the queries have no such split.
        DataError: it cannot be fetched or read.
    """
    source = f"hub:{name}"
    if os.path.isdir(name) or ":" not in name:
        split = None
    else:
        name, _, split = name.rpartition(":")
    passages = _hub_rows(name, "corpus", None)
    return assemble(source, source, passages, _hub_rows(name, "queries", split) if questions else None)


def _hub_rows(name: str, configuration: str, split: str | None) -> Iterator[Record]:
    library = optional_library("datasets")
    try:
        splits = library.load_dataset(name, configuration)
    except Exception as error:  # the library raises whatever its transports and builders raise
        raise DataError(
            f"hub:{name} ('{configuration}') cannot be loaded ({_reason(error)}): check the name, and that the hub is "
            "reached or the set lies in the library's cache."
        ) from error
    if split is not None and split not in splits:
        raise unknown_name(f"split of hub:{name} ('{configuration}')", split, splits)
    for part in splits if split is None else [split]:
        rows = _fetched(splits[part].__iter__, f"hub:{name} {configuration}/{part}")
        for number, row in enumerate(rows, start=1):
            yield f"hub:{name} {configuration}/{part} row {number}", without_nulls(row)


def _fetched(rows: Callable[[], Iterable[Any]], source: str) -> Iterator[Any]:
    """What the library gives; its failures to fetch or parse as one sentence."""
    given = 0
    try:
        for row in rows():
            yield row
            given += 1
    except Exception as error:  # the library raises whatever its transports and parsers raise
        raise DataError(
            f"{source} cannot be fetched or read after its record {given} ({_reason(error)}): fetch it anew, where "
            "there is internet, and copy the library's folder here."
        ) from error


def _reason(error: Exception) -> str:
    """The kind and the words of what lies behind a library's error, on one line and no longer than a sentence."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
