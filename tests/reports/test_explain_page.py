"""The explanation's page: it stands alone, shows every node and its texts as text, and can be read without a mouse."""

import re
from dataclasses import replace

import numpy as np
import pytest
from made_explanation import FIGURE_COSTS, explained_search, figure_score, without_search
from made_rows import NASTY, Page
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from corag_ray.core.beam import BeamParams, BeamSearch
from corag_ray.core.fill import SinglesFill
from corag_ray.core.policy_tree import PRESETS, PolicyTreeSearch
from corag_ray.core.ranked import RankedParams
from corag_ray.errors import ConfigError
from corag_ray.reports.explain_page import explanation_page, write_explanation
from corag_ray.reports.explanation import to_json
from corag_ray.types import Score

CALIBRATED = replace(PRESETS["report"], reading="calibrated")
TEXT = f"</script></style></title> \"double\" 'single' {NASTY} {{{{ 7 * 7 }}}}"


def figure(**changes):
    return explained_search(PolicyTreeSearch, CALIBRATED, FIGURE_COSTS, 512, figure_score, **changes)


def many():
    """60 candidates and `report` as published: 591 pairs."""
    return explained_search(
        PolicyTreeSearch,
        PRESETS["report"],
        (100,) * 60,
        512,
        lambda c: Score(1 / (1 + sum(c)), 0.5),
        text="word " * 200,
    )


def nodes_of(page):
    """Attributes of what is drawn on the map."""
    return [attrs for _, attrs in page.tags if (attrs.get("class") or "").split()[:1] == ["node"]]


@pytest.fixture(scope="module")
def html():
    return explanation_page(figure(text=TEXT, question=TEXT))


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_the_page_loads_nothing_and_runs_nothing(html, page):
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base", "form"}
    attributes = [(key, value) for _, attrs in page.tags for key, value in attrs.items()]
    assert all(value.startswith("#") for key, value in attributes if key in {"src", "href", "xlink:href"})
    assert not [key for key, _ in attributes if key.startswith("on")]
    assert not re.search(r"@import|url\(", html)
    [policy] = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_question_texts_titles_and_names_are_shown_as_text(html, page):
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script" not in html and "</script" not in html
    assert html.count("</title>") == html.count("</style>") == 1
    assert page.text.count(f"{TEXT} 3") >= 3  # in the choice, beside the map, and among the candidates
    assert page.text.count(TEXT) > 12
    assert "{{ 7 * 7 }}" in page.text
    doc = explained_search(PolicyTreeSearch, CALIBRATED, FIGURE_COSTS, 512, figure_score, doc='"><script>x')
    assert "<script" not in explanation_page(doc)


def test_the_papers_figure_is_drawn_with_its_choice_marked_and_every_node_named(page):
    drawn = nodes_of(page)
    assert [node["aria-label"] for node in drawn] == [
        "no context, visits 5, 0 tokens",
        "chunks 3, score 0.800, visits 2, 256 tokens",
        "chunks 3 + 4, score 0.800, visits 1, 512 tokens",
        "chunks 3 + 1, score 0.200, visits 1, 512 tokens",
        "chunks 3 + 2, score 0.200, visits 1, 512 tokens",
        "chunks 4, score 0.500, visits 2, 256 tokens",
        "chunks 4 + 3, score 0.900, visits 1, 512 tokens, chosen",
        "chunks 4 + 1, score 0.200, visits 1, 512 tokens",
        "chunks 4 + 2, score 0.200, visits 1, 512 tokens",
        "chunks 1, score 0.300, visits 2, 256 tokens",
        "chunks 1 + 3, score 0.400, visits 1, 512 tokens",
        "chunks 1 + 2, score 0.200, visits 1, 512 tokens",
        "chunks 1 + 4, score 0.200, visits 1, 512 tokens",
        "chunks 2, score 0.200, visits 2, 256 tokens",
        "chunks 2 + 1, score 0.200, visits 1, 512 tokens",
        "chunks 2 + 3, score 0.200, visits 1, 512 tokens",
        "chunks 2 + 4, score 0.200, visits 1, 512 tokens",
    ]
    assert ["chosen" in node["class"] for node in drawn] == [place == 6 for place in range(17)]
    paths = [attrs for tag, attrs in page.tags if tag == "path"]
    assert len(paths) == 16
    assert [attrs.get("class") for attrs in paths].count("chosen") == 2  # to 4, and from it to 4 + 3
    text = " ".join(page.text.split())
    assert "Why the search ended: nothing that fits and has a score can be added to what it would go on from." in text
    assert "0 tokens are left; 2 of the 2 other candidates are too long for that." in text
    assert "The budget leaves no room for 2 of the 2 other candidates here." in text
    assert "+ 4 0.800 full" in text
    assert text.count(" full ") == 1


