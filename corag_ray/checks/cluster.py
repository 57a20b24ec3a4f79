"""A file of Ray's cluster launcher: what Ray's schema and validator refuse, and what they take in silence."""

from __future__ import annotations

import copy
import difflib
import io
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import jsonschema
import ray.autoscaler
from ray.autoscaler._private.util import prepare_config, validate_config

from corag_ray.checks.cluster_versions import security_findings, version_findings
from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.serve_keys import nearest
from corag_ray.checks.serve_rules import number
from corag_ray.checks.source import Source, dotted
from corag_ray.problems import beginning

REMOVED = {
    "initial_workers": "write `min_workers` in the node types",
    "min_workers": "write it in the node types",
    "autoscaling_mode": "write `upscaling_speed`",
    "target_utilization_fraction": "remove it",
    "head_node": "write `head_node_type` and `available_node_types`",
    "worker_nodes": "write `available_node_types`",
}
"""Keys of earlier versions at the top level, and what stands for them."""

ALIKE = 0.8
"""From here on a provider's key counts as mistyped: providers take keys that Ray's schema does not name."""


def cluster_findings(source: Source) -> list[Finding]:
    """Everything; Ray's own validator has the last word on a file in which no error was found."""
    found = [*_schema(source), *_workers(source), *_head(source)]
    found += [*version_findings(source), *security_findings(source)]
    return found if any(finding.is_error for finding in found) else [*found, *_validated(source)]


def node_types(source: Source) -> dict[str, Mapping[str, Any]]:
    """By name, the node types that the file defines."""
    types = source.mapping(("available_node_types",))
    return {name: values for name, values in types.items() if isinstance(values, dict)}


def ray_schema() -> dict[str, Any]:
    """Ray's own JSON schema of these files."""
    schema: dict[str, Any] = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text("utf-8"))
    return schema


def _schema(source: Source) -> Iterator[Finding]:
    schema = ray_schema()
    for problem in jsonschema.Draft7Validator(schema).iter_errors(source.value):
        place = tuple(problem.absolute_path)
        if problem.validator != "additionalProperties":
            yield source.error(place, _sentence(place, problem))
            continue
        known = problem.schema.get("properties", {})
        for key in set(problem.instance) - set(known):
            advice = f"{REMOVED[key]}." if not place and key in REMOVED else nearest(key, known)
            at = (*place, key)
            yield source.error(at, f"Ray's cluster launcher refuses the key '{dotted(at)}'; {advice}")
    provider_keys = schema["properties"]["provider"]["properties"]
    for key in set(source.mapping(("provider",))) - set(provider_keys):
        if close := difflib.get_close_matches(key, provider_keys, n=1, cutoff=ALIKE):
            said = f"Ray's schema names no key 'provider.{key}', and would take it"
            yield source.warning(("provider", key), f"{said}; did you mean '{close[0]}'?")


def _sentence(place: Place, problem: Any) -> str:
    if problem.validator == "required":
        missing = next(key for key in problem.validator_value if key not in problem.instance)
        return f"the key '{dotted((*place, missing))}' is missing."
    shown = f"'{dotted(place) or 'the file'}'"
    if problem.validator == "type":
        return f"{shown} must be of type {problem.validator_value}, found {beginning(problem.instance)!r}."
    return f"{shown}: {beginning(problem.message)}."


def _workers(source: Source) -> Iterator[Finding]:
    """Numbers of nodes that contradict each other; a type's `max_workers` is by default the whole cluster's."""
    whole = number(source.mapping(()).get("max_workers"))
    least_of_all = 0.0
    for name, values in node_types(source).items():
        place = ("available_node_types", name)
        least, most = number(values.get("min_workers", 0)), number(values.get("max_workers"))
        least_of_all += least or 0
        if least is not None and most is not None and least > most:
            said = f"min_workers {least:g} of '{name}' exceeds its max_workers {most:g}: raise max_workers."
            yield source.error((*place, "min_workers"), said)
        if whole is not None and most is not None and most > whole:
            said = f"max_workers {most:g} of '{name}' exceeds the {whole:g} of the whole cluster, which holds"
            yield source.warning((*place, "max_workers"), f"{said}: lower it, or raise the other.")
    if whole is not None and least_of_all > whole:
        said = f"the node types' min_workers come to {least_of_all:g}, and max_workers allows {whole:g}: raise it."
        yield source.error(("max_workers",), said)


def _head(source: Source) -> Iterator[Finding]:
    types, head = node_types(source), source.at(("head_node_type",))
    if not types:
        return
    if head is None:
        said = f"the key 'head_node_type' is missing: name the head's of {', '.join(types)}."
        yield source.error(("available_node_types",), said)
    elif head not in types:
        yield source.error(("head_node_type",), f"there is no node type '{head}'; {nearest(head, types)}")


def _validated(source: Source) -> Iterator[Finding]:
    """What Ray does with the file before it asks a cloud: its defaults, its checks of them, its schema once more."""
    try:
        with _silence():
            validate_config(prepare_config(copy.deepcopy(source.value)))
    except (
        *(AssertionError, AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError),
        *(click.ClickException, jsonschema.ValidationError),
    ) as error:
        said = error.message if isinstance(error, click.ClickException | jsonschema.ValidationError) else str(error)
        yield source.error((), f"Ray's own validator refuses the file: {' '.join(said.split()).rstrip('.')}.")


@contextmanager
def _silence() -> Iterator[None]:
    """Without what the launcher prints and logs of the defaults that it takes."""
    log = logging.getLogger("ray.autoscaler")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        log.setLevel(level)
