"""An explanation's JSON: the paper's figure worked by hand, the stated schema, titles, and texts that mean harm."""

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from made_explanation import FIGURE_COSTS, explained_search, figure_score, without_search
from pydantic import TypeAdapter

from corag_ray.core.fill import SinglesFill
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.ranked import RankedParams
from corag_ray.core.strategy import Stopped
from corag_ray.errors import ConfigError
from corag_ray.reports.explain_page import STOPPED
from corag_ray.reports.explanation import (
    SCHEMA_VERSION,
    Explanation,
    check_format,
    title_of,
    to_json,
)
from corag_ray.types import Score

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "explain.schema.json").read_text("utf-8"))
CALIBRATED = replace(PRESETS["report"], reading="calibrated")
# The tree of the paper's figure is worked by hand in tests/core/test_trace.py; here are its numbers as JSON.
# combination, parent, asked, cost, raw, calibrated, visits, mean reward, forbidden
FIGURE_NODES = [
    [[], None, None, 0, None, None, 5, 0.62, []],
    [[0], 0, 1, 256, -0.847, 0.3, 2, 0.35, []],
    [[0, 1], 1, 11, 512, -1.386, 0.2, 1, 0.2, None],
    [[0, 2], 1, 12, 512, -0.405, 0.4, 1, 0.4, None],
    [[0, 3], 1, 13, 512, -1.386, 0.2, 1, 0.2, None],
    [[1], 0, 2, 256, -1.386, 0.2, 2, 0.2, []],
    [[1, 0], 5, 14, 512, -1.386, 0.2, 1, 0.2, None],
    [[1, 2], 5, 15, 512, -1.386, 0.2, 1, 0.2, None],
    [[1, 3], 5, 16, 512, -1.386, 0.2, 1, 0.2, None],
    [[2], 0, 3, 256, 1.386, 0.8, 2, 0.8, []],
    [[2, 0], 9, 5, 512, -1.386, 0.2, 1, 0.2, None],
    [[2, 1], 9, 6, 512, -1.386, 0.2, 1, 0.2, None],
    [[2, 3], 9, 7, 512, 1.386, 0.8, 1, 0.8, [0, 1]],
    [[3], 0, 4, 256, 0.0, 0.5, 2, 0.7, []],
    [[3, 0], 13, 8, 512, -1.386, 0.2, 1, 0.2, None],
    [[3, 1], 13, 9, 512, -1.386, 0.2, 1, 0.2, None],
    [[3, 2], 13, 10, 512, 2.197, 0.9, 1, 0.9, None],
]


def figure(**changes):
    return explained_search(PolicyTreeSearch, CALIBRATED, FIGURE_COSTS, 512, figure_score, **changes)


def test_the_papers_figure_is_explained_as_worked_by_hand():
    found = json.loads(to_json(figure()))
    assert [list(node.values()) for node in found["nodes"]] == FIGURE_NODES
    chunks = [
        {
            "place": 1,
            "candidate": 3,
            "rank": 4,
            "doc_id": "d3",
            "title": "title 3 of text",
            "cost": 256,
            "text": "text 3",
        },
        {
            "place": 2,
            "candidate": 2,
            "rank": 3,
            "doc_id": "d2",
            "title": "title 2 of text",
            "cost": 256,
            "text": "text 2",
        },
    ]
    assert found["choice"] == {
        "combination": [3, 2],
        "node": 16,
        "score": 0.9,
        "cost": 512,
        "room_tokens": 0,
        "no_longer_fits": [0, 1],
        "chunks": chunks,
    }
    plain = {key: value for key, value in found.items() if key not in ("nodes", "choice", "candidates")}
    assert plain == {
        "schema_version": 1,
        "question": "why?",
        "method": "m",
        "settings": {"strategy": "made"},
        "source": "retrieval",
        "reranker": "made",
        "reading": "calibrated",
        "index_version": "1-abc",
        "effective_budget_tokens": 512,
        "searched": "tree",
        "stopped": "dead_end",
        "pairs": 16,
        "pairs_computed": 16,
        "pairs_unscored": 0,
        "milliseconds": {"retrieve": 1.25, "search": 9.5},
        "notes": [],
    }
    assert found["candidates"][1] == {
        "number": 1,
        "rank": 2,
        "doc_id": "d1",
        "title": "title 1 of text",
        "position": 0,
        "start": 0,
        "end": 9,
        "cost": 256,
        "prior": 0.99,
        "fits": True,
        "text": "text 1",
    }


