"""The preflight: the sum is shown, and a plan that would hang is refused."""

import pytest

from corag_ray.batch.preflight import check_cpus
from corag_ray.config import Plan
from corag_ray.errors import ConfigError


def sum_of(caplog, stages, cpus_an_actor, cluster):
    """What is logged of a plan that passes."""
    with caplog.at_level("INFO", logger="corag_ray.batch.preflight"):
        check_cpus(stages, Plan(cpus_an_actor=cpus_an_actor), cluster)
    [record] = caplog.messages
    return record


def test_the_sum_is_shown_by_stage_with_the_share_of_ray_data(caplog):
    said = sum_of(caplog, {"select": 2, "generate": 1}, 0.5, 4)
    assert said == "2 select x 0.5 + 1 generate x 0.5 + 1 for Ray Data's tasks = 2.5 CPUs, of 4"


@pytest.mark.parametrize(("actors", "cpus_an_actor", "cluster"), [(2, 0.5, 2), (3, 0.1, 1.3), (1, 1, 2), (7, 0.1, 1.7)])
def test_a_plan_that_fits_exactly_passes_for_fractions_too(caplog, actors, cpus_an_actor, cluster):
    said = sum_of(caplog, {"embed": actors}, cpus_an_actor, cluster)
    assert said.endswith(f"= {cluster:g} CPUs, of {cluster:g}")


@pytest.mark.parametrize(
    ("stages", "cluster"), [({"a": 1, "b": 1}, 2.9), ({"a": 1}, 1), ({"a": 20}, 20), ({"a": 1}, 0)]
)
def test_a_plan_that_leaves_no_cpu_for_ray_data_is_refused(stages, cluster):
    with pytest.raises(ConfigError, match="would hang"):
        check_cpus(stages, Plan(cpus_an_actor=1), cluster)


def test_the_refusal_shows_the_sum_the_cluster_and_what_to_change():
    with pytest.raises(ConfigError) as caught:
        check_cpus({"select": 1, "generate": 1}, Plan(cpus_an_actor=1), 2)
    message = str(caught.value)
    assert "1 select x 1 + 1 generate x 1 + 1 for Ray Data's tasks = 3 CPUs, and the cluster has 2" in message
    assert "plan.cpus_an_actor" in message
    assert "\n" not in message
