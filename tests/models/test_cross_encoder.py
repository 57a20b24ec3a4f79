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


def test_a_score_is_the_models_own_logit_of_the_joined_texts(reranker, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for combination, score in zip(COMBINATIONS, scores(reranker, COMBINATIONS), strict=True):
        joined = " ".join(TEXTS[n] for n in combination)
        inputs = tokenizer(QUERY, joined, truncation="only_second", max_length=128, return_tensors="pt")
        inputs.pop("token_type_ids") if model.config.type_vocab_size == 1 and "token_type_ids" in inputs else None
        with torch.inference_mode():
            logit = float(model(**inputs).logits[0, 0])
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


def test_pairs_that_do_not_fit_the_window_are_counted(reranker):
    before = reranker.truncated
    scores(reranker, [(0,), (0, 1, 2, 3, 0)])
    assert reranker.truncated == before + 1


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
