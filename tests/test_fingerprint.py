"""The fingerprint stands for what changes numbers, told by content: no folder's name, no patience, nothing unused."""

import dataclasses
import importlib.metadata

import pytest

from corag_ray import identity
from corag_ray.config import Config
from corag_ray.core.policy_tree import PRESETS
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError
from corag_ray.identity import run_fingerprint
from corag_ray.models.packaged import PackagedModel
from corag_ray.names import calibrations
from corag_ray.prepare import prepare_weights
from corag_ray.prompts import PROMPTS
from corag_ray.types import Document, Question

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")
SERVER = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "context_window": 100}


@pytest.fixture(autouse=True)
def nothing_is_unpacked(monkeypatch):
    monkeypatch.setattr(PackagedModel, "folder", lambda model: None)


def fingerprint(**values):
    return run_fingerprint(Config.model_validate(values), DATA)


def server(**changes):
    return {"generation": {"server": SERVER | changes}}


def cross_encoder(folder, **settings):
    methods = {"m": {"strategy": {"kind": "ranked"}, "reranker": "mine"}}
    return {"methods": methods, "cross_encoders": {"mine": {"folder": str(folder), **settings}}}


def folders(root, file, *contents):
    """Folders that hold one file each, of the given contents."""
    made = [root / str(number) for number in range(len(contents))]
    for folder, content in zip(made, contents, strict=True):
        folder.mkdir()
        (folder / file).write_text(content)
    return made


@pytest.mark.parametrize(
    "patience", [{"timeout_s": 1}, {"attempts": 1}, {"concurrency": 1}, {"key_variable": "MY_KEY"}], ids=str
)
def test_how_patiently_a_server_is_asked_and_with_which_key_changes_no_number(patience):
    assert fingerprint(**server(**patience)) == fingerprint(**server())


def test_which_server_is_asked_for_which_model_changes_numbers():
    changes = ({}, {"model": "n"}, {"context_window": 99}, {"base_url": "http://127.0.0.1:8/v1"})
    assert len({fingerprint(), *(fingerprint(**server(**change)) for change in changes)}) == 5


def test_a_cross_encoder_that_no_method_asks_changes_no_number():
    assert fingerprint(cross_encoders={"unused": {"folder": "nowhere"}}) == fingerprint()


def test_a_servers_tokenizer_is_known_by_its_content_and_not_by_its_folder(tmp_path):
    made = folders(tmp_path, "tokenizer.json", "{}", "{}", "{ }")
    same, again, other = (fingerprint(**server(tokenizer=str(folder))) for folder in made)
    assert same == again != other
    assert fingerprint(**server()) not in (same, other)


def test_a_cross_encoder_is_known_by_its_files_its_window_and_its_pooling_and_not_by_its_folder(tmp_path):
    made = folders(tmp_path, "weights", "1", "1", "2")
    same, again, other = (fingerprint(**cross_encoder(folder)) for folder in made)
    assert same == again
    changes = ({"max_tokens": 99}, {"pooling": "mean"}, {"pooling": "maximum"})
    changed = [fingerprint(**cross_encoder(made[0], **change)) for change in changes]
    assert len({same, other, *changed}) == 5
    assert fingerprint(**cross_encoder(made[0], pooling="soft_maximum")) == same


@pytest.mark.parametrize(("package", "changes_any_run"), [("FlagEmbedding", False), ("rouge-score", True)])
def test_the_versions_of_what_scores_answers_and_runs_cross_encoders_count_where_they_do(
    tmp_path, monkeypatch, package, changes_any_run
):
    [folder] = folders(tmp_path, "weights", "1")
    plain, reranked = fingerprint(), fingerprint(**cross_encoder(folder))
    installed = identity.package_version
    monkeypatch.setattr(identity, "package_version", lambda name: "99" if name == package else installed(name))
    assert fingerprint(**cross_encoder(folder)) != reranked
    assert (fingerprint() != plain) == changes_any_run


