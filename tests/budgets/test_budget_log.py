"""The log goes on after a kill and takes no row for another's."""

import json
from dataclasses import asdict, replace

import pytest

from corag_ray.errors import DataError
from jobs.budgets.row_log import Row
from jobs.row_log import RowLog

ROW = Row("f", "set", "q", "naive_rag", 128, 120, 0.5, None, 0, 0)


def test_what_was_appended_is_found_again_by_fingerprint_and_question(tmp_path):
    log = RowLog(tmp_path / "rows.jsonl", Row)
    log.append([ROW, replace(ROW, question_id="r", recall=1.0)])
    for found in (log, RowLog(tmp_path / "rows.jsonl", Row)):
        assert found.find("f", "q") == ROW
        assert found.find("f", "r").recall == 1.0
        assert found.find("g", "q") is None


def test_a_line_that_a_kill_cut_short_is_dropped_and_the_next_row_has_a_line_of_its_own(tmp_path):
    path = tmp_path / "rows.jsonl"
    line = json.dumps(asdict(ROW))
    path.write_text(line + "\n" + line.replace('"q"', '"cut"'))
    log = RowLog(path, Row)
    assert log.find("f", "cut") is None
    log.append([replace(ROW, question_id="r")])
    assert [json.loads(one)["question_id"] for one in path.read_text().splitlines()] == ["q", "r"]


@pytest.mark.parametrize("line", ["{}", "no JSON", json.dumps(asdict(ROW) | {"recall": "0.5"})])
def test_a_line_that_is_no_row_is_refused_with_its_place(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(asdict(ROW))}\n{line}\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:2 is no row of this job"):
        RowLog(path, Row)
