"""The schema: what is refused and how it is said."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from corag_ray import build
from corag_ray.build import STRATEGIES, compute, index_spec, prepare_weights, run_fingerprint, settle
from corag_ray.config import DEFAULT_PARAMS, Config, PlainStrategy, PolicyTreeStrategy, load_config
from corag_ray.core.policy_tree import PRESETS
from corag_ray.core.random_fill import RandomFill, RandomParams
from corag_ray.core.strategy import Candidates
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Document, Question

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")
EXPERIMENTS = sorted((Path(__file__).parents[1] / "jobs" / "experiments").glob("*.yaml"))


def refusal(tmp_path, text):
    """The sentence with which a YAML text is refused, without the file's name."""
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert message.endswith((".", "?"))
    assert str(path) in message
    return message.replace(str(path), "FILE")


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


def test_an_empty_file_is_the_defaults(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("# nothing but this\n")
    assert load_config(path) == Config()


def test_changes_replace_top_level_values_and_none_changes_nothing(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("budget_tokens: 100\nseed: 3\n")
    config = load_config(path, {"budget_tokens": 200, "seed": None, "deterministic": False})
    assert (config.budget_tokens, config.seed, config.deterministic) == (200, 3, False)


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("budget_token: 5", "budget_token", "budget_tokens"),
        ("budget: 5", "budget", "budget_tokens"),  # nearer is over_budget, which stands elsewhere
        ("qwertz: 5", "qwertz", None),
        ("chunking: {size: 5}", "chunking.size", None),
        ("chunking: {sise_tokens: 5}", "chunking.sise_tokens", "size_tokens"),
        ("token_vectors: {up_to: 5}", "token_vectors.up_to", "up_to_mb"),
        ("retrieval: {num_candidate: 5}", "retrieval.num_candidate", "num_candidates"),
        ("generation: {max_tokens: 5}", "generation.max_tokens", "max_new_tokens"),
        ("plan: {thread: 5}", "plan.thread", "threads"),
        ("memo: {entrie: 5}", "memo.entrie", "entries"),
        ("methods: {m: {strategi: 5, source: none}}", "methods.m.strategi", "strategy"),
        ("methods: {m: {strategy: {kind: ranked, qqq: 5}}}", "methods.m.strategy.qqq", None),
        ("methods: {m: {strategy: {kind: policy_tree, prest: seed}}}", "methods.m.strategy.prest", "preset"),
    ],
)
def test_an_unknown_key_is_refused_at_every_level_with_its_path_and_the_nearest(tmp_path, text, key, hint):
    advice = f"did you mean '{hint}'?" if hint else "remove it."
    assert refusal(tmp_path, text) == f"FILE: unknown key '{key}'; {advice}"


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


KIND = "'methods.m.strategy.kind'"
KINDS = "beam, coverage, exhaustive, greedy, mmr, policy_tree, random, ranked, similarity_penalty."


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("{kind: rankd}", f"{KIND}: unknown strategy 'rankd'; did you mean 'ranked'? Known: {KINDS}"),
        ("{kind: 5}", f"{KIND}: unknown strategy '5'; Known: {KINDS}"),
        ("{kind: }", f"{KIND}: unknown strategy 'None'; Known: {KINDS}"),
        ("{preset: seed}", f"the key {KIND} is missing: one of {KINDS}"),
    ],
)
def test_an_unknown_kind_of_strategy_and_none_at_all_are_refused_with_the_kinds_there_are(tmp_path, strategy, sentence):
    assert refusal(tmp_path, f"methods: {{m: {{strategy: {strategy}}}}}") == f"FILE: {sentence}"


def test_a_key_that_is_missing_is_named_and_what_stands_beside_it_is_not_shown(tmp_path):
    message = refusal(tmp_path, "generation: {server: {base_url: 'http://host', context_window: 9}}")
    assert message == "FILE: the key 'generation.server.model' is missing."


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
    ("text", "key", "line"),
    [
        ("seed: 1\nbudget_tokens: 3\nseed: 2\n", "seed", 3),
        ("plan:\n  threads: 1\n  threads: 1\n", "threads", 3),
        ("methods:\n  m: {source: none}\n  'm': {source: gold}\n", "m", 3),
    ],
)
def test_a_key_that_stands_twice_in_one_mapping_is_refused_with_its_line(tmp_path, text, key, line):
    sentence = f"cannot read FILE: the key '{key}' stands twice in one mapping (line {line})."
    assert refusal(tmp_path, text) == sentence


@pytest.mark.parametrize(
    ("text", "number", "base", "line"),
    [
        ("seed: 1\nbudget_tokens: 0512", "0512", 8, 2),
        ("limit: -010", "-010", 8, 1),
        ("chunking:\n  size_tokens: 0_7", "0_7", 8, 2),
        ("budget_tokens: 1:30", "1:30", 60, 1),
        ("max_failed_share: 0:00.5", "0:00.5", 60, 1),
        ("methods: {012: {source: none}}", "012", 8, 1),
    ],
)
def test_a_number_that_yaml_reads_to_another_base_is_refused_with_its_line(tmp_path, text, number, base, line):
    found, advice = f"YAML reads '{number}' to the base {base}", "write a number in decimal, and a text in quotes"
    assert refusal(tmp_path, text) == f"cannot read FILE: {found}: {advice} (line {line})."


