"""CORAG's search: golden trees by hand, the paper's figure, brute force, and a naive reference."""

import itertools
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch, SearchParams
from corag_ray.core.strategy import Candidates
from corag_ray.core.tree import Node, back_up, depth_first
from corag_ray.core.utility import utility
from corag_ray.errors import ConfigError, ProtocolError


def begin(costs, budget, params):
    zeros = (0,) * len(costs)
    return PolicyTreeSearch(Candidates(tuple(costs), (0.0,) * len(costs), zeros, zeros), budget, params)


def run(costs, budget, params, score, limit=512):
    """The finished search and the combinations it asked for."""
    search, pairs = begin(costs, budget, params), []
    while asked := search.ask(limit):
        assert search.ask(limit) == asked
        assert len(asked) <= limit
        search.tell({combination: score(combination) for combination in asked})
        pairs += asked
    return search, pairs


def tree_of(search):
    return {node.combination: (node.visits, node.reward_sum, node.score) for node in depth_first(search.root)}


def rounded(search):
    return {combination: (n, round(v, 6), score) for combination, (n, v, score) in tree_of(search).items()}


def dice(seed, with_none=False):
    """Scores 0, 1/8 .. 1 (exact in binary) that depend on the seed and the ordered combination alone."""

    def score(combination):
        value = zlib.crc32(repr((seed, combination)).encode()) % 10
        return (None if with_none else 0.0) if value == 9 else value / 8

    return score


# --- Golden trees: three candidates, budget 8; 1 + 2 would cost 9 and 0 + 1 + 2 would cost 11. --------------------
COSTS, BUDGET = (2, 3, 6), 8
SCORES = {(0,): 0.9, (1,): 0.76, (2,): 0.8, (0, 1): 0.5, (0, 2): 0.4, (2, 0): 0.81}

# `seed` and `report` grow the same tree (best child only, N of the whole tree, c 2.4, lambda 0.1):
# 1. The root is expanded: 0, 1, 2. Best child 0: root V 0.900, N 1. N = 1 + 3 = 4, c * sqrt(ln 4) = 2.826.
#    U(0) = 0.900 + 2.826 - 0.025 = 3.701   U(1) = 0.760 + 2.826 - 0.038 = 3.548   U(2) = 0.800 + 2.826 - 0.075 = 3.551
# 2. 0 is expanded: 0+1 (5), 0+2 (8). Best child 0+1: 0 has V 0.9 + 0.5 = 1.400, N 2; root V 1.400, N 2.
#    N = 2 + 2 + 1 + 1 + 1 + 1 = 8; c * sqrt(ln 8) = 3.461, c * sqrt(ln 8 / 2) = 2.447.
#    U(0) = 0.700 + 2.447 - 0.025 = 3.122   U(1) = 0.760 + 3.461 - 0.038 = 4.183   U(2) = 0.800 + 3.461 - 0.075 = 4.186
# 3. 2 is expanded: 2+0 (8); 2+1 (9) is never created. Best child 2+0: 2 has V 1.610, N 2; root V 2.210, N 3.
BEST_CHILD_TREE = {
    (): (3, 2.21, None),
    (0,): (2, 1.4, 0.9),
    (0, 1): (1, 0.5, 0.5),
    (0, 2): (1, 0.4, 0.4),
    (1,): (1, 0.76, 0.76),
    (2,): (2, 1.61, 0.8),
    (2, 0): (1, 0.81, 0.81),
}
# The answer: N = 3 + 2 + 1 + 1 + 1 + 2 + 1 = 11; c * sqrt(ln 11) = 3.716, c * sqrt(ln 11 / 2) = 2.628.
#               0      0+1    0+2    1      2      2+0
#   mean       0.700  0.500  0.400  0.760  0.805 *0.810
#   - lambda.. 0.675  0.438  0.300  0.723 *0.730  0.710
#   utility    3.303  4.154  4.016 *4.439  3.358  4.426
#   own       *0.900  0.500  0.400  0.760  0.800  0.810
ANSWERS = {
    "utility": ((1,), 0.76),
    "utility_without_exploration": ((2,), 0.8),
    "mean_reward": ((2, 0), 0.81),
    "own_score": ((0,), 0.9),
}

