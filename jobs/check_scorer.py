"""Proves two things of the cross-encoder: no text breaks it, and threads may share it: `python -m jobs.check_scorer`.

(1) Fuzzed inputs (empty, of 50,000 characters, control characters, mixed scripts, lone surrogates) are scored in
company and each alone, in float32 and, where the processor multiplies it, in bfloat16. (2) Threads score different
mixtures of the same pairs at once for `--seconds`, while the resident memory is watched: in the second half it must not
grow. In the first it does, since the allocator keeps what batches of new shapes needed. Scores are compared as values
in 0..1. Without `--model` the checkpoint is all-MiniLM-L6-v2 with a head as it is drawn: neither proof depends on what
the head has learned.
"""

from __future__ import annotations

import json
import logging
import math
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import psutil
import typer

from corag_ray.batch.estimate import duration_text
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS
from corag_ray.config_file import load_config
from corag_ray.models.cross_encoder import CrossEncoder, PreparedPair
from corag_ray.models.torch_setup import Compute
from corag_ray.settling import settle
from corag_ray.types import Chunk, Combination
from jobs.untrained_cross_encoder import untrained

T = TypeVar("T")
Pair = tuple[PreparedPair, Combination]

CHUNKS = 3
PARTS: dict[str, list[str]] = {
    "words": ["tower ", "high ", "tea ", "1889 ", "is the ", "why? "],
    "one word": ["tower"],
    "control characters": ["\x00", "\x01", "\x1b", "\r", "\n", "\t", "\x7f", "\x85", "\u200b", "\u2028", "\ufeff"],
    "scripts": ["塔は高い", "برج ", "башня ", "מגדל ", "मीनार ", "탑 ", "👩\u200d🚀", "e\u0301\u0323", "ﷺ"],
    "lone surrogates": ["\ud800", "\udbff", "\udc00", "\udfff", "a"],
    "special tokens": ["[SEP]", "[CLS] ", "[PAD]", "</s>", "<s>", "<pad> ", "##s "],
    "blanks": [" ", "\u00a0", "\u3000"],
}
PARTS["all of these"] = [part for parts in PARTS.values() for part in parts]
SIZES = (0, 1, 5, 60)
"""Parts of a text that is not huge."""
HUGE_CHARACTERS = 50_000
HUGE_EVERY = 100
COMPANY = 50
"""Inputs a call, where they are scored together."""
TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}
MIXTURE, MIXED_PAIRS = 16, 64
"""Pairs a call of a thread, at most, and the pairs that the mixtures are drawn from."""
FLAT = 0.05
"""Growth of the resident memory in the second half, as a share of it, that the allocator explains.

Seen over 40 seconds of eight threads, one of them computing: resident from 653 MiB to 687 within 21 seconds and no more
until the end, while what glibc's heap holds in use stayed within 178 to 191 MiB; its free part grew from 39 to 67, and
to give that back (malloc_trim) left 624 resident.
"""
TOKENS_A_SECOND = 1000.0
"""Of MiniLM's shape, a thread."""
TOKENS_AN_INPUT, TOKENS_A_HUGE_INPUT = 60, 15_000
"""Means with MiniLM's vocabulary, the overlap of windows included; a huge text has from none (blanks) to 48,000."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A question, texts, and a combination of them."""

    question: str
    texts: tuple[str, ...]
    combination: Combination

    @property
    def is_huge(self) -> bool:
        """Whether one of its texts is."""
        return max(map(len, (self.question, *self.texts))) == HUGE_CHARACTERS

    def prepared(self, reranker: CrossEncoder) -> Pair:
        """As the reranker takes it."""
        chunks = [Chunk(n, "d", n, 0, len(text), text, 1) for n, text in enumerate(self.texts)]
        return reranker.prepare(self.question, chunks, range(len(chunks))), self.combination


