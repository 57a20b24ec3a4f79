"""`corag check`: findings on standard output, a count on standard error, and a status that CI can use."""

import sys
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from corag_ray import cli
from corag_ray.checks.check import check_files
from corag_ray.checks.cluster import ray_schema

ROOT = Path(__file__).parent.parent.parent
SHIPPED = [ROOT / "serve_config.yaml", ROOT / "cluster.yaml"]


def corag_check(monkeypatch, capsys, *paths):
    monkeypatch.setattr(sys, "argv", ["corag", "check", *map(str, paths)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code, *capsys.readouterr()


def test_errors_are_status_1_and_stand_on_standard_output_by_file_and_line(monkeypatch, capsys, tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("applications:\n- {import_path: 'a:b'}\nqqq: 1\n")
    second.write_text("cluster_name: c\nprovider: {type: aws}\nzzz: 1\n")
    code, out, err = corag_check(monkeypatch, capsys, second, first, second)
    assert code == 1
    assert [line.split(": ")[:2] for line in out.splitlines()] == [
        [f"{second}:1", "warning"],
        [f"{second}:3", "error"],
        [f"{first}:3", "error"],
    ]
    assert err == "2 errors, 1 warning in 3 files.\n"


def test_warnings_alone_are_status_0(monkeypatch, capsys, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("cluster_name: c\nprovider: {type: aws}\n")
    code, out, err = corag_check(monkeypatch, capsys, path)
    assert (code, out.count("\n"), err) == (0, 1, "0 errors, 1 warning in 1 file.\n")


def test_a_file_that_is_not_there_is_status_2(monkeypatch, capsys, tmp_path):
    code, out, err = corag_check(monkeypatch, capsys, tmp_path / "none.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("corag: cannot read ")


@pytest.mark.parametrize("text", ["budget_tokens: 5\n", "- 1\n", "5\n"])
def test_a_file_of_another_kind_is_an_error(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    [found] = check_files([path])
    assert str(found).startswith(f"{path}:1: error: this is no Serve config, which has `applications`, and no cluster")


def test_the_shipped_files_have_no_error_and_leave_only_gpu_nodes_idle():
    found = check_files(SHIPPED)
    assert [finding for finding in found if finding.is_error] == []
    assert all("nothing in serve_config.yaml asks for GPU" in finding.sentence for finding in found)


def test_the_shipped_cluster_file_is_one_that_rays_own_validator_takes():
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    jsonschema.validate(config, ray_schema())
    validate_config(prepare_config(config))
    assert f"rayproject/ray:{ray.__version__}-" in config["docker"]["head_image"]
    assert "--env RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert {"head", "rerankers", "embedder", "generator"} <= set(config["available_node_types"])
    gpus = [config["available_node_types"][name]["resources"]["GPU"] for name in ("rerankers", "embedder", "generator")]
    assert gpus == [1, 1, 1]
