"""The front door: `corag ask | index | bench | models | check`. Parses, calls and prints; decides nothing."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from corag_ray.bars import shown_bars
from corag_ray.batch.progress import stages
from corag_ray.config_file import load_config
from corag_ray.errors import ConfigError, CoragError, ProtocolError, unknown_name

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Cost-constrained retrieval for RAG on Ray: ordered chunk combinations under a token budget.",
)

screen = Console(stderr=True, emoji=False)
"""Everything for people goes to standard error; standard output holds the answer or the figures."""

SHOWN_CHARACTERS = 160
RUNS = Path("runs")
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file; the defaults without one.")]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="'sample', a folder or its name under $CORAG_DATA, ir_datasets:ID, hub:NAME; several parted by commas.",
    ),
]
Budget = Annotated[int | None, typer.Option("--budget", min=1, help="Tokens that the selection may cost.")]
Root = Annotated[Path, typer.Option("--root", help="Folder of runs and indexes.")]
Deterministic = Annotated[
    bool | None, typer.Option("--deterministic", help="float32, fixed batches, one thread: equal byte for byte.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(importlib.metadata.version("corag_ray"))
        raise typer.Exit


def _explainable(path: Path | None) -> Path | None:
    """Refuses a file that no explanation is written to, before anything is loaded."""
    if path is not None:
        from corag_ray.reports.explanation import check_format

        check_format(path)
    return path


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    config: ConfigFile = None,
    data: Data = None,
    budget: Budget = None,
    language: Annotated[str, typer.Option(help="Language of the prompt's words: en, zh or es.")] = "en",
    method: Annotated[str, typer.Option(help="A method of the configuration.")] = "corag",
    deterministic: Deterministic = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    show_steps: Annotated[bool, typer.Option("--steps", help="Show the seven steps from query to answer.")] = False,
    explain: Annotated[
        Path | None,
        typer.Option(callback=_explainable, help="Write what the search went through: a page, *.html, or *.json."),
    ] = None,
    root: Root = RUNS,
) -> None:
    """Answer one question from a corpus and show the chunks that the answer rests on."""
    from corag_ray.batch.index_folder import ensure_index, open_corpus
    from corag_ray.build import build_answerer, build_embedder, build_selector, describe
    from corag_ray.identity import index_spec
    from corag_ray.prepare import prepare_weights
    from corag_ray.prompts import LANGUAGES
    from corag_ray.reports.steps import Steps, render_steps
    from corag_ray.settling import settle
    from corag_ray.types import Question

    run = load_config(config, {"dataset": data, "budget_tokens": budget, "deterministic": deterministic})
    if method not in run.methods:
        raise unknown_name("method", method, run.methods)
    if language not in LANGUAGES:
        raise unknown_name("language of prompts", language, LANGUAGES)
    if not question.strip():
        raise ConfigError("the question is empty: write what you want to know.")
    run = run.model_copy(update={"methods": {method: run.methods[method]}})
    with _doing("reading the corpus"):
        prepare_weights(run)
        dataset, folder = open_corpus(root, run, questions=False)
        run = settle(run)
    with shown_bars(screen, stages) as bars:
        ensure_index(run, dataset, folder, bars.advance("indexing"))
    with _doing("loading index and models"):
        selector = build_selector(
            run, folder, index_spec(run, dataset), keep_searches=show_steps or explain is not None
        )
    with _doing("searching"):
        [plan] = selector.select([Question("asked", question, language=language)])
    if plan.error is not None:
        raise plan.error
    chosen = plan.methods[method]
    with _doing("writing the answer"):
        written = build_answerer(run).answer([plan])[0].get(method) if run.generation.enabled else None
    if plan.error is not None:
        raise plan.error
    if show_steps:
        [vector] = [None] if run.retrieval.kind == "lexical" else build_embedder(run).embed([question])
        strategy = run.methods[method].strategy
        params = strategy.params if strategy else None
        for panel in render_steps(Steps(plan, method, describe(run, method), vector, chosen.search, written, params)):
            screen.print(panel)
    answer = written.text if written else None
    record = {
        "question": question,
        "method": method,
        "answer": answer,
        "sources": [
            {"doc_id": c.doc_id, "start": c.start, "end": c.end, "cost": c.cost, "text": c.text}
            for c in chosen.selection
        ],
        "score": chosen.score,
        "context_tokens": chosen.context_tokens,
        "budget_tokens": run.budget_tokens,
        "pairs": chosen.pairs,
        "pairs_computed": chosen.pairs_computed,
        "pairs_unscored": chosen.pairs_unscored,
        "index_version": plan.index_version,
        "notes": chosen.notes,
    }
    if as_json:
        print(json.dumps(record, ensure_ascii=False))
    else:
        _print_answer(record)
    if explain is not None:
        from corag_ray.reports.explain_page import write_explanation
        from corag_ray.reports.explanation import explained

        write_explanation(explain, explained(plan, method, describe(run, method), dataset.documents))
        screen.print(f"Explained: {explain}", markup=False)


@app.command()
def index(
    config: ConfigFile = None,
    data: Data = None,
    deterministic: Deterministic = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a document to leave out from now on, though the corpus holds it; may come repeatedly."
        ),
    ] = None,
    restore: Annotated[
        list[str] | None, typer.Option(help="Id of a deleted document to take in again; may come repeatedly.")
    ] = None,
    root: Root = RUNS,
) -> None:
    """Build the index of a corpus, go on with a half-built one, or bring it up to date.

    Only chunks of new and changed documents are embedded. Readers see the old version or the new one, never a mixture.
    """
    from corag_ray.batch.index_folder import ensure_index, open_corpus
    from corag_ray.indexing.versions import read_manifest
    from corag_ray.prepare import prepare_weights
    from corag_ray.settling import settle

    run = load_config(config, {"dataset": data, "deterministic": deterministic})
    with _doing("reading the corpus"):
        prepare_weights(run)
        dataset, folder = open_corpus(root, run, questions=False, delete=delete or (), restore=restore or ())
        run = settle(run)
    with shown_bars(screen, stages) as bars:
        updated = ensure_index(run, dataset, folder, bars.advance("indexing"))
    word = f"Version {updated.version}, {updated.embedded} of {updated.chunks} chunks embedded"
    screen.print(f"{word if updated.changed else 'Already there'}: {folder}", markup=False)
    print(
        json.dumps({"folder": str(folder), "embedded": updated.embedded, **read_manifest(folder)}, ensure_ascii=False)
    )


@app.command()
def bench(
    experiment: Annotated[
        Path | None, typer.Argument(help="YAML file; the sample with the defaults without one.")
    ] = None,
    data: Data = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    budget: Budget = None,
    deterministic: Deterministic = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default one named for the configuration.")] = None,
    root: Root = RUNS,
) -> None:
    """Run every method on every question and write rows, summary and report; a killed run goes on where it was.

    The last line of standard output is one JSON object of figures.
    """
    from corag_ray.batch.estimate import duration_text
    from corag_ray.batch.experiment import REPORT, TABLE, open_experiment, run_experiment
    from corag_ray.reports.table import summary_table

    changes = {"dataset": data, "limit": limit, "budget_tokens": budget, "deterministic": deterministic}
    run = load_config(experiment, changes)
    with _doing("reading the corpus"):
        opened = open_experiment(run, experiment.stem if experiment else None, root, out)
    kept = opened.count_answered()
    going_on = f", of which {kept} are answered already," if kept else ""
    with _doing("estimating the time"):
        time = duration_text(opened.estimate_seconds())
    indexing = " with indexing" if opened.makes_index else ""
    without = f", not counting {', '.join(opened.not_estimated)}" if opened.not_estimated else ""
    screen.print(
        f"{_counted(opened.num_questions, 'question')}{going_on} x {_counted(len(run.methods), 'method')}, "
        f"budget {run.budget_tokens} tokens; about {time}{indexing}{without}. Run folder: {opened.run_folder}",
        markup=False,
    )
    try:
        with shown_bars(screen, stages) as bars:
            summary, figures = run_experiment(opened, bars.advance("indexing"), bars.advance("answering"))
    except KeyboardInterrupt:
        left = f"{opened.count_answered()} of {opened.num_questions} questions are kept in {opened.run_folder}"
        screen.print(f"Stopped: {left}; the same command goes on.", markup=False)
        raise
    Console().print(summary_table(summary))
    screen.print(f"Report: {opened.run_folder / REPORT}; the table alone: {TABLE} beside it.", markup=False)
    print(json.dumps(figures))


@app.command()
def models() -> None:
    """List the models that a configuration can name, whether their weights are here, and the paper's rerankers."""
    from corag_ray.models.combination_weights import COMBINATION, COMBINATION_HEAD, WEIGHTS
    from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
    from corag_ray.models.paper_rerankers import PAPER_RERANKERS
    from corag_ray.names import EMBEDDERS, GENERATORS, RERANKERS

    weights_of = {
        "query_likelihood": "the generator's",
        "bm25": "none: counts words",
        COMBINATION: "the embedder's and its own",
    }

    table = Table("name", "kind", "weights", "ready")
    for kind, packaged in (("embedder", EMBEDDERS), ("generator", GENERATORS)):
        for name, model in packaged.items():
            table.add_row(name, kind, model.revision or f"{model.package} (not installed)", model.state)
    trained = "yes" if (COMBINATION_HEAD / WEIGHTS).is_file() else "not trained"
    for name in RERANKERS:
        ready = trained if name == COMBINATION else "-"
        table.add_row(name, "reranker", weights_of.get(name, "the embedder's"), ready)
    for name, reranker in PACKAGED_RERANKERS.items():
        table.add_row(name, "reranker", "the embedder's, changed", reranker.state)
    table.add_row("(your own)", "reranker", "a folder under `cross_encoders`", "-")
    paper = Table("model", "weights", "window", "licence", "remote code")
    for name, row in PAPER_RERANKERS.items():
        size, code = f"{row.parameters_millions} M", "yes" if row.remote_code else "no"
        paper.add_row(name, size, f"{row.window_tokens:,}", row.licence, code)
    Console().print(table, "The paper's rerankers, each in a folder under `cross_encoders`; windows in tokens:", paper)


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(help="YAML files: Serve configs, cluster files, or one beside the other.")
    ],
) -> None:
    """Find what Ray Serve and its cluster launcher would accept in silence; exit status 1 where there are errors."""
    from corag_ray.checks.check import check_files

    findings = check_files(files)
    for finding in findings:
        print(finding)
    errors = sum(finding.is_error for finding in findings)
    counts = f"{_counted(errors, 'error')}, {_counted(len(findings) - errors, 'warning')}"
    screen.print(f"{counts} in {_counted(len(files), 'file')}.", markup=False)
    if errors:
        raise typer.Exit(1)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """What a user can mend becomes one sentence on standard error and exit status 2."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal without Unicode
    try:
        yield
    except (CoragError, ModuleNotFoundError) as error:
        if isinstance(error, ProtocolError):
            raise  # a defect of ours: its frames are what helps
        hint = "; install a profile, `pip install -e '.[local]'`." if isinstance(error, ModuleNotFoundError) else ""
        _stop(f"{error}{hint}")
    except OSError as error:
        _stop(f"{error.strerror or error}: {error.filename or 'no file named'}")


def _stop(message: str) -> NoReturn:
    screen.print(f"[bold red]corag:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)


def main() -> None:
    """Run the command."""
    with reporting_errors():
        app()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _doing(what: str) -> AbstractContextManager[object]:
    """Shows on a terminal that something is being done."""
    return screen.status(f"{what} ...") if screen.is_terminal else nullcontext()


def _print_answer(record: dict[str, Any]) -> None:
    """The answer on standard output; what it rests on, for the eye, on standard error."""
    answer = record["answer"]
    print("(generation is switched off)" if answer is None else answer or "(the model wrote nothing)")
    spent = "{context_tokens} of {budget_tokens} tokens, {pairs} pairs scored".format_map(record)
    spent += ", {pairs_computed} of them computed".format_map(record)
    if record["sources"]:
        _print_sources(record["sources"], spent)
    else:
        screen.print(f"No sources: {spent}.", markup=False)
    for note in record["notes"]:
        screen.print(f"Note: {note}.", markup=False)


def _print_sources(sources: list[dict[str, Any]], title: str) -> None:
    from corag_ray.reports.steps import on_one_line

    table = Table("", "document", "cost", "text", title=title)
    for number, source in enumerate(sources, start=1):
        text = on_one_line(source["text"])
        shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …"
        table.add_row(str(number), escape(source["doc_id"]), str(source["cost"]), escape(shown))
    screen.print(table)


if __name__ == "__main__":
    main()
