"""Builds the index of all English data sets together and measures it: `python -m jobs.bench_index --limit 100000`.

The build is `corag index` as a user starts it, killed once half-way and started again. Then retrieval is timed against
one preparation of late interaction for as many candidates, and compared with an exact search in numpy. The sets are
those under `$CORAG_DATA` whose questions are in English; their documents are taken in turn, so that every limit is a
mixture. Run it in the background: 100,000 chunks take most of an hour on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import psutil
import typer

from corag_ray.batch.estimate import duration_text, estimate_seconds
from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder, build_tokenizer
from corag_ray.cli import reporting_errors
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.datasets.load import DATA_VARIABLE, load_dataset
from corag_ray.datasets.union import union
from corag_ray.errors import CoragError, DataError
from corag_ray.identity import index_spec
from corag_ray.indexing.build_index import SHARDS, all_shards, missing_shards
from corag_ray.indexing.chunking import chunk_documents
from corag_ray.indexing.open_index import OpenIndex, open_index
from corag_ray.indexing.versions import UNFINISHED, IndexSpec, next_version
from corag_ray.models.late_interaction import LateInteraction
from corag_ray.models.protocols import Embedder
from corag_ray.prepare import prepare_weights
from corag_ray.settling import settle

T = TypeVar("T")
CANDIDATES = 60
QUERIES = 50
TIES = 1e-6
"""Scores nearer than this are equal: numpy and FAISS add up in different orders."""
SAMPLE_SECONDS = 0.25


def main(
    limit: Annotated[int, typer.Option(min=1, help="Chunks, at most.")] = 100_000,
    root: Annotated[Path, typer.Option(help="Folder of indexes; the corpus is put there too.")] = Path("runs"),
) -> None:
    """Build, kill, resume, measure; the last line is one JSON object."""
    corpus = root / f"bench-index-{limit}"
    config = settle(load_config(None, {"dataset": str(corpus), "generation": {"enabled": False}}))
    prepare_weights(config)
    seconds = 60 + estimate_seconds(config, 0, limit)
    print(f"{limit} chunks, killed once half-way and resumed: about {duration_text(seconds)}.", flush=True)
    queries = _in_new_process(_write_english, corpus, config, limit)  # all sets in memory are no part of the measuring
    dataset, folder = open_corpus(root, config, questions=False)
    shutil.rmtree(folder, ignore_errors=True)

    command = [sys.executable, "-m", "corag_ray.cli", "index", f"--data={corpus}", f"--root={root}"]
    with _peak_memory() as peak:
        started = time.perf_counter()
        at_kill = _kill_half_way(command, folder)
        built = _finish(command)
        seconds = time.perf_counter() - started
        figures = _in_new_process(_search, folder, config, index_spec(config, dataset), queries)
    facts = {
        "chunks": built["chunks"],
        "documents": built["documents"],
        "seconds": round(seconds),
        "chunks_at_kill": at_kill,
        "re_encoded": at_kill + built["embedded"] - built["chunks"],
        "peak_rss_mib": round(peak.mib),
        "token_vectors": built["token_vectors_stored"],
        "version": built["version"],
    }
    print(json.dumps(facts | figures))


def _in_new_process(work: Callable[..., T], *arguments: Any) -> T:
    """The work's result from a process whose threads wait as those of an actor do."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def _write_english(corpus: Path, config: Config, limit: int) -> list[str]:
    """Write documents of all English sets in turn, of at most so many chunks together; returns questions likewise."""
    data_root = Path(os.environ.get(DATA_VARIABLE, "data"))
    sets = []
    for folder in sorted(path for path in data_root.glob("*") if path.is_dir()):
        try:
            data = load_dataset(str(folder))
        except DataError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if {question.language for question in data.questions} == {"en"}:
            sets.append(union([data]))
    if not sets:
        raise DataError(f"{data_root} holds no English data set; set {DATA_VARIABLE} to the folder that does.")
    documents = list(_in_turn([data.documents for data in sets]))
    queries = [question.text for question in islice(_in_turn([data.questions for data in sets]), QUERIES)]
    beyond = next(islice(chunk_documents(documents, config.chunking, build_tokenizer(config)), limit, None), None)
    if beyond is None:
        print(f"{len(sets)} English sets together hold no more than {limit} chunks: all are taken.", flush=True)
    else:
        documents = documents[: [document.doc_id for document in documents].index(beyond.doc_id)]
    if not documents:
        raise DataError(f"the first document has more than {limit} chunks: raise --limit.")
    corpus.mkdir(parents=True, exist_ok=True)
    with (corpus / "corpus.jsonl").open("w", encoding="utf-8") as target:
        target.writelines(json.dumps({"passage_id": d.doc_id, "text": d.text}) + "\n" for d in documents)
    return queries


