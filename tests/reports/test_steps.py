"""The printed steps: seven in the paper's order, the tree's numbers worked by hand, and stored text stays text."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from corag_ray.core.fill import SinglesFill
from corag_ray.core.guided_tree import GuidedParams, GuidedTreeSearch
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Candidates
from corag_ray.pipeline import Choice, Choices
from corag_ray.reports.steps import SHOWN_ROWS, Expansion, Steps, expansions, render_steps
from corag_ray.types import Chunk, Generation, Question

TITLES = ["question", "query embedding", "configuration", "candidates", "search", "answer", "response"]
CHUNKS = [Chunk(n, f"plants/{n}", n, 0, 9, f"text {n}", cost) for n, cost in enumerate((2, 3, 6))]
# Budget 8; two iterations of `report` (best child only, c 2.4, lambda 0.1), as the golden trees of core work them out:
# the root, then chunk 0, whose children are 0+1 (cost 5) and 0+2 (cost 8).
SCORES = {(0,): 0.9, (1,): 0.76, (2,): 0.8, (0, 1): 0.5, (0, 2): 0.4}
PARAMS = dataclasses.replace(PRESETS["report"], iterations=2)


def finished(params=PARAMS, scores=SCORES):
    search = PolicyTreeSearch(Candidates((2, 3, 6), (0.9, 0.7, 0.2), (0, 1, 2), (0, 0, 0)), 8, params)
    while asked := search.ask(99):
        search.tell({combination: scores[combination] for combination in asked})
    return search


def searched(params=PARAMS, scores=SCORES):
    return expansions(finished(params, scores).root, 8, params)


def steps(*, question="why?", candidates=CHUNKS, choice=None, **changes: Any) -> Steps:
    choice = choice or Choice(
        "retrieval",
        selection=[CHUNKS[2], CHUNKS[0]],
        score=0.81,
        pairs=5,
        pairs_computed=3,
        reranker="late_interaction",
        effective_budget_tokens=8,
        prompt="User question: why?\nRelevant information:\n1. text 2\n2. text 0\n",
        prompt_tokens=31,
        context_tokens=7,
        latency_ms={"retrieve": 1.25, "search": 9.5},
        notes=["budget cut from 9 to 8 tokens"],
    )
    plain = {
        "choices": Choices(Question("q", question), list(candidates), {"corag": choice}, index_version="1-abc"),
        "method": "corag",
        "settings": {"reranker": "late_interaction", "strategy": "policy_tree", "iterations": "2"},
        "query_vector": [0.6, -0.8, 0.0, 0.0, 0.0, 0.0],
        "search": finished(),
        "answer": Generation("Because.", 30, 3, "stop"),
        "params": PARAMS,
        "priors": (0.9, 0.7, 0.2),
    }
    return Steps(**plain | changes)


def printed(value: Steps, width: int = 100) -> list[str]:
    """What each step prints, one string a panel."""
    texts = []
    for panel in render_steps(value):
        console = Console(file=io.StringIO(), width=width, force_terminal=False)
        console.print(panel)
        texts.append(console.file.getvalue())
    return texts


def words(text: str) -> str:
    """A panel without its frame, every run of blanks one blank."""
    return " ".join(text.replace("│", " ").split())


def test_there_are_seven_steps_in_the_papers_order_each_with_in_and_out():
    texts = printed(steps())
    assert len(texts) == 7
    for number, (title, text) in enumerate(zip(TITLES, texts, strict=True), start=1):
        assert f"Step {number} of 7: {title}" in text
        starts = [line.strip("│ ").split(" ")[0] for line in text.splitlines()]
        assert starts.count("in") == 1
        assert starts.count("out") == 1
        assert starts.index("in") < starts.index("out")


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("sign", ["word ", "光合作用", "x"])
def test_long_texts_squeeze_no_number_out_and_no_line_is_wider_than_the_terminal(width, sign):
    chunks = [Chunk(n, f"a rather long name of a document/{n}", n, 0, 9, sign * 300, 1234) for n in range(12)]
    choice = Choice("retrieval", selection=[chunks[11]], effective_budget_tokens=8, prompt=sign * 300)
    texts = printed(steps(candidates=chunks, priors=(0.123,) * 12, choice=choice), width)
    assert max(cell_len(line) for text in texts for line in text.splitlines()) <= width
    assert "12 0.123 1,234 a rather long name of a" in words(texts[3])
    assert "1 12 1,234 a rather long name of a" in words(texts[4])
    assert "1 2 2 0.700 0.900 3.122 2 1 + 2" in words(texts[4])
    assert texts[3].count("…") == 12  # each text shows that it goes on


def test_the_tree_shows_the_numbers_of_the_search():
    # Root: visits 2 (one an iteration), V .9 + .5. All nodes: root 2, chunk 0 2, 1 1, 2 1, 0+1 1, 0+2 1: N = 8.
    # Chunk 0: V/N = (.9 + .5)/2; U = .7 + 2.4 sqrt(ln 8 / 2) - .1 * 2/8 = .7 + 2.44720 - .025.
    root, first = searched()
    assert root == Expansion((), 0, 2, pytest.approx(0.7), None, None, 3, 3, ((0,), 0.9))
    assert first == Expansion((0,), 2, 2, pytest.approx(0.7), 0.9, pytest.approx(3.1222, abs=1e-4), 2, 2, ((0, 1), 0.5))
    text = words(printed(steps())[4])
    assert "(empty) 0 2 0.700 – – 3 1 (0.900)" in text
    assert "1 2 2 0.700 0.900 3.122 2 1 + 2 (0.500)" in text


def test_the_parents_visits_count_where_the_preset_says_so():
    # `carrot` adds every child: N(root) = 3 + 2, N(0) = 1 + 2, V(0) = .9 + .5 + .4; N in the logarithm is the parent's.
    # U(0) = .6 + 2.4 sqrt(ln 5 / 3) - .025 = .6 + 1.75788 - .025.
    params = dataclasses.replace(PRESETS["carrot"], iterations=2)
    _, first = searched(params, SCORES)
    assert (first.visits, first.mean_reward, first.utility) == (
        3,
        pytest.approx(0.6),
        pytest.approx(2.3329, abs=1e-4),
    )


def test_children_that_could_not_be_scored_are_counted():
    once, partly = dataclasses.replace(PARAMS, iterations=1), SCORES | {(0,): None}
    [root] = searched(once, partly)
    assert (root.children, root.scored_children, root.best_child) == (3, 2, ((2,), 0.8))
    assert "3, 1 unscored" in words(printed(steps(search=finished(once, partly)))[4])
    [nothing] = searched(once, dict.fromkeys(SCORES))
    assert (nothing.mean_reward, nothing.best_child) == (None, None)


def test_without_the_searchs_parameters_or_first_stage_scores_these_columns_are_empty():
    texts = [words(text) for text in printed(steps(params=None, priors=()))]
    assert "1 2 2 0.700 0.900 – 2 1 + 2 (0.500)" in texts[4]
    assert "chunk tokens document text" in texts[3]


def test_each_step_shows_its_values():
    question, embedding, configuration, candidates, search, answer, response = map(words, printed(steps()))
    assert "why?" in question
    assert "vector of 6 dimensions, norm 1.000: [0.600, -0.800, 0.000, 0.000, ..., 0.000]" in embedding
    assert "reranker: late_interaction strategy: policy_tree iterations: 2" in configuration
    assert "2 0.700 3 plants/1 text 1" in candidates
    assert "3 candidates and the configuration of step 3 budget 8 tokens" in search
    assert "selection of 8 tokens, 7 as encoded in the prompt, score 0.810:" in search
    assert "1 3 6 plants/2 text 2 2 1 2 plants/0 text 0" in search  # place, chunk, tokens: in the order of the prompt
    assert "prompt of 31 tokens: User question: why? Relevant information: 1. text 2 2. text 0" in answer
    assert "3 tokens written, 30 read, ended by the model: Because." in answer
    assert "Because. rests on: plants/2, plants/0 milliseconds: 10.8 (retrieve 1.2, search 9.5)" in response
    assert "note: budget cut from 9 to 8 tokens" in response


def test_a_method_without_search_vector_or_answer_says_so():
    def without(choice):
        value = steps(query_vector=None, search=None, candidates=[], choice=choice, answer=None, priors=())
        return [words(text) for text in printed(value)]

    texts = without(Choice("none"))
    assert "no vector: words alone are matched" in texts[1]
    assert "not used: the method takes no context" in texts[3]
    assert "selection: empty, answered without context" in texts[4]
    assert "none: generation is switched off" in texts[5]
    gold = Choice("gold", selection=[Chunk(77, "plants/9", 0, 0, 3, "gold", 4)], context_tokens=4)
    assert "1 – 4 plants/9 gold" in without(gold)[4]


def test_the_guided_tree_shows_its_widened_nodes():
    # Singles .9, .76, .8; then 0+1 (.5) and 0+2 (.4), in vain; around 0 alone there is no move, and 1+2 costs 9.
    params = GuidedParams(cost_weight=0.0, worth_weight=0.0)
    seen = Candidates((2, 3, 6), (0.9, 0.7, 0.2), (0, 1, 2), (0, 0, 0), order_matters=False)
    search = GuidedTreeSearch(seen, 8, params)
    while asked := search.ask(99):
        search.tell({combination: SCORES[combination] for combination in asked})
    text = words(printed(steps(search=search, params=params))[4])
    assert "2 nodes of the policy tree widened, the first singles, a greedy path," in text
    assert "(empty) 0 2 0.700 – – 3 1 (0.900)" in text
    assert "1 2 2 0.700 0.900 – 2 1 + 2 (0.500)" in text


def test_a_strategy_without_a_tree_shows_its_selection_alone():
    text = words(printed(steps(search=SinglesFill(Candidates((1,), (0.0,), (0,), (0,)), 8, RankedParams())))[4])
    assert "5 pairs scored, 3 of them computed selection of 8 tokens" in text


def test_what_a_table_leaves_out_is_counted():
    chunks = [Chunk(n, f"d{n}", 0, 0, 1, f"passage{n}", 1) for n in range(SHOWN_ROWS + 3)]
    text = words(printed(steps(candidates=chunks, priors=(0.5,) * len(chunks)))[3])
    assert "and 3 more candidates, not shown" in text
    assert f"passage{SHOWN_ROWS - 1}" in text
    assert f"passage{SHOWN_ROWS}" not in text


def test_markup_and_control_characters_of_stored_text_stay_text():
    nasty = "[bold]x[/bold] \x1b]0;title\x07\x1b[2J\u202e\r[/]"
    chunks = [Chunk(0, nasty, 0, 0, 1, nasty, 1)]
    choice = Choice("retrieval", selection=chunks, reranker="r", prompt=nasty, notes=[nasty])
    value = steps(
        question=nasty,
        settings={nasty: nasty},
        candidates=chunks,
        priors=(0.5,),
        choice=choice,
        answer=Generation(nasty, 1, 1, "length"),
    )
    for number, text in enumerate(printed(value), start=1):
        assert not set(text) & set("\x1b\x07\r\u202e"), number
    assert "[bold]x[/bold]" in printed(value)[0]
    assert "[bold]x[/bold]" in printed(value)[5]
