"""Reports: the numbers shown are the summary's, the page stands alone, and stored text stays text."""

from __future__ import annotations

import io
import itertools
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import ASKED, MANIFEST, NASTY, Page, printed, result, row
from matplotlib.font_manager import findfont, get_font
from rich.console import Console

from corag_ray.evaluation.summarise import summarise
from corag_ray.reports import figures
from corag_ray.reports.figures import latency_figure, quality_figure, svg_text
from corag_ray.reports.html import write_report
from corag_ray.reports.labels import spread
from corag_ray.reports.table import COLUMNS, MISSING, decimal, markdown_table, summary_table, table_cells


def methods(shift: float) -> dict[str, Any]:
    return {
        "no_context": result(0.9, 0, source="none", selection=[], notes=[]),
        "naive": result(0.25 + shift, 500),
        "corag": result(0.5 + shift, 400, notes=[]),
    }


ROWS = [row(i, methods(0.125 * (i % 2))) for i in range(12)]
ROWS.append(row(12, {}, error={"kind": "RowError", "message": f"no room {NASTY}"}, candidate_recall=None))
SUMMARY = summarise(ROWS)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    write_report(path, SUMMARY, MANIFEST, ROWS)
    return path.read_text(encoding="utf-8")


def test_the_best_real_method_is_marked_and_the_floor_never_is():
    best = {method.name: [cell.is_best for cell in cells] for method, cells in table_cells(SUMMARY)}
    rouge = [column.metric for column in COLUMNS].index("rouge_set.rougeL")
    tokens = [column.metric for column in COLUMNS].index("context_tokens")
    assert not any(best["no_context"])  # though its ROUGE is the highest and its context the shortest
    assert (best["naive"][rouge], best["corag"][rouge]) == (False, True)
    assert (best["naive"][tokens], best["corag"][tokens]) == (False, True)  # fewer tokens are better


def test_methods_equal_as_printed_are_both_best():
    rows = [row(0, {"a": result(0.5, 400), "b": result(0.50001, 400)})]
    assert all(cells[0].is_best for _, cells in table_cells(summarise(rows)))


def test_the_markdown_table_holds_mean_and_half_interval():
    lines = markdown_table(SUMMARY).splitlines()
    naive = next(line for line in lines if line.startswith("| naive "))
    half = next(method for method in SUMMARY.methods if method.name == "naive").estimates["rouge_set.rougeL"].half_width
    assert half is not None
    # mean of 0.25 and 0.375, six times each; nothing generated; tokens do not vary, so they have no ±
    assert (
        naive == f"| naive | 0.312 ± {half:.3f} | {MISSING} | **0.500** | {MISSING} | 500 | **60** | **10** | 0 | 12 |"
    )
    assert any(line.startswith("| *no\\_context* |") for line in lines)
    assert "12 of 13 questions; 1 failed" in lines[-1]


SHORT_ROWS = [
    row(
        i,
        {
            "naive": result(0.5, 400, exact_match=0.0, token_f1=0.25),
            "corag": result(0.5, 400, exact_match=i % 2, token_f1=0.75),
        },
    )
    for i in range(4)
]


def test_short_answers_have_a_second_table_with_exact_match_and_f1(tmp_path):
    summary = summarise(SHORT_ROWS)
    first, second, below = markdown_table(summary).split("\n\n")
    assert first.count("\n") == second.count("\n") == 3
    assert "exact match" not in first
    assert second.splitlines()[0] == "| method | exact match | token F1 |"
    assert second.splitlines()[2] == "| naive | 0.000 | 0.250 |"
    assert second.splitlines()[3].startswith("| corag | **0.500 ± ")  # 0, 1, 0, 1
    assert second.splitlines()[3].endswith("| **0.750** |")
    assert "normalised as SQuAD does" in below
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(summary_table(summary))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "token" in printed and "0.750" in printed
    write_report(tmp_path / "short.html", summary, MANIFEST, SHORT_ROWS)
    page = (tmp_path / "short.html").read_text(encoding="utf-8")
    assert {"short-answers", "differences"} <= {attrs.get("id") for _, attrs in Page(page).tags}
    # Four differences of 0.5, all one way: 2 of 2^4 sign patterns are as far from 0.
    assert "+0.500 to +0.500, p = 0.125" in Page(page).text


@pytest.mark.parametrize("changes", [{"answers": ["word " * 11]}, {"answers": []}], ids=["long", "none"])
def test_without_short_answers_there_is_one_table(changes, html):
    long = summarise([one | changes for one in SHORT_ROWS])
    assert "F1 |" not in markdown_table(long)
    assert "SQuAD" not in markdown_table(long)
    assert "short-answers" not in html  # its answers are short, but none was measured


