"""Stored rows: what the reader refuses, and what a summary counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_rows import result, rouge, row

from corag_ray.errors import DataError
from corag_ray.evaluation.row_log import read_rows
from corag_ray.evaluation.summarise import METRICS, headline, summarise

FAILED = row(9, {}, error={"kind": "RowError", "message": "too long"}, candidate_recall=None)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_rows_come_back_as_they_were_stored(tmp_path):
    rows = [row(0, question="東京? 𝄞"), FAILED]  # the clef is written as two escapes
    assert read_rows(write(tmp_path / "rows.jsonl", *map(json.dumps, rows), "")) == rows


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"schema_version": 5, "question', "expected one JSON object a line"),  # a write that was cut
        ("[1, 2]", "got list"),
        (
            json.dumps(row(1) | {"schema_version": 4}),
            r"expected schema_version 5, got 4: choose another folder for the run\.$",
        ),
        (json.dumps({"schema_version": 5}), "lacks question_id, fingerprint, index_version, position"),
        (json.dumps(row(1, {"naive": {}})), "lacks methods.naive.source, methods.naive.selection"),
        (
            json.dumps(row(1, {"naive": {k: v for k, v in result().items() if k != "source"}})),
            "lacks methods.naive.source: delete the line",
        ),
        (
            json.dumps(row(1, {"naive": {k: v for k, v in result().items() if k != "abstained"}})),
            "lacks methods.naive.abstained: delete the line",
        ),
        (json.dumps(row(1, {"naive": None})), "expected methods to be an object of objects"),
        (json.dumps(row(1, {"naive": result(score=float("nan"))})), "NaN, which is not JSON"),
        (json.dumps(row(1)).replace("1.0", "1e999"), "got 1e999, a number that is too large: delete the line"),
        (json.dumps(row(1)).replace("1.0", "-" + "9" * 400 + ".0"), "got -9999999999999999999, a number that is"),
        (json.dumps(row(1)).replace("1.0", "9" * 400), "'candidate_recall': .*: delete the line"),
        (json.dumps(row(1, candidate_recall="inf")), "'candidate_recall': .*: delete the line"),
        (json.dumps(row(1) | {"position": True}), "'position': .*: delete the line"),
        (json.dumps(row(1, question="\ud800")), "half of a character .*: delete the line"),
        (json.dumps(row(1, {"\udfff": result()})), "half of a character .*: delete the line"),
        ('{"a":' * 100_000, "nested too deeply to be read: delete the line"),
        (json.dumps(row(1)).replace('"notes": []', '"notes": ' + "[" * 100_000), "nested too deeply to be read"),
        (json.dumps(row(0)), "question 'q0' already stands in line 1"),
        (json.dumps(row(1) | {"question_id": "q0"}), "question 'q0' already stands in line 1"),  # at another position
    ],
)
def test_a_broken_line_is_refused_with_its_file_and_place(tmp_path, line, reason):
    path = write(tmp_path / "rows.jsonl", json.dumps(row(0)), "", line)
    with pytest.raises(DataError, match=reason) as caught:
        read_rows(path)
    assert str(caught.value).startswith(f"{path}:3: ")


def test_a_text_that_is_no_utf_8_is_refused_with_its_place_and_not_mended(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(row(0, question="caf?")).encode().replace(b"caf?", b"caf\xe9") + b"\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: expected one JSON object a line, got .*0xe9"):
        read_rows(path)


def test_only_who_expects_a_last_line_cut_short_is_spared_it(tmp_path):
    path = write(tmp_path / "rows.jsonl", json.dumps(row(0)), json.dumps(row(1))[:-1])
    assert read_rows(path, cut_off=True) == [row(0)]
    with pytest.raises(DataError, match=r"rows\.jsonl:2: "):
        read_rows(path)


def test_questions_without_a_gold_passage_enter_no_mean_of_the_ceiling_and_no_difference():
    ceiling = result(source="gold", rouge_set=rouge(0.75), context_tokens=513)
    rows = [row(0), row(1, {"naive": result(), "ceiling": ceiling}, kind="bridge")]
    summary = summarise(rows)
    naive, top = summary.methods
    assert (naive.n, top.n, top.estimates["rouge_set.rougeL"].mean, top.over_budget) == (2, 1, 0.75, 1)
    difference = summary.differences["ceiling"]["rouge_set.rougeL"]
    assert (difference.mean_difference, difference.n) == (pytest.approx(0.35), 1)
    counts = {(part.by, part.value): part.estimates["ceiling"]["rouge_set.rougeL"].n for part in summary.slices}
    assert counts == {("language", "en"): 1, ("kind", "bridge"): 1, ("kind", None): 0}


def test_a_summary_says_who_scored_for_a_method_and_carries_what_the_run_knows():
    rows = [row(0, {"naive": result(reranker="late"), "floor": result(source="none")})]
    summary = summarise(rows, coverable_evidence=0.75, order_blind=["late"])
    assert [method.reranker for method in summary.methods] == ["late", None]
    assert (summary.coverable_evidence, summary.order_blind) == (0.75, ("late",))
    assert (summarise(rows).coverable_evidence, summarise(rows).order_blind) == (None, ())


def test_a_failed_row_is_counted_and_enters_no_mean():
    rows = [row(0, {"naive": result(rouge_set=rouge(0.4))}), FAILED, row(2, {"naive": result(rouge_set=rouge(0.6))})]
    summary = summarise(rows)
    (method,) = summary.methods
    assert (summary.rows, summary.failed) == (3, 1)
    assert method.n == 2
    estimate = method.estimates["rouge_set.rougeL"]
    assert (estimate.mean, estimate.low, estimate.high, estimate.n) == (0.5, 0.4, 0.6, 2)
    assert summary.candidate_recall.mean == 1.0


def test_a_result_stored_in_a_failed_row_is_left_out():
    stopped = row(1, {"naive": result(pairs=9999)}, error={"kind": "RowError", "message": "later method failed"})
    (method,) = summarise([row(0), stopped]).methods
    assert (method.n, method.estimates["pairs"].mean) == (1, 60.0)


def test_a_metric_that_nobody_measured_has_no_mean():
    (method,) = summarise([row(0, {"naive": result(evidence_recall=None, latency_ms={})})]).methods
    assert set(method.estimates) == set(METRICS)
    for metric in ("evidence_recall", "rouge_generated.rougeL", "latency_ms"):
        assert (method.estimates[metric].mean, method.estimates[metric].n) == (None, 0)
    assert (method.latency_p50_ms, method.latency_p95_ms, dict(method.stage_ms)) == (None, None, {})


def test_latency_is_the_sum_of_the_stages_with_percentiles_and_stage_means_that_add_up():
    times = [{"retrieve": 1.0, "search": 9.0}, {"retrieve": 2.0}, {"retrieve": 3.0, "search": 27.0}]
    (method,) = summarise([row(i, {"naive": result(latency_ms=ms)}) for i, ms in enumerate(times)]).methods
    assert method.estimates["latency_ms"].mean == 14.0  # 10, 2, 30
    assert method.latency_p50_ms == 10.0
    assert method.latency_p95_ms == pytest.approx(28.0)  # nine tenths of the way from 10 to 30
    assert dict(method.stage_ms) == {"retrieve": 2.0, "search": 12.0}


def test_over_budget_means_more_recounted_tokens_than_the_budget_that_the_window_left():
    rows = [row(i, {"naive": result(context_tokens=tokens)}) for i, tokens in enumerate([511, 512, 513])]
    assert summarise(rows).over_budget == 1
    cut = [row(i, {"naive": result(context_tokens=n, effective_budget_tokens=400)}) for i, n in enumerate([400, 401])]
    assert summarise(cut).over_budget == 1


def test_the_baseline_is_the_first_method_that_is_no_floor_or_ceiling():
    methods = {
        "floor": result(source="none"),
        "ceiling": result(source="gold"),
        "gold_passages": result(),  # known by its source, not by its name
        "corag": result(),
    }
    summary = summarise([row(0, methods)])
    assert summary.baseline == "gold_passages"
    assert [method.is_bound for method in summary.methods] == [True, True, False, False]
    assert list(summary.differences) == ["floor", "ceiling", "corag"]


def test_differences_are_the_method_minus_the_baseline_on_shared_questions():
    scores = [(0.5, 0.25), (0.75, 0.5), (None, 0.5)]
    rows = [
        row(i, {"corag": result(rouge_set=rouge(b)), "naive": result(rouge_set=a and rouge(a))})
        for i, (a, b) in enumerate(scores)
    ]
    difference = summarise(rows).differences["naive"]["rouge_set.rougeL"]
    assert difference is not None
    assert (difference.mean_difference, difference.low, difference.high, difference.n) == (0.25, 0.25, 0.25, 2)


def test_a_difference_in_one_direction_has_the_p_value_of_the_sign_flips():
    # Five differences of 0.5, all one way: of 2^5 sign patterns two have a mean as far from 0.
    rows = [row(i, {"naive": result(token_f1=0.25), "corag": result(token_f1=0.75)}) for i in range(5)]
    difference = summarise(rows).differences["corag"]["token_f1"]
    assert (difference.mean_difference, difference.p_value) == (0.5, 2 / 32)


ABSTAINED = [(False, True), (False, True), (False, False), (True, True), (True, False), (None, True), (False, None)]


def test_abstaining_is_counted_apart_on_unanswerable_and_answerable_questions_and_on_no_others():
    rows = [row(i, {"naive": result(abstained=did)}, answerable=known) for i, (known, did) in enumerate(ABSTAINED)]
    (method,) = summarise(rows).methods
    right, wrong = (method.estimates[f"abstained_{which}"] for which in ("unanswerable", "answerable"))
    assert (right.mean, right.n) == (pytest.approx(2 / 3), 3)
    assert (wrong.mean, wrong.n) == (0.5, 2)
    assert (wrong.low, wrong.high) == (0.0, 1.0)  # the bootstrap means of 0 and 1


def test_abstaining_is_compared_with_the_baseline_on_the_questions_that_count():
    rows = [
        row(i, {"naive": result(abstained=False), "corag": result(abstained=known is False)}, answerable=known)
        for i, known in enumerate([False, False, True, None])
    ]
    differences = summarise(rows).differences["corag"]
    more, same = differences["abstained_unanswerable"], differences["abstained_answerable"]
    assert (more.mean_difference, more.n) == (1.0, 2)
    assert (same.mean_difference, same.n) == (0.0, 1)


def test_a_summary_says_whether_the_sets_answers_are_short():
    assert summarise([row(0)]).short_answers
    assert not summarise([row(0, answers=["word " * 11])]).short_answers
    assert not summarise([row(0, answers=[])]).short_answers


def test_a_run_of_floors_and_ceilings_alone_has_no_baseline_and_no_differences():
    summary = summarise([row(0, {"floor": result(source="none"), "ceiling": result(source="gold")})])
    assert (summary.baseline, dict(summary.differences)) == (None, {})


def test_slices_hold_the_questions_of_one_language_or_kind():
    def scored(value):
        return {"naive": result(rouge_set=rouge(value))}

    rows = [row(0, scored(0.25), kind="bridge"), row(1, scored(0.75)), row(2, scored(0.5), language="de"), FAILED]
    found = {
        (part.by, part.value): (part.n, part.estimates["naive"]["rouge_set.rougeL"].mean)
        for part in summarise(rows).slices
    }
    assert found == {
        ("language", "de"): (1, 0.5),
        ("language", "en"): (2, 0.5),
        ("kind", "bridge"): (1, 0.25),
        ("kind", None): (2, 0.625),
    }


def test_a_run_in_which_every_row_failed_has_a_summary_without_methods():
    summary = summarise([FAILED])
    assert (summary.rows, summary.failed, summary.methods, summary.baseline) == (1, 1, (), None)


def test_the_headline_is_these_numbers_and_no_others():
    rows = [
        row(0, {"naive": result(context_tokens=600), "no_context": result(source="none", rouge_generated=rouge(0.5))}),
        FAILED,
    ]
    shared = {"rouge_l_set": 0.4, "evidence_recall": 0.5, "pairs": 60.0, "latency_ms": 10.0}
    shared |= {"pairs_computed": 60.0}
    shared |= {"exact_match": 0.0, "token_f1": 0.5, "abstained_unanswerable": None, "abstained_answerable": None}
    assert headline(summarise(rows)) == {
        "methods": {
            "naive": shared | {"rouge_l_generated": None, "tokens": 600.0},
            "no_context": shared | {"rouge_l_generated": 0.5, "tokens": 500.0},
        },
        "candidates": {"recall": 1.0, "ndcg_at_10": 0.75, "rr_at_10": 0.5},
        "shared_pairs": 0.0,
        "pairs_unscored": {},
        "rows": 2,
        "failed": 1,
        "over_budget": 1,
    }


def test_the_headline_tells_abstaining_rightly_from_abstaining_wrongly():
    rows = [
        row(0, {"naive": result(abstained=True)}, answerable=False),
        row(1, {"naive": result(abstained=False)}, answerable=True),
    ]
    figures = headline(summarise(rows))["methods"]["naive"]
    assert (figures["abstained_unanswerable"], figures["abstained_answerable"]) == (1.0, 0.0)


def test_pairs_are_counted_over_all_methods_with_the_share_that_was_not_computed():
    rows = [
        row(0, {"naive": result(), "tree": result(pairs=591, pairs_computed=531)}),
        row(1, {"naive": result(pairs_computed=0), "tree": result(pairs=89, pairs_computed=9)}),
        row(2, {"naive": result()}, error={"kind": "RowError", "message": "later method failed"}),
    ]
    summary = summarise(rows)
    assert (summary.pairs, summary.pairs_computed) == (60 + 591 + 60 + 89, 60 + 531 + 0 + 9)
    assert summary.shared_pairs == headline(summary)["shared_pairs"] == pytest.approx(200 / 800)
    assert headline(summary)["methods"]["tree"]["pairs_computed"] == 270.0


def test_what_rerankers_could_not_score_or_read_in_full_is_counted_by_method_over_the_questions_that_count():
    lost = result(pairs_unscored=3, selection_windows=2, question_tokens_cut=145)
    rows = [
        row(0, {"naive": result(selection_windows=1), "tree": lost}),
        row(1, {"naive": result(), "tree": lost | {"pairs_unscored": 4, "selection_windows": 1}}),
        row(2, {"naive": lost}, error={"kind": "RowError", "message": "later method failed"}),
    ]
    naive, tree = summarise(rows).methods
    assert (naive.pairs_unscored, naive.windowed_selections, naive.cut_questions) == (0, 0, 0)
    assert (tree.pairs_unscored, tree.windowed_selections, tree.cut_questions) == (7, 1, 2)
    assert headline(summarise(rows))["pairs_unscored"] == {"tree": 7}


def test_without_a_pair_there_is_no_share_of_them():
    assert summarise([row(0, {"no_context": result(pairs=0, pairs_computed=0)})]).shared_pairs is None
