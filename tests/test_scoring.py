"""Scoring: what is sent to which reranker, once, and what comes back."""

import math
import random
import time
from collections import Counter, defaultdict

import pytest

from corag_ray.errors import ProtocolError
from corag_ray.memo import Memo
from corag_ray.scoring import ScoringContext, score_pairs, shared_ms
from corag_ray.types import Score


class Recorder:
    """Scores by a function of (prepared, combination) and keeps every call."""

    def __init__(self, value):
        self.value, self.calls = value, []

    def score(self, pairs):
        self.calls.append(list(pairs))
        return [self.value(prepared, combination) for prepared, combination in pairs]


def summed(prepared, combination):
    return Score(float(prepared[0] + sum(combination)), 0.5)


def test_each_distinct_query_and_combination_is_scored_once_and_told_to_all_who_asked():
    model, q, other = Recorder(summed), [100], [200]
    searches = [ScoringContext("m", q, "raw"), ScoringContext("m", q, "raw"), ScoringContext("m", other, "raw")]
    pairs = [(0, (1,)), (1, (1,)), (2, (1,)), (0, (2,)), (1, (2, 1)), (0, (1,))]
    assert score_pairs({"m": model}, searches, pairs) == [101.0, 101.0, 201.0, 102.0, 103.0, 101.0]
    assert model.calls == [[(q, (1,)), (other, (1,)), (q, (2,)), (q, (2, 1))]]


def test_equal_but_separate_queries_are_not_taken_for_one():
    model = Recorder(summed)
    assert score_pairs(
        {"m": model}, [ScoringContext("m", [1], "raw"), ScoringContext("m", [1], "raw")], [(0, (0,)), (1, (0,))]
    )
    assert len(model.calls[0]) == 2


def test_the_order_of_a_combination_is_part_of_it():
    model = Recorder(lambda prepared, c: Score(float(c[0]), 0.0))
    assert score_pairs({"m": model}, [ScoringContext("m", "q", "raw")], [(0, (1, 2)), (0, (2, 1))]) == [1.0, 2.0]


def test_one_call_a_reranker_whatever_the_mixture():
    a, b = Recorder(lambda p, c: Score(1.0, 0.0)), Recorder(lambda p, c: Score(2.0, 0.0))
    searches = [ScoringContext("a", "q", "raw"), ScoringContext("b", "q", "raw")]
    pairs = [(0, (0,)), (1, (0,)), (0, (1,)), (1, (1,))]
    assert score_pairs({"a": a, "b": b}, searches, pairs) == [1.0, 2.0, 1.0, 2.0]
    assert a.calls == b.calls == [[("q", (0,)), ("q", (1,))]]


def test_a_reranker_nobody_asks_is_not_called():
    idle, model = Recorder(summed), Recorder(summed)
    assert score_pairs({"m": model, "idle": idle}, [ScoringContext("m", [0], "raw")], [(0, (3,))]) == [3.0]
    assert score_pairs({"m": model, "idle": idle}, [ScoringContext("m", [0], "raw")], []) == []
    assert idle.calls == []
    assert len(model.calls) == 1


def test_two_readings_of_one_scoring_get_raw_and_calibrated():
    model = Recorder(lambda p, c: Score(-4.25, 0.125))
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    assert score_pairs({"m": model}, searches, [(0, (0,)), (1, (0,))]) == [-4.25, 0.125]
    assert model.calls == [[("q", (0,))]]


@pytest.mark.parametrize(("given", "told"), [(0.12349, 0.123), (0.12351, 0.124), (-7.0004, -7.0), (1e-9, 0.0)])
def test_scores_are_rounded_to_three_decimals(given, told):
    model = Recorder(lambda p, c: Score(given, given))
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    assert score_pairs({"m": model}, searches, [(0, (0,)), (1, (0,))]) == [told, told]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_none_for_its_reading_alone(bad):
    model = Recorder(lambda p, c: Score(bad, 0.5) if c == (0,) else Score(0.25, bad))
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    pairs = [(0, (0,)), (1, (0,)), (0, (1,)), (1, (1,))]
    assert score_pairs({"m": model}, searches, pairs) == [None, 0.5, 0.25, None]


def test_pairs_without_a_score_are_counted_by_search_and_by_its_reading_whoever_computed_them():
    model = Recorder(lambda p, c: Score(math.nan, 0.5) if c == (0,) else Score(0.25, 0.5))
    searches = [
        ScoringContext("m", "q", "raw"),
        ScoringContext("m", "q", "calibrated"),
        ScoringContext("m", "q", "raw"),
    ]
    pairs = [(0, (0,)), (1, (0,)), (2, (0,)), (0, (1,)), (0, (0,))]
    unscored = Counter({2: 10})
    assert score_pairs({"m": model}, searches, pairs, unscored=unscored) == [None, 0.5, None, 0.25, None]
    assert unscored == {0: 2, 2: 11}
    assert score_pairs({"m": model}, searches, [(0, (1,))], unscored=unscored) == [0.25]
    assert unscored == {0: 2, 2: 11}


