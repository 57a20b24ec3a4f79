"""A YAML file is read with its lines, and what YAML would read in silence as something else is told."""

import pytest

from corag_ray.checks.source import read_source
from corag_ray.errors import ConfigError


def read(tmp_path, text):
    path = tmp_path / "f.yaml"
    path.write_text(text, "utf-8")
    source, findings = read_source(path)
    return source, [str(finding).removeprefix(f"{path}:") for finding in findings]


def test_every_entry_has_the_line_of_its_key_and_scalars_their_text(tmp_path):
    source, findings = read(tmp_path, "# said\na:\n  b: yes\nc:\n- 1.0\n- {d: null}\n")
    assert findings == []
    assert source.value == {"a": {"b": True}, "c": [1.0, {"d": None}]}
    assert source.lines == {
        (): 2,
        ("a",): 2,
        ("a", "b"): 3,
        ("c",): 4,
        ("c", 0): 5,
        ("c", 1): 6,
        ("c", 1, "d"): 6,
    }
    assert source.written == {("a", "b"): "yes", ("c", 0): "1.0", ("c", 1, "d"): "null"}


def test_a_place_that_is_not_there_has_the_line_of_the_nearest_that_is(tmp_path):
    source, _ = read(tmp_path, "a: 1\nb: {c: [5]}\n")
    assert source.existing(("b", "c", 3, "x")) == ("b", "c")
    assert str(source.error(("b", "no"), "it lacks.")).endswith("f.yaml:2: error: it lacks.")
    assert str(source.warning(("z",), "it lacks.")).endswith("f.yaml:1: warning: it lacks.")
    assert source.at(("b", "c", 0)) == 5
    assert source.at(("a", "x", "y")) is None


def test_a_key_that_stands_twice_is_told_with_both_lines_and_the_last_counts_as_for_serve(tmp_path):
    source, findings = read(tmp_path, "a: 1\nb: {c: 1, d: 2,\n  c: 3}\na: 2\n")
    assert findings == [
        "4: error: the key 'a' stands twice, in line 1 too, and the last one wins: remove one.",
        "3: error: the key 'c' stands twice, in line 2 too, and the last one wins: remove one.",
    ]
    assert source.value == {"a": 2, "b": {"c": 3, "d": 2}}
    assert (source.lines["a",], source.written["a",]) == (4, "2")


def test_keys_that_a_merge_brings_stand_among_the_others_and_are_not_doubled(tmp_path):
    source, findings = read(tmp_path, "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n")
    assert findings == []
    assert source.value["b"] == {"x": 1, "y": 3}
    assert (source.lines["b", "x"], source.lines["b", "y"]) == (1, 4)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("port: 010\n", "1: error: YAML reads '010' to the base 8: write a number in decimal, and a text in quotes."),
        ("a: 0\nat: 8:30:00\n", "2: error: YAML reads '8:30:00' to the base 60: write"),
        ("", "1: error: the file is empty"),
        ("a:\n  8000: x\n", "2: error: the key '8000' is read as no text: write it in quotes."),
        ("on: x\n", "1: error: the key 'on' is read as no text"),
        ("a: 1\nb: [1\n", "3: error: YAML cannot read this: expected ',' or ']'"),
        ("a: 1\n--- \nb: 1\n", "2: error: YAML cannot read this: but found another document."),
        ("a: 2026-02-30\n", "1: error: YAML cannot read this: day is out of range for month."),
        ("? [a]\n: 1\n", "1: error: YAML cannot read this: found unhashable key."),
        ("a: \x07\n", "1: error: YAML cannot read this: unacceptable character"),
    ],
)
def test_what_yaml_misreads_or_cannot_read_is_one_finding_with_its_line(tmp_path, text, finding):
    _, findings = read(tmp_path, text)
    assert len(findings) == 1
    assert findings[0].startswith(finding)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a\n- *a\n",
        "\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]),
    ],
    ids=["itself", "a thousand laughs"],
)
def test_aliases_without_end_are_refused(tmp_path, text):
    source, findings = read(tmp_path, text)
    assert source is None
    assert findings == ["1: error: YAML cannot read this: aliases nest it without end."]


def test_a_file_that_cannot_be_read_is_the_callers_mistake(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file"):
        read_source(tmp_path / "none.yaml")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ConfigError, match=r"cannot read .*bytes: 'utf-8' codec"):
        read_source(tmp_path / "bytes")