# `carrot` (every child, N of the parent):
# 1. The root is expanded: root V 0.9 + 0.76 + 0.8 = 2.460, N 3; c * sqrt(ln 3) = 2.516.
#    U(0) = 0.900 + 2.516 - 0.025 = 3.391   U(1) = 0.760 + 2.516 - 0.038 = 3.238   U(2) = 0.800 + 2.516 - 0.075 = 3.241
# 2. 0 is expanded: 0 has V 0.9 + 0.5 + 0.4 = 1.800, N 1 + 2 = 3; root V 3.360, N 5.
#    c * sqrt(ln 5) = 3.045, c * sqrt(ln 5 / 3) = 1.758.
#    U(0) = 0.600 + 1.758 - 0.025 = 2.333   U(1) = 0.760 + 3.045 - 0.038 = 3.767   U(2) = 0.800 + 3.045 - 0.075 = 3.770
# 3. 2 is expanded: 2 has V 1.610, N 2; root V 4.170, N 6.
EVERY_CHILD_TREE = {**BEST_CHILD_TREE, (): (6, 4.17, None), (0,): (3, 1.8, 0.9)}


@pytest.mark.parametrize(
    ("preset", "tree", "answer"),
    [
        ("seed", BEST_CHILD_TREE, ANSWERS["utility"]),
        ("report", BEST_CHILD_TREE, ANSWERS["mean_reward"]),
        ("carrot", EVERY_CHILD_TREE, ANSWERS["own_score"]),
    ],
)
def test_three_expansions_give_the_tree_worked_by_hand(preset, tree, answer):
    search, pairs = run(COSTS, BUDGET, replace(PRESETS[preset], iterations=3), SCORES.get)
    assert rounded(search) == tree
    assert pairs == [(0,), (1,), (2,), (0, 1), (0, 2), (2, 0)]
    assert search.best() == answer


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_answer_chooses_another_node_of_the_same_tree(answer):
    search, _ = run(COSTS, BUDGET, replace(PRESETS["seed"], iterations=3, answer=answer), SCORES.get)
    assert search.best() == ANSWERS[answer]


def test_equal_own_scores_go_to_more_visits_and_then_to_the_deeper_node():
    # Budget 3, lambda 1: U(0) = 0.5 - 2/3 and U(1) = 0.25 - 1/3, plus the same c-term: 1 is expanded, not 0.
    # 1+0 scores as 0 does and both have one visit: the deeper wins. With three iterations 0 has two visits: it wins.
    scores = {(0,): 0.5, (1,): 0.25, (1, 0): 0.5, (0, 1): 0.0}
    params = replace(PRESETS["carrot"], cost_weight=1.0)
    assert run((2, 1), 3, replace(params, iterations=2), scores.get)[0].best() == ((1, 0), 0.5)
    # N(root) = 3, N(1) = 2: U(0) = 0.5 + 2.4 * 1.048 - 0.667 = 2.349 > U(1) = 0.375 + 2.4 * 0.741 - 0.333 = 1.820.
    assert run((2, 1), 3, replace(params, iterations=3), scores.get)[0].best() == ((0,), 0.5)


def test_backup_of_every_child_moves_more_visits_than_of_the_best_one():
    # One expansion of three children: root N 3 and V 0.9 + 0.76 + 0.8, or N 1 and V 0.9.
    one = replace(PRESETS["seed"], iterations=1)
    every, _ = run(COSTS, BUDGET, replace(one, backup="every_child"), SCORES.get)
    best, _ = run(COSTS, BUDGET, replace(one, backup="best_child"), SCORES.get)
    assert rounded(every)[()] == (3, 2.46, None)
    assert rounded(best)[()] == (1, 0.9, None)


def test_visits_of_the_whole_tree_explore_where_visits_of_the_parent_do_not():
    # Two candidates of cost 1, budget 2, best child. After the root and 0 are expanded:
    # parent: N = 2: U(0) = 0.9 + 2.4 * sqrt(0.693 / 2) = 2.313 > U(1) = 0.2 + 2.4 * sqrt(0.693) = 2.198: 0+1, the end.
    # tree: N = 2 + 2 + 1 + 1 = 6: U(0) = 0.9 + 2.4 * sqrt(1.792 / 2) = 3.172 < U(1) = 0.2 + 2.4 * 1.339 = 3.413.
    scores = {(0,): 0.9, (1,): 0.2, (0, 1): 0.9, (1, 0): 0.1}
    _, parent = run((1, 1), 2, replace(PRESETS["seed"], total_visits="parent"), scores.get)
    _, tree = run((1, 1), 2, PRESETS["seed"], scores.get)
    assert parent == [(0,), (1,), (0, 1)]
    assert tree == [(0,), (1,), (0, 1), (1, 0)]


