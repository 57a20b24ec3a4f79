"""Applications of this project in a Serve config: their `args` against our own schema, and what they add up to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.serve_keys import nearest
from corag_ray.checks.serve_rules import EVERY_INTERFACE, gpu_findings, host_of, number
from corag_ray.checks.source import Source
from corag_ray.errors import ConfigError
from corag_ray.serving.settings import RerankerScale, Scale, ServingSettings, read_settings

BUILDER = "corag_ray.serving.app:build"
"""The `import_path` of our applications."""


def application_findings(source: Source) -> Iterator[Finding]:
    """Findings about every application whose builder is ours, and about who may come to them."""
    for place, values in source.mappings(("applications",)):
        if values.get("import_path") != BUILDER:
            continue
        try:
            settings = settings_of(values)
        except ConfigError as error:
            yield source.error((*place, *_place_in(str(error))), str(error))
            continue
        yield from _overrides(source, place, settings)
        yield from _host(source, place, settings)
        for name, scale in scales(settings).items():
            yield from _scale(source, (*place, "args", "deployments", *_key(name)), scale, settings)


def settings_of(application: Mapping[str, Any]) -> ServingSettings:
    """What an application's `args` say.

    Raises:
        ConfigError: they do not fit the schema; the message names the place.
    """
    args = application.get("args") or {}
    if not isinstance(args, Mapping):
        raise ConfigError("args must hold a mapping.")
    return read_settings(args)


def scales(settings: ServingSettings) -> dict[str, Scale]:
    """By the name of its deployment, every scale."""
    fixed = {name: getattr(settings.deployments, name) for name in type(settings.deployments).model_fields}
    del fixed["rerankers"]
    return {**fixed, **{f"reranker_{name}": scale for name, scale in settings.pools.items()}}


def _key(deployment: str) -> tuple[str, ...]:
    """The keys under `args.deployments` that lead to a deployment's scale."""
    reranker = deployment.removeprefix("reranker_")
    return (deployment,) if reranker == deployment else ("rerankers", reranker)


def _place_in(sentence: str) -> Place:
    """The place that a sentence of the schema names: `args.config: unknown key 'plan.thread'; ..`."""
    head = re.match(r"[\w.]+", sentence)
    quoted = re.search(r"'([^']*)'", sentence)
    parts = [part for found in (head and head[0], quoted and quoted[1]) if found for part in found.split(".")]
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _overrides(source: Source, place: Place, settings: ServingSettings) -> Iterator[Finding]:
    """Serve's own `deployments` beside ours, which stand under `args`."""
    known = scales(settings)
    for deployment, options in source.mappings((*place, "deployments")):
        name = options.get("name")
        if not isinstance(name, str):
            continue
        if name not in known:
            said = f"the application has no deployment '{name}'; {nearest(name, known)}"
            yield source.error((*deployment, "name"), said)
            continue
        if isinstance(options.get("ray_actor_options"), dict):
            said = (
                f"ray_actor_options replace all that the application sets for '{name}', its offline variables included"
            )
            advice = f"write num_cpus and num_gpus under args.deployments.{'.'.join(_key(name))}"
            yield source.warning((*deployment, "ray_actor_options"), f"{said}: {advice}.")
        queued = number(options.get("max_queued_requests"))
        burst = _calls(name, known[name], settings)
        if queued is not None and 0 < queued < burst:
            said = (
                f"max_queued_requests {queued:g} is below the {burst} calls that {settings.http.max_in_flight} requests"
            )
            said += f" in flight can send '{name}' at once"
            yield source.error((*deployment, "max_queued_requests"), f"{said}: raise it, or write -1.")


def _calls(name: str, scale: Scale, settings: ServingSettings) -> int:
    """The calls of a burst: of each request in flight one, or an expansion's parts, one for every replica."""
    parts = scale.max_replicas if isinstance(scale, RerankerScale) else 1
    return settings.http.max_in_flight * parts


def _host(source: Source, place: Place, settings: ServingSettings) -> Iterator[Finding]:
    """Whoever reaches the port is answered, where no keys are named."""
    at, host = host_of(source)
    if host not in EVERY_INTERFACE or settings.http.keys_file is not None:
        return
    said = f"Serve binds {host}" + ("" if source.at(at) else ", its default,")
    said += f" so every machine that reaches this one is answered unless {settings.http.keys_variable} holds keys"
    yield source.warning(at, f"{said}: bind 127.0.0.1, or name a file of keys in args.http.keys_file.")


def _scale(source: Source, place: Place, scale: Scale, settings: ServingSettings) -> Iterator[Finding]:
    """What the schema lets pass: each number is in its bounds, and they do not go together."""
    yield from gpu_findings(source, (*place, "num_gpus"))
    if scale.min_replicas < scale.max_replicas and scale.target_ongoing > scale.max_ongoing:
        said = f"target_ongoing {scale.target_ongoing:g} exceeds max_ongoing {scale.max_ongoing}"
        yield source.error((*place, "target_ongoing"), f"{said}: requests wait before a replica is added, so lower it.")
    if not isinstance(scale, RerankerScale):
        return
    if scale.waiting_pairs < scale.batch_pairs:
        said = (
            f"waiting_pairs {scale.waiting_pairs} is below batch_pairs {scale.batch_pairs}: no batch fills, raise it."
        )
        yield source.error((*place, "waiting_pairs"), said)
        return
    in_flight, candidates = settings.http.max_in_flight, settings.config.retrieval.num_candidates
    burst, room = in_flight * candidates, scale.waiting_pairs * max(1, scale.min_replicas)
    if room < burst:
        said = (
            f"waiting_pairs {scale.waiting_pairs} on {max(1, scale.min_replicas)} replicas is below the {burst:,} pairs"
        )
        said += f" of one expansion of {in_flight} requests in flight, {candidates} candidates each"
        yield source.error((*place, "waiting_pairs"), f"{said}: raise it, or lower http.max_in_flight.")
