"""Fakes for the pipeline: a token is a word, a chunk of n words costs n + 1 (its number), the template has 3 words."""

import dataclasses
import functools

from hypothesis import strategies as st

from corag_ray.core.fill import SinglesFill
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.ranked import RankedParams
from corag_ray.indexing.store import ChunkStore, write_chunks
from corag_ray.pipeline import Method, Selector
from corag_ray.prompts import seed
from corag_ray.types import Chunk, Generation, Question, Score

RANKED = Method("retrieval", functools.partial(SinglesFill, params=RankedParams()), "overlap")
TREE = Method("retrieval", functools.partial(PolicyTreeSearch, params=PRESETS["report"]), "overlap")
METHODS = {"ranked": RANKED, "tree": TREE, "none": Method("none"), "gold": Method("gold")}
TEMPLATE = 3
LETTERS = "abcdefgh"


class WordTokenizer:
    """Counts words; a prompt has `TEMPLATE` more."""

    name = "words"

    def __init__(self, context_window=10_000):
        self.context_window = context_window

    def count(self, texts):
        return [len(text.split()) for text in texts]

    def count_prompts(self, prompts):
        return [len(prompt.split()) + TEMPLATE for prompt in prompts]


class WordSearch:
    """Rows by shared words, ties by row; chunks that share none are not found."""

    def __init__(self, store):
        self.store = store

    def search(self, queries, k):
        return [self._one(set(query.split()), k) for query in queries]

    def _one(self, words, k):
        hits = [(row, float(len(words & set(text.split())))) for row, text in enumerate(self.store.iter_texts())]
        return sorted((hit for hit in hits if hit[1] > 0), key=lambda hit: (-hit[1], hit[0]))[:k]


class Overlap:
    """Covered question words less a little for length: not monotone, and its calls are kept."""

    name, order_sensitive, monotone = "overlap", False, False

    def __init__(self):
        self.prepared = self.calls = 0

    def prepare(self, query, candidates, rows):
        assert len(candidates) == len(rows)
        self.prepared += 1
        return set(query.split()), [chunk.text.split() for chunk in candidates]

    def score(self, pairs):
        self.calls += 1
        return [self._one(*prepared, combination) for prepared, combination in pairs]

    def _one(self, asked, texts, combination):
        words = [word for number in combination for word in texts[number]]
        value = len(asked & set(words)) / len(asked) - len(words) / 200
        return Score(value, max(0.0, value))


class Echo:
    """Answers with the prompt itself and keeps every call."""

    name = "echo"

    def __init__(self):
        self.calls = []

    def generate(self, prompts, max_new_tokens):
        self.calls.append((list(prompts), max_new_tokens))
        return [Generation(f"to: {p}", len(p.split()), 1, "stop") for p in prompts]


def chunks_of(texts):
    return [Chunk(i + 1, f"d{i // 2}", i % 2, 0, len(t), t, len(t.split()) + 1) for i, t in enumerate(texts)]


def store_of(folder, texts):
    write_chunks(folder / "chunks.arrow", chunks_of(texts))
    return ChunkStore.open(folder / "chunks.arrow")


def selector_over(store, **changes):
    parts = {
        "store": store,
        "index_version": "1-abc",
        "first_stage": WordSearch(store),
        "vectors": None,
        "rerankers": {"overlap": Overlap()},
        "tokenizer": WordTokenizer(),
        "prompt": seed,
        "methods": METHODS,
        "num_candidates": 10,
        "budget_tokens": 12,
        "max_new_tokens": 4,
    }
    return Selector(**parts | changes)


def told(plan):
    """All of a plan but its times, and how much was computed, which depends on the company too."""
    methods = {
        name: [
            getattr(m, field.name)
            for field in dataclasses.fields(m)
            if field.name not in ("latency_ms", "pairs_computed")
        ]
        for name, m in plan.methods.items()
    }
    return plan.question, plan.candidates, methods, str(plan.error)


questions = st.text(alphabet=f"{LETTERS}q ", max_size=24).map(lambda text: Question("q", text))