def test_where_methods_could_abstain_a_small_table_says_how_often_they_did(tmp_path):
    summary = summarise(ASKED)
    _, second, below = markdown_table(summary).split("\n\n")
    lines = second.splitlines()
    assert lines[0] == "| method | abstained (unanswerable) | abstained (answerable) |"
    assert lines[2] == "| naive | 0.000 | **0.000** |"  # of answerable questions, none is best
    # 1 of 3 and 1 of 2. A resample holds nothing but the one in 1/27 and in 1/4 of cases, more than the 2.5 % outside.
    assert lines[3] == "| corag | **0.333 ± 0.500** | 0.500 ± 0.500 |"
    assert lines[4] == "| *no\\_context* | 1.000 | 1.000 |"
    assert "the prompt's agreed words for none. Bold" in below
    assert "Exact match" not in below
    assert re.search(r"abstained +abstained *\n *method *\(unanswerable\) +\(answerable\)", printed(summary))
    write_report(tmp_path / "asked.html", summary, MANIFEST, ASKED)
    page = Page((tmp_path / "asked.html").read_text(encoding="utf-8"))
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert "abstention" in ids
    assert "short-answers" not in ids
    assert "Abstention" in page.text
    # The difference on the unanswerable questions is (1, 0, 0): all sign patterns of it are as far from 0.
    assert "+0.333+0.000 to +1.000, p = 1.000" in page.text


def test_short_answers_and_abstention_stand_in_tables_of_their_own(tmp_path):
    rows = [one | {"answers": ["short"]} for one in ASKED]
    for one in rows:
        one["methods"] = {name: found | {"token_f1": 0.25} for name, found in one["methods"].items()}
    heads = [part.splitlines()[0] for part in markdown_table(summarise(rows)).split("\n\n")[1:3]]
    assert heads == [
        "| method | exact match | token F1 |",
        "| method | abstained (unanswerable) | abstained (answerable) |",
    ]


def test_where_all_questions_are_answerable_the_share_of_the_others_is_a_dash():
    _, second, _ = markdown_table(summarise([one | {"answerable": True} for one in ASKED])).split("\n\n")
    assert second.splitlines()[2] == f"| naive | {MISSING} | **0.000** |"


@pytest.mark.parametrize("changes", [{"answerable": None}, {"abstained": None}], ids=["no mark", "no agreed words"])
def test_without_marked_questions_or_agreed_words_nothing_is_said_of_abstaining(changes):
    rows = [
        one | changes | {"methods": {name: found | changes for name, found in one["methods"].items()}} for one in ASKED
    ]
    summary = summarise(rows)
    assert "bstained" not in markdown_table(summary)
    assert "bstained" not in printed(summary)


def test_a_bar_in_a_name_breaks_no_markdown_table():
    line = markdown_table(summarise([row(0, {"a|b": result(0.5, 400)})])).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", line)) == len(COLUMNS) + 4


def test_a_narrow_terminal_gets_the_methods_side_by_side_and_no_folded_cell():
    rows = [row(i, {name: result(0.2 * i, 400 + i) for name in ("naive_rag", "corag", "no_context")}) for i in range(3)]
    lines = {}
    for width in (80, 200):
        console = Console(width=width, file=io.StringIO(), color_system=None)
        console.print(summary_table(summarise(rows)))
        lines[width] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert re.fullmatch(r" *naive_rag +corag +no_context *", lines[80][0])
    assert any(re.fullmatch(r"context tokens( +401 ± 1){3} *", line) for line in lines[80])
    assert lines[200][0].split()[0] == "ROUGE-L"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_terminal_is_too_narrow_for_whole_numbers(width):
    rows = [row(i, {"[red]a": result(0.5, 1234 + i, pairs=123456)}) for i in range(2)]
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(summary_table(summarise(rows)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert "[red]a" in text


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (None, 3, False, "\N{EN DASH}"),
        (0.0, 3, False, "0.000"),
        (1234.5, 1, False, "1,234.5"),
        (-0.25, 2, True, "\N{MINUS SIGN}0.25"),
        (0.25, 2, True, "+0.25"),
    ],
)
def test_numbers_are_printed_one_way(value, digits, signed, text):
    assert decimal(value, digits, signed) == text


@given(st.lists(st.floats(0, 1), max_size=10))
def test_labels_stay_on_the_axis_in_order_and_apart(heights):
    placed = spread(heights, gap=0.1)
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)
    in_order = [placed[index] for index in sorted(range(len(heights)), key=lambda index: heights[index])]
    assert all(b - a >= 0.1 - 1e-9 for a, b in itertools.pairwise(in_order))


def test_labels_that_have_room_stay_where_they_are_and_a_pair_parts_around_its_middle():
    assert spread([0.75, 0.25], gap=0.125) == [0.75, 0.25]
    assert spread([0.5, 0.5], gap=0.125) == [0.4375, 0.5625]


def test_figures_name_every_method_in_real_text_and_follow_the_page_colour():
    for figure in (quality_figure(SUMMARY), latency_figure(SUMMARY)):
        svg = svg_text(figure, "p")
        texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]
        assert {"no_context", "naive", "corag"} <= set(texts)
        assert "currentColor" in svg