@pytest.mark.parametrize("change", [lambda scores: scores[:-1], lambda scores: [*scores, Score(0.0, 0.0)]])
def test_a_wrong_number_of_scores_is_a_protocol_error_that_names_the_reranker(change):
    class Miscounting(Recorder):
        def score(self, pairs):
            return change(super().score(pairs))

    with pytest.raises(ProtocolError, match=r"reranker 'm' gave [13] scores for 2 pairs"):
        score_pairs({"m": Miscounting(summed)}, [ScoringContext("m", [0], "raw")], [(0, (0,)), (0, (1,))])


def test_random_mixtures_equal_scoring_each_pair_alone():
    chance = random.Random(5)
    for _ in range(50):
        models = {name: Recorder(lambda p, c, n=name: Score(hash((n, p, c)) % 9973 / 7, 0.3)) for name in "ab"}
        searches = [
            ScoringContext(chance.choice("ab"), chance.randrange(3), chance.choice(["raw", "calibrated"]))
            for _ in range(5)
        ]
        pairs = [(chance.randrange(5), tuple(chance.sample(range(4), chance.randint(1, 3)))) for _ in range(30)]
        together = score_pairs(models, searches, pairs)
        assert together == [score_pairs(models, searches, [pair])[0] for pair in pairs]


def test_what_each_rerankers_calls_took_is_added_up(monkeypatch):
    class Ticking(Recorder):
        def score(self, pairs):
            nonlocal now_s
            now_s += 0.25 * len(pairs)
            return super().score(pairs)

    now_s, took_ms = 0.0, defaultdict(float)
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    searches = [ScoringContext("a", [0], "raw"), ScoringContext("b", [0], "raw")]
    models = {"a": Ticking(summed), "b": Ticking(summed)}
    score_pairs(models, searches, [(0, (0,)), (0, (1,)), (1, (0,))], took_ms)
    score_pairs(models, searches, [(1, (1,))], took_ms)
    assert took_ms == {"a": 500.0, "b": 500.0}


def test_time_is_shared_by_the_pairs_of_each_reranker_and_the_rest_by_all_pairs():
    searches = [ScoringContext(name, "q", "raw") for name in "aabc"]
    # a's 12 ms over 3 + 1 pairs are 3 a pair, b's 20 over 4 are 5; the rest, 40 - 32 over all 8, is 1 a pair.
    assert shared_ms(searches, [3, 1, 4, 0], {"a": 12.0, "b": 20.0}, 40.0) == [12.0, 4.0, 24.0, 0.0]
    assert shared_ms([], [], {}, 1.0) == []


class Remembered(Recorder):
    """As `Recorder`, calibrated by a function of the raw score."""

    def __init__(self, value, calibrated):
        super().__init__(lambda prepared, combination: Score(raw := value(combination), calibrated(raw)))
        self.calibrated = calibrated


def halved(raw):
    return raw / 2


def with_keys(memo, reading="raw", query="q", name="m", ordered=True):
    """A search of its own preparation, over three candidates whose texts are always the same."""
    return ScoringContext(name, [query], reading, memo.keys(name, query, ("a", "b", "c"), ordered))


def memo_of(**identities):
    return Memo(identities, 100)


def test_what_the_memo_holds_is_not_computed_again_and_calibrated_by_the_curve_of_now():
    memo = memo_of(m="model")
    first, later = (Remembered(lambda c: sum(c) / 7, curve) for curve in (halved, lambda raw: raw / 4))
    assert score_pairs({"m": first}, [with_keys(memo)], [(0, (1,)), (0, (1, 2))], memo=memo) == [0.143, 0.429]
    searches = [with_keys(memo, "calibrated"), with_keys(memo, "raw")]
    pairs = [(0, (2,)), (0, (1, 2)), (1, (1,)), (1, (2,))]
    assert score_pairs({"m": later}, searches, pairs, memo=memo) == [0.071, 0.107, 0.143, 0.286]  # 2/28, 3/28, 1/7, 2/7
    assert later.calls == [[(["q"], (2,))]]
    assert (memo.lookups, memo.hits) == (2 + 3, 2)


def test_a_hit_is_the_very_number_that_was_computed():
    memo, computed = memo_of(m="model"), Remembered(lambda c: 2 / 3, halved)
    searches = [with_keys(memo, "raw"), with_keys(memo, "calibrated")]
    pairs = [(0, (0,)), (1, (0,))]
    told = score_pairs({"m": computed}, searches, pairs, memo=memo)
    assert told == score_pairs({"m": computed}, searches, pairs, memo=memo) == [0.667, 0.333]
    assert len(computed.calls) == 1
    [raw] = memo.get([searches[0].keys.of((0,))]).values()
    assert (raw, halved(raw)) == (2 / 3, computed.score([(["q"], (0,))])[0].calibrated)


