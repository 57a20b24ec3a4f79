"""Fakes of what a selection asks: a corpus of words, and pools over the same fakes as the batch pipeline's tests."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from corag_ray.config import Config
from corag_ray.errors import DeadlineError, UnavailableError
from corag_ray.models.agent import Configuration
from corag_ray.prompts import seed
from corag_ray.scoring import ScoringContext, score_pairs
from corag_ray.selection import Framing
from corag_ray.serving.merged_scorer import Scored
from corag_ray.serving.messages import Asked, Embedded, Retrieved
from corag_ray.serving.searching import Searcher
from corag_ray.serving.select import OnlineSelector
from corag_ray.types import Chunk, Question, Score

CONFIG = Config.model_validate(
    {
        "budget_tokens": 12,
        "retrieval": {"num_candidates": 10},
        "generation": {"max_new_tokens": 4},
        "methods": {
            "ranked": {"strategy": {"kind": "ranked"}, "reranker": "overlap"},
            "corag": {"strategy": {"kind": "policy_tree", "preset": "report"}, "reranker": "overlap"},
            "mmr": {"strategy": {"kind": "mmr"}, "reranker": "overlap"},
            "none": {"source": "none"},
            "gold": {"source": "gold"},
        },
    }
)


class WordTokenizer:
    """Counts words; a prompt has three more."""

    name = "words"

    def __init__(self, context_window=10_000):
        self.context_window = context_window

    def count(self, texts):
        return [len(text.split()) for text in texts]

    def count_prompts(self, prompts):
        return [len(prompt.split()) + 3 for prompt in prompts]


class Overlap:
    """Covered question words less a little for length: not monotone."""

    order_sensitive = False

    def prepare(self, query, candidates):
        return set(query.split()), [chunk.text.split() for chunk in candidates]

    def score(self, pairs):
        return [self._one(*prepared, combination) for prepared, combination in pairs]

    def _one(self, asked, texts, combination):
        words = [word for number in combination for word in texts[number]]
        value = len(asked & set(words)) / len(asked) - len(words) / 200
        return Score(value, max(0.0, value))


def chunks_of(texts):
    return [Chunk(i + 1, f"d{i // 2}", i % 2, 0, len(t), t, len(t.split()) + 1) for i, t in enumerate(texts)]


@dataclass
class FakeParts:
    """Retrieves by shared words, ties by row; the agent always says the same."""

    texts: list
    configuration: Configuration = field(default_factory=lambda: Configuration("corag"))
    asked_similarity: list = field(default_factory=list)

    async def embed(self, text, deadline_s):
        return Embedded(np.ones(2, dtype=np.float32), np.ones((1, 2), dtype=np.float32))

    async def similarity(self, texts, deadline_s):
        return tuple(tuple(float(a == b) for b in texts) for a in texts)

    async def configure(self, text, embedded, deadline_s):
        return self.configuration

    async def retrieve(self, text, embedded, num_candidates, with_similarity, deadline_s):
        self.asked_similarity.append(with_similarity)
        words = set(text.split())
        hits = [(row, float(len(words & set(t.split())))) for row, t in enumerate(self.texts)]
        hits = sorted((h for h in hits if h[1] > 0), key=lambda hit: (-hit[1], hit[0]))[:num_candidates]
        chunks = chunks_of(self.texts)
        cosines = tuple(tuple(float(a == b) for b, _ in hits) for a, _ in hits) if with_similarity else ()
        rows, scores = (tuple(values) for values in zip(*hits, strict=True)) if hits else ((), ())
        return Retrieved(rows, scores, tuple(chunks[row] for row in rows), "1-abc", cosines)


class FakePool:
    """Scores with a reranker of this process, until it has answered so many calls; then it is dead, or late."""

    order_sensitive = False

    def __init__(self, chunks, *, dead_after=None, late_after=None, window=None):
        self.chunks, self.calls, self.opened = chunks, [], []
        self.dead_after, self.late_after, self.window = dead_after, late_after, window

    async def open(self, query, embedded, deadline_s):
        self.opened.append(query)
        return _FakeOpen(self, query)


class _FakeOpen:
    def __init__(self, pool, query):
        chunks = query.chunks or [pool.chunks[row] for row in query.rows]
        self.pool, self.prepared = pool, Overlap().prepare(query.text, chunks)

    async def score(self, reading, combinations, deadline_s, both=False):
        if self.pool.dead_after is not None and len(self.pool.calls) >= self.pool.dead_after:
            raise UnavailableError("'overlap' lost its replica 4 times in a row.")
        if self.pool.late_after is not None and len(self.pool.calls) >= self.pool.late_after:
            raise DeadlineError("the request's time was up before 'overlap' answered.")
        self.pool.calls.append(list(combinations))
        context = ScoringContext("overlap", self.prepared, reading)
        pairs = [(0, combination) for combination in combinations]
        heard = defaultdict(dict)
        values = score_pairs({"overlap": Overlap()}, [context], pairs, heard=heard)
        return Scored(values, len(pairs), "r1", list(heard[0].values()) if both else [])

    async def windows(self, combinations, deadline_s):
        return None if self.pool.window is None else ([self.pool.window] * len(combinations), (9, 7))


def selector_over(texts, pools=None, fallback=(), most_pairs=10_000, tokenizer=None, **parts):
    pools = pools or {"overlap": FakePool(chunks_of(texts))}
    framing = Framing(tokenizer or WordTokenizer(), seed, 4)
    return OnlineSelector(CONFIG, framing, FakeParts(texts, **parts), Searcher(pools, fallback), most_pairs)


def asked(text, budget_tokens=12, in_s=60.0, **more):
    return Asked(Question("r-1", text), budget_tokens, 4, time.time() + in_s, **more)
