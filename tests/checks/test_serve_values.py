"""Values that Ray's models refuse are told with their line, also those that Ray reads only when it deploys."""

import pytest


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            "max_ongoing_requests: many",
            "5: error: 'applications.0.deployments.0.max_ongoing_requests': input should be",
        ),
        (
            "max_queued_requests: 0",
            "5: error: 'applications.0.deployments.0': max_queued_requests must be -1 (no limit)",
        ),
        ("num_replicas: 2, autoscaling_config: {}", "Manually setting num_replicas is not allowed"),
        ("backpressure_config: {status_code: 500}", "backpressure_config.status_code': unknown value '500'"),
        ("autoscaling_config: {min_replicas: -1}", "autoscaling_config.min_replicas': input should be greater than or"),
        ("autoscaling_config: {aggregation_function: sum}", "'sum' is not a valid AggregationFunction."),
        ("request_router_config: {max_backoff_s: 0}", "request_router_config.max_backoff_s': input should be greater"),
        ("gang_scheduling_config: {gang_size: 0}", "gang_scheduling_config.gang_size': input should be greater than"),
        (
            "gang_scheduling_config: {gang_size: 1, runtime_failure_policy: RESTART_REPLICA}",
            "Ray cannot read 'applications.0.deployments.0.gang_scheduling_config': RESTART_REPLICA policy is not yet",
        ),
    ],
)
def test_a_value_of_a_deployment_is_refused_once(serve_said, options, finding):
    found = serve_said(options)
    assert len(found) == 1, found
    assert found[0].startswith("5: error: ")
    assert finding in found[0]


def test_a_union_is_complained_of_once_and_a_missing_key_by_its_own_name(said):
    assert said("http_options: {host: localhost}\napplications:\n- {import_path: 'a:b', deployments: [{}]}\n") == [
        "3: error: the key 'applications.0.deployments.0.name' is missing."
    ]
    [found] = said("http_options: {host: localhost}\napplications:\n- import_path: app\n")
    assert found.startswith("3: error: 'applications.0.import_path': Got invalid import path")


def test_a_list_of_what_are_no_mappings_is_refused_and_breaks_nothing(said):
    [found] = said("applications:\n- import_path: a:b\n  deployments: [5]\nhttp_options: {host: localhost}\n")
    assert found.startswith("1: error: Ray cannot read 'file.yaml': ")


def test_what_a_policy_names_is_not_imported(serve_said, monkeypatch, tmp_path):
    (tmp_path / "loud.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert serve_said("autoscaling_config: {policy: {policy_function: 'loud:f'}}") == []
    assert serve_said("request_router_config: {request_router_class: 'loud:F'}") == []