def test_a_reranker_whose_scores_are_all_in_the_memo_is_not_called():
    memo, model, took_ms = memo_of(m="model"), Remembered(sum, halved), defaultdict(float)
    for _ in range(2):
        assert score_pairs({"m": model}, [with_keys(memo)], [(0, (1,))], took_ms, memo) == [1.0]
    assert len(model.calls) == 1


def test_equal_questions_over_equal_texts_are_one_within_a_round_and_permutations_where_order_is_not_seen():
    for ordered, calls in ((True, [(1, 2), (2, 1)]), (False, [(1, 2)])):
        memo, model = memo_of(m="model"), Remembered(sum, halved)
        searches = [with_keys(memo, ordered=ordered), with_keys(memo, ordered=ordered)]
        assert score_pairs({"m": model}, searches, [(0, (1, 2)), (1, (1, 2)), (1, (2, 1))], memo=memo) == [3.0] * 3
        assert [combination for _, combination in model.calls[0]] == calls


def test_the_memo_tells_queries_and_rerankers_apart():
    memo = memo_of(a="one", b="another")
    models = {"a": Remembered(sum, halved), "b": Remembered(lambda c: -sum(c), halved)}
    searches = [with_keys(memo, query=query, name=name) for query in "qr" for name in "ab"]
    pairs = [(n, (1,)) for n in range(4)]
    assert score_pairs(models, searches, pairs, memo=memo) == [1.0, -1.0, 1.0, -1.0]
    assert [len(model.calls[0]) for model in models.values()] == [2, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_asked_for_again(bad):
    memo, model = memo_of(m="model"), Remembered(lambda c: bad if c == (0,) else 1.0, lambda raw: 0.5)
    for _ in range(2):
        pairs = [(0, (0,)), (1, (0,)), (0, (1,))]
        searches = [with_keys(memo, "raw"), with_keys(memo, "calibrated")]
        assert score_pairs({"m": model}, searches, pairs, memo=memo) == [None, 0.5, 1.0]
    assert [[c for _, c in call] for call in model.calls] == [[(0,), (1,)], [(0,)]]


def test_what_was_computed_is_counted_for_the_first_search_that_asked():
    memo, computed = memo_of(m="model"), Counter()
    models = {"m": Remembered(sum, halved), "free": Recorder(summed)}
    shared = [9]
    searches = [with_keys(memo), with_keys(memo), *(ScoringContext("free", shared, "raw") for _ in range(2))]
    pairs = [(1, (0,)), (0, (0,)), (0, (1,)), (3, (0,)), (2, (0,)), (2, (1,)), (2, (2,))]
    score_pairs(models, searches, pairs, memo=memo, computed=computed)
    assert computed == {0: 1, 1: 1, 2: 2, 3: 1}
    score_pairs(models, searches, pairs, memo=memo, computed=computed)
    assert computed == {0: 1, 1: 1, 2: 4, 3: 2}  # the memo knows all of m's; who is not memoised computes again


def test_random_rounds_give_the_same_values_with_and_without_a_memo():
    chance = random.Random(6)
    memo = Memo({"m": "model"}, 20)  # smaller than what is asked for
    model = Remembered(lambda c: hash(c) % 9973 / 7, lambda raw: raw / 9973)
    for _ in range(60):
        searches = [with_keys(memo, chance.choice(["raw", "calibrated"])) for _ in range(4)]
        pairs = [(chance.randrange(4), tuple(chance.sample(range(3), chance.randint(0, 3)))) for _ in range(12)]
        plain = [ScoringContext(s.reranker, s.prepared, s.reading) for s in searches]
        assert score_pairs({"m": model}, searches, pairs, memo=memo) == score_pairs({"m": model}, plain, pairs)
    assert memo.hits > 100


def test_what_was_heard_is_kept_by_search_in_the_order_asked_with_both_values_as_told():
    values = {(0,): Score(-4.25049, 0.12351), (1,): Score(math.nan, 0.5), (2,): Score(1.0, 0.75)}
    model = Recorder(lambda prepared, combination: values[combination])
    searches = [ScoringContext("m", "q", "raw"), ScoringContext("m", "q", "calibrated")]
    heard = defaultdict(dict, {0: {(3,): None}})
    told = score_pairs({"m": model}, searches, [(0, (2,)), (1, (1,)), (0, (1,)), (1, (2,)), (0, (0,))], heard=heard)
    assert told == [1.0, 0.5, None, 0.75, -4.25]
    # The first search was told none for (1,), which the second reads: its calibrated value is a number.
    assert list(heard[0].items()) == [((3,), None), ((2,), values[2,]), ((1,), None), ((0,), Score(-4.25, 0.124))]
    assert [(c, score.calibrated) for c, score in heard[1].items()] == [((1,), 0.5), ((2,), 0.75)]