def ranked(**changes):
    return explained_search(SinglesFill, RankedParams(), (5, 3, 9), 8, lambda c: Score(c[0] / 4, 0.5), **changes)


def test_a_strategy_without_a_tree_is_explained_by_what_it_asked_and_what_it_chose_of_it():
    # Candidate 2 (9 tokens) has the highest score and does not fit 8; 1 and then 0 fill the budget.
    found = ranked()
    assert (found.searched, found.stopped) == ("list", "all_scored")
    assert [(n.combination, n.raw, n.visits, n.parent) for n in found.nodes] == [
        ((0,), 0.0, None, None),
        ((1,), 0.25, None, None),
        ((2,), 0.5, None, None),
    ]
    assert (found.choice.combination, found.choice.node, found.choice.score) == ((1, 0), None, 0.25)
    assert [candidate.fits for candidate in found.candidates] == [True, True, False]
    assert (found.choice.room_tokens, found.choice.no_longer_fits) == (0, (2,))


def test_a_method_without_a_search_has_its_chunks_and_nothing_else():
    found = without_search()
    assert (found.searched, found.stopped, found.reading, found.nodes, found.candidates) == ("none", None, None, (), ())
    [chunk] = found.choice.chunks
    assert (chunk.candidate, chunk.rank, chunk.title) == (None, None, "The title")
    assert (found.choice.combination, found.choice.score, found.choice.room_tokens) == (None, None, 1)


CASES = {
    "figure": figure,
    "cut": lambda: figure(pair_limit=6),
    "list": ranked,
    "none": without_search,
    "nothing fits": lambda: explained_search(PolicyTreeSearch, CALIBRATED, (9,), 8, figure_score),
    "unscored": lambda: explained_search(PolicyTreeSearch, CALIBRATED, (4, 4), 8, lambda c: None),
    "not finite": lambda: explained_search(PolicyTreeSearch, CALIBRATED, (4,), 8, lambda c: Score(math.inf, 1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_explanation_fits_the_stated_schema(case):
    found = json.loads(to_json(CASES[case]()))
    jsonschema.validate(found, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found | {"more": 1}, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found | {"schema_version": 2}, SCHEMA)


def test_the_stated_schema_is_that_of_the_code():
    # Made by: python -c "import json, pydantic; from corag_ray.reports.explanation import Explanation as E;
    #   print(json.dumps(pydantic.TypeAdapter(E).json_schema(), indent=2))" > docs/explain.schema.json
    assert TypeAdapter(Explanation).json_schema() == SCHEMA
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


def test_every_key_and_every_reason_stands_in_the_documentation():
    text = (DOCS / "explain.md").read_text("utf-8")
    keys = {key for part in (SCHEMA, *SCHEMA["$defs"].values()) for key in part["properties"]}
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []
    assert [reason for reason in get_args(Stopped) if f"`{reason}`" not in text] == []
    assert set(STOPPED) == set(get_args(Stopped))


def test_the_same_search_gives_the_same_json_and_texts_come_back_as_they_were():
    nasty = "</script> \"quoted\" \\ 'so' \u2028 \x00 \u202e é 漢"
    first = to_json(figure(text=nasty, question=nasty))
    assert to_json(figure(text=nasty, question=nasty)) == first
    assert "\n" not in first
    found = json.loads(first)
    assert found["question"] == nasty
    assert found["candidates"][0]["text"] == f"{nasty} 0"


def test_a_number_that_json_has_no_word_for_is_null():
    [_, node] = CASES["not finite"]().nodes
    assert (node.raw, node.calibrated) == (None, 1.0)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\n  Eiffel Tower \nIt is high.", "Eiffel Tower"),
        ("", ""),
        (" \n ", ""),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "…"),
    ],
)
def test_a_title_is_the_documents_first_line_cut_where_it_is_long(text, title):
    assert title_of(text) == title


@pytest.mark.parametrize("name", ["tree.txt", "tree", ".html", "tree.html.gz"])
def test_only_html_and_json_are_written(name):
    with pytest.raises(ConfigError, match=r"written as \.html or \.json, and '"):
        check_format(Path(name))
    check_format(Path("a/Tree.HTML"))
    check_format(Path("tree.json"))


def test_an_explanation_is_a_value_of_plain_values():
    assert dataclasses.asdict(figure())["choice"]["combination"] == (3, 2)