def test_an_ignored_budget_can_be_overrun_and_a_kept_one_cannot():
    kept, ignored = PRESETS["carrot"], replace(PRESETS["carrot"], over_budget="ignored")
    for budget in (0, 4):
        assert run((5,), budget, kept, dice(0))[0].best() is None
        assert run((5,), budget, ignored, {(0,): 0.5}.get)[0].best() == ((0,), 0.5)


# --- Figure 1 of the paper: chunks of 256 tokens. What it does not give is set here: x4 0.5, everything else 0.2. ---
FIGURE = {(0,): 0.3, (2,): 0.8, (0, 2): 0.4, (2, 3): 0.8, (3, 2): 0.9, (0, 1, 3): 0.6, (3,): 0.5}
LOGITS = {0.2: -1.386, 0.3: -0.847, 0.4: -0.405, 0.5: 0.0, 0.6: 0.405, 0.8: 1.386, 0.9: 2.197}


def figure(params, budget=512):
    def score(combination):
        calibrated = FIGURE.get(combination, 0.2)
        return LOGITS[calibrated] if params.reading == "raw" else calibrated

    return run((256,) * 4, budget, params, score)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("budget", "changes"),
    [
        # On 0..1, c 2.4 expands all four singles before any couple: five iterations see every couple.
        (512, {"reading": "calibrated"}),
        (768, {"reading": "calibrated", "iterations": 5}),
        # On logits it takes a c that is large against their spread of 3.6.
        (512, {"reading": "raw", "exploration": 24.0}),
    ],
)
def test_the_papers_figure_is_solved_order_matters_and_more_is_not_better(preset, budget, changes):
    params = replace(PRESETS[preset], **changes)
    search, pairs = figure(params, budget)
    assert search.best() == ((3, 2), 2.197 if params.reading == "raw" else 0.9)
    assert len(pairs) == 4 + 4 * 3


def test_on_raw_logits_the_published_c_stalls_before_the_figures_best_couple():
    # x3 (1.386) is expanded first: N = 2 + 2 + 3 + 3 = 10, U(x3) = 1.386 + 2.4 * sqrt(2.303 / 2) - 0.05 = 3.911
    # > U(x4) = 0 + 2.4 * sqrt(2.303) - 0.05 = 3.592. So the walk goes on to x3+x4, which has no room left: the end.
    search, pairs = figure(PRESETS["seed"])
    assert len(pairs) == 4 + 3
    assert search.best() == ((2, 3), 1.386)


@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 10**6),
    st.sampled_from(["tree", "parent"]),
    st.sampled_from(["best_child", "every_child"]),
)
def test_with_iterations_and_exploration_to_spare_own_score_is_brute_force(k, fits, seed, total_visits, backup):
    # Equal costs: only then do the published rules reach everything. c is so large that each walk takes the child
    # with fewest visits, which in a tree of equal branches is one that is not finished; with unequal costs it would
    # keep returning to a leaf that had room for nothing.
    params = replace(PRESETS["carrot"], total_visits=total_visits, backup=backup, iterations=200, exploration=1e6)
    score = dice(seed)
    search, pairs = run((3,) * k, 3 * fits + 1, params, score)
    every = [c for n in range(1, min(k, fits) + 1) for c in itertools.permutations(range(k), n)]
    assert sorted(pairs) == sorted(every)
    assert (search.best() is None) == (not every)
    if every:
        best = search.best()
        assert best[1] == max(map(score, every)) == score(best[0])


