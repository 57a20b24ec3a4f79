"""An experiment over an index and rows that are there: what it writes, and when it fails.

Nothing is left to be computed, so neither Ray nor a model is started.
"""

import dataclasses
import html
import json

import pytest

from corag_ray.batch import estimate
from corag_ray.batch.experiment import REPORT, SUMMARY, TABLE, Experiment, run_experiment
from corag_ray.batch.folder_lock import locked
from corag_ray.batch.row_writer import ROWS, open_row_writer
from corag_ray.config import Config, Memo
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import CoragError, DataError, RowError
from corag_ray.evaluation.make_row import make_row
from corag_ray.evaluation.manifest import MANIFEST
from corag_ray.identity import index_spec, run_fingerprint
from corag_ray.indexing import merge, versions
from corag_ray.indexing.store import write_chunks
from corag_ray.pipeline import Choice, Choices
from corag_ray.types import Chunk, Document, Evidence, Generation, Question, Span

TEXT = "0123456789" * 3
CHUNKS = [Chunk(n, "d", n, 10 * n, 10 * n + 10, TEXT[:10], 4) for n in range(3)]


def question(number, *spans):
    evidence = tuple(Evidence(Span("d", start, end), text=TEXT[start:end]) for start, end in spans)
    return Question(f"q{number}", "why?", ("so",), evidence)


# The chunks have 10 characters: they cover the first span, half of the second question's, none of the third's.
QUESTIONS = (question(0, (0, 8)), question(1, (12, 18), (0, 30)), question(2, (5, 30)), question(3))
DATA = Dataset("d", (Document("d", TEXT),), QUESTIONS, 5, "c0", "q0")
CONFIG = Config.model_validate(
    {"deterministic": True, "group_size": 2, "methods": {"m": {"strategy": {"kind": "ranked"}}}}
)


def opened(folder, failed=(), **changes):
    """An experiment with a finished index and a row for every question, of which some failed."""
    config = CONFIG.model_copy(update=changes)
    index, run = folder / "index", folder / "run"
    version = versions.next_version(index)
    version.mkdir(parents=True, exist_ok=True)
    write_chunks(version / merge.CHUNKS, CHUNKS)
    manifest = dataclasses.asdict(index_spec(config, DATA)) | {"chunks": 3, "version": "1-aaaaaaaa"}
    versions.write_json(version / versions.MANIFEST, manifest)
    versions.publish(index, version)
    fingerprint = run_fingerprint(config, DATA)
    with open_row_writer(run, fingerprint, {0: [q.question_id for q in QUESTIONS]}) as writer:
        for position, asked in enumerate(QUESTIONS):
            plan = Choices(
                asked,
                CHUNKS,
                {"m": Choice("retrieval", CHUNKS[:1], reranker="late_interaction")},
                index_version="1-aaaaaaaa",
            )
            if position in failed:
                plan.error = RowError(f"question {position} is too long.")
            written = {"m": Generation("so", 9, 1, "stop")}
            told = {"fingerprint": fingerprint, "position": position, "budget_tokens": 512, "prompt": "seed"}
            writer.append([make_row(plan, written, **told)])
    return Experiment("n", config, DATA, index, run)


def run(experiment):
    return run_experiment(experiment, lambda done, total: None, lambda done, total: None)


def read(path):
    return json.loads(path.read_text("utf-8"))


def test_rows_manifest_summary_and_report_stand_in_the_run_folder(tmp_path):
    experiment = opened(tmp_path)
    summary, figures = run(experiment)
    assert {path.name for path in experiment.run_folder.iterdir()} == {ROWS, MANIFEST, SUMMARY, TABLE, REPORT, ".lock"}
    assert read(experiment.run_folder / SUMMARY) == figures
    assert (summary.rows, figures["rows"], figures["failed"], figures["lost"]) == (4, 4, 0, 0)


def test_figures_and_manifest_say_what_evidence_is_missing_and_what_could_be_covered(tmp_path):
    experiment = opened(tmp_path)
    _, figures = run(experiment)
    manifest = read(experiment.run_folder / MANIFEST)
    # Recalls if every chunk were selected: 1, 1/2 and 0; the last question marks no evidence.
    for told in (figures, manifest):
        assert (told["missing_evidence"], told["coverable_evidence"]) == (5, pytest.approx(0.5))
    assert manifest["fingerprint"] == run_fingerprint(CONFIG, DATA)
    assert manifest["index"]["chunks"] == 3
    assert manifest["rerankers"] == {"late_interaction": {"order_sensitive": False, "monotone": True}}


def test_a_manifest_and_the_report_show_where_nothing_of_the_users_lies(tmp_path):
    experiment = opened(tmp_path, memo=Memo(path=tmp_path / "kept" / "memo.sqlite"))
    run(experiment)
    manifest = (experiment.run_folder / MANIFEST).read_text("utf-8")
    assert json.loads(manifest)["config"]["memo"]["path"] == "memo.sqlite"
    report = (experiment.run_folder / REPORT).read_text("utf-8")
    assert str(tmp_path / "kept") not in manifest + report


