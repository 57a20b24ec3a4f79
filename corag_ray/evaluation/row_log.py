"""The row log: the shape of one stored row, a JSON object a question, and its reader."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from corag_ray.errors import DataError

SCHEMA_VERSION = 5
_ADVICE = "delete the line, and the next run into its folder answers the question again"


class RowFailure(TypedDict):
    """Why a question has no result."""

    kind: str
    message: str


class SelectedChunk(TypedDict):
    """One chunk of a selection, in the order of the prompt; `chunk_id` in hexadecimal."""

    chunk_id: str
    doc_id: str
    start: int
    end: int
    cost: int


class StoredRouge(TypedDict):
    """F1 values, as `rouge.RougeScores` has them."""

    rouge1: float
    rouge2: float
    rougeL: float


class MethodResult(TypedDict):
    """What one method did with one question; a `source` other than retrieval makes it a floor or ceiling.

    `pairs_computed` is how many of its `pairs` were not in a memo and came with no other method's call, and
    `pairs_unscored` how many could not be scored. `selection_windows` is None where the reranker has no window or
    nothing was chosen, `question_tokens_cut` what it did not read of the question (both as in `pipeline.Choice`).
    `context_tokens` is recounted from the encoded prompt. `rouge_set`, `exact_match` and `token_f1` are against the
    data set's answers, `rouge_generated` against the answer that the same generator writes from the gold passages.
    `abstained` is None where the run's prompt agrees on no words for that, and where nothing was generated. Where it
    says something of a question that the set calls unanswerable, the three against the set's answers are None.
    """

    source: str
    selection: list[SelectedChunk]
    score: float | None
    pairs: int
    pairs_computed: int
    pairs_unscored: int
    selection_windows: int | None
    question_tokens_cut: int
    budget_tokens: int
    effective_budget_tokens: int
    context_tokens: int
    prompt_tokens: int
    new_tokens: int
    finish_reason: str | None
    answer: str | None
    abstained: bool | None
    reranker: str | None
    evidence_recall: float | None
    evidence_precision: float | None
    exact_match: float | None
    token_f1: float | None
    rouge_set: StoredRouge | None
    rouge_generated: StoredRouge | None
    latency_ms: dict[str, float]
    notes: list[str]


class Row(TypedDict):
    """One question: every method's result, or the error that stopped it.

    A method over gold passages is missing where the question has none that fits. `index_version` is the number and
    content hash of the index that the selections come from. `answerable` is None where the data set does not say; where
    it is False, nothing of evidence is measured.
    """

    schema_version: int
    question_id: str
    fingerprint: str
    index_version: str
    position: int
    language: str
    kind: str | None
    question: str
    answers: list[str]
    answerable: bool | None
    error: RowFailure | None
    candidate_recall: float | None
    candidate_rr_at_10: float | None
    candidate_ndcg_at_10: float | None
    num_candidates: int
    methods: dict[str, MethodResult]


_ROW = TypeAdapter(Row)


def read_rows(path: Path, *, cut_off: bool = False) -> list[Row]:
    """The rows of a JSONL row log, in the file's order.

    Args:
        path: The row log.
        cut_off: Whether a kill may have cut the last line short: without its end of line it is left out.

    Raises:
        DataError: A line is no row of this schema version, or a question stands twice; names file and line.
    """
    rows: list[Row] = []
    first_lines: dict[str, int] = {}
    with path.open("rb") as lines:  # as bytes: a line that is no UTF-8 is refused with its place too
        for number, line in enumerate(lines, start=1):
            if line.strip() and not (cut_off and not line.endswith(b"\n")):
                row = _parse_row(line, f"{path}:{number}")
                first = first_lines.setdefault(row["question_id"], number)
                if first != number:  # counted twice, a question would narrow every interval
                    said = f"question '{row['question_id']}' already stands in line {first}: delete one of the two"
                    raise DataError(f"{path}:{number}: {said}.")
                rows.append(row)
    return rows


def _parse_row(line: bytes, place: str) -> Row:
    """The row of one line.

    Raises:
        DataError: It is no row of this schema version; begins with `place`.
    """
    row = _object(line, place)
    if (version := row.get("schema_version")) != SCHEMA_VERSION:
        raise DataError(
            f"{place}: expected schema_version {SCHEMA_VERSION}, got {version!r}: choose another folder for the run."
        )
    missing = [key for key in Row.__annotations__ if key not in row]
    methods = row.get("methods", {})
    if not isinstance(methods, dict) or not all(isinstance(result, dict) for result in methods.values()):
        raise DataError(f"{place}: expected methods to be an object of objects, by method name: {_ADVICE}.")
    for name, result in methods.items():
        missing += [f"methods.{name}.{key}" for key in MethodResult.__annotations__ if key not in result]
    if missing:
        raise DataError(f"{place}: the row lacks {', '.join(missing)}: {_ADVICE}.")
    try:
        return _ROW.validate_python(row, strict=True)  # or the text "inf" would become an infinity
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{place}: '{'.'.join(map(str, first['loc']))}': {first['msg']}: {_ADVICE}.") from error


def _object(line: bytes, place: str) -> dict[str, Any]:
    """The JSON object of one line, which can be written as JSON again."""
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
        if rb"\u" in line:  # JSON can escape half of a character, which no file could hold when the log is rewritten
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise DataError(f"{place}: the line is nested too deeply to be read: {_ADVICE}.") from error
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: the row holds half of a character (a lone surrogate): {_ADVICE}.") from error
    except ValueError as error:
        raise DataError(f"{place}: expected one JSON object a line, got {error}: {_ADVICE}.") from error
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected a JSON object, got {type(row).__name__}: {_ADVICE}.")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is not JSON; what is missing is null")


def _finite(digits: str) -> float:
    """A number as JSON writes it; one beyond a float's range would become an infinity that no JSON can hold."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]}, a number that is too large")
    return number