def reference(costs, budget, params, score):
    """The rules as plainly as they can be said: every iteration walks anew, and N is counted anew."""
    tree, children = {(): [0, 0.0, None]}, {}

    def value(c, exploration):
        whole = params.total_visits == "tree"
        total = sum(n for n, _, _ in tree.values()) if whole else tree[c[:-1]][0]
        numbers = {"exploration": exploration, "cost_weight": params.cost_weight, "budget_tokens": budget}
        visits, rewards, _ = tree[c]
        numbers["cost"] = sum(costs[i] for i in c)
        return utility(reward_sum=rewards, visits=visits, total_visits=total, **numbers)

    for _ in range(params.iterations):
        leaf = ()
        while walkable := [c for c in children.get(leaf, []) if tree[c][2] is not None]:
            leaf = max(walkable, key=lambda c: value(c, params.exploration))
        if leaf in children:
            continue
        room = float("inf") if params.over_budget == "ignored" else budget - sum(costs[i] for i in leaf)
        children[leaf] = [(*leaf, i) for i, cost in enumerate(costs) if i not in leaf and cost <= room]
        for c in children[leaf]:
            tree[c] = [0, 0.0, None] if score(c) is None else [1, score(c), score(c)]
        rewards = [score(c) for c in children[leaf] if score(c) is not None]
        for reward in rewards if params.backup == "every_child" else [max(rewards)] if rewards else []:
            for n in range(len(leaf) + 1):
                tree[leaf[:n]][0] += 1
                tree[leaf[:n]][1] += reward
    keys = {
        "own_score": lambda c: (tree[c][2], tree[c][0], len(c)),
        "mean_reward": lambda c: tree[c][1] / tree[c][0],
        "utility": lambda c: value(c, params.exploration),
        "utility_without_exploration": lambda c: value(c, 0.0),
    }
    scored = sorted(c for c in tree if tree[c][2] is not None)  # sorted tuples stand in depth-first order
    best = max(scored, key=keys[params.answer], default=None)
    return {c: tuple(row) for c, row in tree.items()}, None if best is None else (best, tree[best][2])


any_params = st.builds(
    SearchParams,
    iterations=st.integers(1, 14),
    exploration=st.sampled_from([0.0, 0.5, 2.4, 50.0]),
    cost_weight=st.sampled_from([0.0, 0.1, 1.0]),
    total_visits=st.sampled_from(["tree", "parent"]),
    backup=st.sampled_from(["best_child", "every_child"]),
    answer=st.sampled_from(["utility", "utility_without_exploration", "mean_reward", "own_score"]),
    reading=st.just("raw"),
    over_budget=st.sampled_from(["never_created", "ignored"]),
)
any_costs = st.lists(st.integers(1, 6), max_size=5).map(tuple)


@given(any_costs, st.integers(0, 16), any_params, st.integers(0, 10**6), st.booleans())
def test_tree_and_answer_are_those_of_the_naive_reference(costs, budget, params, seed, with_none):
    search, pairs = run(costs, budget, params, dice(seed, with_none))
    assert (tree_of(search), search.best()) == reference(costs, budget, params, dice(seed, with_none))
    assert sorted(pairs) == sorted(c for c in tree_of(search) if c)


@given(any_costs, st.integers(0, 16), any_params, st.integers(0, 10**6))
def test_the_limit_never_changes_the_tree(costs, budget, params, seed):
    runs = [run(costs, budget, params, dice(seed, with_none=True), limit) for limit in (1, 2, 7, 512)]
    for search, pairs in runs[1:]:
        assert tree_of(search) == tree_of(runs[0][0])
        assert pairs == runs[0][1]
        assert search.best() == runs[0][0].best()


@given(any_costs, st.integers(0, 16), any_params, st.integers(0, 10**6), st.integers(0, 40))
def test_budget_and_distinctness_hold_at_every_moment_also_when_cut_short(costs, budget, params, seed, cut):
    params, score = replace(params, over_budget="never_created"), dice(seed, with_none=True)
    search, told = begin(costs, budget, params), []
    while (asked := search.ask(3)) and len(told) < cut:
        told += asked[: cut - len(told)]
        search.tell({c: score(c) for c in asked if c in told})
    nodes = list(depth_first(search.root))
    assert all(node.cost == sum(costs[i] for i in node.combination) <= budget for node in nodes)
    assert all(len(set(node.combination)) == len(node.combination) for node in nodes)
    scored = {c: score(c) for c in told if score(c) is not None}
    assert (search.best() is None) == (not scored)
    assert not scored or search.best() in scored.items()


def test_a_node_without_score_is_closed_counts_no_visit_and_is_never_walked_into():
    scores = {(0,): None, (1,): 0.5, (1, 0): 0.25}
    search, pairs = run((1, 1), 2, PRESETS["seed"], scores.get)
    assert pairs == [(0,), (1,), (1, 0)]
    # Root: 0.5 and then 0.25 backed up. Node 1: its own 0.5 and 0.25.
    tree = {(): (2, 0.75, None), (0,): (0, 0.0, None), (1,): (2, 0.75, 0.5), (1, 0): (1, 0.25, 0.25)}
    assert tree_of(search) == tree
    assert search.root.children[0].closed


