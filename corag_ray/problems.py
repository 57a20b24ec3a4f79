"""The wording of what pydantic refuses: the place, what was found there, and the names that are known."""

from __future__ import annotations

import re
import reprlib

from pydantic_core import ErrorDetails, PydanticCustomError

from corag_ray.errors import ConfigError, unknown_name

_COMPLAINT = "complaint"
"""The type of a problem that a check of ours has put into words."""


def complaint(sentence: str) -> PydanticCustomError:
    """The error by which a check hands its own words to pydantic, which knows the place."""
    return PydanticCustomError(_COMPLAINT, "{said}", {"said": sentence})


def value_problem(place: str, problem: ErrorDetails) -> str:
    """The sentence about a value, or about one that is missing; `place` is its path, with dots."""
    if problem["type"] == _COMPLAINT:
        return f"'{place}': {problem['msg']}"
    if problem["type"] == "missing":
        return f"the key '{place}' is missing."
    if problem["type"] == "path_type":
        return f"'{place}' needs a path, found {beginning(problem['input'])!r}."
    if problem["type"] == "literal_error":
        return f"'{place}': {wrong_choice('value', problem['input'], problem['ctx']['expected'])}"
    return f"'{place}': {problem['msg'][:1].lower()}{problem['msg'][1:]}, found {beginning(problem['input'])!r}."


def wrong_choice(what: str, found: object, known: str) -> ConfigError:
    """An error for a value that is none of a few names, which pydantic gives quoted in one text."""
    return unknown_name(what, " ".join(beginning(found).split()), re.findall(r"'([^']*)'", known))


def beginning(found: object) -> str:
    """The first 60 characters of a value; containers are cut as they are written: aliases can nest them without end."""
    return (reprlib.repr(found) if isinstance(found, dict | list | set | tuple) else str(found))[:60]
