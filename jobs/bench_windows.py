"""Whether windows show what truncation hides, and pooled by which rule: `python -m jobs.bench_windows --model FOLDER`.

Two combinations of about 2,000 of the model's tokens a question: its highest candidates without evidence, and in the
last place, which truncation never reaches, its evidence or else the next candidate without. Both are scored in windows,
pooled by each rule of `Pooling`, and cut at the window. The figures are, by side, how often their scores differ by more
than is rounded away, and how often the evidence raises the score above that of the chunk in its place: by these a rule
is chosen. Asked are questions that `jobs.train_reranker` keeps back.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.errors import DataError
from corag_ray.evaluation.evidence import covers_any
from corag_ray.models.cross_encoder import CrossEncoder, PreparedPair
from corag_ray.models.pair_inputs import ChunkIds, Pooling
from corag_ray.models.protocols import IdArray
from corag_ray.prepare import prepare_weights
from corag_ray.scoring import SCORE_DECIMALS
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from corag_ray.types import Combination
from jobs.document_parts import part_of_question
from jobs.made_index import made_index
from jobs.train_reranker import PARTS, TEST_PART

TOKENS = 2000
CANDIDATES = 60
READ = 2.0
"""Tokens read for one of a combination: windows overlap, the two share all but the last, and the cut pair is read."""
TOKENS_A_SECOND = 1000.0
"""Of a MiniLM, on one core."""
ROUNDED_AWAY = 10.0**-SCORE_DECIMALS


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question with its candidates, and two combinations: with the evidence in the last place, and without it."""

    prepared: PreparedPair
    shown: Combination
    hidden: Combination


def main(
    model: Annotated[Path, typer.Option(help="Folder of a cross-encoder.")],
    data: Annotated[str, typer.Option(help="Data set.")] = "squad-v1.1-part",
    limit: Annotated[int, typer.Option(min=1, help="Questions.")] = 200,
    window: Annotated[int, typer.Option(min=16, help="The model's window, in tokens.")] = WINDOW_TOKENS,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Draw, read every window once, pool by each rule, and print figures."""
    config = settle(load_config(None, {"dataset": data, "dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    seconds = limit * READ * TOKENS / (TOKENS_A_SECOND * threads)
    print(f"{limit} questions, two combinations each: about {duration_text(seconds)} with a MiniLM.", flush=True)
    ours = CrossEncoder(model, "ours", window, compute_of(config))
    drawn = list(itertools.islice(draw(config, root, ours), limit))
    if not drawn:
        raise DataError(f"no question of {data} has its evidence among candidates of {TOKENS} tokens: name other data.")
    both = [(one.prepared, combination) for one in drawn for combination in (one.shown, one.hidden)]
    figures = {
        "data": data,
        "questions": len(drawn),
        "window": window,
        "median_tokens": float(np.median([len(joined(p, combination)) for p, combination in both])),
        "median_windows": float(np.median(ours.windows(both))),
        **summed_up([differences(ours, one) for one in drawn]),
    }
    print(json.dumps(figures))


def draw(config: Config, root: Path, ours: CrossEncoder) -> Iterator[Drawn]:
    """Of each question that was kept back, in random order, its candidates and two combinations, if they allow both."""
    dataset, folder = open_corpus(root, config)
    index = made_index(config, dataset, folder, build_embedder(config))
    questions = [question for question in dataset.questions if part_of_question(question, PARTS) == TEST_PART]
    random.Random(0).shuffle(questions)
    for question in questions:
        [hits] = index.first_stage.search([question.text], CANDIDATES)
        rows = [row for row, _ in hits]
        candidates = index.store.take(rows)
        holds = [covers_any(chunk, question.evidence) for chunk in candidates]
        if any(holds):
            prepared = ours.prepare(question.text, candidates, rows)
            if both := combinations([len(ids.first) for ids in prepared.chunks], holds):
                yield Drawn(prepared, *both)


def combinations(
    lengths: Sequence[int], holds: Sequence[bool], tokens: int = TOKENS
) -> tuple[Combination, Combination] | None:
    """As many of the first candidates without evidence as make `tokens` with the first that holds some.

    Behind them stands that one, and in the second combination the next without evidence. None where candidates are too
    few.
    """
    if not any(holds):
        return None
    evidence = list(holds).index(True)
    others = [number for number, held in enumerate(holds) if not held]
    totals = itertools.accumulate((lengths[number] for number in others), initial=lengths[evidence])
    end = next((count for count, total in enumerate(totals) if count and total >= tokens), len(others))
    if end == len(others):
        return None
    before = tuple(others[:end])
    return (*before, evidence), (*before, others[end])


def differences(ours: CrossEncoder, drawn: Drawn) -> dict[str, float]:
    """By side, how much higher the combination with the evidence is scored than the other, raw; NaN without a score."""
    both = [(drawn.prepared, combination) for combination in (drawn.shown, drawn.hidden)]
    cut = [(truncated(ours, *pair), (0,)) for pair in both]
    shown, hidden, [cut_shown], [cut_hidden] = ours.window_logits([*both, *cut])
    sides = {pooling.value: pooling.pooled(shown) - pooling.pooled(hidden) for pooling in Pooling}
    return sides | {"truncated": cut_shown - cut_hidden}


def truncated(ours: CrossEncoder, prepared: PreparedPair, combination: Combination) -> PreparedPair:
    """The joined chunks as one, of which as much is left as fits a window beside the query."""
    kept = joined(prepared, combination)[: ours.room_beside(prepared)]
    return PreparedPair(prepared.query, (ChunkIds(kept, kept),), prepared.query_tokens)


def joined(prepared: PreparedPair, combination: Combination) -> IdArray:
    """The ids of the chunks as one document."""
    first, *later = (prepared.chunks[number] for number in combination)
    return np.concatenate([first.first, *(chunk.later for chunk in later)])


def summed_up(found: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """By side the shares of changed and of raised scores and the medians of their differences, and what has no score.

    Raises:
        DataError: nothing has.
    """
    sound = [sides for sides in found if all(map(math.isfinite, sides.values()))]
    if not sound:
        raise DataError("the model gave no score to any of the combinations.")
    figures: dict[str, Any] = {"unscored": len(found) - len(sound)}
    for side in sound[0]:
        values = np.array([sides[side] for sides in sound])
        figures[side] = {
            "changed": round(float(np.mean(np.abs(values) > ROUNDED_AWAY)), 4),
            "raised": round(float(np.mean(values > ROUNDED_AWAY)), 4),
            "median_difference": round(float(np.median(values)), 4),
            "median_distance": round(float(np.median(np.abs(values))), 4),
        }
    return figures


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
