"""A configuration from a YAML file: what may stand in one, and the sentence that refuses what may not."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.composer import ComposerError

from corag_ray.config import DEFAULT_PARAMS, Config, Section
from corag_ray.core.policy_tree import SearchParams
from corag_ray.errors import ConfigError, CoragError
from corag_ray.indexing.chunking import Chunking
from corag_ray.indexing.token_vectors import TokenVectorFormat
from corag_ray.problems import beginning, value_problem, wrong_choice

_Schema = TypeVar("_Schema", bound=BaseModel)

LARGEST_INTEGER = 2**63 - 1
"""Larger ones are refused in YAML: no setting means them, and Python does not write out those of 4,300 digits."""
_TO_ANOTHER_BASE = re.compile(r"[-+]?0[0-7_]+|[-+]?[0-9][0-9_]*:.*")


class _Loader(yaml.SafeLoader):
    """Refuses what YAML 1.1 would read in silence as something else: keys that stand twice, numbers to another base."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """The scalar as it is written; a number must be decimal (or show its base, as 0x does) and fit 64 bits."""
        node = super().compose_scalar_node(anchor)
        if problem := scalar_problem(node):
            raise ComposerError(problem=problem, problem_mark=node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The mapping as it is written; keys that `<<` brings from elsewhere do not count as written here."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the key '{key.value}' stands twice in one mapping"
                    raise ComposerError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def scalar_problem(node: yaml.ScalarNode) -> str | None:
    """What is wrong with a scalar that YAML 1.1 would read as another number than it seems; None where nothing is."""
    kind, shown = node.tag.removeprefix("tag:yaml.org,2002:"), f"'{beginning(node.value)}'"
    if kind in ("int", "float") and _TO_ANOTHER_BASE.fullmatch(node.value):
        base = 60 if ":" in node.value else 8
        return f"YAML reads {shown} to the base {base}: write a number in decimal, and a text in quotes"
    if kind == "int" and _beyond_64_bits(node.value):
        return f"an integer must lie within 2**63 - 1 of 0, and {shown} does not"
    return None


def _beyond_64_bits(written: str) -> bool:
    """Whether YAML's integer is too large; one of very many digits is not even read: Python takes 4,300 at most."""
    digits = written.replace("_", "").lstrip("+-")
    return len(digits) > len(f"0b{LARGEST_INTEGER:b}") or int(digits, 0) > LARGEST_INTEGER


def load_config(path: Path | None, changes: Mapping[str, Any] | None = None) -> Config:
    """A configuration from a YAML file (the defaults without one), with top-level values replaced by `changes`.

    Raises:
        ConfigError: the file cannot be read, or holds an unknown key or a bad value; the message names the place.
    """
    values: Any = {}
    if path is not None:
        try:
            values = yaml.load(path.read_text("utf-8"), Loader=_Loader)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or no such date
            mark = getattr(error, "problem_mark", None)
            line = f" (line {mark.line + 1})" if mark else ""
            said = getattr(error, "strerror", None) or str(error)  # an OSError's text names the path again
            raise ConfigError(f"cannot read {path}: {said.splitlines()[0]}{line}.") from error
        values = {} if values is None else values  # an empty file
    where = str(path or "the command line")
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must hold a mapping, not {type(values).__name__}.")
    return checked(Config, values | {k: v for k, v in (changes or {}).items() if v is not None}, where)


def checked(schema: type[_Schema], values: Mapping[str, Any], where: str) -> _Schema:
    """Values as a section of a schema; `where` they come from begins the sentence that refuses them.

    Raises:
        ConfigError: an unknown key or a bad value; the message names the place.
    """
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error, schema)}") from error
    except CoragError as error:
        raise ConfigError(f"{where}: {error}") from error


def _known_keys(schema: type[BaseModel]) -> set[str]:
    """Every key of the schema, at any level: its sections are defined beside it."""
    sections = [section for section in _below(Section) if section.__module__ == schema.__module__]
    embedded = [SearchParams, Chunking, TokenVectorFormat, *(type(params) for params in DEFAULT_PARAMS.values())]
    return {key for section in sections for key in section.model_fields} | {
        field.name for section in embedded for field in dataclasses.fields(section)
    }


def _below(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for kind in section.__subclasses__():
        yield kind
        yield from _below(kind)


def _first_problem(error: ValidationError, schema: type[BaseModel]) -> str:
    """The first problem as one sentence: where it is, what came, and the nearest known key."""
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"]]
    if parts[2:3] == ["strategy"]:  # methods.NAME.strategy: pydantic puts the strategy's kind into the path
        del parts[3:4]
    place = ".".join(parts)
    if first["type"] == "union_tag_not_found":
        return f"the key '{place}.kind' is missing: one of {', '.join(sorted([*DEFAULT_PARAMS, 'policy_tree']))}."
    if first["type"] == "union_tag_invalid":
        return f"'{place}.kind': {wrong_choice('strategy', first['ctx']['tag'], first['ctx']['expected_tags'])}"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        typed = str(first["loc"][-1])
        if len(parts) > 1 and typed in schema.model_fields:
            return f"unknown key '{place}'; `{typed}` belongs at the top level."
        here = [key for key in schema.model_fields if len(parts) == 1 and key.startswith(typed)]
        close = here or difflib.get_close_matches(typed, _known_keys(schema) - {typed}, n=1)
        return f"unknown key '{place}'; " + (f"did you mean '{close[0]}'?" if close else "remove it.")
    return value_problem(place, first)
