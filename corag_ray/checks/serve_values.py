"""Values of a Serve config that Ray's own models refuse, now instead of when the application is deployed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ray.serve.config import AutoscalingConfig, GangSchedulingConfig, RequestRouterConfig
from ray.serve.schema import ServeDeploySchema

from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.source import Source, dotted
from corag_ray.problems import value_problem

OPEN_MAPPINGS: Mapping[str, type[BaseModel]] = {
    "autoscaling_config": AutoscalingConfig,
    "gang_scheduling_config": GangSchedulingConfig,
    "request_router_config": RequestRouterConfig,
}
"""Keys of a deployment under which `ServeDeploySchema` takes any mapping, and the model that reads it afterwards."""

IMPORTED = ("policy", "request_router_class")
"""Left out of them: these models import what stands there."""


def value_findings(source: Source, said: list[Finding]) -> Iterator[Finding]:
    """What Ray's models refuse; not where `said` has an error already, or has one below."""
    whole = Source(source.path, copy.deepcopy(source.value), source.lines, source.written)
    for application, _ in whole.mappings(("applications",)):
        for deployment, options in whole.mappings((*application, "deployments")):
            for key, model in OPEN_MAPPINGS.items():
                refused = list(_refused(source, model, _read(options, key), (*deployment, key), said))
                if refused:
                    del options[key]  # in the whole it would be refused again, as a mapping without places
                yield from refused
    yield from _refused(source, ServeDeploySchema, whole.value, (), said)


def _read(options: dict[str, Any], key: str) -> Any:
    """What stands under the key as its model will read it, and nothing in it that would be imported."""
    values = options.get(key)
    if not isinstance(values, dict):
        return None
    for name in IMPORTED:
        values.pop(name, None)
    is_auto = key == "autoscaling_config" and options.get("num_replicas") == "auto"
    return {"max_replicas": AutoscalingConfig.default().max_replicas, **values} if is_auto else values


def _refused(
    source: Source, model: type[BaseModel], values: Any, place: Place, said: list[Finding]
) -> Iterator[Finding]:
    """Each place once: pydantic complains of a union's value for every member."""
    told: set[Place] = set()
    if values is None:
        return
    for at, sentence in _problems(source, model, values, place):
        if at not in told and not _is_said(at, said):
            told.add(at)
            yield source.error(at, sentence)


def _problems(source: Source, model: type[BaseModel], values: Any, place: Place) -> Iterator[tuple[Place, str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated fields, which `serve_keys` finds
            model.model_validate(copy.deepcopy(values))  # Ray's validators write into what they are given
    except ValidationError as error:
        for problem in error.errors():
            at = source.existing((*place, *problem["loc"]))  # a union's members stand in pydantic's path
            missing = (*at, problem["loc"][-1]) if problem["type"] == "missing" else at
            yield at, _sentence(dotted(missing), problem)
    except (AttributeError, NotImplementedError, TypeError, ImportError) as error:
        yield place, f"Ray cannot read '{dotted(place) or source.path.name}': {_on_one_line(str(error))}"


def _sentence(place: str, problem: ErrorDetails) -> str:
    if problem["type"] == "value_error":
        return f"'{place}': {_on_one_line(str(problem['ctx']['error']))}"
    return value_problem(place, problem)


def _on_one_line(said: str) -> str:
    return " ".join(said.split()).rstrip(".") + "."


def _is_said(place: Place, said: list[Finding]) -> bool:
    """Whether an error is known at the place or below it."""
    return any(finding.is_error and finding.place[: len(place)] == place for finding in said)