def test_dots_grow_with_visits_and_are_coloured_by_the_score_that_was_read(html):
    dots = re.findall(
        r'class="dot( empty)?" style="--size:([\d.]+)px(?:;background:(#\w+))?"></span>\n<span class="label', html
    )
    # Five visits are the most, 26 px; an area is as its visits: 26 * sqrt(2/5) = 16.4, 26 * sqrt(1/5) = 11.6.
    assert [float(size) for _, size, _ in dots[:3]] == [26, 16.4, 11.6]
    assert dots[0][0] == " empty" and dots[0][2] == ""  # the root has no score
    # Scores go from .2 to .9: .8 is at 6/7 of cividis.
    assert np.allclose(to_rgb(dots[1][2]), colormaps["cividis"](6 / 7)[:3], atol=0.003)
    assert np.allclose(to_rgb(dots[6][2]), colormaps["cividis"](1.0)[:3], atol=0.003)


def test_every_node_can_be_reached_by_keyboard_and_then_shows_its_card(html, page):
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    for node in nodes_of(page):
        assert node["tabindex"] == "0"
        assert node["aria-describedby"] in ids
    for state in (":focus", ":focus-within", ":hover"):
        assert re.search(rf"\.node{state} > \.card[^}}]*\{{ display: block", html)
    ids_in_order = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(ids_in_order)
    assert all(attrs["href"][1:] in ids for tag, attrs in page.tags if tag == "a")


def test_tables_have_every_node_and_every_candidate_and_heads_with_a_scope(page):
    assert sum(tag == "tr" for tag, _ in page.tags) == (1 + 2) + (1 + 17) + (1 + 4) + 5
    heads = [attrs for tag, attrs in page.tags if tag == "th"]
    assert all(attrs.get("scope") in {"col", "row"} for attrs in heads)
    legend = page.text[page.text.index("score (calibrated)") :]
    assert [word in legend[:600] for word in ("0.200", "0.900", "visits", "chosen", "without score", "not drawn")] == [
        True
    ] * 6


def test_of_six_hundred_nodes_few_are_drawn_all_are_counted_and_all_stand_in_the_table():
    found = many()
    html = explanation_page(found)
    page = Page(html)
    assert len(found.nodes) == 592
    drawn = nodes_of(page)
    folds = [int(node["aria-label"].split()[0]) for node in drawn if "more" in node["aria-label"]]
    assert len(drawn) - len(folds) == 48
    assert sum(folds) == 592 - 48
    assert sum(tag == "th" and attrs.get("scope") == "row" for tag, attrs in page.tags) > 592 + 60
    assert "Best of them: " in page.text
    assert len(html) < 1_000_000
    assert page.text.count("word " * 200) == 60 + len(found.choice.chunks)  # cut beside the map, in full below it


def test_a_strategy_without_a_tree_is_drawn_as_columns_and_its_chunks_are_marked():
    ranked = explained_search(SinglesFill, RankedParams(), (5, 3, 9), 8, lambda c: Score(c[0] / 4, 0.5))
    page = Page(explanation_page(ranked))
    assert [node["aria-label"] for node in nodes_of(page)] == [
        "chunks 3, score 0.500, 9 tokens",
        "chunks 2, score 0.250, 3 tokens, chosen",
        "chunks 1, score 0.000, 5 tokens, chosen",
    ]
    assert not [tag for tag, _ in page.tags if tag == "path"]
    assert "score of its first chunk" in page.text
    assert "visits" not in page.text
    beam = explained_search(BeamSearch, BeamParams(width=1), (1, 1), 2, lambda c: Score(float(len(c)), 0.5))
    lefts = [re.match(r"left:(\d+)px", node["style"]).group(1) for node in nodes_of(Page(explanation_page(beam)))]
    assert lefts == ["0", "0", "190"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda: figure(pair_limit=6), "cut it short"),
        (lambda: explained_search(PolicyTreeSearch, CALIBRATED, (9,), 8, figure_score), "without context"),
        (lambda: explained_search(PolicyTreeSearch, CALIBRATED, (), 8, figure_score), "without context"),
        (lambda: explained_search(PolicyTreeSearch, CALIBRATED, (4, 4), 8, lambda c: None), "it could not be scored"),
        (without_search, "gold passage"),
    ],
    ids=["cut", "nothing fits", "no candidate", "nothing scored", "no search"],
)
def test_searches_that_went_nowhere_have_their_page_too(found, words):
    assert words in Page(explanation_page(found())).text


def test_the_file_is_what_its_name_asks_for_and_the_same_each_time(tmp_path):
    for name in ("deep/tree.html", "deep/again.HTML"):
        write_explanation(tmp_path / name, figure())
    assert (tmp_path / "deep/tree.html").read_bytes() == (tmp_path / "deep/again.HTML").read_bytes()
    assert (tmp_path / "deep/tree.html").read_text("utf-8") == explanation_page(figure())
    write_explanation(tmp_path / "tree.json", figure())
    assert (tmp_path / "tree.json").read_text("utf-8") == to_json(figure()) + "\n"
    with pytest.raises(ConfigError):
        write_explanation(tmp_path / "tree.txt", figure())
    assert not (tmp_path / "tree.txt").exists()
