"""The random baseline: what its draw depends on, and that it fills the budget."""

import random
import subprocess
import sys

from core.scoring import random_candidates, run

from corag_ray.core.random_fill import RandomFill, RandomParams
from corag_ray.core.strategy import Candidates


def drawn(candidates, budget=5, seed=0):
    search = RandomFill(candidates, budget, RandomParams(seed=seed))
    assert len(run(search, lambda combination: 0.5)) == 1
    return search.best()[0]


def question(place):
    """Ten chunks of one size, so that questions differ by the chunks' places alone."""
    return Candidates((1,) * 10, (0.0,) * 10, (0,) * 10, tuple(range(place, place + 10)))


def test_seeds_and_questions_of_equal_costs_draw_differently_and_each_always_the_same():
    assert len({drawn(question(0), seed=seed) for seed in range(20)}) == 20
    assert len({drawn(question(place)) for place in range(20)}) == 20
    assert drawn(question(3)) == drawn(question(3))


def test_another_process_with_other_hashes_draws_the_same():
    code = (
        "from corag_ray.core.random_fill import RandomFill, RandomParams;"
        "from corag_ray.core.strategy import Candidates;"
        "s = RandomFill(Candidates((1,) * 10, (0.0,) * 10, (0,) * 10, tuple(range(10))), 5, RandomParams());"
        "assert s.ask(1) == [" + repr(drawn(question(0))) + "]"
    )
    for hash_seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": hash_seed}, check=True)


def test_nothing_that_would_still_fit_is_left_out_and_a_set_stands_in_candidate_order():
    for seed in range(100):
        candidates = random_candidates(random.Random(seed), 8, order_matters=False)
        chosen = drawn(candidates, budget=20, seed=seed)
        room = 20 - sum(candidates.costs[n] for n in chosen)
        assert all(candidates.costs[n] > room for n in set(range(8)) - set(chosen))
        assert list(chosen) == sorted(chosen)


def test_every_candidate_is_drawn_about_equally_often():
    # five of ten fit, so each comes in half of 2,000 draws; five standard deviations are 5 * sqrt(2000 / 4) = 112
    counts = [0] * 10
    for seed in range(2000):
        for number in drawn(question(0), seed=seed):
            counts[number] += 1
    assert all(abs(count - 1000) < 112 for count in counts)
