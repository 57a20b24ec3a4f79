"""How fast combinations are scored: this scorer against FlagEmbedding's and sentence-transformers', on one checkpoint.

`python -m jobs.bench_scorer --data hotpotqa-sample --limit 3000`. The combinations are drawn evenly from what 100
searches ask for. They are scored in blocks, each by all sides one after the other in changing order, so that
other work on the machine falls on all, and all compute in the same number type. `--backend onnx_int8` adds this
scorer in int8 by ONNX Runtime as a fourth side.

The last line is one JSON object. `times_X`: this scorer's rate as a multiple of that of X; `kendall_tau` and
`same_top`: its order, and its best combination, against FlagEmbedding's by question (1 is the same); `padding_share`:
of the positions that were computed; `roofline_share`: of the rate at which this machine multiplies the model's largest
matrices, had every layer been computed whole; `too_long_for_the_others`: pairs left out, since they would cut them.
`onnx_int8` tells the same of that side, with its rate as a multiple of this scorer's. `memo`: twelve settings of the
first question's search, each alone and then all with one memo, and for how many the answer was the same.

Without `--model` the checkpoint is all-MiniLM-L6-v2 with a head as it is drawn: time does not depend on what the head
has learned, but what int8 does to the order of such scores says little.
"""

from __future__ import annotations

import enum
import functools
import json
import math
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from scipy.stats import kendalltau

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import ensure_index, open_corpus
from corag_ray.build import build_selector
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.core.drive import drive_lockstep
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.strategy import Candidates
from corag_ray.core.tree import depth_first
from corag_ray.identity import index_spec, weights_hash
from corag_ray.memo import Memo
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.pair_logits import BATCH_POSITIONS
from corag_ray.models.torch_setup import Compute, go_offline
from corag_ray.prepare import prepare_weights
from corag_ray.scoring import ScoringContext, score_pairs
from corag_ray.settling import settle
from corag_ray.types import Chunk, Combination, Question
from jobs.untrained_cross_encoder import untrained

SEARCHES = 100
REPEATS = 20
SETTINGS = [
    replace(PRESETS["report"], exploration=exploration, cost_weight=cost_weight, iterations=iterations)
    for exploration in (0.0, 1.0, 2.4)
    for cost_weight in (0.1, 0.3)
    for iterations in (5, 10)
]
"""Twelve searches of one question for the memo."""
MEMO_CANDIDATES, MEMO_BUDGET = 20, 1024
PAIRS_A_SECOND = 20.0
INT8 = "onnx_int8"


class Backend(enum.Enum):
    """What computes our side; a configuration has the same words for it."""

    TORCH = "torch"
    ONNX_INT8 = INT8


@dataclass(frozen=True, slots=True)
class Traffic:
    """A question, its candidates' texts, and the combinations drawn from what its search asked for."""

    question: Question
    chunks: list[Chunk]
    combinations: list[Combination]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The texts as other libraries take them."""
        for combination in self.combinations:
            yield self.question.text, " ".join(self.chunks[number].text for number in combination)


@dataclass(slots=True)
class Side:
    """One way to score pairs, its seconds, and its raw scores so far."""

    score: Callable[[Sequence[int]], Sequence[float]]
    seconds: float = 0.0
    scores: dict[int, float] = field(default_factory=dict)

    def run(self, numbers: Sequence[int]) -> None:
        """Score pairs by number."""
        started = time.perf_counter()
        found = self.score(numbers)
        self.seconds += time.perf_counter() - started
        self.scores.update(zip(numbers, map(float, found), strict=True))


def main(
    data: Annotated[str, typer.Option(help="Data set.")] = "hotpotqa-sample",
    limit: Annotated[int, typer.Option(min=2 * SEARCHES, help="Combinations.")] = 3000,
    model: Annotated[Path | None, typer.Option(help="Folder of a cross-encoder.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    backend: Annotated[Backend, typer.Option(help="Beside torch, time this one as well.")] = Backend.TORCH,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Draw the traffic, time the sides, then the memo, and print figures."""
    config = settle(load_config(None, {"dataset": data, "limit": SEARCHES, "plan": {"threads": threads}}))
    prepare_weights(config)
    go_offline()
    from transformers import AutoModelForSequenceClassification

    count = 3 if backend is Backend.TORCH else 4
    seconds = (count + 0.5) * limit / PAIRS_A_SECOND
    print(f"{limit} combinations, {count} sides: about {duration_text(seconds)}.", flush=True)
    traffic = draw_traffic(config, root, limit)
    with tempfile.TemporaryDirectory() as scratch:
        folder = model or untrained(Path(scratch), config)
        ours = CrossEncoder(folder, "ours", WINDOW_TOKENS, Compute(threads, dtype=config.dtype))
        rerankers = {"ours": ours}
        if backend is Backend.ONNX_INT8:
            rerankers[INT8] = CrossEncoder(folder, INT8, WINDOW_TOKENS, Compute(threads), int8=weights_hash(folder))
        sides, queries, lengths = make_sides(folder, traffic, rerankers, config.dtype)
        time_sides(sides, len(queries))
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    figures = compare(sides, queries) | {
        "too_long_for_the_others": sum(len(query.combinations) for query in traffic) - len(queries),
        "dtype": config.dtype,
        "padding_share": round(ours.padding_share, 4),
        "roofline_share": round(
            operations(model, lengths) / sides["ours"].seconds / matrix_rate(model, config.dtype), 3
        ),
        "memo": memo_figures(ours, traffic[0]),
    }
    print(json.dumps(figures))


