"""What the comparison writes and prints, from made rows."""

import json

from jobs.bench_search import report, table_of
from jobs.search.figures import figures
from jobs.search.rows import Point, Row


def row(data, strategy, score, pairs=60):
    points = tuple(Point(limit, min(limit, pairs), score, 100, 0.5) for limit in (60, 590))
    return Row("f", data, "q", "late_interaction", 512, strategy, points)


ROWS = {data: [row(data, "report", 0.6, 590), row(data, "corag", score)] for data, score in (("a", 0.7), ("b", 0.9))}


def test_the_last_line_and_the_file_tell_figures_of_each_set_and_of_all_together(tmp_path, capsys):
    report({"late_interaction": ROWS}, {"late_interaction": [512]}, 0, tmp_path)
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["questions"] == {"late_interaction": {"a": 1, "b": 1}}
    means = told["figures"]["late_interaction"]["512"]
    assert (means["a.corag.60.score"], means["b.corag.60.score"], means["all.corag.60.score"]) == (0.7, 0.9, 0.8)
    assert told["bars"]["late_interaction"]["512"]["all"]["reaches_report"]["mean"] == 0.2
    written = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert written["figures"]["late_interaction"]["512"]["a"]["report"]["590"]["pairs"] == 590
    assert (tmp_path / "late_interaction-512.png").exists()


def test_one_set_is_not_told_twice(tmp_path, capsys):
    report({"late_interaction": {"a": ROWS["a"]}}, {"late_interaction": [512]}, 0, tmp_path)
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(told["bars"]["late_interaction"]["512"]) == {"a"}


def test_a_table_has_a_row_for_each_strategy_and_limit():
    assert table_of("t", figures(ROWS["a"], 0)).row_count == 4
