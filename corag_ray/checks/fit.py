"""A Serve config beside a cluster: can every replica have what it asks for, and is what is paid for asked for?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from corag_ray.checks.application import BUILDER, scales, settings_of
from corag_ray.checks.cluster import node_types
from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.serve_rules import number
from corag_ray.checks.source import Source
from corag_ray.errors import ConfigError

COMMON = ("CPU", "memory", "object_store_memory")
"""What every node has: no node is started for these alone."""

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Demand:
    """A deployment: what each of its replicas asks of one node, and how many there are from the beginning."""

    source: Source
    place: Place
    name: str
    amounts: Amounts
    least: int


@dataclass(frozen=True, slots=True)
class Group:
    """A node type that says what its nodes have; `most` nodes of it there can be."""

    name: str
    amounts: Amounts
    least: int
    most: int


def fit_findings(cluster: Source, serving: list[Source]) -> Iterator[Finding]:
    """What the deployments of `serving`, all together, ask of the cluster that it has not, and what it has in vain.

    Node types without `resources` may have anything: with one of those, nothing is said to be missing.
    """
    demands = [demand for source in serving for demand in _demands(source)]
    groups = list(_groups(cluster))
    if groups and len(groups) == len(node_types(cluster)):
        yield from _homeless(cluster, groups, demands)
        yield from _short(cluster, groups, demands)
    files = " and ".join(source.path.name for source in serving)
    asked = {name for demand in demands for name, amount in demand.amounts.items() if amount}
    for group in groups:
        special = [name for name, amount in group.amounts.items() if amount and name not in COMMON]
        if special and not asked & set(special):
            yield _idle(cluster, group, special, files)


def _homeless(cluster: Source, groups: list[Group], demands: list[Demand]) -> Iterator[Finding]:
    homes = [group.amounts for group in groups if group.most]
    for demand in demands:
        if not any(all(home.get(name, 0) >= amount for name, amount in demand.amounts.items()) for home in homes):
            said = f"a replica of '{demand.name}' needs {_shown(demand.amounts)}, which no node type of"
            said += f" {cluster.path.name} has at once"
            yield demand.source.error(demand.place, f"{said}: add one, or ask for less.")


def _short(cluster: Source, groups: list[Group], demands: list[Demand]) -> Iterator[Finding]:
    """Resources of which the replicas at the start need more than all nodes together can have."""
    needed: dict[str, float] = defaultdict(float)
    for demand in demands:
        for name, amount in demand.amounts.items():
            needed[name] += demand.least * amount
    for name, amount in needed.items() if number(cluster.at(("max_workers",))) is not None else ():
        there = sum(group.most * group.amounts.get(name, 0) for group in groups)
        if 0 < there < amount:
            said = f"the replicas at the start need {amount:g} {name}, and all nodes together have {there:g} at most"
            yield cluster.error(("max_workers",), f"{said}: raise max_workers, or lower min_replicas.")


def _idle(cluster: Source, group: Group, special: list[str], files: str) -> Finding:
    place = ("available_node_types", group.name, "resources")
    said = f"nothing in {files} asks for {' or '.join(special)}, which is what '{group.name}' is there for"
    if group.least:
        return cluster.error(place, f"{said}: its {group.least} nodes stand idle, so write min_workers: 0.")
    return cluster.warning(place, f"{said}: it will not be started.")


def _groups(cluster: Source) -> Iterator[Group]:
    whole, head = number(cluster.at(("max_workers",))), cluster.at(("head_node_type",))
    for name, values in node_types(cluster).items():
        resources = cluster.mapping(("available_node_types", name, "resources"))
        amounts = {key: float(value) for key, value in resources.items() if number(value) is not None}
        is_head = name == head
        own = number(values.get("max_workers", 0 if is_head else whole))
        if amounts:
            limits = [limit for limit in (own, whole) if limit is not None]
            workers = int(min(limits, default=1))
            yield Group(name, amounts, int(number(values.get("min_workers")) or 0), workers + is_head)


def _demands(source: Source) -> Iterator[Demand]:
    """Of every deployment of ours, and of the others' those that the file gives options."""
    for place, application in source.mappings(("applications",)):
        options = {
            values["name"]: (at, values)
            for at, values in source.mappings((*place, "deployments"))
            if isinstance(values.get("name"), str)
        }
        if application.get("import_path") != BUILDER:
            for name, (at, values) in options.items():
                yield Demand(source, at, name, _asked(values.get("ray_actor_options")), _least(values, 1))
            continue
        try:
            known = scales(settings_of(application))
        except ConfigError:
            continue  # told already
        for name, scale in known.items():
            at, values = options.get(name, ((*place, "args", "deployments"), {}))
            own = values.get("ray_actor_options") or {"num_cpus": scale.num_cpus, "num_gpus": scale.num_gpus}
            yield Demand(source, at, name, _asked(own), _least(values, scale.min_replicas))


def _least(options: Mapping[str, Any], otherwise: int) -> int:
    config = options.get("autoscaling_config")
    if isinstance(config, dict):
        return int(number(config.get("min_replicas", 1)) or 0)
    return int(number(options.get("num_replicas")) or otherwise)


def _asked(actor_options: Any) -> dict[str, float]:
    """What Ray reserves for a replica; kinds of accelerators and memory are left out, which node types seldom write."""
    options = actor_options if isinstance(actor_options, dict) else {}
    cpus = options.get("num_cpus")
    asked = {"CPU": number(1 if cpus is None else cpus), "GPU": number(options.get("num_gpus"))}
    resources = options.get("resources")
    if isinstance(resources, dict):
        asked |= {name: number(amount) for name, amount in resources.items()}
    return {name: float(amount) for name, amount in asked.items() if amount}


def _shown(amounts: Amounts) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())