def draw_traffic(config: Config, root: Path, limit: int) -> list[Traffic]:
    """The same number of combinations of every search, evenly from all that it asked for, in its order."""
    dataset, folder = open_corpus(root, config)
    ensure_index(config, dataset, folder)
    method = {"searched": {"strategy": {"kind": "policy_tree", "preset": "report"}}}
    searching = Config.model_validate(config.model_dump() | {"methods": method})
    selector = build_selector(searching, folder, index_spec(config, dataset), keep_searches=True)
    drawn = []
    for choices in selector.select(dataset.questions[:SEARCHES]):
        search = choices.methods["searched"].search
        asked = [node.combination for node in depth_first(search.root) if node.combination]  # type: ignore[union-attr]
        places = np.linspace(0, len(asked) - 1, min(-(-limit // SEARCHES), len(asked))).astype(int)
        drawn.append(Traffic(choices.question, choices.candidates, [asked[place] for place in places]))
    return drawn


def make_sides(
    folder: Path, traffic: Sequence[Traffic], rerankers: Mapping[str, CrossEncoder], dtype: str
) -> tuple[dict[str, Side], list[int], list[int]]:
    """Our sides by name and the others' two over pairs by number, each pair's query, and its length in tokens.

    Pairs that exceed the window are left out: the others would cut them. Our sides make their ids from texts here, as
    if no index held them.
    """
    from FlagEmbedding import FlagReranker
    from sentence_transformers import CrossEncoder as SentenceTransformersEncoder
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = [(number, one) for number, query in enumerate(traffic) for one in query.combinations]
    texts = [pair for query in traffic for pair in query.pairs()]
    lengths = [len(ids) for ids in tokenizer(*map(list, zip(*texts, strict=True)))["input_ids"]]
    fits = [place for place, length in enumerate(lengths) if length <= WINDOW_TOKENS]
    flag = FlagReranker(
        str(folder), use_fp16=False, devices="cpu", query_max_length=WINDOW_TOKENS, max_length=WINDOW_TOKENS
    )
    theirs = SentenceTransformersEncoder(str(folder), max_length=WINDOW_TOKENS, device="cpu")
    for model in (flag.model, theirs.model):
        model.to(getattr(torch, dtype))
    prepared: dict[str, dict[int, Any]] = {name: {} for name in rerankers}

    def score_ours(name: str, numbers: Sequence[int]) -> list[float]:
        ours, known = rerankers[name], prepared[name]
        chosen = [asked[fits[number]] for number in numbers]
        for query in {query for query, _ in chosen} - known.keys():
            known[query] = ours.prepare(traffic[query].question.text, traffic[query].chunks, [])
        return [score.raw for score in ours.score([(known[query], one) for query, one in chosen])]

    def score_theirs(numbers: Sequence[int]) -> Any:
        chosen = [texts[fits[number]] for number in numbers]
        return theirs.predict(chosen, activation_fn=torch.nn.Identity(), show_progress_bar=False)

    sides = {
        **{name: Side(functools.partial(score_ours, name)) for name in rerankers},
        "flag_embedding": Side(lambda numbers: flag.compute_score([list(texts[fits[number]]) for number in numbers])),
        "sentence_transformers": Side(score_theirs),
    }
    return sides, [asked[place][0] for place in fits], [lengths[place] for place in fits]


def time_sides(sides: dict[str, Side], count: int) -> None:
    """Every pair once a side, in a block for each side to come first in; the blocks are as large as they can be.

    FlagEmbedding reads the first batch of every call twice, to find its size: many small calls would slow it down.
    """
    for side in sides.values():
        side.run(range(2))  # untimed: weights are read and threads started
        side.seconds = 0.0
    order = list(sides)
    for block in np.array_split(np.arange(count), len(order)):
        for name in order:
            sides[name].run(block.tolist())
        order.append(order.pop(0))


def compare(sides: dict[str, Side], queries: Sequence[int]) -> dict[str, Any]:
    """Rates, ratios and agreement with FlagEmbedding."""
    ours, flag = sides["ours"], sides["flag_embedding"]
    figures: dict[str, Any] = {
        "pairs": len(queries),
        "pairs_a_second": {name: round(len(queries) / side.seconds, 1) for name, side in sides.items()},
        "times_flag_embedding": round(flag.seconds / ours.seconds, 3),
        "times_sentence_transformers": round(sides["sentence_transformers"].seconds / ours.seconds, 3),
        **agreement(ours, flag, queries),
    }
    if INT8 in sides:
        times = round(ours.seconds / sides[INT8].seconds, 3)
        figures[INT8] = {"times_ours": times, **agreement(sides[INT8], flag, queries)}
    return figures


def agreement(own: Side, other: Side, queries: Sequence[int]) -> dict[str, float | None]:
    """Kendall's tau, the mean of the queries', each over its own pairs, and the share of queries with the same best.

    A query of one pair, or of equal scores, has no tau.
    """
    by_query: dict[int, list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        by_query[query].append(number)
    taus, same = [], []
    for numbers in by_query.values():
        scores, others = ([side.scores[number] for number in numbers] for side in (own, other))
        found = float(kendalltau(scores, others).statistic)
        taus += [found] if math.isfinite(found) else []
        same.append(int(np.argmax(scores)) == int(np.argmax(others)))
    tau = round(statistics.fmean(taus), 4) if taus else None
    return {"kendall_tau": tau, "same_top": round(statistics.fmean(same), 4)}


def operations(model: Any, lengths: Sequence[int]) -> float:
    """Multiplications and additions of whole encoder layers over inputs of these lengths.

    Two a weight and token, and those of attention's two products.
    """
    layers = model.base_model.encoder
    weights = sum(w.numel() for name, w in layers.named_parameters() if name.endswith("weight") and w.ndim == 2)
    config = model.config
    attention = 4 * config.num_hidden_layers * config.hidden_size
    return float(sum(2 * weights * length + attention * length * length for length in lengths))


def matrix_rate(model: Any, dtype: str) -> float:
    """Operations a second of the model's largest product, on as many positions as a batch has; median of several."""
    config = model.config
    left = torch.randn(BATCH_POSITIONS, config.hidden_size).to(getattr(torch, dtype))
    right = torch.randn(config.intermediate_size, config.hidden_size).to(left.dtype)
    seconds = []
    with torch.inference_mode():
        for _ in range(REPEATS):
            started = time.perf_counter()
            torch.nn.functional.linear(left, right)
            seconds.append(time.perf_counter() - started)
    return float(2 * BATCH_POSITIONS * config.hidden_size * config.intermediate_size / statistics.median(seconds))


def memo_figures(ours: CrossEncoder, query: Traffic) -> dict[str, Any]:
    """Twelve settings of one search, each alone and then all with one memo: pairs computed, seconds, same answers."""
    chunks = query.chunks[:MEMO_CANDIDATES]
    candidates = Candidates(
        costs=tuple(chunk.cost for chunk in chunks),
        priors=tuple(range(len(chunks), 0, -1)),
        documents=tuple(range(len(chunks))),
        positions=tuple(chunk.position for chunk in chunks),
    )
    prepared = ours.prepare(query.question.text, chunks, [])
    figures: dict[str, Any] = {"settings": len(SETTINGS)}
    answers = []
    for name, memo in (("without", None), ("with", Memo({ours.name: "this run's"}, entries=100_000))):
        texts = [chunk.text for chunk in chunks]
        keys = None if memo is None else memo.keys(ours.name, query.question.text, texts, ordered=True)
        context = ScoringContext(ours.name, prepared, "raw", keys)
        computed: Counter[int] = Counter()
        searches = [PolicyTreeSearch(candidates, MEMO_BUDGET, one) for one in SETTINGS]
        started = time.perf_counter()
        for search in searches:
            drive_lockstep(
                [search], functools.partial(_scored, ours, context, memo=memo, computed=computed), in_flight=1
            )
        figures[f"pairs_{name}"], figures[f"seconds_{name}"] = computed[0], round(time.perf_counter() - started, 1)
        answers.append([search.best() for search in searches])
    figures["fewer_pairs"] = round(figures["pairs_without"] / figures["pairs_with"], 2)
    figures["same_answers"] = sum(a == b for a, b in zip(*answers, strict=True))
    return figures


def _scored(
    ours: CrossEncoder,
    context: ScoringContext,
    asked: Sequence[tuple[int, Combination]],
    *,
    memo: Memo | None,
    computed: Counter[int],
) -> list[float | None]:
    return score_pairs({ours.name: ours}, [context], asked, memo=memo, computed=computed)


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
