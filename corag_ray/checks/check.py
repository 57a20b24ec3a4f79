"""`corag check`: which checks a file gets, and all that they find."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from corag_ray.checks.application import application_findings
from corag_ray.checks.cluster import cluster_findings
from corag_ray.checks.finding import Finding
from corag_ray.checks.fit import fit_findings
from corag_ray.checks.serve_keys import key_findings
from corag_ray.checks.serve_rules import rule_findings
from corag_ray.checks.serve_values import value_findings
from corag_ray.checks.source import Source, read_source

SERVE_KEYS = ("applications", "proxy_location", "http_options")
CLUSTER_KEYS = ("cluster_name", "provider", "available_node_types")


def check_files(paths: Iterable[Path]) -> list[Finding]:
    """What is found in Serve configs and cluster files, and in each cluster beside the Serve configs; by file and line.

    Raises:
        ConfigError: a file cannot be read.
    """
    found: list[Finding] = []
    serving: list[Source] = []
    clusters: list[Source] = []
    order = list(dict.fromkeys(paths))
    for path in order:
        source, findings = read_source(path)
        found += findings
        if source is None:
            continue
        if any(key in source.mapping(()) for key in CLUSTER_KEYS):
            clusters.append(source)
            found += cluster_findings(source)
        elif any(key in source.mapping(()) for key in SERVE_KEYS):
            serving.append(source)
            found += serve_findings(source)
        else:
            said = "this is no Serve config, which has `applications`, and no cluster file, which has `provider`"
            found.append(source.error((), f"{said}: name one of these."))
    if serving:
        found += [finding for cluster in clusters for finding in fit_findings(cluster, serving)]
    return sorted(dict.fromkeys(found), key=lambda finding: (order.index(finding.path), finding.line))


def serve_findings(source: Source) -> list[Finding]:
    """Everything that is found in a Serve config by itself."""
    found = [*key_findings(source), *rule_findings(source), *application_findings(source)]
    return [*found, *value_findings(source, found)]
