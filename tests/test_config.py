"""The schema: its defaults, and the values that it refuses with their place."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from refusals import refusal

from corag_ray.config import DEFAULT_PARAMS, Config, PlainStrategy, PolicyTreeStrategy
from corag_ray.config_file import load_config
from corag_ray.core.policy_tree import PRESETS
from corag_ray.names import STRATEGIES
from corag_ray.prepare import prepare_weights

EXPERIMENTS = sorted((Path(__file__).parents[1] / "jobs" / "experiments").glob("*.yaml"))


def tree(**values):
    return {"methods": {"m": {"strategy": {"kind": "policy_tree", **values}}}}


def test_there_are_shipped_experiments():
    assert EXPERIMENTS


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_shipped_experiment_loads_says_what_it_holds_and_names_known_things_only(path):
    config = load_config(path)
    written = yaml.safe_load(path.read_text("utf-8"))
    assert {key: getattr(config, key) for key in written if isinstance(written[key], str | int)} == {
        key: value for key, value in written.items() if isinstance(value, str | int)
    }
    assert list(config.methods) == list(written.get("methods", Config().methods))
    prepare_weights(config)


def test_without_a_file_the_defaults_hold_naive_corag_and_both_bounds():
    config = load_config(None)
    assert config == Config()
    assert list(config.methods) == ["naive_rag", "corag", "no_context", "gold_passages"]
    assert isinstance(config.methods["naive_rag"].strategy, PlainStrategy)
    assert config.methods["corag"].strategy.params == PRESETS["report"]
    prepare_weights(config)


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("budget_tokens: 0", "budget_tokens", "'0'"),
        ("budget_tokens: many", "budget_tokens", "'many'"),
        ("limit: 0", "limit", "'0'"),
        ("group_size: 0", "group_size", "'0'"),
        ("max_failed_share: 1.5", "max_failed_share", "'1.5'"),
        ("max_failed_share: .nan", "max_failed_share", "'nan'"),
        ("deterministic: perhaps", "deterministic", "'perhaps'"),
        ("chunking: 3", "chunking", "'3'"),
        ("chunking: {size_tokens: x}", "chunking.size_tokens", "'x'"),
        ("retrieval: {num_candidates: 1001}", "retrieval.num_candidates", "'1001'"),
        ("generation: {max_new_tokens: 0}", "generation.max_new_tokens", "'0'"),
        ("plan: {cpus_an_actor: 0}", "plan.cpus_an_actor", "'0'"),
        ("memo: {entries: -1}", "memo.entries", "'-1'"),
        ("methods: {}", "methods", "'{}'"),
        ("methods: [naive]", "methods", "naive"),
        ("memo: {path: ''}", "memo.path", "name a folder or a file"),
        ("cross_encoders: {m: {folder: ''}}", "cross_encoders.m.folder", "name a folder or a file"),
        ("memo: {path: ~nobody-is-called-this/x}", "memo.path", "there is no home folder for"),
        ("methods: {m: {strategy: ranked}}", "methods.m.strategy", "write {kind: ranked}."),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_place_and_what_was_found(tmp_path, text, place, found):
    message = refusal(tmp_path, text)
    assert message.startswith(f"FILE: '{place}': ")
    assert found in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("retrieval: {kind: hybird}", "'retrieval.kind': unknown value 'hybird'; did you mean 'hybrid'? Known: "),
        ("retrieval: {kind: [lexical, dense]}", "'retrieval.kind': unknown value '['lexical', 'dense']'; Known: "),
        ("token_vectors: {dtype: int4}", "'token_vectors.dtype': unknown value 'int4'; did you mean 'int8'? Known: "),
        ("dtype: half", "'dtype': unknown value 'half'; Known: auto, bfloat16, float32."),
        (
            "cross_encoders: {m: {folder: f, pooling: mena}}",
            "'cross_encoders.m.pooling': unknown value 'mena'; did you mean 'mean'? "
            "Known: maximum, mean, soft_maximum.",
        ),
        ("profile: gpu", "'profile': unknown value 'gpu'; Known: local."),
        ("profile: 'a\n\n b'", "'profile': unknown value 'a b'; Known: local."),
        ("methods: {m: {source: glod}}", "'methods.m.source': unknown value 'glod'; did you mean 'gold'? Known: "),
        (
            "methods: {m: {strategy: {kind: ranked}, order: rnak}}",
            "'methods.m.order': unknown value 'rnak'; did you mean 'rank'? Known: chosen, document, ends_first, ",
        ),
        (
            "methods: {m: {strategy: {kind: ranked, changes: {on_misfit: jump}}}}",
            "'methods.m.strategy': search parameter 'on_misfit': unknown value 'jump'; Known: skip, stop.",
        ),
    ],
)
def test_a_value_that_is_none_of_a_few_names_is_refused_with_the_nearest_and_all(tmp_path, text, words):
    assert refusal(tmp_path, text).startswith(f"FILE: {words}")


def server(base_url="http://host/v1", **values):
    return yaml.safe_dump(
        {"generation": {"server": {"base_url": base_url, "model": "m", "context_window": 9} | values}}
    )


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://host", "http://a..b/v1", "http://me:sk-secret@host/v1"])
def test_a_servers_address_that_cannot_be_asked_is_refused_when_the_file_is_read(tmp_path, address):
    message = refusal(tmp_path, server(address))
    assert message.startswith("FILE: generation.server.base_url ")
    assert "sk-secret" not in message


@pytest.mark.parametrize("seconds", [0, -1, 86_401, 1e10, float("inf"), float("nan")])
def test_a_server_is_waited_for_at_most_a_day(tmp_path, seconds):
    assert refusal(tmp_path, server(timeout_s=seconds)).startswith("FILE: 'generation.server.timeout_s': ")
    path = tmp_path / "day.yaml"
    path.write_text(server(timeout_s=86_400))
    assert load_config(path).generation.server.timeout_s == 86_400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chunking: {size_tokens: 4, overlap_tokens: 4}", "chunking.overlap_tokens must be from 0 to 3"),
        ("chunking: {size_tokens: 0}", "chunking.size_tokens must be at least 1, not 0"),
        ("token_vectors: {up_to_mb: -1}", "token_vectors.up_to_mb must be at least 0, not -1"),
        ("methods: {m: {}}", "needs a strategy"),
        ("methods: {m: {source: gold, strategy: {kind: ranked}}}", "take none"),
        (
            "methods: {m: {strategy: {kind: greedy, changes: {width: 4}}}}",
            "search parameter 'width': greedy is the beam of width 1; take kind beam for another.",
        ),
        (
            "methods: {m: {strategy: {kind: coverage, changes: {reading: raw}}}}",
            "FILE: 'methods.m.strategy': reading must be calibrated",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(tmp_path, text, words):
    assert words in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("chunking: {size_tokens: true}", "'chunking.size_tokens'"),
        ("token_vectors: {up_to_mb: true}", "'token_vectors.up_to_mb'"),
        (
            "methods: {m: {strategy: {kind: policy_tree, changes: {iterations: yes}}}}",
            "'methods.m.strategy': search parameter 'iterations'",
        ),
        (
            "methods: {m: {strategy: {kind: mmr, changes: {weight: true}}}}",
            "'methods.m.strategy': search parameter 'weight'",
        ),
    ],
)
def test_true_and_false_are_no_numbers(tmp_path, text, place):
    assert refusal(tmp_path, text) == f"FILE: {place} is no switch, but true was found."


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('token_vectors: {up_to_mb: "7"}', "'token_vectors.up_to_mb': input should be a valid integer, found '7'."),
        ("token_vectors: {up_to_mb: 7.0}", "'token_vectors.up_to_mb': input should be a valid integer, found '7.0'."),
        ('chunking: {size_tokens: "64"}', "'chunking.size_tokens': input should be a valid integer, found '64'."),
        ("chunking: {overlap_tokens: 8.0}", "'chunking.overlap_tokens': input should be a valid integer, found '8.0'."),
        ('max_failed_share: "0.1"', "'max_failed_share': input should be a valid number, found '0.1'."),
        ('plan: {cpus_an_actor: "1"}', "'plan.cpus_an_actor': input should be a valid number, found '1'."),
        ("deterministic: 1", "'deterministic': input should be a valid boolean, found '1'."),
        ('generation: {enabled: "no"}', "'generation.enabled': input should be a valid boolean, found 'no'."),
        (
            'methods: {m: {strategy: {kind: beam, changes: {width: "4"}}}}',
            "'methods.m.strategy': search parameter 'width': input should be a valid integer, found '4'.",
        ),
        (
            'methods: {m: {strategy: {kind: policy_tree, changes: {exploration: "2.4"}}}}',
            "'methods.m.strategy': search parameter 'exploration': input should be a valid number, found '2.4'.",
        ),
        (
            server(timeout_s="9"),
            "'generation.server.timeout_s': input should be a valid number, found '9'.",
        ),
    ],
)
def test_a_number_or_a_switch_is_not_read_from_a_text_nor_from_another_kind_of_number(tmp_path, text, refused):
    assert refusal(tmp_path, text) == f"FILE: {refused}"


def test_a_manifest_names_models_folders_and_the_memos_file_without_their_places(tmp_path):
    values = {
        "cross_encoders": {"m": {"folder": str(tmp_path / "models" / "mine")}},
        "generation": {
            "server": {
                "base_url": "http://h/v1",
                "model": "m",
                "context_window": 9,
                "tokenizer": str(tmp_path / "models" / "tok"),
            }
        },
        "memo": {"path": str(tmp_path / "memo.sqlite")},
    }
    config = Config.model_validate(values)
    shown = config.publishable
    assert shown["cross_encoders"]["m"]["folder"] == "mine"
    assert shown["generation"]["server"]["tokenizer"] == "tok"
    assert shown["memo"]["path"] == "memo.sqlite"
    assert str(tmp_path) not in json.dumps(shown)
    assert config.cross_encoders["m"].folder == tmp_path / "models" / "mine"
    assert Config().publishable == Config().model_dump(mode="json")


def test_a_whole_number_is_a_number_where_a_fraction_could_stand():
    config = Config.model_validate(tree(changes={"exploration": 2}))
    assert config.methods["m"].strategy.params.exploration == 2.0


def test_an_unknown_preset_is_refused_with_the_nearest(tmp_path):
    message = refusal(tmp_path, yaml.safe_dump(tree(preset="repport")))
    assert message == (
        "FILE: 'methods.m.strategy': unknown preset 'repport'; did you mean 'report'? Known: carrot, report, seed."
    )


def test_an_unknown_search_parameter_is_refused_with_the_nearest(tmp_path):
    message = refusal(tmp_path, yaml.safe_dump(tree(changes={"iteration": 3})))
    assert message.startswith(
        "FILE: 'methods.m.strategy': unknown search parameter 'iteration'; did you mean 'iterations'? Known: answer, "
    )
    other = refusal(tmp_path, "methods: {m: {strategy: {kind: ranked, changes: {misfit: 5}}}}")
    assert other == (
        "FILE: 'methods.m.strategy': unknown search parameter 'misfit'; did you mean 'on_misfit'? "
        "Known: on_misfit, reading."
    )


def test_every_kind_of_strategy_has_defaults_a_class_and_takes_changes(tmp_path):
    kinds = set(STRATEGIES) - {"policy_tree"}
    assert kinds == set(DEFAULT_PARAMS)
    for kind in kinds:
        path = tmp_path / f"{kind}.yaml"
        path.write_text(
            f"methods: {{m: {{strategy: {{kind: {kind}, changes: {{reading: calibrated}}}}, order: rank}}}}"
        )
        strategy = load_config(path).methods["m"].strategy
        assert strategy.params == dataclasses.replace(DEFAULT_PARAMS[kind], reading="calibrated")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"iterations": "ten"}, "'iterations'"),
        ({"iterations": 2.5}, "'iterations'"),  # the search counts down to exactly 0
        ({"iterations": 0}, "iterations must be at least 1, not 0"),
        ({"exploration": "much"}, "'exploration'"),
        ({"exploration": -1}, "exploration must be a finite number of at least 0, not -1"),
        ({"cost_weight": float("nan")}, "cost_weight must be a finite number"),
        ({"answer": "mean"}, "mean_reward"),
        ({"reading": 3}, "'reading'"),
    ],
)
def test_a_search_parameter_that_no_search_can_run_with_is_refused(tmp_path, changes, words):
    assert words in refusal(tmp_path, yaml.safe_dump(tree(changes=changes)))


def test_changes_apply_to_the_preset_and_leave_the_rest_of_it():
    config = Config.model_validate(tree(preset="carrot", changes={"iterations": 3, "reading": "calibrated"}))
    expected = dataclasses.replace(PRESETS["carrot"], iterations=3, reading="calibrated")
    assert config.methods["m"].strategy.params == expected
    assert PRESETS["carrot"].iterations == 10


def test_a_configuration_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 4
    with pytest.raises(ValueError, match="frozen"):
        PolicyTreeStrategy(kind="policy_tree").preset = "seed"


def test_a_path_is_read_as_the_shell_reads_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    config = Config.model_validate({"memo": {"path": "~/memo.sqlite"}, "cross_encoders": {"m": {"folder": "~/m"}}})
    assert str(config.memo.path) == "/home/somebody/memo.sqlite"
    assert str(config.cross_encoders["m"].folder) == "/home/somebody/m"
