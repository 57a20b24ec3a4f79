"""The two loops: the same searches alone, in any company, and asynchronously."""

import asyncio
import math
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_ray.core.drive import OutOfTime, drive_async, drive_lockstep
from corag_ray.core.fill import SinglesFill
from corag_ray.core.guided_tree import GuidedParams, GuidedTreeSearch
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Candidates
from corag_ray.core.tree import depth_first
from corag_ray.errors import ConfigError, ProtocolError


class Scripted:
    """Asks what it is given, round by round, and keeps what it is told."""

    reading = "raw"

    def __init__(self, *rounds):
        self.rounds, self.told = list(rounds), []

    def ask(self, limit):
        return self.rounds[0] if self.rounds else []

    def tell(self, scores):
        self.told.append(dict(scores))
        self.rounds.pop(0)


def make(recipe):
    preset, costs, budget = recipe
    zeros = (0,) * len(costs)
    candidates = Candidates(tuple(costs), (0.0,) * len(costs), zeros, zeros)
    if preset == "ranked":
        return SinglesFill(candidates, budget, RankedParams())
    if preset == "corag":
        return GuidedTreeSearch(candidates, budget, GuidedParams(singles=2, width=2))
    return PolicyTreeSearch(candidates, budget, PRESETS[preset])


def score_of(recipe, combination):
    """Depends on the query and the combination alone; one in ten cannot be scored."""
    value = zlib.crc32(repr((recipe, combination)).encode()) % 10
    return None if value == 9 else value / 8


def outcome(search):
    nodes = depth_first(search.root) if hasattr(search, "root") else []
    return search.best(), [(node.combination, node.visits, node.reward_sum) for node in nodes]


recipes = st.lists(
    st.tuples(
        st.sampled_from([*PRESETS, "corag", "ranked"]),
        st.lists(st.integers(1, 5), max_size=5).map(tuple),
        st.integers(0, 12),
    ),
    max_size=6,
)


@given(recipes, st.integers(1, 8), st.sampled_from([1, 2, 7, 512]), st.sampled_from([None, 0, 3, 10]))
def test_lockstep_in_any_company_is_async_is_alone(queries, in_flight, ask_limit, pair_limit):
    limits = {"ask_limit": ask_limit, "pair_limit": pair_limit}
    together = [make(query) for query in queries]
    pairs = drive_lockstep(
        together, lambda asks: [score_of(queries[n], c) for n, c in asks], in_flight=in_flight, **limits
    )
    for query, search, count in zip(queries, together, pairs, strict=True):

        async def score(asked, query=query):
            return [score_of(query, c) for c in asked]

        alone, by_async = make(query), make(query)
        assert drive_lockstep(
            [alone], lambda asks, query=query: [score_of(query, c) for _, c in asks], in_flight=1, **limits
        ) == [count]
        assert asyncio.run(drive_async(by_async, score, **limits)) == count
        assert outcome(search) == outcome(alone) == outcome(by_async)
        assert pair_limit is None or count <= pair_limit


def test_a_finished_search_is_replaced_within_the_round_and_asks_are_merged_in_order():
    searches = [Scripted([(0,)]), Scripted(), Scripted([(1,), (2,)], [(3,)]), Scripted([(4,)])]
    rounds = []

    def score(asks):
        rounds.append(asks)
        return [float(c[0]) for _, c in asks]

    assert drive_lockstep(searches, score, in_flight=2) == [1, 0, 3, 1]
    assert rounds == [[(0, (0,)), (2, (1,)), (2, (2,))], [(2, (3,)), (3, (4,))]]
    assert searches[2].told == [{(1,): 1.0, (2,): 2.0}, {(3,): 3.0}]


def test_pairs_count_distinct_combinations_even_when_one_is_asked_for_again():
    assert drive_lockstep([Scripted([(0,), (1,)], [(1,)])], lambda asks: [0.5] * len(asks), in_flight=1) == [2]


def test_nan_and_infinities_are_told_as_none():
    search = Scripted([(0,), (1,), (2,), (3,)])
    drive_lockstep([search], lambda _: [math.nan, math.inf, -math.inf, 0.5], in_flight=1)
    assert search.told == [{(0,): None, (1,): None, (2,): None, (3,): 0.5}]


def test_the_pair_limit_ends_a_search_inside_an_expansion_and_its_answer_stands():
    search = make(("seed", (1, 1, 1), 3))
    scores = {(0,): 0.1, (1,): 0.7}
    assert drive_lockstep([search], lambda asks: [scores[c] for _, c in asks], in_flight=1, pair_limit=2) == [2]
    assert search.best() == ((1,), 0.7)


@pytest.mark.parametrize("answer", [[], [0.1], [0.1, 0.2, 0.3]])
def test_a_score_function_of_another_length_is_a_protocol_error(answer):
    async def score(_):
        return answer

    with pytest.raises(ProtocolError, match="2 combinations"):
        drive_lockstep([Scripted([(0,), (1,)])], lambda _: answer, in_flight=1)
    with pytest.raises(ProtocolError, match="2 combinations"):
        asyncio.run(drive_async(Scripted([(0,), (1,)]), score))


@pytest.mark.parametrize("asked", [[(0,), (0,)], [(0,), (1,), (2,)]])
def test_a_strategy_that_repeats_itself_or_passes_the_limit_is_a_protocol_error(asked):
    with pytest.raises(ProtocolError, match=r"Scripted\.ask\(2\)"):
        drive_lockstep([Scripted(asked)], lambda asks: [0.5] * len(asks), in_flight=1, ask_limit=2)


def test_limits_below_one_are_refused_and_no_search_is_no_work():
    with pytest.raises(ConfigError, match="in_flight"):
        drive_lockstep([], lambda _: [], in_flight=0)
    for pair_limit in (None, 5):
        limits = {"ask_limit": 0, "pair_limit": pair_limit}
        with pytest.raises(ConfigError, match="ask_limit must be at least 1, not 0"):
            drive_lockstep([make(("seed", (1,), 1))], lambda _: [], in_flight=1, **limits)
        with pytest.raises(ConfigError, match="ask_limit must be at least 1, not 0"):
            asyncio.run(drive_async(make(("seed", (1,), 1)), None, **limits))
    assert drive_lockstep([], lambda _: [], in_flight=1) == []


def test_out_of_time_an_asynchronous_search_ends_with_what_it_was_told():
    search = Scripted([(0,), (1,)], [(0, 1)], [(1, 0)])
    rounds = iter([[0.5, 0.25], [0.75]])

    async def score(asked):
        if (scores := next(rounds, None)) is None:
            raise OutOfTime
        return scores

    assert asyncio.run(drive_async(search, score)) == 3
    assert search.told == [{(0,): 0.5, (1,): 0.25}, {(0, 1): 0.75}]