def test_a_figures_text_has_the_pages_font():
    svg = svg_text(latency_figure(SUMMARY), "p")
    assert "font-size: 10px" in svg
    assert "DejaVu" not in svg
    assert "font-family" not in svg


def lacking():
    """A letter of a font that comes with matplotlib and not of its default one."""
    chars = [set(get_font(findfont(name)).get_charmap()) for name in ("STIXGeneral", "DejaVu Sans")]
    return chr(min(chars[0] - chars[1]))


def named(method):
    return latency_figure(summarise([row(0, {method: result(0.5, 400)})]))


def test_a_name_that_the_default_font_lacks_takes_its_room_by_a_fallback_that_is_there(monkeypatch, caplog):
    monkeypatch.setattr(figures, "_FALLBACKS", ("No Font Is Called This", "STIXGeneral"))
    assert lacking() in svg_text(named(lacking()), "p")
    assert caplog.messages == []


@pytest.mark.filterwarnings("error")
def test_a_name_that_no_font_has_stands_in_the_page_all_the_same_after_one_warning(monkeypatch, caplog):
    monkeypatch.setattr(figures, "_FALLBACKS", ())
    figures._warn_of_missing_glyphs.cache_clear()
    name = f"a {lacking()} b"
    for _ in range(2):
        assert name in svg_text(named(name), "p")
    [message] = caplog.messages
    assert message.startswith("no font here has all characters of the methods' names")


def test_two_figures_share_no_element_id():
    ids = [
        set(re.findall(r'\bid="([^"]+)"', svg_text(quality_figure(SUMMARY), prefix))) for prefix in ("first", "second")
    ]
    assert ids[0] and ids[0].isdisjoint(ids[1])


def test_the_quality_figure_puts_each_method_at_its_means():
    points = [
        tuple(np.round(line.get_xydata()[0], 6))
        for line in quality_figure(SUMMARY).axes[0].lines
        if line.get_marker() in ("o", "s", "D", "^", "v")
    ]
    assert points == [(0.0, 0.9), (500.0, 0.3125), (400.0, 0.5625)]


def test_the_latency_bars_end_at_the_mean_total():
    ends = {round(bar.get_x() + bar.get_width(), 6) for bar in latency_figure(SUMMARY).axes[0].patches}
    assert ends == {1.0, 10.0}


def test_the_page_loads_nothing_and_runs_nothing(html):
    page = Page(html)
    assert not [tag for tag, _ in page.tags if tag in {"script", "link", "img", "iframe", "object"}]
    references = [
        value for _, attrs in page.tags for key, value in attrs.items() if key in {"src", "href", "xlink:href"}
    ]
    assert all(value and value.startswith("#") for value in references)
    assert not re.search(r"@import|url\((?!#)", html)


def test_stored_text_is_shown_as_text(html):
    assert "<script" not in html
    text = Page(html).text
    for shown in (f"question 0 {NASTY}", f"answer {NASTY}", f"no room {NASTY}"):
        assert shown in text


def test_the_page_shows_failures_notes_differences_and_the_manifest(html):
    text = Page(html).text
    for shown in ("Differences from naive", "+0.250", "budget cut to 400 tokens", "RowError", "castles/7 [10:500]"):
        assert shown in text
    for shown in ("sample run", "3f2a91c", "9b1c77e0", "ray", "2.60.0", "search.c", "2.4"):
        assert shown in text


def test_ten_examples_stand_in_the_page_and_every_table_head_has_a_scope(html):
    tags = Page(html).tags
    assert sum(tag == "details" for tag, _ in tags) == 10
    heads = [attrs for tag, attrs in tags if tag == "th"]
    assert heads and all(attrs.get("scope") in {"col", "row"} for attrs in heads)


def test_the_page_is_cut_by_language_but_not_by_a_kind_that_is_all_one(html):
    headings = {attrs.get("id") for tag, attrs in Page(html).tags if tag == "h2"}
    assert "by-language" in headings
    assert "by-kind" not in headings


def test_the_same_run_gives_the_same_page_byte_for_byte(html, tmp_path):
    write_report(tmp_path / "again.html", SUMMARY, MANIFEST, ROWS)
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == html


def test_a_run_without_any_result_still_has_its_page(tmp_path):
    rows = ROWS[-1:]
    write_report(tmp_path / "failed.html", summarise(rows), {}, rows)
    text = Page((tmp_path / "failed.html").read_text(encoding="utf-8")).text
    assert "No question has a result." in text
    assert "no room" in text


def test_a_dollar_in_a_method_name_is_no_formula():
    svg = svg_text(latency_figure(summarise([row(0, {"a $x_1$ <b>": result(0.5, 400)})])), "p")
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]
    assert "a $x_1$ <b>" in texts
