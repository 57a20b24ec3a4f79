"""What the benchmark of rerankers asks, and what it computes from ranks."""

from pathlib import Path

import pytest

from corag_ray.errors import ConfigError
from corag_ray.models.packaged_rerankers import PACKAGED_RERANKERS
from corag_ray.types import Chunk, Evidence, Question, Score, Span
from jobs.bench_rerankers import (
    choice_of,
    cross_encoders,
    figures,
    learned_from,
    questions_to_ask,
    ranked,
    reciprocal_rank,
    table_of,
    told_apart,
)
from jobs.document_parts import part_of_document
from jobs.train_reranker import FIGURES, LEARNED_FROM, PARTS, TEST_PART

CHUNKS = [Chunk(n, "d", n, 10 * n, 10 * n + 9, f"text {n}", 1) for n in range(12)]


def question(doc_id, place=0):
    return Question(f"q {doc_id}", "why?", evidence=(Evidence(Span(doc_id, 10 * place, 10 * place + 9)),))


class Raw:
    """A reranker whose raw scores are given by candidate; None has no score."""

    def __init__(self, *raw):
        self.raw = raw

    def prepare(self, query, candidates, rows):
        assert [chunk.chunk_id for chunk in candidates] == list(rows)
        return query

    def score(self, pairs):
        return [Score(self.raw[place], 0.5) for _, (place,) in pairs]


def test_two_rows_of_one_name_are_refused(tmp_path):
    assert told_apart([Path("a/x"), Path("b/y")]) == [Path("a/x"), Path("b/y")]
    for folders in ([Path("a/x"), Path("b/x")], [Path("bm25")], [Path("fusion")], [Path(".")]):
        with pytest.raises(ConfigError, match="rename the folder"):
            told_apart(folders)


def test_the_packaged_cross_encoders_have_rows_unless_they_are_left_out():
    own = [Path("a/x")]
    assert cross_encoders(own, packaged=False) == {"x": Path("a/x")}
    assert [*cross_encoders(own, packaged=True)] == [*PACKAGED_RERANKERS, "x"]
    with pytest.raises(ConfigError, match="rename the folder"):
        cross_encoders([Path("a/passage_facts")], packaged=False)


def test_a_choice_between_experts_wins_where_another_than_the_best_on_average_is_better():
    ranks = {"facts": [1.0, 0.5, 1.0, 0.0], "explanations": [0.5, 1.0, 0.5, 0.0]}
    found = choice_of(ranks, 0)
    assert (found["questions"], found["chosen"]) == (4, "facts")
    assert (found["other_is_better"]["mean"], found["gain"]["mean"]) == (0.25, 0.125)
    assert found["gain"]["low"] <= 0.125 <= found["gain"]["high"] <= 0.5
    assert choice_of({"facts": [1.0]}, 0) == choice_of({}, 0) == {}


def test_what_a_folders_training_tells_is_added_to_what_is_learned_from(tmp_path):
    assert learned_from([tmp_path]) == set(LEARNED_FROM)
    (tmp_path / FIGURES).write_text('{"data": ["covid-qa"]}')
    assert learned_from([tmp_path]) == {*LEARNED_FROM, "covid-qa"}


def test_of_a_set_that_is_learned_from_only_the_documents_kept_back_are_asked():
    questions = [question(f"d{n}") for n in range(60)]
    kept = questions_to_ask(questions, 60, 0, kept_back=True)
    assert 0 < len(kept) < 30
    assert all(part_of_document(one.evidence[0].span.doc_id, PARTS) == TEST_PART for one in kept)
    assert len(questions_to_ask(questions, 60, 0, kept_back=False)) == 60


def test_questions_without_evidence_are_not_asked_and_a_limit_draws_by_the_seed():
    questions = [question("d"), Question("q", "why?"), question("e"), question("f")]
    assert {one.question_id for one in questions_to_ask(questions, 9, 0, kept_back=False)} == {"q d", "q e", "q f"}
    drawn = {
        tuple(one.question_id for one in questions_to_ask(questions, 2, seed, kept_back=False)) for seed in range(9)
    }
    assert len(drawn) > 1 and all(len(one) == 2 for one in drawn)


def test_the_highest_raw_score_comes_first_ties_as_they_came_and_what_has_none_last():
    raw = Raw(0.5, float("nan"), 2.0, 0.5)
    assert ranked(raw, Question("q", "?"), CHUNKS[:4], range(4)) == [2, 0, 3, 1]


def test_the_reciprocal_rank_is_that_of_the_first_evidence_and_zero_beyond_the_tenth():
    assert reciprocal_rank(question("d", 0), CHUNKS) == 1.0
    assert reciprocal_rank(question("d", 3), CHUNKS) == 0.25
    assert reciprocal_rank(question("d", 10), CHUNKS) == 0.0


def test_figures_compare_the_same_questions():
    ranks = {"fusion": [1.0, 0.5, 0.0], "bm25": [0.5, 0.5, 0.5], "pooled_embedding": [0.0] * 3, "mine": [1.0] * 3}
    report = figures(ranks, {"mine": 7.0}, 0)
    rows = report["rerankers"]
    assert (rows["fusion"]["mrr"], rows["mine"]["mrr"], rows["mine"]["pairs_per_s"]) == (0.5, 1.0, 7.0)
    assert rows["mine"]["above"]["fusion"]["mean"] == 0.5
    assert rows["mine"]["above"]["bm25"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert set(rows["fusion"]["above"]) == {"bm25", "pooled_embedding"}
    assert rows["fusion"]["low"] < 0.5 < rows["fusion"]["high"]


def test_one_question_has_no_interval():
    report = figures({"fusion": [1.0], "bm25": [1.0], "pooled_embedding": [1.0]}, {}, 0) | {
        "questions": 1,
        "holding": 1,
    }
    assert report["rerankers"]["bm25"]["low"] is None
    assert table_of("set", report).row_count == 3


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_figures(seed):
    ranks = {name: [1.0, 0.2, 0.0, 0.5] for name in ("fusion", "bm25", "pooled_embedding")}
    assert figures(ranks, {}, seed) == figures(ranks, {}, seed)
