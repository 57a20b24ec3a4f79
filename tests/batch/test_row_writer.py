"""The row log: whole groups or nothing, whatever a kill leaves behind."""

import json
import os

import pytest

from corag_ray.batch.row_writer import ROWS, count_rows, open_row_writer
from corag_ray.errors import DataError
from corag_ray.evaluation.row_log import SCHEMA_VERSION, Row

GROUPS = {0: ["q3", "q1"], 1: ["q2", "q0"], 2: ["q9"]}
PLACES = {question: place for place, question in enumerate(q for ids in GROUPS.values() for q in ids)}


def rows_of(*questions, fingerprint="ab"):
    blank = dict.fromkeys(Row.__annotations__) | {"schema_version": SCHEMA_VERSION, "methods": {}, "question": "茶 é"}
    blank |= {"language": "en", "answers": [], "num_candidates": 0, "index_version": "1-abc"}
    return [blank | {"question_id": q, "fingerprint": fingerprint, "position": PLACES[q]} for q in questions]


def ids(rows):
    return [row["question_id"] for row in rows]


def on_disk(folder):
    return [json.loads(line) for line in (folder / ROWS).read_text("utf-8").splitlines()]


def full_log(folder):
    with open_row_writer(folder, "ab", GROUPS) as writer:
        for group in GROUPS.values():
            writer.append(rows_of(*group))
    return (folder / ROWS).read_bytes()


def test_appended_groups_are_on_disk_at_once_and_are_no_longer_missing(tmp_path):
    with open_row_writer(tmp_path / "new" / "run", "ab", GROUPS) as writer:
        assert writer.missing_groups == [0, 1, 2]
        assert writer.rows == []
        writer.append(rows_of("q2", "q0"))
        assert ids(on_disk(tmp_path / "new" / "run")) == ["q2", "q0"]
        assert writer.missing_groups == [0, 2]
        assert writer.rows == rows_of("q2", "q0")


def test_the_finished_log_stands_in_the_order_of_the_questions(tmp_path):
    with open_row_writer(tmp_path, "ab", GROUPS) as writer:
        writer.append(rows_of("q9"))
        writer.append(rows_of("q3", "q1"))
        writer.append(rows_of("q2", "q0"))
        assert ids(writer.rows) == ["q3", "q1", "q2", "q0", "q9"]
    assert on_disk(tmp_path) == rows_of("q3", "q1", "q2", "q0", "q9")


def test_cut_at_every_byte_the_log_keeps_whole_groups_only_and_is_completed_without_repeats(tmp_path):
    whole = full_log(tmp_path)
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]  # row i is whole once its line is ended
    order = [q for group in GROUPS.values() for q in group]
    for cut in range(len(whole) + 1):
        (tmp_path / ROWS).write_bytes(whole[:cut])
        readable = {q for q, end in zip(order, ends, strict=True) if cut > end}
        finished = [n for n, group in GROUPS.items() if readable >= set(group)]
        kept = [q for n in finished for q in GROUPS[n]]
        with open_row_writer(tmp_path, "ab", GROUPS) as writer:
            assert on_disk(tmp_path) == writer.rows == rows_of(*kept), cut
            assert writer.missing_groups == [n for n in GROUPS if n not in finished], cut
            for number in writer.missing_groups:
                writer.append(rows_of(*GROUPS[number]))
        assert (tmp_path / ROWS).read_bytes() == whole, cut


def test_a_rewritten_log_is_on_the_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    full_log(tmp_path)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    with open_row_writer(tmp_path, "ab", GROUPS):
        assert synced == [(tmp_path / ROWS).stat().st_ino, tmp_path.stat().st_ino]
    assert synced[2:] == [(tmp_path / ROWS).stat().st_ino, tmp_path.stat().st_ino]


def test_a_run_that_fails_leaves_its_finished_groups(tmp_path):
    with pytest.raises(ZeroDivisionError), open_row_writer(tmp_path, "ab", GROUPS) as writer:
        writer.append(rows_of("q3", "q1"))
        raise ZeroDivisionError
    with open_row_writer(tmp_path, "ab", GROUPS) as writer:
        assert ids(writer.rows) == ["q3", "q1"]
        assert writer.missing_groups == [1, 2]


def test_a_question_that_stands_twice_is_refused_with_its_place_and_the_log_left_alone(tmp_path):
    twice = full_log(tmp_path) * 2
    (tmp_path / ROWS).write_bytes(twice)
    with (
        pytest.raises(
            DataError, match=r"rows\.jsonl:6: question 'q3' already stands in line 1: delete one of the two\.$"
        ),
        open_row_writer(tmp_path, "ab", GROUPS),
    ):
        pass
    assert (tmp_path / ROWS).read_bytes() == twice


