"""The job that proves that threads may share a cross-encoder: of which memory it says that it grows."""

import itertools

import pytest

from corag_ray.types import Score
from jobs import check_scorer

PAIRS = [(None, (number,)) for number in range(4)]


class Constant:
    """Gives each pair one and the same score."""

    def score(self, pairs):
        return [Score(0.0, 0.5) for _ in pairs]


def checked(monkeypatch, reranker, *resident_mib):
    """The figures of two threads within a twentieth of a second, with these resident memories in turn."""
    left = iter(resident_mib)
    monkeypatch.setattr(check_scorer, "_resident_mib", lambda: next(left))
    return check_scorer.check_threads(reranker, PAIRS, 1e-5, threads=2, seconds=0.05, seed=0)


@pytest.mark.parametrize(
    ("resident_mib", "growth", "holds"),
    [
        ((700.0, 800.0, 839.0), 0.0488, True),  # what grows before the middle is warm-up
        ((700.0, 700.0, 736.0), 0.0514, False),
        ((800.0, 700.0, 690.0), -0.0143, True),
    ],
)
def test_memory_may_not_grow_in_the_second_half(monkeypatch, resident_mib, growth, holds):
    figures = checked(monkeypatch, Constant(), *resident_mib)
    assert (figures["growth_in_the_second_half"], figures["holds"]) == (growth, holds)
    shown = ("resident_mib_at_a_quarter", "resident_mib_at_half", "resident_mib_at_the_end")
    assert tuple(figures[key] for key in shown) == resident_mib
    assert (figures["errors"], figures["unequal"]) == (0, 0)


def test_an_error_or_another_score_does_not_hold_however_flat_the_memory_is(monkeypatch):
    class Failing(Constant):
        calls = itertools.count(1)  # of several threads: what one has taken, no other gets

        def score(self, pairs):
            call = next(self.calls)
            if call == 2:
                raise RuntimeError("no")
            return [Score(0.0, 0.5 + 0.1 * (call == 3)) for _ in pairs]

    figures = checked(monkeypatch, Failing(), 700.0, 700.0, 700.0)
    assert figures["errors"] == 1
    assert figures["unequal"] >= 1
    assert not figures["holds"]
