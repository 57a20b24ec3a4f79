"""What a YAML file may hold and how it is refused: in one sentence, with the line or the key, and the nearest name."""

import pytest
from refusals import refusal

from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.errors import ConfigError


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


def test_a_key_of_the_top_level_is_sent_there(tmp_path):
    text = "cross_encoders: {mine: {folder: f, remote_code: abc}}"
    expected = "FILE: unknown key 'cross_encoders.mine.remote_code'; `remote_code` belongs at the top level."
    assert refusal(tmp_path, text) == expected


def test_a_path_left_empty_is_said_to_be_needed(tmp_path):
    expected = "FILE: 'cross_encoders.mine.folder' needs a path, found 'None'."
    assert refusal(tmp_path, "cross_encoders: {mine: {folder: }}") == expected


KIND = "'methods.m.strategy.kind'"
KINDS = "beam, corag, coverage, exhaustive, greedy, mmr, policy_tree, random, ranked, similarity_penalty."


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
