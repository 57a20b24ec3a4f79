"""The command line: a mistake is one sentence on standard error and exit status 2, without a traceback."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from corag_ray import build, cli, prepare
from corag_ray.batch import experiment, index_folder
from corag_ray.batch.progress import stages
from corag_ray.errors import RowError
from corag_ray.pipeline import Choice, Choices
from corag_ray.types import Chunk, Generation, Question


def corag(monkeypatch, capsys, *arguments):
    """Exit status, standard output and standard error of `corag` in this process."""
    monkeypatch.setattr(sys, "argv", ["corag", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code, *capsys.readouterr()


def written(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ask", "why?", "--data", "sampel"], ["unknown data set", "'sampel'", "did you mean 'sample'?"]),
        (["index", "--data", "sampel"], ["unknown data set", "did you mean 'sample'?"]),
        (["bench", "--data", "sampel"], ["unknown data set", "did you mean 'sample'?"]),
        (["ask", "why?", "--method", "corga"], ["unknown method 'corga'", "did you mean 'corag'?"]),
        (["ask", "why?", "--config", "no/such.yaml"], ["cannot read no/such.yaml"]),
        (["bench", "no/such.yaml"], ["cannot read no/such.yaml"]),
        (["index", "--config", "no/such.yaml"], ["cannot read no/such.yaml"]),
        (["ask", " "], ["the question is empty"]),
        (["ask", "why?", "--language", "ez"], ["unknown language", "Known: en, es, zh"]),
        (["ask", "why?", "--explain", "tree.txt"], ["written as .html or .json", "'tree.txt'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_wrong_name_file_or_number_is_one_sentence_and_status_2(monkeypatch, capsys, tmp_path, arguments, words):
    code, out, err = corag(monkeypatch, capsys, *arguments, "--root", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("corag: ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    assert all(word in err for word in words)
    assert list(tmp_path.iterdir()) == []  # nothing was begun


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("budgt_tokens: 5", "unknown key 'budgt_tokens'; did you mean 'budget_tokens'?"),
        ("chunking: {size: [1, 2]}", "unknown key 'chunking.size'"),
        ("- a", "must hold a mapping, not list"),
        ("methods: {m: {strategy: {kind: policy_tree, preset: sed}}}", "unknown preset 'sed'; did you mean 'seed'?"),
        ("embedder: '[bold]x[/bold]'", "unknown embedder '[bold]x[/bold]'"),
    ],
)
@pytest.mark.parametrize("command", ["bench", "index", "ask"])
def test_a_mistake_in_a_configuration_is_one_sentence_and_status_2(monkeypatch, capsys, tmp_path, command, text, words):
    path = written(tmp_path, text)
    if command == "ask" and text.startswith("methods"):
        path = written(tmp_path, text.replace("{m:", "{corag:"))
    arguments = {"bench": [path], "index": ["--config", path], "ask": ["why?", "--config", path]}[command]
    code, out, err = corag(monkeypatch, capsys, command, *arguments, "--root", tmp_path / "root")
    assert (code, out) == (2, "")
    assert err.startswith("corag: ")
    assert err.count("\n") == 1
    assert words in err


def test_an_error_of_the_programme_itself_is_not_dressed_up_as_a_users():
    with pytest.raises(ZeroDivisionError), cli.reporting_errors():
        raise ZeroDivisionError


def test_the_installed_command_says_its_sentence_without_a_traceback(tmp_path):
    command = [Path(sys.executable).parent / "corag", "bench", tmp_path / "none.yaml", "--root", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("corag: cannot read ")
    assert "Traceback" not in done.stderr


def test_a_mistyped_name_is_told_before_ray_torch_and_models_are_imported(tmp_path):
    script = (
        "import sys\n"
        "from corag_ray import cli\n"
        "try:\n"
        "    cli.main()\n"
        "finally:\n"
        "    print(sorted({'ray', 'torch', 'transformers'} & set(sys.modules)))\n"
    )
    for command in (["ask", "why?"], ["index"], ["bench"]):
        arguments = [sys.executable, "-c", script, *command, "--data", "sampel", "--root", tmp_path]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (2, "[]\n"), command
        assert "did you mean 'sample'?" in done.stderr


def test_the_version_is_that_of_the_installed_package(monkeypatch, capsys):
    assert corag(monkeypatch, capsys, "--version")[:2] == (0, f"{importlib.metadata.version('corag_ray')}\n")


def stopped_at_once(monkeypatch, capsys, folder, *arguments, **facts):
    """Standard error of `corag bench` that is stopped as soon as it has said what it will do."""

    def stop(*args):
        raise KeyboardInterrupt

    facts = {"num_questions": 8, "not_estimated": [], "makes_index": False, "answered": 0} | facts
    answered = facts.pop("answered")
    opened = SimpleNamespace(run_folder=folder, count_answered=lambda: answered, estimate_seconds=lambda: 60.0, **facts)
    monkeypatch.setattr(experiment, "open_experiment", lambda *args: opened)
    monkeypatch.setattr(experiment, "run_experiment", stop)
    monkeypatch.setattr(cli.screen, "_width", 200)
    code, out, err = corag(monkeypatch, capsys, "bench", *arguments)
    assert (code, out) == (130, "")
    return err


def test_the_estimate_says_what_is_in_it_and_what_is_not(monkeypatch, capsys, tmp_path):
    whole = stopped_at_once(monkeypatch, capsys, tmp_path)
    assert "8 questions x 4 methods, budget 512 tokens; about 60 seconds. Run folder: " in whole
    first = stopped_at_once(monkeypatch, capsys, tmp_path, makes_index=True, not_estimated=["the cross-encoders"])
    assert "; about 60 seconds with indexing, not counting the cross-encoders. Run folder: " in first


def test_one_question_and_one_method_are_said_so(monkeypatch, capsys, tmp_path):
    path = written(tmp_path, "methods: {m: {source: none}}")
    assert stopped_at_once(monkeypatch, capsys, tmp_path, path, num_questions=1).startswith("1 question x 1 method, ")


def test_a_stopped_run_says_what_is_kept(monkeypatch, capsys, tmp_path):
    missing = ["the cross-encoders", "the server's answers"]
    err = stopped_at_once(monkeypatch, capsys, tmp_path, answered=6, not_estimated=missing)
    assert "8 questions, of which 6 are answered already, x 4 methods" in err
    assert "about 60 seconds, not counting the cross-encoders, the server's answers. Run folder: " in err
    assert f"Stopped: 6 of 8 questions are kept in {tmp_path}; the same command goes on." in err


def test_an_unknown_option_is_status_2_with_a_usage_line(monkeypatch, capsys):
    code, out, err = corag(monkeypatch, capsys, "bench", "--budgt", "5")
    assert (code, out) == (2, "")
    assert re.search(r"Usage: \S*(python -m \S+)?corag bench", err)  # click adds what runs the tests
    assert "--budgt" in err


def test_models_lists_every_name_that_a_configuration_can_use(monkeypatch, capsys):
    code, out, _ = corag(monkeypatch, capsys, "models")
    out, _, paper = out.partition("The paper's rerankers")
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("│")]
    listed = {tuple(cell.strip() for cell in row.strip("│").split("│")[:2]) for row in rows}
    known = ("late_interaction", "pooled_embedding", "bm25", "query_likelihood", "combination")
    rerankers = {(name, "reranker") for name in (*known, "passage_facts", "passage_explanations")}
    listed -= {("", "")}  # where a cell goes on below
    assert listed == {("minilm", "embedder"), ("smollm2", "generator"), *rerankers, ("(your own)", "reranker")}
    named = [[cell.strip() for cell in line.strip("│").split("│")] for line in paper.splitlines() if "│" in line]
    assert {row[0]: tuple(row[2:]) for row in named} == {
        "jina_v1_turbo": ("8,192", "Apache-2.0", "yes"),
        "jina_v2_multilingual": ("1,024", "CC-BY-NC-4.0", "yes"),
        "bge_v2_m3": ("8,192", "Apache-2.0", "no"),
        "bge_large": ("512", "MIT", "no"),
        "bge_base": ("512", "MIT", "no"),
        "gte_multilingual": ("8,192", "Apache-2.0", "yes"),
    }


MARKUP = "[bold]not bold[/bold] and [/red] closes nothing"


@pytest.fixture
def fake_models(monkeypatch):
    """`corag ask` without weights, index and Ray; what is set here is what the selector gives."""
    choices = Choices(Question("asked", "why?"), index_version="1-abc")
    choices.methods["corag"] = Choice("retrieval", [Chunk(1, "d[b]", 0, 0, 9, MARKUP, 9)], context_tokens=9)
    monkeypatch.setattr(index_folder, "ensure_index", lambda *args: False)
    monkeypatch.setattr(prepare, "prepare_weights", lambda config: None)
    monkeypatch.setattr(
        build,
        "build_selector",
        lambda *args, **kept: SimpleNamespace(select=lambda questions: [choices], index_version="1-abc"),
    )
    written = [{"corag": Generation("because [/red]", 9, 3, "stop")}]
    monkeypatch.setattr(build, "build_answerer", lambda config: SimpleNamespace(answer=lambda batch: written))
    return choices


def ask(monkeypatch, capsys, *options):
    """Standard output and standard error of a question that is answered."""
    monkeypatch.setattr(sys, "argv", ["corag", "ask", "why?", *options])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 0
    return capsys.readouterr()


def test_chunk_text_is_shown_as_it_stands_and_is_no_markup(monkeypatch, capsys, fake_models):
    monkeypatch.setattr(cli.screen, "_width", 200)
    out, err = ask(monkeypatch, capsys)
    assert out == "because [/red]\n"
    assert MARKUP in err
    assert "d[b]" in err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_ask_says_on_a_terminal_what_its_index_waits_for(monkeypatch, capsys, fake_models, is_terminal):
    def ensure_index(config, dataset, folder, advance):
        advance(0, 3)
        stages.info("starting Ray")

    monkeypatch.setattr(index_folder, "ensure_index", ensure_index)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(cli, "screen", Console(stderr=True, force_terminal=is_terminal, width=200))
    _, err = ask(monkeypatch, capsys)
    assert "indexing" in err and "0/3" in err
    assert ("starting Ray" in err) == is_terminal


def test_json_has_the_chunks_in_full_and_escapes_nothing_but_json(monkeypatch, capsys, fake_models):
    out, _ = ask(monkeypatch, capsys, "--json")
    record = json.loads(out)
    assert [source["text"] for source in record["sources"]] == [MARKUP]
    assert record["answer"] == "because [/red]"


@pytest.mark.parametrize("ending", ["html", "json"])
def test_an_explanation_is_written_beside_the_answer_of_a_search_that_is_kept(
    monkeypatch, capsys, tmp_path, fake_models, ending
):
    kept = {}
    build_fake = build.build_selector
    monkeypatch.setattr(build, "build_selector", lambda *args, **changes: kept.update(changes) or build_fake())
    path = tmp_path / "new" / f"tree.{ending}"
    out, err = ask(monkeypatch, capsys, "--explain", str(path))
    assert out == "because [/red]\n"
    assert "Explained: " in err
    assert kept == {"keep_searches": True}
    text = path.read_text("utf-8")
    assert (json.loads(text)["choice"]["chunks"][0]["text"] if ending == "json" else text).count(MARKUP) == 1
    ask(monkeypatch, capsys)
    assert kept == {"keep_searches": False}


def test_a_question_that_cannot_be_answered_is_one_sentence_and_status_2(monkeypatch, capsys, fake_models):
    fake_models.error = RowError("the question is too [long]: shorten it.")
    code, out, err = corag(monkeypatch, capsys, "ask", "why?")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "corag: the question is too [long]: shorten it."