def test_rows_are_counted_without_a_last_one_that_a_kill_cut_short(tmp_path):
    assert count_rows(tmp_path) == 0
    (tmp_path / ROWS).write_bytes(full_log(tmp_path)[:-1])
    assert count_rows(tmp_path) == 4


def test_rows_of_another_configuration_are_refused_and_left_alone(tmp_path):
    whole = full_log(tmp_path)
    with pytest.raises(DataError) as caught, open_row_writer(tmp_path, "cd", GROUPS):
        pass
    message = str(caught.value)
    assert all(word in message for word in (str(tmp_path), "ab", "cd", "choose another folder"))
    assert (tmp_path / ROWS).read_bytes() == whole


@pytest.mark.parametrize(
    "broken",
    [
        *(b"{half a row\n", b"\xff\xfe\n", b"[]\n", b'{"schema_version": 99}\n'),
        *(b'{"a": 1e999}\n', b'{"a": "\\ud800"}\n', b'{"a":' * 100_000 + b"\n"),
    ],
    ids=["cut", "no text", "list", "other version", "no number", "half a character", "nested"],
)
@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_broken_line_that_no_kill_could_leave_is_refused_with_its_place_and_left_alone(tmp_path, broken, place):
    lines = full_log(tmp_path).splitlines(keepends=True)
    lines.insert(place, broken)
    (tmp_path / ROWS).write_bytes(b"".join(lines))
    with pytest.raises(DataError) as caught, open_row_writer(tmp_path, "ab", GROUPS):
        pass
    assert str(caught.value).startswith(f"{tmp_path / ROWS}:{place + 1}: ")
    assert (tmp_path / ROWS).read_bytes() == b"".join(lines)
    assert not list(tmp_path.glob("*.partial"))


def test_a_line_that_was_refused_and_deleted_as_advised_has_its_group_run_again(tmp_path):
    lines = full_log(tmp_path).splitlines(keepends=True)
    lines[2] = lines[2].replace("茶 é".encode(), rb"\ud800")  # of q2
    (tmp_path / ROWS).write_bytes(b"".join(lines))
    advice = "rows\\.jsonl:3: .*: delete the line, and the next run into its folder answers the question again\\.$"
    with pytest.raises(DataError, match=advice):
        count_rows(tmp_path)
    (tmp_path / ROWS).write_bytes(b"".join(lines[:2] + lines[3:]))
    with open_row_writer(tmp_path, "ab", GROUPS) as writer:
        assert writer.missing_groups == [1]


def test_a_second_run_is_refused_while_the_first_is_open_and_let_in_afterwards(tmp_path):
    with open_row_writer(tmp_path, "ab", GROUPS) as first:
        with pytest.raises(DataError, match="another run is writing"), open_row_writer(tmp_path, "ab", GROUPS):
            pass
        first.append(rows_of("q9"))
        assert ids(on_disk(tmp_path)) == ["q9"]
    with open_row_writer(tmp_path, "ab", GROUPS) as second:
        assert ids(second.rows) == ["q9"]


@pytest.mark.parametrize("below", [".", "run"])
def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, below):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with (
        pytest.raises(DataError, match=r"^cannot write to [^\n]*file[^\n]*\.$"),
        open_row_writer(blocked / below, "ab", GROUPS),
    ):
        pass


def test_a_group_cut_by_an_earlier_smaller_limit_is_run_again(tmp_path):
    with open_row_writer(tmp_path, "ab", {0: ["q3", "q1"], 1: ["q2"]}) as writer:
        writer.append(rows_of("q3", "q1"))
        writer.append(rows_of("q2"))
    with open_row_writer(tmp_path, "ab", GROUPS) as writer:
        assert ids(writer.rows) == ["q3", "q1"]
        assert writer.missing_groups == [1, 2]


def test_a_smaller_limit_throws_no_finished_row_away(tmp_path):
    whole = full_log(tmp_path)
    with open_row_writer(tmp_path, "ab", {0: ["q3", "q1"], 1: ["q2"]}) as writer:
        assert ids(writer.rows) == ["q3", "q1", "q2"]
        assert writer.missing_groups == []
    assert (tmp_path / ROWS).read_bytes() == whole


def test_a_value_that_is_not_json_is_refused_before_anything_is_written(tmp_path):
    with open_row_writer(tmp_path, "ab", GROUPS) as writer:
        [row] = rows_of("q9")
        with pytest.raises(ValueError, match="JSON"):
            writer.append([row | {"score": float("nan")}])
        assert on_disk(tmp_path) == []
        assert writer.missing_groups == [0, 1, 2]
