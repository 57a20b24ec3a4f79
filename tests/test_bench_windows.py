"""The job that compares windows with truncation: what is put together, what is cut, and how it is summed up."""

import math

import pytest
from models import tiny_models
from transformers import AutoTokenizer

from corag_ray.errors import DataError
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.pair_inputs import PairInputs, Pooling
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk
from jobs.bench_windows import Drawn, combinations, differences, summed_up, truncated

QUERY = "How high is the tower?"
TEXTS = [text[:150] for text in tiny_models.sample_texts()[:9]]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 50) for n, text in enumerate(TEXTS)]


@pytest.fixture(scope="module", params=["bert", "xlm_roberta"])
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


def test_the_first_candidates_without_evidence_come_before_the_first_with_and_before_the_next_without():
    lengths, holds = [3, 4, 5, 6, 7, 2], [False, True, False, False, False, True]
    # With the evidence's 4 tokens: 4 + 3 = 7, 12, 18.
    assert combinations(lengths, holds, tokens=13) == ((0, 2, 3, 1), (0, 2, 3, 4))
    assert combinations(lengths, holds, tokens=12) == ((0, 2, 1), (0, 2, 3))
    assert combinations(lengths, holds, tokens=4) == ((0, 1), (0, 2))  # never the evidence alone


@pytest.mark.parametrize(
    ("holds", "tokens"),
    [([False] * 3, 1), ([True] * 3, 1), ([True, False, False], 15), ([True, False, False], 16)],
    ids=["no evidence", "nothing else", "no other is left", "too few tokens"],
)
def test_candidates_that_do_not_make_both_combinations_give_none(holds, tokens):
    assert combinations([5, 5, 5], holds, tokens) is None


def test_truncation_leaves_what_transformers_leaves_of_the_joined_texts(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours = CrossEncoder(folder, "tiny", 128, Compute(threads=1))
    cut = truncated(ours, ours.prepare(QUERY, CHUNKS, range(len(CHUNKS))), (2, 0, 1, 3))
    [whole] = PairInputs(tokenizer, 128).windows(cut.query, cut.chunks)
    joined = " ".join(TEXTS[number] for number in (2, 0, 1, 3))
    expected = tokenizer(QUERY, joined, truncation="only_second", max_length=128)["input_ids"]
    assert len(expected) == 128
    assert whole.ids.tolist() == expected


def test_each_side_is_what_that_side_scores_and_truncation_sees_no_difference_behind_the_window(folder):
    shown, hidden = (0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 6, 8)
    found = []
    for pooling in Pooling:
        ours = CrossEncoder(folder, "tiny", 128, Compute(threads=1), pooling=pooling)
        prepared = ours.prepare(QUERY, CHUNKS, range(len(CHUNKS)))
        own, other = ours.score([(prepared, shown), (prepared, hidden)])
        found.append(differences(ours, Drawn(prepared, shown, hidden)))
        assert found[-1][pooling.value] == pytest.approx(own.raw - other.raw, abs=1e-5)
        assert found[-1]["truncated"] == 0
    for others in found[1:]:
        assert others == pytest.approx(found[0], abs=1e-5)  # the rule of the scorer itself plays no part
    assert found[0].keys() == {"maximum", "mean", "soft_maximum", "truncated"}
    assert abs(found[0]["mean"]) > 1e-3
    assert abs(found[0]["soft_maximum"]) > 1e-3


def test_what_is_rounded_away_is_no_change_and_the_medians_are_with_and_without_sign():
    found = [{"a": a, "b": 1.0} for a in (0.0, 0.001, -0.002, 0.5)] + [{"a": 0.0, "b": math.nan}]
    assert summed_up(found) == {
        "unscored": 1,
        "a": {"changed": 0.5, "raised": 0.25, "median_difference": 0.0005, "median_distance": 0.0015},
        "b": {"changed": 1.0, "raised": 1.0, "median_difference": 1.0, "median_distance": 1.0},
    }


def test_without_any_score_there_are_no_figures():
    with pytest.raises(DataError, match="gave no score"):
        summed_up([{"a": math.nan}])
