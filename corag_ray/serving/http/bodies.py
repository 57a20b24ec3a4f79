"""What requests may hold: shared types of their bodies, and from a body to what is asked of the service."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from corag_ray.config import Strategy
from corag_ray.errors import ConfigError, unknown_name
from corag_ray.problems import complaint
from corag_ray.prompts import LANGUAGES
from corag_ray.serving.messages import Asked
from corag_ray.serving.settings import ServingSettings
from corag_ray.types import Question

AUTO = "auto"
"""The reranker that the agent, or the method, says."""


def _valid(text: str) -> str:
    if not text.isascii() and text.encode("utf-8", "ignore").decode("utf-8") != text:
        raise complaint("it holds half of a character (a lone surrogate): send valid Unicode.")
    return text


def _said(text: str) -> str:
    if not text.strip():
        raise complaint("it is empty: write what you want to know.")
    return text


Text = Annotated[str, AfterValidator(_valid)]
QuestionText = Annotated[Text, AfterValidator(_said)]
Whole = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Name = Annotated[Text, Field(max_length=200)]


class Body(BaseModel):
    """Base of our own bodies: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


def asked_of(
    settings: ServingSettings,
    request_id: str,
    question: str,
    *,
    language: str = "en",
    budget_tokens: int | None = None,
    max_new_tokens: int | None = None,
    deadline_ms: int | None = None,
    method: str | None = None,
    strategy: Strategy | None = None,
    reranker: str | None = None,
    num_candidates: int | None = None,
    pair_limit: int | None = None,
    documents: tuple[str, ...] | None = None,
    explain: bool = False,
) -> Asked:
    """The request within the edge's bounds, with the configuration's values for what it leaves open.

    Raises:
        ConfigError: a value exceeds its bound, or a name is unknown.
    """
    http, config = settings.http, settings.config
    check_most("question", len(question), http.max_question_characters, "characters")
    check_most("budget_tokens", budget_tokens, http.max_budget_tokens)
    check_most("max_new_tokens", max_new_tokens, http.max_new_tokens)
    check_most("deadline_ms", deadline_ms, int(http.max_deadline_s * 1000))
    check_most("num_candidates", num_candidates, http.max_candidates)
    check_most("pair_limit", pair_limit, http.max_pairs)
    if language not in LANGUAGES:
        raise unknown_name("language of prompts", language, LANGUAGES)
    if method is not None and method not in config.methods:
        raise unknown_name("method", method, config.methods)
    named = None if reranker == AUTO else reranker
    if named is not None and named not in settings.pools:
        raise unknown_name("reranker", named, [*settings.pools, AUTO])
    return Asked(
        Question(request_id, question, language=language),
        budget_tokens or config.budget_tokens,
        max_new_tokens or config.generation.max_new_tokens,
        time.time() + (http.deadline_s if deadline_ms is None else deadline_ms / 1000),
        method,
        strategy,
        named,
        num_candidates,
        pair_limit,
        documents,
        explain,
    )


def check_most(what: str, number: int | None, most: int, unit: str = "") -> None:
    """Refuse what exceeds a bound.

    Raises:
        ConfigError: it does.
    """
    if number is not None and number > most:
        raise ConfigError(
            f"'{what}' has {number:,} {unit}, and at most {most:,} are let in."
            if unit
            else f"'{what}' must be at most {most:,} here, not {number:,}."
        )
