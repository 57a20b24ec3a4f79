"""Random-weight cross-encoders of the real architectures, against transformers' own forward pass."""

import math
import threading

import pytest
import torch
from models import tiny_models
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from corag_ray.errors import ConfigError
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk

TEXTS = [text[:90] for text in tiny_models.sample_texts()[:4]]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 50) for n, text in enumerate(TEXTS)]
QUERY = "How high is the tower?"
COMBINATIONS = [(0,), (1,), (2,), (0, 1), (1, 0), (2, 1)]


@pytest.fixture(scope="module", params=["bert", "xlm_roberta"])
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def reranker(folder):
    return CrossEncoder(folder, "tiny", 128, Compute(threads=1))


def scores(reranker, combinations, query=QUERY):
    prepared = reranker.prepare(query, CHUNKS, range(len(CHUNKS)))
    return reranker.score([(prepared, combination) for combination in combinations])


def tokens_of(folder, query, text):
    """By transformers alone: the tokens that a model reads of a whole pair."""
    return AutoTokenizer.from_pretrained(folder)(query, text, return_tensors="pt")


def logit_of(folder, query, text):
    """By transformers alone: the logit of a whole pair."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokens_of(folder, query, text)
    inputs.pop("token_type_ids") if model.config.type_vocab_size == 1 and "token_type_ids" in inputs else None
    with torch.inference_mode():
        return float(model(**inputs).logits[0, 0])


def test_a_score_is_the_models_own_logit_of_the_joined_texts(reranker, folder):
    for combination, score in zip(COMBINATIONS, scores(reranker, COMBINATIONS), strict=True):
        logit = logit_of(folder, QUERY, " ".join(TEXTS[n] for n in combination))
        assert score.raw == pytest.approx(logit, abs=1e-5)
        assert score.calibrated == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)


def test_order_matters_and_more_chunks_can_be_worse_or_better(reranker):
    found = {c: s.raw for c, s in zip(COMBINATIONS, scores(reranker, COMBINATIONS), strict=True)}
    assert found[0, 1] != pytest.approx(found[1, 0], abs=1e-6)
    gains = [found[0, 1] - found[0,], found[1, 0] - found[1,], found[2, 1] - found[2,]]
    gains += [pair.raw - found[0,] for pair in scores(reranker, [(0, 2), (0, 3), (0, 2, 3)])]
    assert min(gains) < 0 < max(gains)


def test_one_pair_none_and_an_empty_combination(reranker):
    assert reranker.score([]) == []
    [one] = scores(reranker, [(0,)])
    assert one.raw == pytest.approx(scores(reranker, COMBINATIONS)[0].raw, abs=1e-5)
    [empty] = scores(reranker, [()])
    assert 0 < empty.calibrated < 1


def test_a_pair_longer_than_the_window_has_no_score_and_spoils_no_other(folder):
    joined = f"{TEXTS[0]} {TEXTS[1]}"
    tokens = tokens_of(folder, QUERY, joined)["input_ids"].shape[1]
    whole = scores(CrossEncoder(folder, "tiny", tokens, Compute(threads=1)), [(0,), (0, 1)])
    first, beyond = scores(CrossEncoder(folder, "tiny", tokens - 1, Compute(threads=1)), [(0,), (0, 1)])
    assert whole[1].raw == pytest.approx(logit_of(folder, QUERY, joined), abs=1e-5)
    assert first.raw == pytest.approx(whole[0].raw, abs=1e-5)
    assert (math.isnan(beyond.raw), math.isnan(beyond.calibrated)) == (True, True)


def test_a_question_may_fill_the_window_and_beyond_it_has_no_score(reranker, folder):
    pieces = len(AutoTokenizer.from_pretrained(folder).tokenize("tower"))
    long, longer = (" ".join(["tower"] * (wanted // pieces)) for wanted in (110, 140))
    chunk = Chunk(0, "d", 0, 0, 4, "tall", 1)
    assert 106 < tokens_of(folder, long, chunk.text)["input_ids"].shape[1] <= 128  # three quarters are 96
    pairs = [(reranker.prepare(query, [chunk], [0]), (0,)) for query in (long, longer)]
    scored, unscored = reranker.score(pairs)
    assert scored.raw == pytest.approx(logit_of(folder, long, chunk.text), abs=1e-5)
    assert math.isnan(unscored.raw)


def test_a_window_beyond_the_models_positions_is_refused_and_all_of_them_can_be_read(reranker, folder):
    # BERT has 128 positions; XLM-R has 130 and leaves the first two, up to its padding token's number, to padding.
    with pytest.raises(ConfigError, match=r"^'mine': .* reads at most 128 tokens, so max_tokens cannot be 129\.$"):
        CrossEncoder(folder, "mine", 129, Compute(threads=1))
    special = tokens_of(folder, "a", "a")["input_ids"].shape[1] - 2
    query, chunk = " ".join("a" * (127 - special)), Chunk(0, "d", 0, 0, 1, "a", 1)
    assert tokens_of(folder, query, "a")["input_ids"].shape[1] == 128
    [score] = reranker.score([(reranker.prepare(query, [chunk], [0]), (0,))])
    assert score.raw == pytest.approx(logit_of(folder, query, "a"), abs=1e-5)


def test_threads_at_once_get_the_scores_of_one(reranker):
    expected = scores(reranker, COMBINATIONS)
    found = []
    threads = [threading.Thread(target=lambda: found.append(scores(reranker, COMBINATIONS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_folder_without_a_cross_encoder_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"^'mine': .* holds no cross-encoder"):
        CrossEncoder(tmp_path, "mine", 128, Compute(threads=1))
