"""Makes the stored row of a question from its plan and its answers."""

from __future__ import annotations

from collections.abc import Mapping

from corag_ray.evaluation.answers import score_answer
from corag_ray.evaluation.candidate_ranking import rank_evidence
from corag_ray.evaluation.evidence import answering_evidence, evidence_precision, evidence_recall
from corag_ray.evaluation.rouge import rouge
from corag_ray.evaluation.row_log import SCHEMA_VERSION, MethodResult, Row, StoredRouge
from corag_ray.pipeline import Choice, Choices
from corag_ray.prompts import abstains
from corag_ray.types import Generation, Question


def make_row(
    plan: Choices,
    answers: Mapping[str, Generation],
    *,
    fingerprint: str,
    position: int,
    budget_tokens: int,
    prompt: str,
) -> Row:
    """The row of one question; `prompt` is the name of the one that the answers were written to.

    The generated reference is the answer of the run's method over gold passages; without such a method, or without gold
    passages for the question, ROUGE against it is None. The method itself is then left out of the row: what it wrote
    without a passage is no ceiling.
    """
    question = plan.question
    with_gold = [name for name, method in plan.methods.items() if method.source == "gold" and method.selection]
    reference = next((answers[name].text for name in with_gold if name in answers), None)
    methods = {name: m for name, m in plan.methods.items() if not plan.error and (m.source != "gold" or m.selection)}
    evidence = answering_evidence(question)
    ranking = None if plan.error else rank_evidence(evidence, plan.candidates)
    return {
        "schema_version": SCHEMA_VERSION,
        "question_id": question.question_id,
        "fingerprint": fingerprint,
        "index_version": plan.index_version,
        "position": position,
        "language": question.language,
        "kind": question.kind,
        "question": question.text,
        "answers": list(question.answers),
        "answerable": question.answerable,
        "error": {"kind": type(plan.error).__name__, "message": str(plan.error)} if plan.error else None,
        "candidate_recall": None if plan.error else evidence_recall(evidence, plan.candidates),
        "candidate_rr_at_10": ranking.reciprocal_rank if ranking else None,
        "candidate_ndcg_at_10": ranking.ndcg if ranking else None,
        "num_candidates": len(plan.candidates),
        "methods": {
            name: _method_result(question, method, answers.get(name), reference, budget_tokens, prompt)
            for name, method in methods.items()
        },
    }


def _method_result(
    question: Question, plan: Choice, answer: Generation | None, reference: str | None, budget_tokens: int, prompt: str
) -> MethodResult:
    text = answer.text if answer else None
    abstained = None if text is None else abstains(prompt, text, question.language)
    # The set's answer is then a refusal in words of its own, and `abstained` measures whether the method refused.
    references = () if question.answerable is False and abstained is not None else question.answers
    short = score_answer(text, references)
    evidence = answering_evidence(question)
    return {
        "source": plan.source,
        "selection": [
            {"chunk_id": f"{c.chunk_id:016x}", "doc_id": c.doc_id, "start": c.start, "end": c.end, "cost": c.cost}
            for c in plan.selection
        ],
        "score": plan.score,
        "pairs": plan.pairs,
        "pairs_computed": plan.pairs_computed,
        "pairs_unscored": plan.pairs_unscored,
        "selection_windows": plan.selection_windows,
        "question_tokens_cut": plan.question_tokens_cut,
        "budget_tokens": budget_tokens,
        "effective_budget_tokens": plan.effective_budget_tokens,
        "context_tokens": plan.context_tokens,
        "prompt_tokens": plan.prompt_tokens,
        "new_tokens": answer.new_tokens if answer else 0,
        "finish_reason": answer.finish_reason if answer else None,
        "answer": text,
        "abstained": abstained,
        "reranker": plan.reranker,
        "evidence_recall": evidence_recall(evidence, plan.selection),
        "evidence_precision": evidence_precision(evidence, plan.selection),
        "exact_match": short.exact_match if short else None,
        "token_f1": short.token_f1 if short else None,
        "rouge_set": _stored_rouge(text, references),
        "rouge_generated": _stored_rouge(text, (reference,) if reference else ()),
        "latency_ms": {stage: round(ms, 3) for stage, ms in plan.latency_ms.items()},
        "notes": plan.notes,
    }


def _stored_rouge(prediction: str | None, references: tuple[str, ...]) -> StoredRouge | None:
    scores = rouge(prediction, references)
    return {"rouge1": scores.rouge1, "rouge2": scores.rouge2, "rougeL": scores.rougeL} if scores else None
