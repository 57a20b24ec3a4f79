"""Code that comes with a checkpoint: which of it is found, and which is refused."""

import json

import pytest

from corag_ray.errors import ConfigError
from corag_ray.models.paper_rerankers import PAPER_RERANKERS
from corag_ray.models.remote_code import check_allow_list, may_run_code

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40
GTE = PAPER_RERANKERS["gte_multilingual"]
CODE = {"auto_map": {"AutoModel": "modeling.Model"}}


def folder_of(folder, **configurations):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in configurations.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def refusal(act, *arguments):
    with pytest.raises(ConfigError) as caught:
        act(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:7], COMMIT.upper(), COMMIT + "0", ""])
def test_a_revision_that_is_no_whole_commit_is_refused(revision):
    assert refusal(check_allow_list, {GTE.hub_id: revision}, set()) == (
        f"remote_code.{GTE.hub_id} must be the commit of 40 hexadecimal digits whose code you have read, "
        f"not '{revision}'."
    )


def test_only_what_could_run_code_is_allowed_to():
    check_allow_list({GTE.hub_id: COMMIT, "mine": COMMIT}, {"mine"})
    typed = refusal(check_allow_list, {"Alibaba-NLP/gte-multilingual-reranker": COMMIT}, set())
    assert f"did you mean '{GTE.hub_id}'?" in typed
    assert "unknown model 'BAAI/bge-reranker-base'" in refusal(
        check_allow_list, {"BAAI/bge-reranker-base": COMMIT}, set()
    )


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config", CODE),
        ("config", {"text_config": {"layers": [CODE]}}),
        ("tokenizer_config", {"auto_map": {"AutoTokenizer": [None, "tokens.Fast"]}}),
        ("tokenizer_config", {"auto_map": ["tokens.Slow", None]}),
    ],
)
def test_code_is_found_wherever_transformers_would_look_for_it(tmp_path, file, content):
    folder = folder_of(tmp_path, **{file: content})
    assert f"'mine': {folder} comes with code" in refusal(may_run_code, "mine", folder, None, None)
    assert may_run_code("mine", folder, None, COMMIT)


@pytest.mark.parametrize("configurations", [{}, {"config": {"auto_map": {}}}, {"config": [], "other": CODE}])
def test_a_folder_without_code_runs_none_whatever_is_allowed(tmp_path, configurations):
    folder = folder_of(tmp_path, **configurations)
    assert not may_run_code("mine", folder, None, None)
    assert not may_run_code("mine", folder, None, COMMIT)
    assert not may_run_code("bge_base", folder, PAPER_RERANKERS["bge_base"], None)


def test_code_that_lies_elsewhere_on_the_hub_is_refused_even_where_it_is_allowed(tmp_path):
    folder = folder_of(tmp_path, config={"auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"}})
    assert refusal(may_run_code, "gte_multilingual", folder, GTE, COMMIT) == (
        f"'gte_multilingual': {folder} takes its code from the hub's Alibaba-NLP/new-impl: put those .py files into "
        "the folder, and strike 'Alibaba-NLP/new-impl--' out of its configuration."
    )


def test_code_that_was_downloaded_at_another_commit_is_refused(tmp_path):
    folder = folder_of(tmp_path / "local", config=CODE)
    note = folder / ".cache" / "huggingface" / "download" / "modeling.py.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{COMMIT}\netag\n1700000000.0\n")  # as hf download --local-dir writes it
    snapshot = folder_of(tmp_path / "models--a--b" / "snapshots" / COMMIT, config=CODE)
    for place in (folder, snapshot):
        assert may_run_code("mine", place, None, COMMIT)
        assert refusal(may_run_code, "mine", place, None, OTHER) == (
            f"'mine': the code in {place} is of commit {COMMIT}; remote_code pins {OTHER}."
        )


def test_a_cache_folder_tells_nothing_of_code_that_comes_from_a_repository_of_its_own(tmp_path):
    snapshot = folder_of(tmp_path / "models--gte" / "snapshots" / OTHER, config=CODE)
    assert may_run_code("gte_multilingual", snapshot, GTE, COMMIT)


def test_a_configuration_that_is_no_json_is_refused_and_not_passed_over(tmp_path):
    (tmp_path / "config.json").write_text('{"auto_map": ')
    assert refusal(may_run_code, "mine", tmp_path, None, None).endswith(
        "cannot be read as JSON: fetch the checkpoint again."
    )
