"""The schema of `args`: defaults that run, unknown keys refused with what was meant, pools by what is asked."""

from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from corag_ray.errors import ConfigError
from corag_ray.names import RERANKERS
from corag_ray.serving.options import CONSTRUCTOR_TRIES, options_of, with_threads
from corag_ray.serving.settings import Scale, read_settings


def test_nothing_written_gives_every_pool_and_starts_those_that_cost_little():
    settings = read_settings({})
    started = {name for name, scale in settings.pools.items() if scale.min_replicas}
    assert set(settings.pools) == set(RERANKERS)
    assert started == {"late_interaction", "combination"}
    assert settings.standing_in == ("late_interaction",)


def test_a_reranker_that_a_method_asks_has_a_replica_from_the_beginning(tmp_path):
    config = {
        "cross_encoders": {"mine": {"folder": str(tmp_path)}, "idle": {"folder": str(tmp_path)}},
        "methods": {"corag": {"strategy": {"kind": "ranked"}, "reranker": "mine"}},
    }
    pools = read_settings({"config": config}).pools
    assert (pools["mine"].min_replicas, pools["idle"].min_replicas) == (1, 0)
    named = read_settings({"config": config, "deployments": {"rerankers": {"bm25": {"max_replicas": 2}}}})
    assert set(named.pools) == {"bm25", "mine"}
    assert named.standing_in == ()


def test_a_packaged_cross_encoder_has_a_pool_where_it_is_named_or_asked_and_not_otherwise():
    named = read_settings({"deployments": {"rerankers": {"passage_facts": {"min_replicas": 0}, "combination": {}}}})
    assert named.pools["passage_facts"].min_replicas == 0
    methods = {"corag": {"strategy": {"kind": "ranked"}, "reranker": "passage_facts"}}
    asked = read_settings({"config": {"methods": methods}})
    assert set(asked.pools) == {*RERANKERS, "passage_facts"}
    assert asked.pools["passage_facts"].min_replicas == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"configs": {}}, "args: unknown key 'configs'; did you mean 'config'?"),
        ({"http": {"max_pair": 3}}, "args: unknown key 'http.max_pair'; did you mean 'max_pairs'?"),
        ({"config": {"budget": 3}}, "args.config: unknown key 'budget'; did you mean 'budget_tokens'?"),
        ({"config": 3}, "args.config must hold a mapping."),
        ({"deployments": {"embedder": {"replicas": 2}}}, "args: unknown key 'deployments.embedder.replicas'; did"),
        ({"deployments": {"driver": {"min_replicas": 3}}}, "min_replicas 3 exceeds max_replicas 1."),
        ({"deployments": {"driver": {"look_back_s": 60.0}}}, "look_back_s must not exceed the delays"),
        ({"deployments": {"rerankers": {"bm52": {}}}}, "args.deployments.rerankers: unknown name 'bm52'; did you mean"),
        ({"deployments": {"rerankers": {"bm25": {"batch": 3}}}}, "'deployments.rerankers.bm25.batch'; did you mean"),
        ({"agent": {"method": "corga"}}, "args.agent.method: unknown name 'corga'; did you mean 'corag'?"),
        ({"fallback": ["nobody"]}, "args.fallback: unknown name 'nobody'"),
        ({"http": {"max_pairs": "many"}}, "'http.max_pairs'"),
    ],
)
def test_what_is_not_meant_is_refused_in_one_sentence(args, message):
    with pytest.raises(ConfigError) as caught:
        read_settings(args)
    assert message in str(caught.value)


def test_a_fixed_number_of_replicas_is_not_scaled_and_a_range_is():
    fixed = options_of("index", Scale(min_replicas=2, max_replicas=2))
    assert fixed["num_replicas"] == 2
    assert "autoscaling_config" not in fixed
    ranged = options_of("index", Scale(min_replicas=0, max_replicas=3, target_ongoing=2.0))
    assert "num_replicas" not in ranged
    assert ranged["autoscaling_config"] == {
        "min_replicas": 0,
        "max_replicas": 3,
        "target_ongoing_requests": 2.0,
        "look_back_period_s": 15.0,
        "upscale_delay_s": 15.0,
        "downscale_delay_s": 120.0,
    }
    assert ranged["max_constructor_retry_count"] == CONSTRUCTOR_TRIES


def test_every_process_is_told_to_stay_offline_and_takes_little_of_a_cpu():
    settings = read_settings({})
    deployments = settings.deployments
    scales = [getattr(deployments, name) for name in type(deployments).model_fields if name != "rerankers"]
    for scale in [*scales, *settings.pools.values()]:
        actor = options_of("any", scale)["ray_actor_options"]
        assert actor["num_cpus"] <= 0.2
        assert actor["runtime_env"]["env_vars"]["HF_HUB_OFFLINE"] == "1"
        assert actor["runtime_env"]["env_vars"]["OMP_WAIT_POLICY"] == "PASSIVE"
        assert all(isinstance(value, str) for value in actor["runtime_env"]["env_vars"].values())


def test_a_scales_threads_stand_for_the_plans():
    config = read_settings({"config": {"plan": {"threads": 5}}}).config
    assert with_threads(config, Scale()).plan.threads == 5
    assert with_threads(config, Scale(threads=3)).plan.threads == 3


def test_the_shipped_file_is_one_that_serve_and_we_take_and_it_stays_on_this_machine():
    text = (Path(__file__).parent.parent.parent / "serve_config.yaml").read_text("utf-8")
    deployed = ServeDeploySchema.model_validate(yaml.safe_load(text))
    assert deployed.http_options.host == "127.0.0.1"
    [application] = deployed.applications
    assert application.import_path == "corag_ray.serving.app:build"
    settings = read_settings(application.args)
    assert set(settings.pools) == set(RERANKERS)
    started = [name for name, scale in settings.pools.items() if scale.min_replicas]
    assert started == ["late_interaction", "combination"]
    scales = settings.deployments
    cpus = sum(getattr(scales, name).num_cpus for name in type(scales).model_fields if name != "rerankers")
    assert cpus + sum(scale.max_replicas * scale.num_cpus for scale in settings.pools.values()) <= 2.0