@pytest.mark.parametrize("language", ["en", "zh", "es"])
@pytest.mark.parametrize("passages", [None, ["passage"]])
def test_the_prompt_counts_in_every_language_and_without_passages(monkeypatch, language, passages):
    before, seed = fingerprint(), PROMPTS["seed"]

    def changed(question, given, asked_in):
        return seed(question, given, asked_in) + "!" * ((given, asked_in) == (passages, language))

    monkeypatch.setitem(PROMPTS, "seed", changed)
    assert fingerprint() != before


def test_a_folder_of_a_model_that_is_not_there_is_named_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'mine': there is no folder models/mine\.$"):
        prepare_weights(Config.model_validate(cross_encoder("models/mine")))
    with pytest.raises(ConfigError, match=r"tokenizer: models/theirs has no tokenizer\.json"):
        prepare_weights(Config.model_validate(server(tokenizer="models/theirs")))


def test_a_cross_encoder_has_no_calibration_and_its_weights_are_not_read_for_one():
    assert calibrations(Config.model_validate(cross_encoder("nowhere"))) == {"mine": None}


BASE = {"methods": {"m": {"strategy": {"kind": "policy_tree", "preset": "report"}}, "gold": {"source": "gold"}}}


def fingerprints(**changes):
    config = Config.model_validate(BASE | changes)
    return config.numbers, run_fingerprint(config, DATA)


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"select_actors": 3, "generate_actors": 2, "embed_actors": 2, "cpus_an_actor": 0.1, "threads": 9}},
        {"limit": 3},
        {"memo": {"entries": 5, "path": "memo.sqlite"}},
        {"max_failed_share": 0.5},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_fingerprint_ignores_how_a_run_is_spread_and_how_much_of_it_is_run(changes):
    assert fingerprints(**changes) == fingerprints()


@pytest.mark.parametrize(
    "changes",
    [
        {"budget_tokens": 511},
        {"seed": 1},
        {"deterministic": True},
        {"dtype": "bfloat16"},
        {"dataset": "other"},
        {"group_size": 8},
        {"chunking": {"size_tokens": 64}},
        {"chunking": {"overlap_tokens": 1}},
        {"token_vectors": {"dtype": "int8"}},
        {"token_vectors": {"up_to_mb": 0}},
        {"retrieval": {"kind": "dense"}},
        {"retrieval": {"num_candidates": 59}},
        {"generation": {"max_new_tokens": 47}},
        {"generation": {"prompt": "concise"}},
        {"generation": {"enabled": False}},
        {"methods": {**BASE["methods"], "m": {"strategy": {"kind": "ranked"}}}},
        {"methods": {**BASE["methods"], "m": {"strategy": {"kind": "policy_tree", "preset": "seed"}}}},
        {"methods": {**BASE["methods"], "m": {"strategy": {"kind": "policy_tree", "changes": {"iterations": 9}}}}},
        {"methods": {**BASE["methods"], "n": {"source": "none"}}},
    ],
    ids=str,
)
def test_the_fingerprint_changes_with_whatever_changes_a_number(changes):
    numbers, fingerprint = fingerprints(**changes)
    assert numbers != fingerprints()[0]
    assert fingerprint != fingerprints()[1]


def test_the_fingerprint_changes_with_corpus_and_questions():
    config = Config()
    corpus = dataclasses.replace(DATA, fingerprint="c1")
    questions = dataclasses.replace(DATA, questions_fingerprint="q1")
    assert len({run_fingerprint(config, data) for data in (DATA, corpus, questions)}) == 3


def change_preset(monkeypatch):
    monkeypatch.setitem(PRESETS, "report", dataclasses.replace(PRESETS["report"], iterations=7))


def change_prompt(monkeypatch):
    monkeypatch.setitem(PROMPTS, "seed", PROMPTS["concise"])


def change_library(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "99")


def change_row_format(monkeypatch):
    monkeypatch.setattr(identity, "ROW_SCHEMA_VERSION", 99)


@pytest.mark.parametrize("change", [change_preset, change_prompt, change_library, change_row_format])
def test_the_fingerprint_changes_with_what_a_name_stands_for(monkeypatch, change):
    numbers, fingerprint = fingerprints()
    change(monkeypatch)
    assert fingerprints()[0] == numbers
    assert fingerprints()[1] != fingerprint
