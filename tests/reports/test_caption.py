"""The caption below the tables: which questions and methods the numbers do not speak of."""

import re

import pytest
from made_rows import ASKED, LONG, MANIFEST, Page, printed, result, row

from corag_ray.evaluation.summarise import summarise
from corag_ray.reports.html import write_report
from corag_ray.reports.table import caption, markdown_table

FAILED = row(12, {}, error={"kind": "RowError", "message": "no room"}, candidate_recall=None)


def fewer(*questions, **more):
    """The caption's words between the failures and the interval, for a method with these values a question."""
    rows = [row(i, {"naive": result(0.5, 400, **values)} | more, answers=LONG) for i, values in enumerate(questions)]
    return re.search(r"no mean\.(.*) ± is half", markdown_table(summarise(rows)))[1]


MISSED = {"evidence_recall": None}
MET = {"rouge_generated": {"rouge1": 0.5, "rouge2": 0.5, "rougeL": 0.5}}


def test_columns_over_fewer_questions_are_named_with_their_number():
    assert fewer({}, {}, {}) == ""
    assert fewer(MISSED, {}, {}) == " Fewer questions enter: evidence recall 2."
    assert fewer(MISSED, MET, MET) == " Fewer questions enter: ROUGE-L (generated) 2, evidence recall 2."


def test_a_column_that_was_not_measured_at_all_shows_dashes_and_is_not_named():
    assert fewer(MISSED, MISSED) == ""


def test_questions_that_failed_make_no_column_fewer():
    assert "1 failed and enter no mean. ±" in markdown_table(summarise([row(0, {"naive": result(0.5, 400)}), FAILED]))


def test_a_column_whose_methods_differ_is_named_with_the_least_and_the_most():
    assert fewer(MISSED, {}, {}, corag=result(0.5, 400)) == " Fewer questions enter: evidence recall 2 to 3."
    unmeasured = result(0.5, 0, source="none", **MISSED)
    assert fewer(MISSED, {}, {}, floor=unmeasured) == " Fewer questions enter: evidence recall 2."
    assert fewer({}, {}, floor=unmeasured) == ""


def test_the_columns_of_small_tables_are_named_too_and_all_outputs_say_the_same(tmp_path):
    sentence = "Fewer questions enter: abstained (unanswerable) 3, abstained (answerable) 2."
    summary = summarise(ASKED)
    assert f" mean. {sentence} ±" in markdown_table(summary)
    assert sentence in " ".join(printed(summary).split())
    write_report(tmp_path / "asked.html", summary, MANIFEST, ASKED)
    assert sentence in Page((tmp_path / "asked.html").read_text(encoding="utf-8")).text


def page_text(path, summary):
    write_report(path, summary, MANIFEST, [])
    return Page(path.read_text(encoding="utf-8")).text


ONE = [row(0, {"m": result(0.5, 400)}, answers=LONG)]


def test_evidence_recall_that_cannot_reach_1_is_explained_in_all_outputs(tmp_path):
    sentence = "With every chunk of the evidence's documents selected, evidence recall would be 0.618."
    summary = summarise(ONE, coverable_evidence=0.6181)
    assert f"{sentence} Bold" in markdown_table(summary)
    assert sentence in " ".join(printed(summary).split())
    assert sentence in page_text(tmp_path / "page.html", summary)


def test_an_empty_column_of_generated_references_is_explained():
    with_gold = [
        row(0, {"naive": result(0.5, 400, rouge_generated=dict.fromkeys(("rouge1", "rouge2", "rougeL"), 0.5))})
    ]
    assert "is a dash: no method with `source: gold` answered" in caption(summarise(ONE))
    assert "is a dash" not in caption(summarise(with_gold))


@pytest.mark.parametrize("coverable", [None, 1.0, 0.9999])
def test_where_it_can_or_nobody_knows_nothing_is_said(coverable):
    assert caption(summarise(ONE, coverable_evidence=coverable)) == caption(summarise(ONE))
    assert "would be" not in caption(summarise(ONE))


MIXED = [
    row(
        0,
        {
            "naive_rag": result(0.5, 400, reranker="late"),
            "a*b": result(0.5, 400, reranker="late"),
            "c": result(0.5, 400, reranker="cross"),
            "d": result(0.5, 400, reranker="bm25"),
            "gold": result(0.5, 400, source="gold"),
        },
        answers=LONG,
    )
]


def test_of_a_mixed_run_the_methods_scored_blind_to_order_are_named_in_all_outputs(tmp_path):
    summary = summarise(MIXED, order_blind=["late", "bm25", "unused"])
    sentences = (
        "late is blind to order: the figures of naive_rag, a*b say nothing about the order of chunks."
        " bm25 is blind to order: the figures of d say nothing about the order of chunks."
    )
    assert caption(summary).endswith(f" aside. {sentences}")
    assert sentences in " ".join(printed(summary).split())
    assert sentences in page_text(tmp_path / "page.html", summary)
    escaped = sentences.replace("naive_rag, a*b", r"naive\_rag, a\*b")  # names are no emphasis
    assert markdown_table(summary).endswith(f" aside. {escaped}\n")


def test_where_every_reranker_sees_order_nothing_is_said_of_it():
    assert "order" not in caption(summarise(MIXED))


def test_how_many_pairs_were_computed_is_said_in_all_outputs(tmp_path):
    summary = summarise([row(0, {"m": result(0.5, 400, pairs=1591, pairs_computed=1060)}, answers=LONG)])
    sentence = "Of 1,591 pairs, 1,060 were computed; 33.4 % came from the memo or with another method's call."
    assert f"bootstrap interval. {sentence} ROUGE-L" in markdown_table(summary)
    assert sentence in " ".join(printed(summary).split())
    assert sentence in page_text(tmp_path / "page.html", summary)


def test_what_was_not_scored_or_not_read_at_once_or_in_full_is_said_by_method_in_all_outputs(tmp_path):
    lost = {"pairs_unscored": 1234, "selection_windows": 3, "question_tokens_cut": 145}
    methods = {
        "a": result(0.5, 400, **lost),
        "b": result(0.5, 400, selection_windows=1),
        "c": result(0.5, 400, pairs_unscored=1),
    }
    summary = summarise([row(number, methods, answers=LONG) for number in range(2)])
    sentences = (
        "Pairs that could not be scored, and so not be chosen: 2,468 of a, 2 of c."
        " Selections scored in several windows: 2 of a."
        " Questions of which the reranker read the beginning alone: 2 of a."
    )
    assert f"method's call. {sentences} ROUGE-L" in markdown_table(summary)
    assert sentences in " ".join(printed(summary).split())
    assert sentences in page_text(tmp_path / "page.html", summary)


def test_where_all_was_scored_and_read_nothing_is_said_of_it():
    said = caption(summarise(ONE))
    assert all(words not in said for words in ("could not be scored", "several windows", "beginning alone"))


def test_where_nothing_was_scored_nothing_is_said_of_pairs():
    none = result(0.5, 0, source="none", pairs=0, pairs_computed=0)
    assert "computed" not in caption(summarise([row(0, {"m": none}, answers=LONG)]))
