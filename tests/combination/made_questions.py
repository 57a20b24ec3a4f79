"""Questions with candidates made by hand, and random token matches in which evidence can be told from the rest."""

import numpy as np

from corag_ray.models.token_matches import match_tokens
from corag_ray.types import Chunk
from jobs.combination.checkpoint import Example
from jobs.combination.examples import Asked

DIM = 12


def chunk(number, doc_id="", position=0):
    return Chunk(number, doc_id or f"d{number}", position, 0, 4, f"text {number}", 10)


def asked_of(holds, places=None, evidence=None, kind="several", text="why?"):
    """Candidates that hold the given evidence; `places` are their (document, position), by default all apart."""
    places = places or [(f"d{number}", 0) for number in range(len(holds))]
    chunks = tuple(chunk(number, *place) for number, place in enumerate(places))
    held = tuple(map(frozenset, holds))
    needed = len(frozenset().union(*held)) if evidence is None else evidence
    return Asked(text, "train", kind, chunks, tuple(range(len(chunks))), held, needed)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def made_example(seed, candidates=6):
    """A question of four tokens and two pieces of evidence: a chunk that holds one has two of the tokens as such."""
    draw = np.random.default_rng(seed)
    query = unit(draw.normal(size=(4, DIM)))
    holds = [{0}, {1}] + [set()] * (candidates - 2)
    order = draw.permutation(candidates)
    chunks = [unit(draw.normal(size=(5, DIM))) for _ in range(candidates)]
    for place, source in enumerate(order):
        for evidence in holds[source]:
            chunks[place][:2] = query[2 * evidence : 2 * evidence + 2]
    asked = asked_of([holds[source] for source in order], text=f"question {seed}")
    return Example(asked, match_tokens(query, chunks).as_type(np.float16))
