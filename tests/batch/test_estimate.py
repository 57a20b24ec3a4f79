"""The estimate: nothing to do costs the start alone, and more of anything costs more."""

import pytest

from corag_ray.batch import estimate
from corag_ray.batch.estimate import SELECT_SECONDS, START_SECONDS, duration_text, estimate_seconds
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


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 seconds"), (89, "89 seconds"), (90, "2 minutes"), (600, "10 minutes")]
)
def test_durations_are_said_in_seconds_or_minutes(seconds, text):
    assert duration_text(seconds) == text
