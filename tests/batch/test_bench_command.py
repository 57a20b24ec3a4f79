"""`corag bench` and `corag ask` as a user starts them: what is printed where, and which files are left."""

import json
import re
import sys

import pytest
from tiny_run import QUESTIONS

from corag_ray import cli
from corag_ray.batch.row_writer import ROWS
from corag_ray.evaluation.row_log import read_rows
from corag_ray.evaluation.summarise import headline, summarise
from corag_ray.settling import settle

pytestmark = [pytest.mark.ray, pytest.mark.models]


def test_the_last_line_of_standard_output_is_the_figures_in_json(whole_run):
    figures = json.loads(whole_run.printed.splitlines()[-1])
    assert list(figures["methods"]) == ["naive_rag", "corag", "gold_passages"]
    keys = {"rouge_l_set", "rouge_l_generated", "exact_match", "token_f1", "evidence_recall", "tokens", "pairs"}
    keys |= {"latency_ms", "pairs_computed"}
    unmeasured = {"abstained_unanswerable", "abstained_answerable"}  # the set does not mark its questions
    for method in figures["methods"].values():
        assert method.keys() == keys | unmeasured
        assert {name for name, value in method.items() if not isinstance(value, float)} == unmeasured
    assert {key: figures[key] for key in ("rows", "failed", "lost", "over_budget")} == {
        "rows": 8,
        "failed": 0,
        "lost": 0,
        "over_budget": 0,
    }
    assert figures["pairs_unscored"] == {}
    gold = figures["methods"]["gold_passages"]
    assert (gold["evidence_recall"], gold["rouge_l_generated"], gold["pairs"]) == (1.0, 1.0, 0.0)
    assert figures["methods"]["naive_rag"]["pairs"] == 8.0  # every one of 8 candidates


def test_a_run_leaves_rows_manifest_summary_and_report_that_agree(whole_run, tiny_config):
    figures = json.loads(whole_run.printed.splitlines()[-1])
    rows = read_rows(whole_run.folder / ROWS)
    assert json.loads((whole_run.folder / "summary.json").read_text("utf-8")) == figures
    shared = {"lost": 0, "missing_evidence": 0, "coverable_evidence": 1.0}
    assert headline(summarise(rows, seed=tiny_config.seed)) | shared == figures
    manifest = json.loads((whole_run.folder / "manifest.json").read_text("utf-8"))
    assert {row["fingerprint"] for row in rows} == {manifest["fingerprint"]}
    assert manifest["config"] == settle(tiny_config).model_dump(mode="json")
    assert {key: manifest[key] for key in ("missing_evidence", "coverable_evidence")} == {
        "missing_evidence": 0,
        "coverable_evidence": 1.0,
    }
    [session] = manifest["sessions"]
    assert session["command"].startswith("corag bench ")
    assert session["finished"] >= session["started"]
    assert manifest["index"]["chunks"] > 8
    assert {row["index_version"] for row in rows} == {manifest["index"]["version"]}
    report = (whole_run.folder / "report.html").read_text("utf-8")
    assert all(name in report for name in ("naive_rag", "corag", "gold_passages"))


def test_ask_prints_one_json_object_and_nothing_else_on_standard_output(asked, whole_run):
    record = json.loads(asked.printed)
    assert (record["question"], record["method"], record["budget_tokens"]) == (asked.question, "naive_rag", 64)
    assert record["sources"][0]["doc_id"] == QUESTIONS["q2"][2]
    assert 0 < record["context_tokens"] <= 64
    assert (record["pairs"], record["pairs_unscored"]) == (8, 0)
    assert isinstance(record["answer"], str)
    [row] = [row for row in read_rows(whole_run.folder / ROWS) if row["question_id"] == "q2"]
    result = row["methods"]["naive_rag"]
    assert [(s["doc_id"], s["start"]) for s in record["sources"]] == [
        (s["doc_id"], s["start"]) for s in result["selection"]
    ]
    assert record["score"] == result["score"]


def test_of_what_ray_notes_for_itself_only_its_log_level_comes_to_standard_error(asked, whole_run):
    told = asked.told + whole_run.told
    assert "indexing " in asked.told and "answering " in whole_run.told
    noted = re.findall(r"^\[.* [IWE] .*", told, flags=re.MULTILINE)  # [date time I process thread] file: what
    assert [line for line in noted if "RAY_BACKEND_LOG_LEVEL" not in line] == []


@pytest.mark.parametrize("question", ["", " \t"])
def test_an_empty_question_is_one_sentence_and_status_2(whole_run, tiny_yaml, monkeypatch, capsys, question):
    monkeypatch.setattr(
        sys, "argv", ["corag", "ask", question, "--config", str(tiny_yaml), "--root", str(whole_run.root)]
    )
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert err.splitlines()[-1] == "corag: the question is empty: write what you want to know."
