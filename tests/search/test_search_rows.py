"""A run computes what the log lacks, question by question."""

from types import SimpleNamespace

import pytest
from search.made import Worth, query_of

from corag_ray.config import Config
from corag_ray.types import Question
from jobs.row_log import RowLog
from jobs.search import courses as job
from jobs.search.contestants import methods_of
from jobs.search.courses import rows_of
from jobs.search.rows import Row

OPENED = SimpleNamespace(config=Config(), dataset=SimpleNamespace(name="sample"), index=lambda embedder: None)
METHODS = methods_of(["greedy", "corag"], "late_interaction", 20)
QUESTIONS = [Question(str(n), "why?") for n in range(3)]


@pytest.fixture
def prepared(monkeypatch):
    """Ids of the questions that were retrieved for."""
    made = []

    def query(question, index, num_candidates):
        made.append(question.question_id)
        return query_of([3] * 5)

    monkeypatch.setattr(job, "fingerprint_of", lambda config, dataset, m, b, limits: f"{m.strategy} {b} {limits}")
    monkeypatch.setattr(job, "build_embedder", lambda config: None)
    monkeypatch.setattr(job, "build_reranker", lambda config, name, embedder, index: Worth(lambda c: len(c) / 9))
    monkeypatch.setattr(job, "query_of", query)
    monkeypatch.setattr(job, "seen_by", lambda query, reranker, index: query.candidates)
    return made


def rows(path, questions=QUESTIONS, budgets=(7, 12), methods=METHODS):
    log = RowLog(path / "rows.jsonl", Row)
    return rows_of(OPENED, "late_interaction", questions, methods, budgets, [5, 20], log)


def test_what_is_there_is_not_computed_again_and_what_is_new_is(tmp_path, prepared):
    made = rows(tmp_path)
    assert len(made) == 3 * 2 * 2 and prepared == ["0", "1", "2"]
    assert [(one.question_id, one.budget_tokens, one.strategy) for one in made[:4]] == [
        ("0", 7, "greedy"),
        ("0", 7, "corag"),
        ("0", 12, "greedy"),
        ("0", 12, "corag"),
    ]
    assert [point.limit for point in made[0].points] == [5, 20]
    prepared.clear()
    assert rows(tmp_path) == made and prepared == []
    assert len(rows(tmp_path, budgets=(7, 12, 15))) == 18 and prepared == ["0", "1", "2"]
    prepared.clear()
    assert rows(tmp_path, questions=QUESTIONS[1:2]) == made[4:8] and prepared == []


def test_a_killed_run_keeps_every_question_that_was_done(tmp_path, prepared, monkeypatch):
    sound = job.course_of
    calls = []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return sound(*arguments)

    monkeypatch.setattr(job, "course_of", killed)
    with pytest.raises(KeyboardInterrupt):
        rows(tmp_path)
    monkeypatch.setattr(job, "course_of", sound)
    prepared.clear()
    assert len(rows(tmp_path)) == 12
    assert prepared == ["1", "2"]
