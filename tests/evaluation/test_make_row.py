"""From a plan and its answers to the stored row."""

import dataclasses
import json
import math

import pytest

from corag_ray.errors import RowError
from corag_ray.evaluation.make_row import make_row
from corag_ray.evaluation.row_log import MethodResult, Row, SelectedChunk, StoredRouge, read_rows
from corag_ray.pipeline import Choice, Choices
from corag_ray.types import Chunk, Evidence, Generation, Question, Span

QUESTION = Question("q7", "Where?", ("the red house",), (Evidence(Span("d", 0, 10), text="0123456789"),), "es", "where")
HIT = Chunk(255, "d", 0, 0, 8, "01234567", 5)  # holds 8 of the evidence's 10 characters
MISS = Chunk(2**64 - 1, "e", 3, 4, 9, "other", 6)


def planned(**methods):
    return Choices(QUESTION, [HIT, MISS], methods, index_version="3-abc")


def answer(text, new_tokens=3):
    return Generation(text, 40, new_tokens, "stop")


def stored(plan, answers, prompt="seed"):
    return make_row(plan, answers, fingerprint="ab", position=4, budget_tokens=512, prompt=prompt)


def chosen(*selection, source="retrieval", **values):
    return Choice(source, list(selection), **values)


def gold(*selection):
    return chosen(*selection, source="gold")


def test_a_row_has_exactly_the_keys_of_its_schema_at_every_level():
    row = stored(planned(m=chosen(HIT), ceiling=gold(HIT)), {"m": answer("red"), "ceiling": answer("a")})
    assert row.keys() == Row.__annotations__.keys()
    result = row["methods"]["m"]
    assert result.keys() == MethodResult.__annotations__.keys()
    assert result["selection"][0].keys() == SelectedChunk.__annotations__.keys()
    assert result["rouge_set"].keys() == result["rouge_generated"].keys() == StoredRouge.__annotations__.keys()


def test_a_row_carries_the_question_its_place_and_what_each_method_did():
    plan = planned(
        m=chosen(
            MISS,
            HIT,
            score=0.25,
            pairs=9,
            pairs_computed=4,
            pairs_unscored=2,
            selection_windows=3,
            question_tokens_cut=145,
            reranker="late",
            effective_budget_tokens=100,
            prompt="p",
            prompt_tokens=60,
            context_tokens=11,
            latency_ms={"search": 1.23456},
            notes=["n"],
        )
    )
    row = stored(plan, {"m": answer("the red house")})
    asked = {"question_id": "q7", "language": "es", "kind": "where", "question": "Where?", "answers": ["the red house"]}
    asked |= {"answerable": None, "index_version": "3-abc"}
    expected = asked | {"fingerprint": "ab", "position": 4, "error": None, "num_candidates": 2, "candidate_recall": 1.0}
    assert {key: row[key] for key in expected} == expected
    result = row["methods"]["m"]
    assert result["selection"] == [
        {"chunk_id": "ffffffffffffffff", "doc_id": "e", "start": 4, "end": 9, "cost": 6},
        {"chunk_id": "00000000000000ff", "doc_id": "d", "start": 0, "end": 8, "cost": 5},
    ]
    expected = {
        "source": "retrieval",
        "score": 0.25,
        "pairs": 9,
        "pairs_computed": 4,
        "pairs_unscored": 2,
        "selection_windows": 3,
        "question_tokens_cut": 145,
        "budget_tokens": 512,
        "effective_budget_tokens": 100,
        "context_tokens": 11,
        "prompt_tokens": 60,
        "new_tokens": 3,
        "finish_reason": "stop",
        "answer": "the red house",
        "reranker": "late",
        "evidence_recall": 1.0,  # the one span is covered
        "evidence_precision": 0.5,  # by one of two chunks
        "latency_ms": {"search": 1.235},
        "notes": ["n"],
    }
    assert {key: result[key] for key in expected} == expected
    assert result["rouge_set"]["rougeL"] == 1.0