def test_numbers_that_show_their_base_and_texts_in_quotes_are_read(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("budget_tokens: 0x1F\ngroup_size: 0b11\nlimit: 1_000\nseed: 0\ndataset: '0512'\n")
    config = load_config(path)
    assert (config.budget_tokens, config.group_size, config.limit, config.seed) == (31, 3, 1000, 0)
    assert config.dataset == "0512"


@pytest.mark.parametrize(
    "number",
    ["9223372036854775808", "-9223372036854775808", "0x" + "f" * 4000, "9" * 5000],
    ids=["largest", "smallest", "hexadecimal", "unreadable"],
)
def test_an_integer_beyond_64_bits_is_refused_with_its_line(tmp_path, number):
    sentence = f"an integer must lie within 2**63 - 1 of 0, and '{number[:60]}' does not (line 2)."
    assert refusal(tmp_path, f"limit: 1\nseed: {number}") == f"cannot read FILE: {sentence}"
    path = tmp_path / "largest.yaml"
    path.write_text("seed: 9223372036854775807")
    assert load_config(path).seed == 2**63 - 1


NESTED = "[&a0 [x, x], " + ", ".join(f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)) + "]"
"""Nine levels of ten: written out, it has over 2,000,000,000 letters."""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("dataset: {}", "'dataset': input should be a valid string, found "),
        ("chunking: {{size_tokens: {}}}", "'chunking.size_tokens': input should be a valid integer, found "),
        ("methods: {{m: {{source: {}}}}}", "'methods.m.source': unknown value "),
        ("methods: {{m: {{strategy: {{kind: {}}}}}}}", "'methods.m.strategy.kind': unknown strategy "),
        (
            "methods: {{m: {{strategy: {{kind: ranked, changes: {{reading: {}}}}}}}}}",
            "'methods.m.strategy': search parameter 'reading': unknown",
        ),
    ],
)
def test_a_value_that_aliases_nest_without_end_is_refused_with_its_beginning(tmp_path, text, place):
    message = refusal(tmp_path, text.format(NESTED))
    assert message.startswith(f"FILE: {place}")
    assert "[['x', 'x'], [['x', 'x'], " in message
    assert len(message) < 300


def test_a_key_may_stand_in_two_mappings_and_replace_one_that_was_merged_in(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "methods:\n"
        "  a: &a {strategy: {kind: ranked}, order: rank}\n"
        "  b: &b {<<: *a, order: document}\n"
        "  c: {<<: *b, order: random}\n"
    )
    assert {n: m.order for n, m in load_config(path).methods.items()} == {"a": "rank", "b": "document", "c": "random"}


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


def test_a_random_strategy_draws_by_the_runs_seed_unless_it_has_one_of_its_own():
    places = Candidates((1,) * 10, (0.0,) * 10, (0,) * 10, tuple(range(10)))
    strategies = {"runs": {"kind": "random"}, "own": {"kind": "random", "changes": {"seed": 3}}}
    for seed in (0, 7):
        config = Config(seed=seed, methods={name: {"strategy": strategy} for name, strategy in strategies.items()})
        for name, expected in (("runs", seed), ("own", 3)):
            drawn = build.build_method(config.methods[name], seed).new_strategy(places, 5).ask(1)
            assert drawn == RandomFill(places, 5, RandomParams(seed=expected)).ask(1)
            assert build.describe(config, name)["seed"] == str(expected)


@pytest.mark.parametrize("text", ["- a\n- b\n", "[]", "just words", "3", "false"])
def test_yaml_that_is_no_mapping_is_refused(tmp_path, text):
    assert refusal(tmp_path, text).startswith("FILE must hold a mapping, not ")


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\tx: 1", "dataset: 2024-13-45", "a: *b"])
def test_broken_yaml_is_one_sentence(tmp_path, text):
    assert refusal(tmp_path, text).startswith("cannot read FILE: ")


def test_a_file_that_is_missing_or_a_folder_or_not_text_is_one_sentence(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"seed: \xff\xfe")
    for path in (tmp_path / "missing.yaml", tmp_path, binary):
        with pytest.raises(ConfigError, match=r"^cannot read [^\n]*\.$") as caught:
            load_config(path)
        assert str(caught.value).count(str(path)) == 1


def test_a_file_that_is_missing_is_said_to_be_so_without_its_path_again(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml")
    assert str(caught.value) == f"cannot read {tmp_path / 'none.yaml'}: No such file or directory."


@pytest.mark.parametrize("native", ["float32", "bfloat16"])
def test_the_number_type_is_settled_once_by_the_drivers_processor(monkeypatch, native):
    monkeypatch.setattr(build, "native_dtype", lambda: native)
    auto = Config()
    assert auto.dtype == "auto"
    settled = settle(auto)
    assert settled.dtype == native
    assert compute(auto) == compute(settled) == Compute(2, False, native)
    assert run_fingerprint(auto, DATA) == run_fingerprint(settled, DATA)
    monkeypatch.setattr(build, "native_dtype", lambda: "of another machine")
    assert settle(settled) == settled  # a worker with another processor computes as the driver said
    assert index_spec(settled, DATA).dtype == native


def test_a_number_type_that_is_asked_for_is_kept_and_deterministic_is_float32(monkeypatch):
    monkeypatch.setattr(build, "native_dtype", lambda: "bfloat16")
    assert settle(Config(dtype="float32")).dtype == "float32"
    for asked in ("auto", "bfloat16", "float32"):
        assert compute(Config(dtype=asked, deterministic=True)) == Compute(2, True, "float32")


def test_a_configuration_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 4
    with pytest.raises(ValueError, match="frozen"):
        PolicyTreeStrategy(kind="policy_tree").preset = "seed"
