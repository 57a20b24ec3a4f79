"""The batch benchmark: one row a question, and a killed run that ends like an uninterrupted one."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from tiny_run import write_folder

from corag_ray.batch.benchmark import Group, cut_groups, group_rows, run_benchmark, run_groups
from corag_ray.batch.row_writer import ROWS
from corag_ray.build import build_selector
from corag_ray.config import Config
from corag_ray.datasets.load import load_dataset
from corag_ray.errors import ConfigError, DataError
from corag_ray.evaluation.row_log import read_rows
from corag_ray.identity import index_spec, run_fingerprint
from corag_ray.pipeline import Choice, Choices
from corag_ray.types import Generation, Question


def real(test):
    return pytest.mark.ray(pytest.mark.models(test))


def test_groups_are_cut_in_order_and_know_their_place():
    questions = [Question(str(n), "?") for n in range(5)]
    assert cut_groups(questions, 2) == [
        Group(0, 0, tuple(questions[:2])),
        Group(1, 2, tuple(questions[2:4])),
        Group(2, 4, tuple(questions[4:])),
    ]
    assert cut_groups(questions, 9) == [Group(0, 0, tuple(questions))]
    assert cut_groups([], 2) == []


def test_a_groups_rows_stand_at_their_places_and_are_judged_by_the_prompt_of_the_run():
    config = Config.model_validate({"generation": {"prompt": "concise_or_abstain"}})
    group = Group(3, 6, (Question("q", "?"), Question("r", "?")))
    choices = [Choices(asked, methods={"m": Choice("none")}, index_version="1-abc") for asked in group.questions]
    answers = [{"m": Generation(text, 9, 2, "stop")} for text in ("Unanswerable.", "so")]
    rows = group_rows(config, "ab", group, choices, answers)
    assert [(row["position"], row["methods"]["m"]["abstained"]) for row in rows] == [(6, True), (7, False)]


def lines(run_folder):
    """The stored lines, their times and what a memo saved taken out."""
    rows = [json.loads(line) for line in (run_folder / ROWS).read_text("utf-8").splitlines()]
    for row in rows:
        for result in row["methods"].values():
            del result["latency_ms"], result["pairs_computed"]
    return [json.dumps(row) for row in rows]


@real
def test_there_is_one_row_a_question_in_order_with_every_method(whole_run, tiny_config, tiny_dataset):
    rows = read_rows(whole_run.folder / ROWS)
    assert [row["question_id"] for row in rows] == [q.question_id for q in tiny_dataset.questions]
    assert [row["position"] for row in rows] == list(range(8))
    assert {row["fingerprint"] for row in rows} == {run_fingerprint(tiny_config, tiny_dataset)}
    for row in rows:
        assert row["error"] is None
        assert list(row["methods"]) == list(tiny_config.methods)
        for name, result in row["methods"].items():
            assert result["answer"] is not None
            assert result["new_tokens"] <= 4
            assert result["context_tokens"] <= 64
            assert result["selection"], name
        assert row["methods"]["gold_passages"]["evidence_recall"] == 1.0


@real
def test_a_killed_run_goes_on_and_ends_byte_for_byte_as_an_uninterrupted_one(
    ray_session, whole_run, tiny_config, tiny_dataset, tmp_path
):
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from corag_ray.batch.benchmark import run_benchmark\n"
        "from corag_ray.config import Config\n"
        "from corag_ray.datasets.load import load_dataset\n"
        "config = Config.model_validate_json(sys.argv[1])\n"
        "def advance(done, total):\n"
        "    if done == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "data = load_dataset(config.dataset)\n"
        "run_benchmark(config, data, Path(sys.argv[2]), Path(sys.argv[3]), advance)\n"
    )
    arguments = [tiny_config.model_dump_json(), str(whole_run.index), str(tmp_path)]
    killed = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=500)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(lines(tmp_path)) == 4
    with (tmp_path / ROWS).open("ab") as log:  # a kill in the middle of a write
        log.write((whole_run.folder / ROWS).read_bytes()[:700])
    told = []
    rows = run_benchmark(tiny_config, tiny_dataset, whole_run.index, tmp_path, lambda *done: told.append(done))
    assert told == [(4, 8), (6, 8), (8, 8)]
    assert len(rows) == 8
    assert lines(tmp_path) == lines(whole_run.folder)


@real
def test_a_finished_run_is_read_back_without_running_anything(whole_run, tiny_config, tiny_dataset, tmp_path):
    rows, folder = read_rows(whole_run.folder / ROWS), whole_run.folder
    told = []
    no_index = tmp_path / "none"
    assert run_benchmark(tiny_config, tiny_dataset, no_index, folder, lambda *done: told.append(done)) == rows
    assert told == [(8, 8)]
    fewer = tiny_config.model_copy(update={"limit": 3})
    assert run_benchmark(fewer, tiny_dataset, no_index, folder) == rows[:3]
    assert run_benchmark(tiny_config, tiny_dataset, no_index, folder) == rows


@real
def test_ask_one_by_one_selects_what_the_batch_selected(whole_run, tiny_index, tiny_config, tiny_dataset):
    selector = build_selector(tiny_config, tiny_index, index_spec(tiny_config, tiny_dataset))
    for question, row in zip(tiny_dataset.questions, read_rows(whole_run.folder / ROWS), strict=True):
        [plan] = selector.select([question])
        assert list(plan.methods) == list(row["methods"])
        for name, method in plan.methods.items():
            result = row["methods"][name]
            chosen = [(f"{c.chunk_id:016x}", c.doc_id, c.start, c.end) for c in method.selection]
            assert chosen == [(c["chunk_id"], c["doc_id"], c["start"], c["end"]) for c in result["selection"]]
            asked = (method.score, method.pairs, method.context_tokens, method.prompt_tokens)
            assert asked == tuple(result[key] for key in ("score", "pairs", "context_tokens", "prompt_tokens"))


@real
def test_failed_questions_are_recorded_and_stop_nothing(ray_session, tiny_index, tiny_config, tmp_path):
    # The same corpus, so the same index; questions q5 and q4 are empty, and a limit of 4 leaves one of four.
    dataset = load_dataset(str(write_folder(tmp_path / "holes", q5="", q4=" \n")))
    generation = tiny_config.generation.model_copy(update={"enabled": False})
    config = tiny_config.model_copy(update={"limit": 4, "max_failed_share": 0.0, "generation": generation})
    rows = run_benchmark(config, dataset, tiny_index, tmp_path / "run")
    assert [row["question_id"] for row in rows] == ["q8", "q1", "q5", "q2"]
    assert [row["error"] and row["error"]["kind"] for row in rows] == [None, None, "RowError", None]
    assert "empty" in rows[2]["error"]["message"]
    # Read back: a failed question is not run again.
    assert run_benchmark(config, dataset, tmp_path / "no index", tmp_path / "run") == rows
    assert rows[2]["methods"] == {}
    assert all(result["answer"] is None for row in rows for result in row["methods"].values())
    assert rows[0]["methods"]["naive_rag"]["selection"]


@real
def test_a_plan_too_large_for_the_cluster_is_refused_with_its_sum(
    ray_session, tiny_config, tiny_dataset, tiny_index, tmp_path
):
    plan = tiny_config.plan.model_copy(update={"select_actors": 8})
    with pytest.raises(ConfigError, match=r"8 select x 0\.5 \+ 1 generate x 0\.5 \+ 1 .* = 5\.5 CPUs"):
        run_benchmark(tiny_config.model_copy(update={"plan": plan}), tiny_dataset, tiny_index, tmp_path)


def test_a_plan_too_large_for_this_machine_is_refused_before_ray_starts(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    config = Config.model_validate({"plan": {"cpus_an_actor": 50}})
    # To start Ray here would fail with another error: the test is not marked `ray`.
    with pytest.raises(ConfigError, match=r"1 select x 50 \+ 1 generate x 50 \+ 1 .* = 101 CPUs, and .* has 8"):
        next(run_groups(config, Path("no index"), None, cut_groups([Question("q", "?")], 1)))


@real
def test_what_a_worker_cannot_do_is_one_sentence_of_ours(ray_session, tiny_config, tiny_dataset, tmp_path):
    with pytest.raises(DataError) as caught:
        run_benchmark(tiny_config, tiny_dataset, tmp_path / "no index", tmp_path / "run")
    assert str(caught.value) == f"{tmp_path / 'no index'} holds no finished index: build it with `corag index`."
    assert (tmp_path / "run" / ROWS).read_bytes() == b""
