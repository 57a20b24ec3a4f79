"""Cluster files: Ray's schema and validator, numbers of nodes, the version of Ray, its token."""

import pytest
import ray

QUIET = f"""\
cluster_name: c
max_workers: 4
provider: {{type: aws, region: us-west-2}}
docker: {{container_name: r, image: "rayproject/ray:{ray.__version__}-py311"}}
head_node_type: head
available_node_types:
  head:
    node_config: {{}}
    resources: {{CPU: 4}}
  work:
    min_workers: 1
    max_workers: 2
    node_config: {{}}
    resources: {{CPU: 4}}
setup_commands:
- export RAY_AUTH_MODE=token
"""


def test_a_file_in_order_has_no_finding(said):
    assert said(QUIET) == []


@pytest.mark.parametrize(
    ("old", "new", "findings"),
    [
        (
            "max_workers: 4",
            "max_workrs: 4",
            ["2: error: Ray's cluster launcher refuses the key 'max_workrs'; did you mean 'max_workers'?"],
        ),
        (
            "max_workers: 4",
            "autoscaling_mode: default",
            ["2: error: Ray's cluster launcher refuses the key 'autoscaling_mode'; write `upscaling_speed`."],
        ),
        (
            "    min_workers: 1",
            "    min_worker: 1",
            [
                "11: error: Ray's cluster launcher refuses the key 'available_node_types.work.min_worker'; did you mean"
                " 'min_workers'?"
            ],
        ),
        ("{CPU: 4}\n  work", "{CPU: 0.5}\n  work", ["9: error: 'available_node_types.head.resources.CPU' must be of"]),
        ("    node_config: {}\n  ", "  ", []),
        ("{type: aws, region: us-west-2}", "{region: us-west-2}", ["3: error: the key 'provider.type' is missing."]),
        (
            "type: aws, region",
            "type: aws, regoin",
            ["3: warning: Ray's schema names no key 'provider.regoin', and would"],
        ),
        (
            "type: aws",
            "type: awss",
            ["1: error: Ray's own validator refuses the file: Unsupported node provider: awss."],
        ),
        (
            "head_node_type: head\n",
            "",
            ["5: error: the key 'head_node_type' is missing: name the head's of head, work."],
        ),
        (
            "head_node_type: head",
            "head_node_type: haed",
            ["5: error: there is no node type 'haed'; did you mean 'head'?"],
        ),
        (
            "    min_workers: 1",
            "    min_workers: 3",
            ["11: error: min_workers 3 of 'work' exceeds its max_workers 2: raise max_workers."],
        ),
        (
            "max_workers: 4",
            "max_workers: 0",
            [
                "2: error: the node types' min_workers come to 1, and max_workers allows 0: raise it.",
                "12: warning: max_workers 2 of 'work' exceeds the 0 of the whole cluster, which holds",
            ],
        ),
        (
            "max_workers: 4",
            "max_workers: 1",
            ["12: warning: max_workers 2 of 'work' exceeds the 1 of the whole cluster"],
        ),
        (
            "container_name: r, ",
            "",
            ["1: error: Ray's own validator refuses the file: Must provide a container & image"],
        ),
        (
            "- export RAY_AUTH_MODE=token",
            "- echo",
            ["1: warning: no command and no run option sets RAY_AUTH_MODE=token, so whoever reaches the head"],
        ),
        (
            "- export RAY_AUTH_MODE=token",
            "- export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=abc",
            ["16: error: the token is written into the file: mount ~/.ray/auth_token"],
        ),
    ],
)
def test_each_mistake_is_told_with_its_line(said, old, new, findings):
    assert old in QUIET
    found = said(QUIET.replace(old, new, 1))
    if not findings:  # the name of a required key is told without a fixed line
        assert [one for one in found if "the key 'available_node_types.head.node_config' is missing." in one]
        return
    assert len(found) == len(findings), found
    assert all(one.startswith(start) for one, start in zip(found, findings, strict=True)), found


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("- pip install 'ray[default]==2.9.0'", "17: error: the command installs Ray ==2.9.0: write =="),
        ("- pip install -U ray[serve]", "17: error: the command installs any version of Ray: write =="),
        ("- uv pip install --system ray>=2.60", "17: error: the command installs Ray >=2.60: write =="),
        ("- cd x && pip install a && pip install ray==1.0", "17: error: the command installs Ray ==1.0"),
    ],
)
def test_a_command_that_installs_another_ray_than_the_pinned_is_an_error(said, line, finding):
    [found] = said(f"{QUIET}{line}\n")
    assert found.startswith(finding)
    assert f"=={ray.__version__}" in found


@pytest.mark.parametrize(
    "line",
    [
        f"- pip install 'ray[default]=={ray.__version__}'",
        "- pip install -e . -c pins.txt",
        "- pip install boto3 && ray start --head",
        "- echo 'not closed",
        "- apt-get install ray-gun",
    ],
)
def test_a_command_that_installs_no_other_ray_is_fine(said, line):
    assert said(f"{QUIET}{line}\n") == []


@pytest.mark.parametrize(
    ("image", "finding"),
    [
        ("rayproject/ray:2.9.0-gpu", "the image rayproject/ray:2.9.0-gpu has another Ray than the pinned"),
        ("rayproject/ray:latest", "the image rayproject/ray:latest names no version of Ray: write rayproject/ray:"),
        ("rayproject/ray-ml", "the image rayproject/ray-ml names no version of Ray: write rayproject/ray-ml:"),
    ],
)
def test_an_image_with_another_ray_is_an_error_for_the_cluster_and_for_one_node_type(said, image, finding):
    for_all = QUIET.replace(f"rayproject/ray:{ray.__version__}-py311", image)
    [found] = said(for_all)
    assert found.startswith(f"4: error: {finding}")
    for_one = QUIET.replace("    min_workers: 1", f'    docker: {{worker_image: "{image}"}}')
    [found] = said(for_one)
    assert found.startswith(f"11: error: {finding}")


def test_an_image_of_ones_own_is_ones_own_affair(said):
    assert said(QUIET.replace(f"rayproject/ray:{ray.__version__}-py311", "me/mine:3")) == []