def test_table_and_report_say_how_much_could_be_covered_and_which_methods_were_scored_blind_to_order(tmp_path):
    experiment = opened(tmp_path)
    run(experiment)
    coverable = "With every chunk of the evidence's documents selected, evidence recall would be 0.500."
    blind = "late_interaction is blind to order: the figures of m say nothing about the order of chunks."
    table = (experiment.run_folder / TABLE).read_text("utf-8")
    assert coverable in table
    assert blind.replace("_", "\\_") in table
    page = html.unescape((experiment.run_folder / REPORT).read_text("utf-8"))
    assert coverable in page and blind in page


def test_passages_of_unanswerable_questions_are_no_evidence_to_be_covered(tmp_path):
    experiment = opened(tmp_path)
    first, *others = QUESTIONS
    known = (dataclasses.replace(first, answerable=False), *others)
    _, figures = run(dataclasses.replace(experiment, dataset=dataclasses.replace(DATA, questions=known)))
    assert figures["coverable_evidence"] == pytest.approx(0.25)  # 1/2 and 0 are left


def test_the_estimate_counts_a_first_index_and_says_that_an_update_is_not_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_matrix_rate", lambda threads: 1e9)
    there = opened(tmp_path)
    changed = dataclasses.replace(there, dataset=dataclasses.replace(DATA, fingerprint="c1"))
    first = dataclasses.replace(there, index_folder=tmp_path / "none")
    long = dataclasses.replace(first, dataset=dataclasses.replace(DATA, documents=(Document("d", "a" * 10_000),)))
    assert [e.not_estimated for e in (there, changed, first)] == [[], ["the index's update"], []]
    assert [e.makes_index for e in (there, changed, first)] == [False, False, True]
    assert there.estimate_seconds() == changed.estimate_seconds() < long.estimate_seconds()


def test_without_marked_evidence_nothing_is_said_of_what_could_be_covered(tmp_path):
    experiment = opened(tmp_path)
    unmarked = dataclasses.replace(DATA, questions=tuple(dataclasses.replace(q, evidence=()) for q in QUESTIONS))
    _, figures = run(dataclasses.replace(experiment, dataset=unmarked))
    assert figures["coverable_evidence"] is None


def test_a_limit_counts_its_own_questions_only(tmp_path):
    experiment = opened(tmp_path, limit=1)
    _, figures = run(experiment)
    assert (figures["rows"], figures["lost"], figures["coverable_evidence"]) == (1, 0, 1.0)


def test_more_failures_than_are_borne_fail_the_run_after_everything_is_written(tmp_path):
    experiment = opened(tmp_path, failed=(1, 2), max_failed_share=0.49)
    with pytest.raises(CoragError) as caught:
        run(experiment)
    assert str(caught.value) == (
        "2 of 4 questions failed, above max_failed_share = 0.49; the first, 'q1': question 1 is too long. "
        f"Rows and report are in {experiment.run_folder}."
    )
    assert read(experiment.run_folder / SUMMARY)["failed"] == 2
    assert "question 2 is too long." in (experiment.run_folder / REPORT).read_text("utf-8")
    assert "finished" in read(experiment.run_folder / MANIFEST)["sessions"][-1]


@pytest.mark.parametrize(("failed", "share"), [((), 0.0), ((1, 2), 0.5), ((0, 1, 2, 3), 1.0)])
def test_as_many_failures_as_are_borne_are_figures(tmp_path, failed, share):
    _, figures = run(opened(tmp_path, failed=failed, max_failed_share=share))
    assert figures["failed"] == len(failed)


def test_a_second_start_adds_a_session(tmp_path):
    experiment = opened(tmp_path)
    run(experiment)
    run(experiment)
    sessions = read(experiment.run_folder / MANIFEST)["sessions"]
    assert ["finished" in session for session in sessions] == [True, True]


def test_a_run_folder_that_another_run_holds_keeps_its_manifest(tmp_path):
    experiment = opened(tmp_path)
    run(experiment)
    before = (experiment.run_folder / MANIFEST).read_bytes()
    with locked(experiment.run_folder), pytest.raises(DataError, match="another run is writing"):
        run(experiment)
    assert (experiment.run_folder / MANIFEST).read_bytes() == before


def test_a_run_folder_of_another_configuration_keeps_its_manifest(tmp_path):
    experiment = opened(tmp_path)
    run(experiment)
    before = (experiment.run_folder / MANIFEST).read_bytes()
    other = dataclasses.replace(experiment, config=CONFIG.model_copy(update={"budget_tokens": 100}))
    with pytest.raises(DataError, match="choose another folder"):
        run(other)
    assert (experiment.run_folder / MANIFEST).read_bytes() == before
