"""A data set and its index folder: documents left out, the index made or brought up to date.

    ROOT/indexes/NAME-SOURCE-SETTINGS/    an index; a changed corpus is a new version in it
    ROOT/deleted/NAME-SOURCE/             which documents stay out, under any settings

SOURCE is a hash of where the data lie: two folders of one name have nothing in common. Of several data sets that are
one corpus each has the list that it has alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from corag_ray.batch.folder_lock import locked
from corag_ray.batch.progress import Advance, stages, untold
from corag_ray.build import build_embedder, build_tokenizer, chunk_tokenizers
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.datasets.load import load_dataset, parts_of, source_of
from corag_ray.datasets.union import prefixes, union
from corag_ray.errors import DataError
from corag_ray.identity import index_spec
from corag_ray.indexing.build_index import Shard, Updated, embed_shard, unchanged, update_index
from corag_ray.indexing.deleted import change_deleted, deleted_documents
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_ids import holds_token_ids, write_token_ids
from corag_ray.indexing.versions import IndexSpec, find_version
from corag_ray.models.chunk_tokenizer import ChunkTokenizer

_log = logging.getLogger(__name__)

SHARDS_WITHOUT_RAY = 1
"""So few are embedded here, sooner than Ray and its workers are up."""


def open_corpus(
    root: Path,
    config: Config,
    *,
    questions: bool = True,
    delete: Collection[str] = (),
    restore: Collection[str] = (),
) -> tuple[Dataset, Path]:
    """The configuration's data set without its deleted documents, and its index folder: all that indexing starts from.

    Args:
        root: folder of runs and indexes.
        config: which data, and what the index depends on.
        questions: whether they are wanted.
        delete: ids of documents that are to stay out from now on.
        restore: ids of deleted documents that are to come back.

    Raises:
        ConfigError: there is no such data set.
        DataError: the data set is damaged, an id is unknown (then nothing is noted), or no document is left.
    """
    names = parts_of(config.dataset)
    parts = [load_dataset(name, questions=questions) for name in names]
    dataset = union(parts)
    folders = [_named(root / "deleted", part, source_of(name)) for part, name in zip(parts, names, strict=True)]
    lists = dict(zip(prefixes(parts), folders, strict=True))
    if delete or restore:
        with ExitStack() as held:
            for folder in folders:
                held.enter_context(locked(folder))
            change_deleted(lists, {document.doc_id for document in dataset.documents}, delete, restore)
    deleted = deleted_documents(lists)
    dataset = without_documents(dataset, deleted)
    if deleted:
        _log.warning("%s: deleted documents that stay out: %d ('%s' first)", dataset.name, len(deleted), min(deleted))
    settings = dataclasses.asdict(index_spec(config, dataset)) | {"corpus": None}
    return dataset, _named(root / "indexes", dataset, source_of(config.dataset), json.dumps(settings, sort_keys=True))


def ensure_index(config: Config, dataset: Dataset, folder: Path, advance: Advance = untold) -> Updated:
    """Make the index in `folder` one of this corpus: built, brought up to date, or gone on with where it was.

    Its chunks are also kept as token ids of each cross-encoder that the configuration asks; where those alone are
    missing and cannot be written, as in an index on a read-only disk, one warning is all.

    Raises:
        DataError: the folder holds an index made with other settings, cannot be written, or another process holds it.
        ConfigError: the plan cannot run on this cluster, or a cross-encoder's tokenizer cannot be loaded.
    """
    stages.info("opening the index")
    spec, tokenizers = index_spec(config, dataset), chunk_tokenizers(config)
    if (there := unchanged(folder, spec)) is not None:
        if _missing_ids(folder, spec, tokenizers):
            with _warned_if_unwritable(), locked(folder):
                _add_ids(folder, spec, tokenizers, advance)
        return there  # where nothing is missing, without a lock: any number of readers share it

    def embed(version: Path, missing: Sequence[Shard], total: int) -> None:
        advance(total - len(missing), total)
        if len(missing) <= SHARDS_WITHOUT_RAY:
            _embed_here(config, version, spec, missing, total, advance)
        else:
            stages.info("importing Ray")
            from corag_ray.batch.index_job import embed_with_ray  # Ray takes seconds to import

            embed_with_ray(config, version.resolve(), spec, missing, total, advance)

    stages.info("cutting chunks")
    with locked(folder):
        updated = unchanged(folder, spec) or update_index(
            folder, dataset.documents, spec, build_tokenizer(config), embed
        )
        with _warned_if_unwritable():
            _add_ids(folder, spec, tokenizers, advance)
        return updated


def without_documents(dataset: Dataset, doc_ids: Collection[str]) -> Dataset:
    """The data set as if it had never held the given documents: evidence in them counts as missing.

    Raises:
        DataError: nothing is left.
    """
    gone = {document.doc_id for document in dataset.documents}.intersection(doc_ids)
    if not gone:
        return dataset
    if len(gone) == len(dataset.documents):
        raise DataError("every document of the corpus was deleted from the index: restore one with --restore.")
    questions = tuple(
        dataclasses.replace(question, evidence=tuple(e for e in question.evidence if e.span.doc_id not in gone))
        for question in dataset.questions
    )
    lost = sum(len(question.evidence) for question in dataset.questions) - sum(len(q.evidence) for q in questions)
    return dataclasses.replace(
        dataset,
        documents=tuple(document for document in dataset.documents if document.doc_id not in gone),
        questions=questions,
        missing_evidence=dataset.missing_evidence + lost,
        fingerprint=_hash(dataset.fingerprint, *sorted(gone)),
        questions_fingerprint=_hash(dataset.questions_fingerprint, *sorted(gone)),
    )


def _missing_ids(folder: Path, spec: IndexSpec, keys: Collection[str]) -> list[str]:
    """Of these tokenizers' keys those for which the index's chunks are not kept as ids."""
    return [key for key in keys if not holds_token_ids(find_version(folder, spec), key)]


def _add_ids(folder: Path, spec: IndexSpec, tokenizers: Mapping[str, ChunkTokenizer], advance: Advance) -> None:
    """Write the missing ids; the caller holds the folder."""
    version = find_version(folder, spec)
    for key in _missing_ids(folder, spec, tokenizers):
        write_token_ids(version, ChunkStore.open(version / CHUNKS), tokenizers[key], advance)


@contextmanager
def _warned_if_unwritable() -> Iterator[None]:
    """Token ids that cannot be written cost time at every question and change no number: no reason to stop."""
    try:
        yield
    except DataError as error:
        if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, BlockingIOError):
            raise  # damaged, or held by another run, which may be writing them
        _log.warning("%s Cross-encoders tokenise the candidates' texts at every question.", error)


def _named(parent: Path, dataset: Dataset, *told_apart_by: str) -> Path:
    """A folder with the data set's name and a hash of each thing that it must be told apart by."""
    return parent / "-".join([dataset.name, *(_hash(thing)[:8] for thing in told_apart_by)])


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _embed_here(
    config: Config, version: Path, spec: IndexSpec, missing: Sequence[Shard], total: int, advance: Advance
) -> None:
    stages.info("loading models")
    embedder, store = build_embedder(config), ChunkStore.open(version / CHUNKS)
    for done, shard in enumerate(missing, start=total - len(missing) + 1):
        embed_shard(version, store, shard, spec, embedder)
        advance(done, total)