def _in_turn(lists: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """The first of each list, the second of each, and so on."""
    return (item for item in chain.from_iterable(zip_longest(*lists)) if item is not None)


def _kill_half_way(command: list[str], folder: Path) -> int:
    """Start the command, kill it and its children when half of its shards are there; returns the chunks in those."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    version = next_version(folder)
    shards = version / UNFINISHED / SHARDS
    while process.poll() is None:
        time.sleep(0.1)
        done = len(list(shards.glob("*.parquet")))
        if done and 2 * done >= len(all_shards(version)):
            break
    else:
        raise CoragError(f"the build ended before it could be killed, with exit status {process.returncode}.")
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:  # psutil knows each by number and start time: no other process is meant
        child.kill()
    process.wait()
    psutil.wait_procs(children, timeout=30)
    missing = {shard.number for shard in missing_shards(version)}
    return sum(shard.stop - shard.start for shard in all_shards(version) if shard.number not in missing)


def _finish(command: list[str]) -> dict[str, Any]:
    """Start the command again, to its end; returns what it prints."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise CoragError(f"the build failed (its message is above): {' '.join(command)}.")
    built: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return built


def _search(folder: Path, config: Config, spec: IndexSpec, queries: Sequence[str]) -> dict[str, float]:
    """Open the finished index and measure it."""
    embedder = build_embedder(config)
    index = open_index(folder, spec, embedder, config.retrieval.kind)
    return _time(index, embedder, queries) | {"recall_at_60": _recall(index, embedder, queries)}


def _time(index: OpenIndex, embedder: Embedder, queries: Sequence[str]) -> dict[str, float]:
    """Medians over the queries, one at a time: the first stage, and late interaction's preparation of what it found."""
    reranker = LateInteraction(embedder, index.token_vectors)
    retrieval, preparation = [], []
    for query in [queries[0], *queries]:  # the first one warms up
        begun = time.perf_counter()
        rows = [row for row, _ in index.first_stage.search([query], CANDIDATES)[0]]
        found = time.perf_counter()
        candidates = index.store.take(rows)
        taken = time.perf_counter()
        reranker.prepare(query, candidates, rows)
        preparation.append(time.perf_counter() - taken)
        retrieval.append(found - begun)
    first, second = (1000 * statistics.median(times[1:]) for times in (retrieval, preparation))
    return {"retrieval_ms": round(first, 2), "prepare_ms": round(second, 2), "ratio": round(first / second, 4)}


def _recall(index: OpenIndex, embedder: Embedder, queries: Sequence[str]) -> float:
    """Share of the dense candidates that an exact search in numpy finds as well, ties apart."""
    vectors = index.dense.vectors(range(len(index.store)))
    wanted = min(CANDIDATES, len(vectors))
    shares = []
    for query, found in zip(queries, index.dense.search(queries, wanted), strict=True):
        exact = vectors @ embedder.embed([query])[0]
        border = np.partition(exact, len(exact) - wanted)[len(exact) - wanted]
        rows = np.unique([row for row, _ in found])
        shares.append(float(np.sum(exact[rows] >= border - TIES)) / wanted)
    return statistics.mean(shares)


@dataclass(slots=True)
class _Peak:
    """The most memory so far, in MiB."""

    mib: float = 0.0


@contextmanager
def _peak_memory() -> Iterator[_Peak]:
    """Samples the resident memory of this process and all below it: a page that several map counts several times."""
    peak, stop = _Peak(), threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            total = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue  # it ended between the two calls
            peak.mib = max(peak.mib, total / 2**20)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        stop.set()
        sampler.join()


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