@dataclass(slots=True)
class Attempts:
    """Calls that should not fail: how many were made, how many did, and the first reason."""

    calls: int = 0
    failed: int = 0
    first: str | None = None

    def of(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """What the call gives; None where it fails."""
        self.calls += 1
        try:
            return call(*arguments)
        except Exception as error:  # of any kind: that there is none is what is to be proved
            self.failed += 1
            self.first = self.first or repr(error)
            return None


def main(
    inputs: Annotated[int, typer.Option(min=2, help="Fuzzed inputs.")] = 1000,
    seconds: Annotated[float, typer.Option(min=1, help="How long threads score at once.")] = 120,
    threads: Annotated[int, typer.Option(min=1, help="Threads that score at once.")] = 8,
    model: Annotated[Path | None, typer.Option(help="Folder of a cross-encoder.")] = None,
    seed: Annotated[int, typer.Option(help="Of the fuzzed inputs and the mixtures.")] = 0,
) -> None:
    """Fuzz, then score from many threads; the last line is one JSON object."""
    logging.getLogger("corag_ray.models.cross_encoder").setLevel(logging.ERROR)  # a line for every question it cuts
    config = settle(load_config(None))
    dtypes = sorted({"float32", config.dtype}, reverse=True)
    fuzzed = draw(inputs, seed)
    tokens = sum(TOKENS_A_HUGE_INPUT if one.is_huge else TOKENS_AN_INPUT for one in fuzzed)
    reading = 2 * len(dtypes) * tokens / (TOKENS_A_SECOND * config.plan.threads)
    print(f"{inputs} inputs, {threads} threads: about {duration_text(reading + seconds + 15)}.", flush=True)
    if "bfloat16" not in dtypes:
        print("bfloat16 is left out: this processor does not multiply it.", flush=True)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = model or untrained(Path(scratch), config)
        for dtype in dtypes:
            reranker = CrossEncoder(folder, dtype, WINDOW_TOKENS, Compute(config.plan.threads, dtype=dtype))
            figures[dtype] = check_inputs(reranker, fuzzed, TOLERANCES[dtype])
            if dtype == config.dtype:
                made = (Attempts().of(one.prepared, reranker) for one in fuzzed if not one.is_huge)
                mixed = [pair for pair in made if pair is not None][:MIXED_PAIRS]
                figures["threads"] = check_threads(reranker, mixed, TOLERANCES[dtype], threads, seconds, seed)
    print(json.dumps(figures | {"holds": all(part["holds"] for part in figures.values())}))


def draw(count: int, seed: int) -> list[Fuzzed]:
    """So many inputs; one text of every hundredth is huge, in turn of each kind, in turn a chunk's and the question."""
    chance, kinds = random.Random(seed), list(PARTS.values())
    drawn = []
    for number in range(count):
        texts = ["".join(chance.choices(chance.choice(kinds), k=chance.choice(SIZES))) for _ in range(1 + CHUNKS)]
        combination = tuple(chance.sample(range(CHUNKS), chance.randint(0, CHUNKS)))
        turn, rest = divmod(number, HUGE_EVERY)
        if rest == 0:
            place = 0 if turn % 3 == 2 else 1 + chance.randrange(CHUNKS)
            parts = kinds[turn % len(kinds)]
            texts[place] = "".join(chance.choices(parts, k=HUGE_CHARACTERS))[:HUGE_CHARACTERS]
            combination = tuple(range(CHUNKS))
        drawn.append(Fuzzed(texts[0], tuple(texts[1:]), combination))
    return drawn


def values(reranker: CrossEncoder, pairs: Sequence[Pair]) -> list[float]:
    """The pairs' scores in 0..1, NaN where there is none."""
    return [score.calibrated for score in reranker.score(pairs)]


def check_inputs(reranker: CrossEncoder, fuzzed: Sequence[Fuzzed], tolerance: float) -> dict[str, Any]:
    """Each input in company and alone; an input without a score counts as out of range."""
    attempts = Attempts()
    made = [attempts.of(one.prepared, reranker) for one in fuzzed]
    pairs = [pair for pair in made if pair is not None]
    groups = [pairs[start : start + COMPANY] for start in range(0, len(pairs), COMPANY)]
    alone, company = (
        [value for own in cut for value in attempts.of(values, reranker, own) or [math.nan] * len(own)]
        for cut in ([[pair] for pair in pairs], groups)
    )
    outside = sum(not 0 <= value <= 1 for value in (*alone, *company))
    difference = max((abs(a - b) for a, b in zip(alone, company, strict=True) if not math.isnan(a + b)), default=0.0)
    return {
        "inputs": len(fuzzed),
        "windowed": sum(windows > 1 for windows in reranker.windows(pairs)),
        "cut_questions": sum(read < total for total, read in (reranker.query_tokens(query) for query, _ in pairs)),
        "crashes": attempts.failed,
        "first_crash": attempts.first,
        "out_of_range": outside,
        "largest_difference": difference,
        "holds": attempts.failed == outside == 0 and difference <= tolerance,
    }


def check_threads(
    reranker: CrossEncoder, pairs: Sequence[Pair], tolerance: float, threads: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Mixtures from several threads at once against the same pairs scored beforehand; memory in MiB."""
    expected = values(reranker, pairs)
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(threads) as pool:
        running = [
            pool.submit(_score_until, deadline, reranker, pairs, expected, tolerance, random.Random(seed + number))
            for number in range(threads)
        ]
        time.sleep(seconds / 4)
        quarter = _resident_mib()
        time.sleep(seconds / 4)
        half = _resident_mib()
        time.sleep(max(0.0, deadline - time.monotonic()))
        end = _resident_mib()
        done = [one.result() for one in running]
    errors, unequal = sum(attempts.failed for attempts, _ in done), sum(unequal for _, unequal in done)
    return {
        "threads": threads,
        "calls": sum(attempts.calls for attempts, _ in done),
        "fewest_calls_of_a_thread": min(attempts.calls for attempts, _ in done),
        "errors": errors,
        "first_error": next((attempts.first for attempts, _ in done if attempts.first), None),
        "unequal": unequal,
        "resident_mib_at_a_quarter": round(quarter, 1),
        "resident_mib_at_half": round(half, 1),
        "resident_mib_at_the_end": round(end, 1),
        "growth_in_the_second_half": round(end / half - 1, 4),
        "holds": errors == unequal == 0 and end <= half * (1 + FLAT),
    }


def _score_until(
    deadline: float,
    reranker: CrossEncoder,
    pairs: Sequence[Pair],
    expected: Sequence[float],
    tolerance: float,
    chance: random.Random,
) -> tuple[Attempts, int]:
    """One thread's calls, and how many scores were further from the expected ones than the tolerance."""
    attempts, unequal = Attempts(), 0
    while time.monotonic() < deadline:
        chosen = chance.sample(range(len(pairs)), chance.randint(1, min(MIXTURE, len(pairs))))
        found = attempts.of(values, reranker, [pairs[number] for number in chosen]) or []
        unequal += sum(not abs(value - expected[n]) <= tolerance for n, value in zip(chosen, found, strict=False))
    return attempts, unequal


def _resident_mib() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