def test_short_answers_are_held_against_the_sets_and_candidates_are_ranked_by_evidence():
    plan = Choices(QUESTION, [MISS, HIT], {"m": chosen(HIT)}, index_version="3-abc")
    row = stored(plan, {"m": answer("A red house, today")})
    assert row["candidate_rr_at_10"] == 0.5  # the one span stands second
    assert row["candidate_ndcg_at_10"] == pytest.approx(1 / math.log2(3))
    # "red house today" against "red house": 2 of 3 tokens and 2 of 2.
    assert (row["methods"]["m"]["exact_match"], row["methods"]["m"]["token_f1"]) == (0.0, pytest.approx(4 / 5))
    assert stored(plan, {"m": answer("Red house!")})["methods"]["m"]["exact_match"] == 1.0


@pytest.mark.parametrize("answerable", [True, False, None])
def test_a_row_says_whether_the_set_calls_its_question_answerable(answerable):
    asked = dataclasses.replace(QUESTION, answerable=answerable)
    assert stored(Choices(asked, index_version="3-abc"), {})["answerable"] is answerable


def test_a_method_abstained_when_it_wrote_what_its_prompt_agreed_on_in_the_questions_language():
    plan = planned(a=chosen(HIT), b=chosen(HIT), c=chosen(HIT), d=chosen(HIT))
    answers = {"a": answer("Sin respuesta."), "b": answer("the red house"), "c": answer("Unanswerable")}
    methods = stored(plan, answers, prompt="concise_or_abstain")["methods"]
    # The question is Spanish, so the English word is an answer; nothing was generated for d.
    assert [methods[name]["abstained"] for name in "abcd"] == [True, False, False, None]
    methods = stored(plan, answers, prompt="concise")["methods"]
    assert [methods[name]["abstained"] for name in "abcd"] == [None] * 4


SCORED = ("exact_match", "token_f1", "rouge_set")


@pytest.mark.parametrize(
    ("answerable", "prompt", "measured"),
    [
        (False, "concise_or_abstain", False),
        (False, "concise", True),  # without agreed words the set's refusal is all there is
        (True, "concise_or_abstain", True),
        (None, "concise_or_abstain", True),
    ],
)
def test_an_unanswerable_question_is_not_held_against_the_sets_refusal_where_abstaining_is_measured(
    answerable, prompt, measured
):
    asked = dataclasses.replace(QUESTION, answers=("No answer is given.",), answerable=answerable)
    plan = Choices(asked, [HIT], {"m": chosen(HIT), "ceiling": gold(HIT)}, index_version="3-abc")
    result = stored(plan, {"m": answer("no answer"), "ceiling": answer("no answer")}, prompt)["methods"]["m"]
    assert [result[key] is not None for key in SCORED] == [measured] * 3
    assert result["rouge_generated"] is not None


def test_passages_marked_for_an_unanswerable_question_are_no_evidence_and_gold_passages_all_the_same():
    asked = dataclasses.replace(QUESTION, answerable=False)
    plan = Choices(asked, [HIT], {"m": chosen(HIT), "ceiling": gold(HIT)}, index_version="3-abc")
    row = stored(plan, {})
    assert [row[f"candidate_{key}"] for key in ("recall", "rr_at_10", "ndcg_at_10")] == [None] * 3
    for result in row["methods"].values():
        assert (result["evidence_recall"], result["evidence_precision"]) == (None, None)
    assert row["methods"]["ceiling"]["selection"]


def test_a_ceiling_without_a_gold_passage_is_left_out_of_the_row_and_a_floor_or_an_empty_search_is_not():
    plan = planned(ceiling=gold(), none=chosen(source="none"), m=chosen())
    answers = {name: answer("red") for name in plan.methods}
    assert list(stored(plan, answers)["methods"]) == ["none", "m"]


