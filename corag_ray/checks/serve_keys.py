"""Keys of a Serve config that Ray Serve does not know, and would ignore without a word: told by Ray's own models."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel
from ray.runtime_env import RuntimeEnv
from ray.serve.schema import ServeDeploySchema

from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.source import Source, dotted

DEPRECATED = "[DEPRECATED]"
"""How Ray's models begin the description of a field that is to go."""

REMOVED = {
    "max_concurrent_queries": "write `max_ongoing_requests`",
    "target_num_ongoing_requests_per_replica": "write `target_ongoing_requests` under `autoscaling_config`",
    "target_num_ongoing_requests": "write `target_ongoing_requests` under `autoscaling_config`",
    "location": "write `proxy_location` at the top level",
    "middlewares": "give them to the ingress's FastAPI application",
    "root_url": "write `root_path`",
}
"""Keys of earlier versions, which Ray's models no longer name, and what stands for them now."""


def key_findings(source: Source, model: type[BaseModel] = ServeDeploySchema, place: Place = ()) -> Iterator[Finding]:
    """Unknown, removed and deprecated keys from `place` downwards, where the schema is `model`."""
    for key, value in source.mapping(place).items():
        at = (*place, key)
        field = model.model_fields.get(key)
        if field is None:
            advice = _advice(key, model)
            yield source.error(at, f"Ray Serve knows no key '{dotted(at)}' and would ignore it; {advice}")
            continue
        described = field.description or ""
        if described.startswith(DEPRECATED):
            said = " ".join(described.removeprefix(DEPRECATED).split()).rstrip(".")
            yield source.warning(at, f"'{dotted(at)}' is deprecated, and a later Ray will not know it: {said}.")
        if key == "runtime_env" and isinstance(value, dict):
            yield from _environment_keys(source, at)
        for inner in _models_in(field.annotation):
            yield from key_findings(source, inner, at)
            for entry, _ in source.mappings(at):
                yield from key_findings(source, inner, entry)


def _environment_keys(source: Source, place: Place) -> Iterator[Finding]:
    """Ray only logs what it does not know in a runtime environment."""
    known = sorted(key for key in RuntimeEnv.known_fields if not key.startswith("_"))
    for key in source.mapping(place):
        if key not in RuntimeEnv.known_fields:
            at = (*place, key)
            yield source.error(at, f"Ray knows no key '{dotted(at)}' and would ignore it; {nearest(key, known)}")


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names: of `Optional[List[Union[Dict, M]]]` that is M."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _advice(key: Any, model: type[BaseModel]) -> str:
    if key in REMOVED:
        return f"it is of an earlier version: {REMOVED[key]}."
    if homes := _homes(ServeDeploySchema).get(key):
        return f"it belongs {' or '.join(homes)}."
    return nearest(key, model.model_fields)


def nearest(key: Any, known: Iterable[str]) -> str:
    """What to do about an unknown key: the end of a sentence."""
    close = difflib.get_close_matches(str(key), list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else "remove it."


def _homes(model: type[BaseModel], place: str = "") -> dict[str, list[str]]:
    """By key, in which places the schema has it."""
    homes = {key: [f"under `{place}`" if place else "at the top level"] for key in model.model_fields}
    for key, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            for name, places in _homes(inner, f"{place}.{key}" if place else key).items():
                homes.setdefault(name, []).extend(places)
    return homes
