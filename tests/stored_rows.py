"""Rows and results as a run stores them; a test changes what it is about."""

from typing import Any


def result(**changes: Any) -> dict[str, Any]:
    plain = {
        "source": "retrieval",
        "selection": [{"chunk_id": "0f", "doc_id": "d", "start": 0, "end": 500, "cost": 130}],
        "score": 0.6,
        "pairs": 60,
        "pairs_computed": 60,
        "pairs_unscored": 0,
        "selection_windows": None,
        "question_tokens_cut": 0,
        "budget_tokens": 512,
        "effective_budget_tokens": 512,
        "context_tokens": 500,
        "prompt_tokens": 560,
        "new_tokens": 48,
        "finish_reason": "stop",
        "answer": "yes",
        "abstained": None,
        "reranker": None,
        "evidence_recall": 0.5,
        "evidence_precision": 0.25,
        "exact_match": 0.0,
        "token_f1": 0.5,
        "rouge_set": rouge(0.4),
        "rouge_generated": None,
        "latency_ms": {"retrieve": 1.0, "search": 9.0},
        "notes": [],
    }
    return plain | changes


def rouge(value: float) -> dict[str, float]:
    return {"rouge1": value + 0.2, "rouge2": value - 0.2, "rougeL": value}


def row(position: int, methods: dict[str, Any] | None = None, **changes: Any) -> Any:
    plain = {
        "schema_version": 5,
        "question_id": f"q{position}",
        "fingerprint": "ab",
        "index_version": "1-abc",
        "position": position,
        "language": "en",
        "kind": None,
        "question": "Is it?",
        "answers": ["yes"],
        "answerable": None,
        "error": None,
        "candidate_recall": 1.0,
        "candidate_rr_at_10": 0.5,
        "candidate_ndcg_at_10": 0.75,
        "num_candidates": 60,
        "methods": {"naive": result()} if methods is None else methods,
    }
    return plain | changes