def test_a_row_can_be_written_and_read_back(tmp_path):
    row = stored(planned(m=chosen(HIT, score=0.1)), {"m": answer("a")})
    (tmp_path / "rows.jsonl").write_text(json.dumps(row, allow_nan=False) + "\n", encoding="utf-8")
    assert read_rows(tmp_path / "rows.jsonl") == [row]


def test_the_generated_reference_is_the_answer_written_from_the_gold_passages():
    # The method is known by its source: one that is only called so is no reference.
    plan = planned(gold_passages=chosen(HIT), m=chosen(HIT), ceiling=gold(HIT), none=chosen(source="none"))
    answers = {"m": answer("a blue door"), "ceiling": answer("the blue door"), "none": answer("green")}
    row = stored(plan, answers | {"gold_passages": answer("green")})["methods"]
    assert [result["source"] for result in row.values()] == ["retrieval", "retrieval", "gold", "none"]
    # "a blue door" against "the blue door": 2 of 3 words both ways; against "the red house" none.
    assert math.isclose(row["m"]["rouge_generated"]["rougeL"], 2 / 3)
    assert row["m"]["rouge_set"]["rougeL"] == 0.0
    assert row["ceiling"]["rouge_generated"]["rougeL"] == 1.0
    assert row["none"]["rouge_generated"]["rougeL"] == 0.0
    assert math.isclose(row["ceiling"]["rouge_set"]["rougeL"], 1 / 3)  # "the" of three words


@pytest.mark.parametrize(
    ("ceiling", "answers"),
    [
        (None, {"m": answer("a b")}),
        (gold(), {"m": answer("a b"), "ceiling": answer("a b")}),  # no gold passage: only the question's words
        (gold(HIT), {"m": answer("a b"), "ceiling": answer("")}),
    ],
    ids=["without the method", "without passages", "with an empty answer"],
)
def test_without_a_reference_written_from_gold_passages_that_rouge_is_missing_not_zero(ceiling, answers):
    methods = {"m": chosen(HIT)} | ({"ceiling": ceiling} if ceiling is not None else {})
    row = stored(planned(**methods), answers)
    assert row["methods"]["m"]["rouge_generated"] is None
    assert row["methods"]["m"]["rouge_set"] is not None


def test_without_generation_answers_and_rouge_are_missing_and_evidence_is_not():
    row = stored(planned(m=chosen(HIT), ceiling=gold(HIT)), {})
    result = row["methods"]["m"]
    missing = ("answer", "abstained", "finish_reason", "rouge_set", "rouge_generated", "exact_match", "token_f1")
    assert [result[key] for key in missing] == [None] * 7
    assert (result["new_tokens"], result["evidence_recall"]) == (0, 1.0)


def test_a_failed_question_has_its_error_and_no_results():
    plan = Choices(QUESTION, methods={"m": chosen()}, error=RowError("too long."), index_version="3-abc")
    row = stored(plan, {})
    assert row.keys() == Row.__annotations__.keys()
    assert row["error"] == {"kind": "RowError", "message": "too long."}
    assert (row["methods"], row["num_candidates"], row["candidate_recall"]) == ({}, 0, None)
    assert (row["candidate_rr_at_10"], row["candidate_ndcg_at_10"]) == (None, None)
    assert (row["question_id"], row["position"], row["index_version"]) == ("q7", 4, "3-abc")


def test_a_question_without_answers_and_evidence_has_no_rouge_and_no_recall():
    plan = Choices(Question("q", "?"), [HIT], {"m": chosen(HIT)}, index_version="3-abc")
    row = stored(plan, {"m": answer("a")})
    result = row["methods"]["m"]
    assert row["candidate_recall"] is None
    assert (result["rouge_set"], result["evidence_recall"], result["evidence_precision"]) == (None, None, None)
    assert (result["exact_match"], result["token_f1"]) == (None, None)
