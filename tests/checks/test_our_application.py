"""Applications of this project: `args` by our schema, and bounds that are each allowed and do not go together."""

import pytest

HEAD = """\
http_options: {host: 127.0.0.1}
applications:
- import_path: corag_ray.serving.app:build
"""


def of_args(said, args):
    """Findings about `args`, which begin in line 5, without the quiet head."""
    lines = "".join(f"    {line}\n" for line in args.splitlines())
    return said(f"{HEAD}  args:\n{lines}")


@pytest.mark.parametrize(
    ("args", "finding"),
    [
        ("confg: {}", "5: error: args: unknown key 'confg'; did you mean 'config'?"),
        ("http:\n  max_pair: 3", "6: error: args: unknown key 'http.max_pair'; did you mean 'max_pairs'?"),
        (
            "config:\n  seed: 1\n  budget: 3",
            "7: error: args.config: unknown key 'budget'; did you mean 'budget_tokens'?",
        ),
        ("deployments:\n  rerankers:\n    bm52: {}", "7: error: args.deployments.rerankers: unknown name 'bm52'; did"),
        ("agent:\n  method: corga", "6: error: args.agent.method: unknown name 'corga'; did you mean 'corag'?"),
        ("deployments:\n  driver: {min_replicas: 3}", "6: error: args: 'deployments.driver': min_replicas 3 exceeds"),
        ("fallback: [nobody]", "5: error: args.fallback: unknown name 'nobody'"),
    ],
)
def test_args_are_checked_by_our_schema_with_the_line_of_what_it_names(said, args, finding):
    [found] = of_args(said, args)
    assert found.startswith(finding)


def test_args_that_are_no_mapping_are_refused(said):
    found = said(HEAD + "  args: 5\n")
    assert found[0] == "4: error: args must hold a mapping."


def test_nothing_under_args_is_the_defaults(said):
    assert said(HEAD) == []


def test_another_builders_args_are_its_own_affair(said):
    assert said(HEAD.replace("corag_ray.serving.app:build", "shop:app") + "  args: {confg: 1}\n") == []


@pytest.mark.parametrize(
    ("args", "finding"),
    [
        (
            "deployments:\n  driver: {max_replicas: 2,\n    target_ongoing: 5, max_ongoing: 4}",
            "7: error: target_ongoing 5 exceeds max_ongoing 4: requests wait before a replica is added, so lower it.",
        ),
        (
            "deployments:\n  rerankers:\n    bm25: {waiting_pairs: 255}",
            "7: error: waiting_pairs 255 is below batch_pairs 256: no batch fills, raise it.",
        ),
        (  # 64 requests in flight of 60 candidates each are 3,840 pairs
            "deployments:\n  rerankers:\n    bm25: {waiting_pairs: 3839}",
            "7: error: waiting_pairs 3839 on 1 replicas is below the 3,840 pairs of one expansion of 64 requests",
        ),
        (
            "config:\n  retrieval: {num_candidates: 100}\ndeployments:\n  rerankers:\n    bm25: {waiting_pairs: 6399}",
            "9: error: waiting_pairs 6399 on 1 replicas is below the 6,400 pairs",
        ),
        (
            "deployments:\n  embedder: {num_gpus: 1.5}",
            "6: error: 'applications.0.args.deployments.embedder.num_gpus' is 1.5: Ray takes whole GPUs or a fraction",
        ),
        (
            "deployments:\n  rerankers:\n    bm25: {num_gpus: 0.4}",
            "7: warning: 'applications.0.args.deployments.reranker",
        ),
    ],
)
def test_bounds_that_do_not_go_together_are_told(said, args, finding):
    [found] = of_args(said, args)
    assert found.startswith(finding)


@pytest.mark.parametrize(
    "args",
    [
        "deployments:\n  driver: {max_replicas: 2, target_ongoing: 4, max_ongoing: 4}",
        "deployments:\n  driver: {target_ongoing: 5, max_ongoing: 4}",  # one replica: nothing is scaled
        "deployments:\n  rerankers:\n    bm25: {waiting_pairs: 3840}",
        "deployments:\n  rerankers:\n    bm25: {waiting_pairs: 1920, min_replicas: 2, max_replicas: 2}",
        "http: {max_in_flight: 4}\ndeployments:\n  rerankers:\n    bm25: {waiting_pairs: 256}",
    ],
)
def test_bounds_that_go_together_are_fine(said, args):
    assert of_args(said, args) == []


def test_a_deployment_that_the_application_does_not_have_is_refused(said):
    [found] = said(HEAD + "  deployments:\n  - name: reranker_bm52\n")
    assert found == "5: error: the application has no deployment 'reranker_bm52'; did you mean 'reranker_bm25'?"


def test_serves_own_actor_options_take_ours_away(said):
    [found] = said(HEAD + "  deployments:\n  - {name: reranker_bm25, ray_actor_options: {num_cpus: 2}}\n")
    assert found.startswith("5: warning: ray_actor_options replace all that the application sets for 'reranker_bm25'")
    assert found.endswith("write num_cpus and num_gpus under args.deployments.rerankers.bm25.")


def test_a_queue_must_hold_the_burst_of_an_expansion(said):
    args = "  args: {deployments: {rerankers: {bm25: {max_replicas: 3}}}}\n"
    options = "  deployments:\n  - {{name: {0}, max_queued_requests: {1}}}\n"
    [found] = said(HEAD + args + options.format("reranker_bm25", 191))  # 64 in flight, a part for each of 3 replicas
    assert found.startswith("6: error: max_queued_requests 191 is below the 192 calls that 64 requests in flight can")
    assert said(HEAD + args + options.format("reranker_bm25", 192)) == []
    [found] = said(HEAD + args + options.format("driver", 63))
    assert found.startswith("6: error: max_queued_requests 63 is below the 64 calls")
    assert said(HEAD + args + options.format("driver", 64)) == []
    assert said(HEAD + args + options.format("driver", -1)) == []


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            "{host: 0.0.0.0}",
            "1: warning: Serve binds 0.0.0.0 so every machine that reaches this one is answered unless",
        ),
        ("{port: 80}", "1: warning: Serve binds 0.0.0.0, its default, so every machine"),
        ('{host: "::"}', "1: warning: Serve binds :: so every machine"),
    ],
)
def test_an_open_address_without_keys_is_a_warning(said, options, finding):
    text = HEAD.replace("{host: 127.0.0.1}", options)
    [found] = said(text)
    assert found.startswith(finding)
    assert "CORAG_API_KEYS" in found
    assert said(text + "  args: {http: {keys_file: keys.txt}}\n") == []
