"""The job around searches: which questions it asks, what it computes again, and what it prints."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from corag_ray.config import Config
from corag_ray.errors import ConfigError
from corag_ray.types import Chunk, Evidence, Question, Span
from jobs.bench_budgets import ALL, figures_of_sets, seconds_a_set, table_of, whole_numbers
from jobs.budgets import rows as job
from jobs.budgets.contestants import NAIVE, contestants_of, plan_of
from jobs.budgets.held_out import held_out
from jobs.budgets.row_log import Row
from jobs.budgets.rows import row_of, rows_of
from jobs.budgets.searching import Outcome
from jobs.document_parts import part_of_document
from jobs.row_log import RowLog
from jobs.train_reranker import PARTS, TEST_PART


def question(*doc_ids, name=""):
    evidence = tuple(Evidence(Span(doc_id, 0, 10)) for doc_id in doc_ids)
    return Question(name or f"q {doc_ids}", "why?", evidence=evidence)


def asked(questions, parts, learned, of_passages=False, seed=0):
    return held_out(questions, parts, learned, of_passages=of_passages, seed=seed)


def test_only_the_test_part_is_asked_and_nothing_that_the_head_learned_from_under_any_spelling():
    parts = {"a": "test", "b c": "test", "d": "train", "e": "test"}
    questions = [question("a"), question("b c"), question("d"), question("a", "d"), question("e"), question("a", "e")]
    assert {one.question_id for one in asked(questions, parts, {})} == {
        "q ('a',)",
        "q ('b c',)",
        "q ('e',)",
        "q ('a', 'e')",
    }
    learned = {"b_c": "train", "e": "dev", "a": "test", "x": "train"}
    assert [one.question_id for one in asked(questions, parts, learned)] == ["q ('a',)"]


def test_what_a_cross_encoder_may_have_read_alone_is_left_out_where_it_was_trained_on_the_set():
    doc_ids = [f"d{n}" for n in range(60)]
    parts = dict.fromkeys(doc_ids, "test")
    kept = asked([question(doc_id) for doc_id in doc_ids], parts, {}, of_passages=True)
    assert 0 < len(kept) < 30
    assert all(part_of_document(one.evidence[0].span.doc_id, PARTS) == TEST_PART for one in kept)


def test_the_order_is_drawn_by_the_seed():
    questions = [question("d", name=str(n)) for n in range(20)]
    orders = [[one.question_id for one in asked(questions, {"d": "test"}, {}, seed=seed)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


class Searches:
    """Stands for retrieval and searches, and keeps which were made."""

    def __init__(self, monkeypatch):
        self.made = []
        monkeypatch.setattr(job, "fingerprint_of", lambda config, dataset, one, budget: f"{one.name} {budget}")
        monkeypatch.setattr(job, "build_embedder", lambda config: None)
        monkeypatch.setattr(job, "build_reranker", lambda config, name, embedder, index: name)
        monkeypatch.setattr(job, "query_of", lambda question, index, num_candidates: question)
        monkeypatch.setattr(job, "naive", self.naive)
        monkeypatch.setattr(job, "searched", self.searched)

    def naive(self, query, budget):
        self.made.append((query.question_id, NAIVE, budget))
        return Outcome(())

    def searched(self, query, reranker, pairs):
        assert {one.method.reranker for one, _ in pairs} == {reranker}
        self.made += [(query.question_id, one.name, budget) for one, budget in pairs]
        return [Outcome((), 5) for _ in pairs]


OPENED = SimpleNamespace(config=Config(), dataset=SimpleNamespace(name="sample"), index=lambda embedder: None)


def test_a_run_computes_what_the_log_lacks_and_slow_methods_get_the_first_few_questions(tmp_path, monkeypatch):
    searches = Searches(monkeypatch)
    contestants = contestants_of(Config(), ["late_interaction", "query_likelihood"], "report")
    planned = plan_of(contestants, [128], [256])
    questions = [question("d", name=str(n)) for n in range(3)]
    rows = rows_of(OPENED, questions, planned, 1, RowLog(tmp_path / "rows.jsonl", Row))
    of_naive = len({64, 96, 128, 192, 256, 384, 768})
    assert len(rows) == len(searches.made) == 3 * (of_naive + 3) + 3
    assert {made[0] for made in searches.made if made[1].startswith("query_likelihood")} == {"0"}
    assert [one.question_id for one in rows] == ["0"] * (of_naive + 6) + ["1"] * (of_naive + 3) + ["2"] * (of_naive + 3)

    searches.made.clear()
    log = RowLog(tmp_path / "rows.jsonl", Row)
    assert rows_of(OPENED, questions, planned, 1, log) == rows
    assert searches.made == []
    assert len(rows_of(OPENED, questions[:2], plan_of(contestants[:4], [128, 512], [256]), 1, log)) == 2 * (8 + 6)
    assert len(searches.made) == 2 * (1 + 3)
    assert {budget for _, _, budget in searches.made} == {512}


def test_a_killed_run_keeps_every_reranker_that_was_done(tmp_path, monkeypatch):
    searches = Searches(monkeypatch)
    planned = plan_of(contestants_of(Config(), ["late_interaction", "bm25"], "report"), [128], [256])
    sound = searches.searched

    def killed(query, reranker, pairs):
        if reranker == "bm25" and query.question_id == "1":
            raise KeyboardInterrupt
        return sound(query, reranker, pairs)

    monkeypatch.setattr(job, "searched", killed)
    questions = [question("d", name=str(n)) for n in range(2)]
    with pytest.raises(KeyboardInterrupt):
        rows_of(OPENED, questions, planned, 1, RowLog(tmp_path / "rows.jsonl", Row))
    monkeypatch.setattr(job, "searched", sound)
    searches.made.clear()
    rows_of(OPENED, questions, planned, 1, RowLog(tmp_path / "rows.jsonl", Row))
    assert searches.made == [("1", f"bm25{way}", 128) for way in ("", "_greedy", "_ranked")]


def test_a_row_holds_what_was_selected_in_numbers():
    [one, *_] = contestants_of(Config(), [], "report")
    chunks = (Chunk(1, "a", 0, 0, 10, "x", 30), Chunk(2, "z", 0, 0, 10, "x", 12))
    row = row_of("f", Config(), question("a", "b"), one, 64, Outcome(chunks, 9, 1))
    assert row == Row("f", "sample", "q ('a', 'b')", NAIVE, 64, 42, 0.5, 0.5, 9, 1)
    empty, failed = (row_of("f", Config(), question("a"), one, 64, Outcome(chosen)) for chosen in ((), None))
    assert (empty.tokens, empty.recall, empty.precision) == (0, 0.0, None)
    assert (failed.tokens, failed.recall, failed.precision) == (None, None, None)


def test_budgets_are_read_once_each_by_size():
    assert whole_numbers("512, 128,128") == [128, 512]
    for text in ("", "0", "12.5", "128,,256", "-1"):
        with pytest.raises(ConfigError, match="budgets are whole numbers"):
            whole_numbers(text)


def test_the_estimate_counts_the_pairs_of_searches_once():
    contestants = contestants_of(Config(), ["combination", "query_likelihood"], "report")
    planned = plan_of(contestants, [128, 256], [512])
    # 60 questions at 2 budgets, 2,000 pairs at 2,000 a second; 15 at one, 210 at 4 a second; 10 s and 0.2 a question.
    assert seconds_a_set(planned, 60, 15) == pytest.approx(60 * 2 + 15 * 210 / 4 + 10 + 12)


def made_rows(data):
    rows = [Row("f", data, q, NAIVE, b, b, 0.5, 0.25, 0, 0) for q in "ab" for b in (64, 128)]
    rows += [Row("f", data, "a", "mine", 128, 90, 1.0, 0.5, 2000, 0)]
    return [*rows, Row("f", data, "b", "mine", 128, None, None, None, 2000, 60)]


def test_the_table_has_rows_of_compared_budgets_alone_and_dashes_where_nothing_was_measured():
    [told] = figures_of_sets({"one": made_rows("one")}, seed=0).values()
    written = io.StringIO()
    Console(width=200, file=written).print(table_of("one", told))
    lines = [line for line in written.getvalue().splitlines() if "naive_rag" in line or "mine" in line]
    cells = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines]
    assert cells[0] == ["128", NAIVE, "2", "0.500 0.500 to 0.500", "128 ± 0", "0.250 ± 0.000", "0", "–", "–"]
    assert cells[1] == ["128", "mine", "2 (1 failed)", "1.000", "90", "0.500", "2,000", "+0.500", "+0.500"]


def test_several_sets_are_also_told_of_together():
    assert list(figures_of_sets({"one": made_rows("one")}, 0)) == ["one"]
    told = figures_of_sets({name: made_rows(name) for name in ("one", "two")}, 0)
    assert list(told) == ["one", "two", ALL]
    assert told[ALL][NAIVE]["128"]["questions"] == 4
