"""What Ray Serve accepts of any application's file and what then does not work, works at times, or costs more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray.serve.config import AutoscalingConfig
from ray.serve.schema import HTTPOptionsSchema, ServeApplicationSchema

from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.source import Source, dotted

EVERY_INTERFACE = ("0.0.0.0", "::")


def rule_findings(source: Source) -> Iterator[Finding]:
    """Findings about applications, their deployments and the environment of their processes."""
    yield from _doubled(source, ("applications",), "name", default_of(ServeApplicationSchema, "name"))
    yield from _doubled(source, ("applications",), "route_prefix", default_of(ServeApplicationSchema, "route_prefix"))
    yield from _environment(source)
    for application, _ in source.mappings(("applications",)):
        yield from _doubled(source, (*application, "deployments"), "name", None)
        for deployment, _ in source.mappings((*application, "deployments")):
            yield from _replicas(source, deployment)
            yield from _delays(source, deployment)
            yield from _queues(source, deployment)
            yield from gpu_findings(source, (*deployment, "ray_actor_options", "num_gpus"))


def default_of(model: Any, key: str) -> Any:
    """What Ray takes where the file leaves the key out."""
    return model.model_fields[key].default


def number(value: Any) -> float | None:
    """The value, None where it is none to compare: another check tells of it."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def host_of(source: Source) -> tuple[Place, Any]:
    """The address that Serve's proxies bind, and where it says so."""
    options = source.mapping(("http_options",))
    return ("http_options", "host"), options.get("host", default_of(HTTPOptionsSchema, "host"))


def _doubled(source: Source, place: Place, key: str, default: Any) -> Iterator[Finding]:
    """Entries of a list that share what must be their own; null, as a route, may come repeatedly."""
    first: dict[Any, Place] = {}
    for entry, values in source.mappings(place):
        value = values.get(key, default)
        if not isinstance(value, str):
            continue
        earlier = first.setdefault(value, entry)
        if earlier != entry:
            line = source.lines[source.existing((*earlier, key))]
            shown = f"'{value}'" + ("" if key in values else ", the default,")
            yield source.error((*entry, key), f"{key} {shown} stands in line {line} already: give each its own.")


def _environment(source: Source) -> Iterator[Finding]:
    """Values that YAML does not read as text: Ray fails on them late, or when the controller comes up again."""
    for place in source.lines:
        value = source.at(place)
        if place[-3:-1] == ("runtime_env", "env_vars") and not isinstance(value, str):
            said = f"'{dotted(place)}' is read as {_kind(value)}, and the environment holds text"
            yield source.error(place, f'{said}: write "{source.written.get(place, "")}", with the quotes.')


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"the {type(value).__name__} {value}"


def _replicas(source: Source, deployment: Place) -> Iterator[Finding]:
    """Bounds that contradict each other, defaults of what is left out included."""
    place = (*deployment, "autoscaling_config")
    config = source.mapping(place)
    if not config:
        return
    is_auto = source.mapping(deployment).get("num_replicas") == "auto"
    usual = AutoscalingConfig.default() if is_auto else AutoscalingConfig()
    least = number(config.get("min_replicas", usual.min_replicas))
    most = number(config.get("max_replicas", usual.max_replicas))
    first = number(config.get("initial_replicas"))
    if least is None or most is None:
        return
    shown = f"{most:g}" if "max_replicas" in config else f"{most:g}, the default"
    if least > most:
        said = f"min_replicas {least:g} exceeds max_replicas {shown}: raise max_replicas or lower min_replicas."
        yield source.error((*place, "min_replicas"), said)
    elif first is not None and not least <= first <= most:
        said = f"initial_replicas {first:g} lies outside min_replicas {least:g} and max_replicas {shown}"
        yield source.error((*place, "initial_replicas"), f"{said}: bring it between them.")


def _delays(source: Source, deployment: Place) -> Iterator[Finding]:
    """Delays below the window: a decision looks at load from before the last one, and replicas come and go in turn."""
    place = (*deployment, "autoscaling_config")
    config = source.mapping(place)
    if not config:
        return
    window_s = number(config.get("look_back_period_s", default_of(AutoscalingConfig, "look_back_period_s")))
    for key in ("upscale_delay_s", "downscale_delay_s", "downscale_to_zero_delay_s"):
        delay_s = number(config.get(key, default_of(AutoscalingConfig, key)))
        if window_s is not None and delay_s is not None and delay_s < window_s:
            place_said = key if key in config else "look_back_period_s"
            said = f"{key} {delay_s:g} is below look_back_period_s {window_s:g}, so replicas come and go in turn"
            yield source.error((*place, place_said), f"{said}: raise the delay or lower the window.")
    report_s = number(config.get("metrics_interval_s", default_of(AutoscalingConfig, "metrics_interval_s")))
    if window_s is not None and report_s is not None and window_s <= report_s:
        said = f"look_back_period_s {window_s:g} is no longer than the {report_s:g} s between two reports of load"
        yield source.warning((*place, "look_back_period_s"), f"{said}: a later Ray will refuse that, so raise it.")


def _queues(source: Source, deployment: Place) -> Iterator[Finding]:
    """What a replica takes at once against what it batches, what it is to have, and what may wait."""
    options = source.mapping(deployment)
    taken = number(options.get("max_ongoing_requests"))
    if taken is None:
        return  # the code says it, which no check knows
    at = (*deployment, "max_ongoing_requests")
    batching = source.mapping((*deployment, "user_config"))
    batch = number(batching.get("max_batch_size"))
    if batch is not None:
        wanted = batch * (number(batching.get("max_concurrent_batches")) or 1)
        if wanted > taken:
            said = f"max_ongoing_requests {taken:g} lets no batch of max_batch_size {batch:g} fill"
            yield source.error(at, f"{said}: raise it to {wanted:g} or more.")
    config = source.mapping((*deployment, "autoscaling_config"))
    target = number(config.get("target_ongoing_requests", default_of(AutoscalingConfig, "target_ongoing_requests")))
    if config and target is not None and target > taken:
        said = f"max_ongoing_requests {taken:g} is below target_ongoing_requests {target:g}"
        yield source.error(at, f"{said}: requests wait before a replica is added, so raise it or lower the target.")
    queued = number(options.get("max_queued_requests"))
    if queued is not None and 0 < queued < taken:
        said = f"max_queued_requests {queued:g} refuses a burst that one replica takes at once ({taken:g})"
        yield source.error((*deployment, "max_queued_requests"), f"{said}: raise it to {taken:g} or more, or write -1.")


def gpu_findings(source: Source, place: Place) -> Iterator[Finding]:
    """A share of GPUs that Ray refuses when it makes the replica, or that leaves a part of each GPU to nobody."""
    gpus = number(source.at(place))
    if gpus is None or gpus <= 0 or float(gpus).is_integer():
        return
    if gpus > 1:
        yield source.error(place, f"'{dotted(place)}' is {gpus:g}: Ray takes whole GPUs or a fraction of one.")
        return
    replicas = int(1 / gpus + 1e-9)
    left = 1 - replicas * gpus
    if left > gpus / 10:
        said = f"'{dotted(place)}' is {gpus:g}: a GPU holds {replicas}, and {left:.2g} of it is left over"
        yield source.warning(place, f"{said}; write {1 / replicas:.4g} (which reserves no memory of it).")
