"""The estimate: nothing to do costs the start alone, and more of anything costs more."""

import pytest

from corag_ray.batch import estimate
from corag_ray.batch.estimate import SELECT_SECONDS, START_SECONDS, duration_text, estimate_seconds, not_estimated
from corag_ray.config import Config


@pytest.fixture(autouse=True)
def _a_machine_of_one_gigaflop(monkeypatch):
    monkeypatch.setattr(estimate, "_matrix_rate", lambda threads: 1e9)


def test_nothing_to_do_takes_the_start_alone():
    assert estimate_seconds(Config(), 0, 0) == START_SECONDS


def test_embedding_is_chunks_times_their_size():
    config = Config.model_validate({"chunking": {"size_tokens": 100}})
    # 3 chunks of 100 tokens at 2 x 10.7e6, on 1e9 a second used to 60 %
    assert estimate_seconds(config, 0, 3) - START_SECONDS == pytest.approx(3 * 100 * 21.4e6 / 0.9e9)


def test_generation_counts_each_methods_prompt_and_answer_and_nothing_when_switched_off():
    methods = {"methods": {"a": {"source": "none"}, "b": {"source": "none"}}}
    on = Config.model_validate({**methods, "generation": {"max_new_tokens": 30}})
    off = Config.model_validate({**methods, "generation": {"enabled": False}})
    # 5 questions x 2 methods x (70 of the template + 30)
    selecting = START_SECONDS + 5 * SELECT_SECONDS
    assert estimate_seconds(on, 5, 0) - selecting == pytest.approx(5 * 2 * 100 * 269e6 / 0.9e9)
    assert estimate_seconds(off, 5, 0) == selecting


SERVER = {"server": {"base_url": "http://127.0.0.1:9/v1", "model": "m", "context_window": 100}}


def test_a_servers_answers_are_not_counted_and_said_not_to_be():
    methods = {"methods": {"a": {"source": "none"}}}
    asked = Config.model_validate({**methods, "generation": SERVER})
    off = Config.model_validate({**methods, "generation": {**SERVER, "enabled": False}})
    assert estimate_seconds(asked, 5, 0) == estimate_seconds(off, 5, 0)
    assert not_estimated(asked) == ["the server's answers"]
    assert not_estimated(off) == not_estimated(Config()) == []


def test_cross_encoders_that_are_asked_are_said_not_to_be_counted():
    own = {"cross_encoders": {"mine": {"folder": "nowhere"}}}
    methods = {"m": {"strategy": {"kind": "ranked"}, "reranker": "mine"}}
    assert not_estimated(Config.model_validate({**own, "methods": methods})) == ["the cross-encoders"]
    assert not_estimated(Config.model_validate(own)) == []


@pytest.mark.parametrize(
    ("strategy", "pairs"),
    [
        ({"kind": "ranked"}, 20),
        ({"kind": "policy_tree", "changes": {"iterations": 6}}, 6 * 20),
        ({"kind": "corag", "changes": {"pairs": 33}}, 33),
        ({"kind": "greedy"}, 4 * 20),  # 100 tokens hold 4 chunks of 30, the last one in part
        ({"kind": "beam", "changes": {"width": 3}}, 20 + 3 * 3 * 20),
        ({"kind": "exhaustive", "changes": {"num_candidates": 4, "max_chunks": 2}}, 4 + 4 * 3),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_query_likelihood_reads_a_chunk_and_the_question_for_every_pair_of_a_strategy(strategy, pairs):
    values = {"budget_tokens": 100, "chunking": {"size_tokens": 30}, "retrieval": {"num_candidates": 20}}
    values["generation"] = {"enabled": False}
    likely, cheap = (
        Config.model_validate(values | {"methods": {"m": {"strategy": strategy, "reranker": name}}})
        for name in ("query_likelihood", "bm25")
    )
    selecting = START_SECONDS + 3 * SELECT_SECONDS
    assert estimate_seconds(cheap, 3, 0) == selecting
    assert estimate_seconds(likely, 3, 0) - selecting == pytest.approx(3 * pairs * (30 + 40) * 269e6 / 0.9e9)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 seconds"), (89, "89 seconds"), (90, "2 minutes"), (600, "10 minutes")]
)
def test_durations_are_said_in_seconds_or_minutes(seconds, text):
    assert duration_text(seconds) == text
