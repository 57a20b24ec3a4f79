"""The combination reranker over a head of random weights: company, batches, odd inputs, and what it prepares."""

import math
import pickle
import random

import numpy as np
import pytest
import torch

from corag_ray.models import combination_reranker
from corag_ray.models.calibration import Calibration
from corag_ray.models.combination_reranker import CombinationReranker
from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk

WORDS = ["tower", "high", "paris", "iron", "river", "tea", "hills", "history", "metre", "world", "light", "sugar"]
TEXTS = [
    "tower metre high",
    "river",
    "iron tower paris",
    "metre metre",
    "history paris river hills tea",
    "",
    "sugar tea",
]
QUERIES = ["high paris tower", "tea", "", "world light sugar tea history"]
CURVE = Calibration(2.0, 0.5, 1)


class Vectors:
    """A fixed unit vector a word."""

    dim, windowed = 8, 0

    def __init__(self):
        table = np.random.default_rng(2).normal(size=(len(WORDS), self.dim))
        self._table = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)

    def embed_with_tokens(self, texts):
        tokens = [self._table[[WORDS.index(word) for word in text.split()]].reshape(-1, self.dim) for text in texts]
        return np.zeros((len(texts), self.dim), np.float32), tokens


def made(stored=None, calibration=None, deterministic=False):
    torch.manual_seed(0)
    head = SetHead(HeadShape(Vectors.dim, projected=6, width=16, heads=2, hidden=16)).eval()
    return CombinationReranker(Vectors(), stored, head, Compute(1, deterministic=deterministic), calibration)


def chunks_of(texts):
    return [Chunk(n, f"d{n}", 0, 0, len(text), text, 1) for n, text in enumerate(texts)]


def prepared_by(reranker, query=QUERIES[0], texts=TEXTS):
    return reranker.prepare(query, chunks_of(texts), range(len(texts)))


def drawn_pairs(reranker, count=60):
    """Pairs of several queries and lengths, the empty combination and repeated chunks among them."""
    chance, prepared = random.Random(1), [prepared_by(reranker, query) for query in QUERIES]
    lengths = [chance.randint(0, 8) for _ in range(count)]
    return [(chance.choice(prepared), tuple(chance.choices(range(len(TEXTS)), k=length))) for length in lengths]


@pytest.mark.parametrize("positions", [1, 40, 16_384])
def test_a_score_is_the_same_alone_in_company_and_in_batches_of_any_size(monkeypatch, positions):
    reranker = made()
    pairs = drawn_pairs(reranker)
    alone = [reranker.score([pair])[0] for pair in pairs]
    monkeypatch.setattr(combination_reranker, "BATCH_POSITIONS", positions)
    together = made().score(pairs)
    assert [score.raw for score in together] == pytest.approx([score.raw for score in alone], abs=1e-5)
    assert len({round(score.raw, 6) for score in alone}) > 40  # not one number for all


def test_in_deterministic_mode_company_changes_not_one_bit():
    reranker = made(deterministic=True)
    pairs = drawn_pairs(reranker)
    assert reranker.score(pairs) == [reranker.score([pair])[0] for pair in pairs]
    assert reranker.score(pairs[::-1]) == reranker.score(pairs)[::-1]


def test_no_pairs_give_no_scores_and_the_empty_combination_a_score_like_any_other():
    reranker = made()
    assert reranker.score([]) == []
    [empty, again, one] = reranker.score([(prepared_by(reranker), c) for c in ((), (), (0,))])
    assert empty == again
    assert math.isfinite(empty.raw)
    assert empty.raw != one.raw
    assert len(prepared_by(reranker, texts=[])) == 1


def test_calibrated_is_the_logistic_function_or_the_curve():
    plain, fitted = made(), made(calibration=CURVE)
    pairs = drawn_pairs(plain)
    for one, other in zip(plain.score(pairs), fitted.score(pairs), strict=True):
        assert one.raw == other.raw
        assert one.calibrated == pytest.approx(1 / (1 + math.exp(-one.raw)), abs=1e-12)
        assert other.calibrated == CURVE.calibrated(one.raw)


def test_what_is_prepared_is_small_and_comes_back_from_a_pickle():
    prepared = prepared_by(made())
    assert prepared.dtype == np.float16
    assert prepared.shape == (1 + len(TEXTS), 4, 16 + 6 + 1)  # no chunk before all; the query's mean before its words
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(prepared)), prepared)


def test_stored_vectors_are_asked_for_by_store_row_and_agree_with_computed_ones():
    rows = [70, 12, 55, 9, 30, 2, 4]
    text_of = dict(zip(rows, TEXTS, strict=True))

    def stored(asked):
        return [Vectors().embed_with_tokens([text_of[row]])[1][0] for row in asked]

    found = made(stored).prepare(QUERIES[0], chunks_of(["tea"] * len(rows)), rows)
    np.testing.assert_array_equal(found, prepared_by(made()))


def test_a_number_that_is_none_spoils_only_the_scores_of_its_chunk():
    reranker = made()
    spoilt = prepared_by(reranker).copy()
    spoilt[2] = np.nan
    pairs = [(1,), (0, 1), (0,), (3, 0), ()]
    found = reranker.score([(spoilt, c) for c in pairs])
    whole = reranker.score([(prepared_by(reranker), c) for c in pairs])
    assert all(math.isnan(score.raw) and math.isnan(score.calibrated) for score in found[:2])
    assert [score.raw for score in found[2:]] == pytest.approx([score.raw for score in whole[2:]], abs=1e-6)


def test_scores_do_not_depend_on_other_candidates():
    reranker = made()
    few = prepared_by(reranker, texts=TEXTS[:3])
    many = prepared_by(reranker)
    for combination in ((0,), (2, 1), (1, 0, 2)):
        [one, other] = reranker.score([(few, combination), (many, combination)])
        assert one.raw == pytest.approx(other.raw, abs=1e-3)  # rounded to float16 from sums in another order


def test_thousands_of_pairs_of_one_question_are_scored_in_few_passes(monkeypatch):
    reranker = made()
    passes = []
    forward = SetHead.forward
    monkeypatch.setattr(SetHead, "forward", lambda head, rows: passes.append(len(rows)) or forward(head, rows))
    prepared = prepared_by(reranker)
    reranker.score([(prepared, (n % 7, n % 5)) for n in range(3000)])
    assert sum(passes) == 3000
    assert passes == [8_192 // (4 * 3)] * 4 + [3000 - 4 * (8_192 // 12)]