def test_without_any_score_candidate_or_room_there_is_no_answer():
    for preset in PRESETS.values():
        assert run((1, 1), 2, preset, lambda _: None)[0].best() is None
        assert run((), 2, preset, dice(0))[0].best() is None
        assert run((3, 3), 2, preset, dice(0))[0].best() is None
        assert begin((1,), 2, preset).best() is None


def test_an_expansion_told_in_part_is_answered_from_and_goes_on_where_it_stopped():
    search = begin(COSTS, BUDGET, PRESETS["seed"])
    search.ask(512)
    search.tell({(0,): 0.9})
    assert search.best() == ((0,), 0.9)
    assert search.root.visits == 0  # backed up once, when all three are told
    assert search.ask(512) == [(1,), (2,)]
    search.tell({(2,): 0.8, (1,): 0.76})
    assert search.root.visits == 1
    search.tell({})  # nothing told, nothing backed up again
    assert search.root.visits == 1


@pytest.mark.parametrize("scores", [{(1,): 0.1}, {(0,): 0.1, (9,): 0.1}, {(0,): 0.1, (1,): 0.1, (2,): 0.1}])
def test_a_tell_of_something_else_than_was_asked_is_a_protocol_error(scores):
    search = begin(COSTS, BUDGET, PRESETS["seed"])
    search.ask(2)
    with pytest.raises(ProtocolError, match="tell expects"):
        search.tell(scores)


@pytest.mark.parametrize("preset", PRESETS)
def test_sixty_candidates_cost_591_pairs_and_never_pass_depth_two(preset):
    def score(combination):
        return zlib.crc32(repr(combination).encode()) % 1001 / 1000

    search, pairs = run((256,) * 60, 8192, replace(PRESETS[preset], reading="calibrated"), score)
    assert len(set(pairs)) == len(pairs) == 60 + 9 * 59 == 591
    assert max(map(len, pairs)) == 2
    expanded = [node for node in depth_first(search.root) if node.expanded]
    # Every child: N(root) = 60 + 9 * 59 and an inner expanded node has 1 + 59. Best child: 10 and 1 + 1.
    visits = (591, {60}) if preset == "carrot" else (10, {2})
    assert (search.root.visits, {node.visits for node in expanded[1:]}) == visits


def test_trees_deeper_than_the_recursion_limit_are_scanned_and_backed_up():
    root = node = Node((), 0)
    for depth in range(5000):
        node.children = [Node((depth,), depth, node)]
        node = node.children[0]
        node.record(0.5)
    assert sum(1 for _ in depth_first(root)) == 5001
    assert back_up(node.parent, "every_child") == 5000
    assert root.reward_sum == 0.5


def test_presets_are_the_design_table_with_the_published_numbers():
    rows = {
        "seed": ("tree", "best_child", "utility"),
        "report": ("tree", "best_child", "mean_reward"),
        "carrot": ("parent", "every_child", "own_score"),
    }
    assert {name: (p.total_visits, p.backup, p.answer) for name, p in PRESETS.items()} == rows
    for p in PRESETS.values():
        assert (p.exploration, p.iterations, p.cost_weight) == (2.4, 10, 0.1)
        assert (p.reading, p.over_budget) == ("raw", "never_created")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iterations": 0}, "iterations must be at least 1, not 0."),
        ({"exploration": -1.0}, "exploration must be a finite number of at least 0, not -1.0."),
        ({"cost_weight": float("nan")}, "cost_weight must be a finite number of at least 0, not nan."),
        ({"total_visits": "trees"}, "unknown total_visits 'trees'; did you mean 'tree'? Known: parent, tree."),
        ({"backup": "all"}, "unknown backup 'all'; "),
        ({"answer": "own"}, "unknown answer 'own'; "),
        ({"reading": "logit"}, "unknown reading 'logit'; "),
        ({"over_budget": "ignore"}, "unknown over_budget 'ignore'; did you mean 'ignored'? "),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(change, message):
    with pytest.raises(ConfigError) as error:
        replace(PRESETS["seed"], **change)
    assert str(error.value).startswith(message)


def test_pydantic_embeds_the_parameters_and_refuses_unknown_keys():
    adapter = TypeAdapter(SearchParams)
    choices = {"total_visits": "tree", "backup": "best_child", "answer": "utility", "reading": "raw"}  # no defaults
    assert adapter.validate_python(choices) == PRESETS["seed"]
    with pytest.raises(ValidationError, match="lambda"):
        adapter.validate_python({**choices, "lambda": 0.1})
