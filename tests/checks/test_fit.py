"""A Serve config beside a cluster: what replicas need and no node has, and nodes that nothing needs."""

import pytest
from test_cluster_file import QUIET

SERVE = "http_options: {host: 127.0.0.1}\napplications:\n- import_path: corag_ray.serving.app:build\n"
GPU_GROUP = QUIET.replace("    resources: {CPU: 4}\nsetup", "    resources: {CPU: 4, GPU: 1, fast: 2}\nsetup")


def beside(said, cluster, serve):
    """Findings of the two files: lines of the cluster as they are, of the Serve config behind its name."""
    return [one.rsplit("/", 1)[-1] if "other.yaml" in one.split(": ")[0] else one for one in said(cluster, serve)]


def test_the_defaults_fit_nodes_with_cpus(said):
    assert beside(said, QUIET, SERVE) == []


def test_a_replica_that_no_node_can_hold_is_an_error_where_it_is_asked_for(said):
    serve = SERVE + "  args:\n    deployments:\n      generator: {num_gpus: 1}\n"
    [found] = beside(said, QUIET, serve)
    assert found.startswith(
        "other.yaml:5: error: a replica of 'generator' needs 0.1 CPU, 1 GPU, which no node type of file.yaml"
    )
    assert beside(said, GPU_GROUP, serve) == []


def test_resources_must_be_on_one_node(said):
    serve = SERVE.replace("corag_ray.serving.app:build", "shop:app") + "  deployments:\n"
    option = "  - {{name: till, ray_actor_options: {{num_cpus: {0}, num_gpus: 1, resources: {{fast: {1}}}}}}}\n"
    assert beside(said, GPU_GROUP, serve + option.format(4, 2)) == []
    [found] = beside(said, GPU_GROUP, serve + option.format(5, 2))
    assert found.startswith("other.yaml:5: error: a replica of 'till' needs 5 CPU, 1 GPU, 2 fast, which no node type")


def test_a_deployment_of_others_takes_a_cpu_by_default(said):
    serve = SERVE.replace("corag_ray.serving.app:build", "shop:app") + "  deployments: [{name: till}]\n"
    little = QUIET.replace("{CPU: 4}", "{CPU: 0}")
    [found] = beside(said, little, serve)
    assert "a replica of 'till' needs 1 CPU, which" in found


def test_more_than_all_nodes_together_have_at_the_start_is_an_error(said):
    serve = SERVE + "  args: {deployments: {driver: {min_replicas: 4, max_replicas: 4, num_cpus: 3}}}\n"
    [found] = beside(said, QUIET, serve)  # 12 CPUs and a little on a head of 4 and two nodes of 4
    assert found.startswith("2: error: the replicas at the start need 12.")
    assert "CPU, and all nodes together have 12 at most: raise max_workers, or lower min_replicas." in found
    assert beside(said, QUIET.replace("    max_workers: 2", "    max_workers: 3"), serve) == []


def test_serves_own_options_count_instead_of_ours(said):
    own = (
        "  deployments:\n  - {name: generator, ray_actor_options: {num_gpus: 1}, autoscaling_config: {min_replicas: 3,"
    )
    serve = SERVE + own + " max_replicas: 3}}\n"
    found = beside(said, GPU_GROUP, serve)
    assert any("the replicas at the start need 3 GPU, and all nodes together have 2 at most" in one for one in found)


@pytest.mark.parametrize(
    ("least", "finding"),
    [
        (
            1,
            "14: error: nothing in other.yaml asks for GPU or fast, which is what 'work' is there for: its 1 nodes",
        ),
        (
            0,
            "14: warning: nothing in other.yaml asks for GPU or fast, which is what 'work' is there for: it will not",
        ),
    ],
)
def test_special_nodes_that_nothing_asks_for_are_an_error_if_they_are_paid_for(said, least, finding):
    [found] = beside(said, GPU_GROUP.replace("min_workers: 1", f"min_workers: {least}"), SERVE)
    assert found.startswith(finding)


def test_two_serve_configs_are_taken_together(said):
    other = "http_options: {host: localhost}\napplications:\n- import_path: shop:app\n  deployments:\n"
    other += "  - {name: till, ray_actor_options: {num_gpus: 1}}\n"
    assert said(GPU_GROUP, SERVE, other) == []


def test_node_types_that_write_no_resources_may_have_anything(said):
    serve = SERVE + "  args: {deployments: {generator: {num_gpus: 1}}}\n"
    assert beside(said, QUIET.replace("resources: {CPU: 4}\nsetup", "resources: {}\nsetup"), serve) == []


def test_a_serve_config_that_is_refused_is_not_counted(said):
    [found] = beside(said, QUIET, SERVE + "  args: {confg: 1}\n")
    assert "unknown key 'confg'" in found
