"""Query likelihood against the definition, computed one sequence at a time with transformers alone."""

import math

import pytest
import torch

from corag_ray.models.packaged import SMOLLM2
from corag_ray.models.query_likelihood import HEAD, INSTRUCTION, QueryLikelihood
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk

pytestmark = pytest.mark.models

TEXTS = [
    "The Eiffel Tower in Paris is 330 metres high and was the tallest building of the world for forty years.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen; it needs chlorophyll to do so.",
    "Gustave Eiffel's company built the tower for the World Fair of 1889, a hundred years after the revolution.",
]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 30) for n, text in enumerate(TEXTS)]
QUESTION = "How high is the Eiffel Tower?"
COMBINATIONS = [(0,), (1,), (2,), (0, 2), (2, 0), (0, 1), (0, 2, 1), ()]


@pytest.fixture(scope="module")
def reranker():
    return QueryLikelihood(SMOLLM2.folder(), Compute(threads=2))


@pytest.fixture(scope="module")
def scores(reranker):
    prepared = reranker.prepare(QUESTION, CHUNKS, [])
    return dict(zip(COMBINATIONS, reranker.score([(prepared, c) for c in COMBINATIONS]), strict=True))


def by_hand(combination):
    """Each piece tokenised by itself, one forward pass over the whole, the mean over the question's tokens."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SMOLLM2.folder())
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2.folder(), dtype=torch.float32).eval()
    pieces = [HEAD, *(f"\n{TEXTS[n]}" for n in combination), INSTRUCTION, f" {QUESTION}"]
    encoded = [tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
    ids = torch.tensor([[token for ids in encoded for token in ids]])
    with torch.inference_mode():
        chances = model(ids).logits[0].log_softmax(dim=-1)
    first = ids.shape[1] - len(encoded[-1])
    return sum(float(chances[place - 1, ids[0, place]]) for place in range(first, ids.shape[1])) / len(encoded[-1])


def test_scores_are_mean_log_probabilities_of_the_question_though_prefixes_are_shared(scores, reranker):
    for combination in [(0,), (2, 0), (0, 2, 1), ()]:
        assert scores[combination].raw == pytest.approx(by_hand(combination), abs=1e-4)
    assert reranker.tokens_computed < reranker.tokens_asked


def test_the_calibrated_value_is_the_probability_of_a_token(scores):
    assert all(score.calibrated == math.exp(score.raw) for score in scores.values())
    assert all(0 < score.calibrated < 1 for score in scores.values())


def test_the_passage_about_the_question_predicts_it_better_than_another_or_none(scores):
    assert scores[0,].raw > scores[1,].raw
    assert scores[0,].raw > scores[()].raw


def test_order_matters_and_more_chunks_can_be_worse(scores):
    assert abs(scores[0, 2].raw - scores[2, 0].raw) > 1e-3
    assert scores[0, 1].raw < scores[0,].raw


def test_in_company_alone_and_unshared_scores_are_equal(reranker, scores):
    other = reranker.prepare("What does photosynthesis need?", CHUNKS, [])
    prepared = reranker.prepare(QUESTION, CHUNKS, [])
    mixed = reranker.score([(other, (1,)), (prepared, (0, 2)), (other, (1, 0)), (prepared, (2, 0))])
    assert mixed[1].raw == pytest.approx(scores[0, 2].raw, abs=1e-5)
    assert mixed[3].raw == pytest.approx(scores[2, 0].raw, abs=1e-5)
    unshared = QueryLikelihood(SMOLLM2.folder(), Compute(threads=2), min_shared=10_000)
    alone = unshared.score([(prepared, (0, 2)), (prepared, (0, 1))])
    assert [s.raw for s in alone] == pytest.approx([scores[0, 2].raw, scores[0, 1].raw], abs=1e-4)
    assert unshared.tokens_computed == unshared.tokens_asked


def test_a_combination_longer_than_the_window_has_no_score_and_spoils_no_other(reranker, monkeypatch, scores):
    prepared = reranker.prepare(QUESTION, CHUNKS, [])
    monkeypatch.setattr(reranker, "_window", len(reranker.sequence(prepared, (0,))))
    long, fitting = reranker.score([(prepared, (0, 2)), (prepared, (0,))])
    assert math.isnan(long.raw)
    assert fitting.raw == pytest.approx(scores[0,].raw, abs=1e-5)


def test_nothing_to_score_gives_nothing(reranker):
    assert reranker.score([]) == []


def test_in_the_deterministic_mode_a_score_is_the_same_alone_and_in_company_to_the_last_bit():
    reranker = QueryLikelihood(SMOLLM2.folder(), Compute(threads=1, deterministic=True))
    prepared = reranker.prepare(QUESTION, CHUNKS, [])
    [alone] = reranker.score([(prepared, (0, 2))])
    assert reranker.score([(prepared, c) for c in [(0,), (0, 2), (0, 1)]])[1] == alone
    assert reranker.tokens_computed == reranker.tokens_asked
