"""What Serve accepts of any application and what then fails or flaps: each rule, its boundary, and its line."""

import pytest


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        ("min_replicas: 3, max_replicas: 2", "min_replicas 3 exceeds max_replicas 2: raise"),
        ("min_replicas: 2", "min_replicas 2 exceeds max_replicas 1, the default: raise"),
        ("max_replicas: 4, initial_replicas: 5", "initial_replicas 5 lies outside min_replicas 1 and max_replicas 4"),
        ("min_replicas: 2, max_replicas: 4, initial_replicas: 1", "initial_replicas 1 lies outside min_replicas 2 and"),
    ],
)
def test_bounds_of_replicas_that_contradict_each_other_are_one_error(serve_said, config, finding):
    [found] = serve_said(f"autoscaling_config: {{{config}}}")
    assert found.startswith(f"5: error: {finding}")


def test_bounds_that_agree_are_fine_and_auto_has_another_default(serve_said):
    assert serve_said("autoscaling_config: {min_replicas: 2, max_replicas: 2, initial_replicas: 2}") == []
    assert serve_said("num_replicas: auto, autoscaling_config: {min_replicas: 2}") == []  # Serve's maximum is 100 then


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        ("upscale_delay_s: 5", "upscale_delay_s 5 is below look_back_period_s 30, so replicas come and go in turn"),
        ("downscale_delay_s: 29", "downscale_delay_s 29 is below look_back_period_s 30"),
        ("downscale_to_zero_delay_s: 29", "downscale_to_zero_delay_s 29 is below look_back_period_s 30"),
        ("look_back_period_s: 31", "upscale_delay_s 30 is below look_back_period_s 31"),  # its default is 30 too
    ],
)
def test_a_delay_below_the_look_back_is_an_error(serve_said, config, finding):
    [found] = serve_said(f"autoscaling_config: {{{config}}}")
    assert found.startswith(f"5: error: {finding}")


def test_a_delay_as_long_as_the_look_back_is_fine(serve_said):
    assert serve_said("autoscaling_config: {upscale_delay_s: 12, downscale_delay_s: 12, look_back_period_s: 12}") == []


def test_a_look_back_no_longer_than_a_report_is_a_warning(serve_said):
    [found] = serve_said("autoscaling_config: {look_back_period_s: 10}")
    assert found.startswith("5: warning: look_back_period_s 10 is no longer than the 10 s between two reports of load")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            "max_ongoing_requests: 7, user_config: {max_batch_size: 8}",
            "max_ongoing_requests 7 lets no batch of max_batch_size 8 fill: raise it to 8 or more.",
        ),
        (
            "max_ongoing_requests: 15, user_config: {max_batch_size: 8, max_concurrent_batches: 2}",
            "max_ongoing_requests 15 lets no batch of max_batch_size 8 fill: raise it to 16 or more.",
        ),
        (
            "max_ongoing_requests: 7, autoscaling_config: {target_ongoing_requests: 8}",
            "max_ongoing_requests 7 is below target_ongoing_requests 8: requests wait before a replica is added",
        ),
        ("max_ongoing_requests: 1, autoscaling_config: {max_replicas: 2}", "1 is below target_ongoing_requests 2"),
        (
            "max_ongoing_requests: 8, max_queued_requests: 7",
            "max_queued_requests 7 refuses a burst that one replica takes at once (8): raise it to 8 or more",
        ),
    ],
)
def test_what_a_replica_takes_at_once_must_fill_batches_reach_the_target_and_find_room(serve_said, options, finding):
    [found] = serve_said(options)
    assert found.startswith("5: error: ")
    assert finding in found


@pytest.mark.parametrize(
    "options",
    [
        "max_ongoing_requests: 8, user_config: {max_batch_size: 8}",
        "max_ongoing_requests: 8, autoscaling_config: {target_ongoing_requests: 8}",
        "max_ongoing_requests: 8, max_queued_requests: 8",
        "max_ongoing_requests: 8, max_queued_requests: -1",
        "user_config: {max_batch_size: 800}",  # the code may say what is taken at once
        "max_ongoing_requests: 1",  # nothing is scaled
    ],
)
def test_limits_that_go_together_are_fine(serve_said, options):
    assert serve_said(options) == []


@pytest.mark.parametrize(
    ("gpus", "finding"),
    [
        ("1.5", "error: 'applications.0.deployments.0.ray_actor_options.num_gpus' is 1.5: Ray takes whole GPUs or a"),
        ("0.4", "warning: 'applications.0.deployments.0.ray_actor_options.num_gpus' is 0.4: a GPU holds 2, and 0.2 of"),
        ("0.7", "warning: 'applications.0.deployments.0.ray_actor_options.num_gpus' is 0.7: a GPU holds 1, and 0.3 of"),
    ],
)
def test_a_share_of_gpus_that_ray_refuses_or_wastes(serve_said, gpus, finding):
    [found] = serve_said(f"ray_actor_options: {{num_gpus: {gpus}}}")
    assert found.startswith(f"5: {finding}")


@pytest.mark.parametrize("gpus", ["0", "1", "2", "0.5", "0.25", "0.33"])
def test_whole_gpus_and_fractions_that_fill_one_are_fine(serve_said, gpus):
    assert serve_said(f"ray_actor_options: {{num_gpus: {gpus}}}") == []


ENVIRONMENT = """\
http_options: {host: 127.0.0.1}
controller_options:
  runtime_env:
    env_vars:
      A: 1
applications:
- import_path: shop:app
  runtime_env:
    env_vars: {B: yes,
      C: "1",
      D: null}
  deployments:
  - name: till
    ray_actor_options:
      runtime_env: {env_vars: {E: 0.50}}
"""


def test_environment_values_that_are_no_text_are_errors_wherever_an_environment_stands(said):
    place = "applications.0.runtime_env.env_vars"
    assert said(ENVIRONMENT) == [
        "5: error: 'controller_options.runtime_env.env_vars.A' is read as the int 1, and the environment holds text:"
        ' write "1", with the quotes.',
        f"9: error: '{place}.B' is read as the bool True, and the environment holds text:"
        ' write "yes", with the quotes.',
        f"11: error: '{place}.D' is read as nothing, and the environment holds text: write \"null\", with the quotes.",
        "15: error: 'applications.0.deployments.0.ray_actor_options.runtime_env.env_vars.E' is read as the float 0.5,"
        ' and the environment holds text: write "0.50", with the quotes.',
    ]


def test_names_and_routes_that_come_twice_are_told_with_both_lines_defaults_included(said):
    text = "http_options: {host: 127.0.0.1}\napplications:\n- import_path: a:b\n- name: default\n  import_path: c:d\n"
    assert said(text) == [
        "4: error: name 'default' stands in line 3 already: give each its own.",
        "4: error: route_prefix '/', the default, stands in line 3 already: give each its own.",
    ]
    apart = text.replace("name: default", "{name: second, route_prefix: /second, import_path: 'c:d'}").replace(
        "  import_path: c:d\n", ""
    )
    assert said(apart) == []


def test_applications_without_a_route_may_be_many(said):
    entry = "- {{name: {0}, route_prefix: null, import_path: 'a:b'}}\n"
    text = "http_options: {host: 127.0.0.1}\napplications:\n" + entry.format("x") + entry.format("y")
    assert said(text) == []


def test_a_deployment_that_is_given_options_twice_is_an_error(said):
    text = (
        "http_options: {host: 127.0.0.1}\napplications:\n- import_path: a:b\n  deployments:\n  - name: x\n  - name: x\n"
    )
    assert said(text) == ["6: error: name 'x' stands in line 5 already: give each its own."]
