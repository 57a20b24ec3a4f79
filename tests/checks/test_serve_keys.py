"""Keys that Ray Serve ignores are found at every level, by Ray's own models, with what was meant."""

import pytest

IGNORED = "and would ignore it;"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("aplications: []", f"2: error: Ray Serve knows no key 'aplications' {IGNORED} did you mean 'applications'?"),
        (
            "max_ongoing_requests: 5",
            f"2: error: Ray Serve knows no key 'max_ongoing_requests' {IGNORED} it belongs under"
            " `applications.deployments`.",
        ),
        ("http_options: {hots: x}", "'http_options.hots' and would ignore it; did you mean 'host'?"),
        ("http_options: {qqq: x}", "'http_options.qqq' and would ignore it; remove it."),
        ("http_options: {location: HeadOnly}", "it is of an earlier version: write `proxy_location` at the top level."),
        ("http_options: {proxy_location: HeadOnly}", "it belongs at the top level."),
        ("grpc_options: {prt: 1}", "'grpc_options.prt' and would ignore it; did you mean 'port'?"),
        ("logging_config: {level: INFO}", "'logging_config.level' and would ignore it; did you mean 'log_level'?"),
        ("tracing_config: {enable: true}", "'tracing_config.enable' and would ignore it; did you mean 'enabled'?"),
        ("controller_options: {runtime: {}}", "'controller_options.runtime' and would ignore it; did you mean"),
        (
            "controller_options: {runtime_env: {env_var: {}}}",
            "2: error: Ray knows no key 'controller_options.runtime_env.env_var' and would ignore it; did you mean",
        ),
    ],
)
def test_unknown_keys_above_the_applications(said, text, finding):
    found = said(f"applications: [{{import_path: 'shop:app'}}]\n{text}\n")
    assert any(finding in one for one in found), found


@pytest.mark.parametrize(
    ("options", "place", "advice"),
    [
        ("num_replica: 2", "num_replica", "did you mean 'num_replicas'?"),
        ("max_concurrent_queries: 2", "max_concurrent_queries", "earlier version: write `max_ongoing_requests`."),
        ("min_replicas: 2", "min_replicas", "it belongs under `applications.deployments.autoscaling_config`."),
        ("autoscaling_config: {max_replica: 2}", "autoscaling_config.max_replica", "did you mean 'max_replicas'?"),
        (
            "autoscaling_config: {target_num_ongoing_requests_per_replica: 2}",
            "autoscaling_config.target_num_ongoing_requests_per_replica",
            "earlier version: write `target_ongoing_requests` under `autoscaling_config`.",
        ),
        ("autoscaling_config: {policy: {function: x}}", "autoscaling_config.policy.function", "'policy_function'?"),
        ("ray_actor_options: {num_gpu: 1}", "ray_actor_options.num_gpu", "did you mean 'num_gpus'?"),
        ("ray_actor_options: {runtime_env: {pips: [x]}}", "ray_actor_options.runtime_env.pips", "did you mean 'pip'?"),
        ("request_router_config: {router_class: x}", "request_router_config.router_class", "'request_router_class'?"),
        ("backpressure_config: {status: 429}", "backpressure_config.status", "did you mean 'status_code'?"),
        ("deployment_actors: [{nme: x}]", "deployment_actors.0.nme", "did you mean 'name'?"),
    ],
)
def test_unknown_keys_of_a_deployment(serve_said, options, place, advice):
    found = [one for one in serve_said(options) if f"'applications.0.deployments.0.{place}' and would ignore it" in one]
    assert len(found) == 1
    assert found[0].startswith("5: error: Ray")
    assert found[0].endswith(advice)


def test_a_key_that_ray_forbids_itself_is_told_once(serve_said):
    assert len(serve_said("backpressure_config: {status: 429}")) == 1


@pytest.mark.parametrize("key", ["metrics_interval_s", "smoothing_factor", "downscale_smoothing_factor"])
def test_a_key_that_rays_model_calls_deprecated_is_a_warning(serve_said, key):
    [found] = serve_said(f"autoscaling_config: {{{key}: 2}}")
    assert found.startswith(f"5: warning: 'applications.0.deployments.0.autoscaling_config.{key}' is deprecated, and a")


def test_free_mappings_may_hold_any_key(serve_said, said):
    assert serve_said("user_config: {a: 1}, ray_actor_options: {resources: {mine: 1}}") == []
    assert said("applications: [{import_path: 'shop:app', args: {x: 1}}]\nhttp_options: {host: localhost}\n") == []
