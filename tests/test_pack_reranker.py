"""What the job that packs a cross-encoder writes, in which order, and what it refuses and measures."""

import json
import os
import shutil
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from models import tiny_models
from safetensors.torch import load_file, save_file

from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError, DataError
from corag_ray.models.calibration import read_calibrations
from corag_ray.models.combination_weights import CARD, CURVES
from corag_ray.models.low_rank import ADDED, LEFT
from corag_ray.models.packaged import PackagedModel
from corag_ray.models.packaged_rerankers import (
    CHECKPOINT,
    DIFFERENCE,
    PACKAGED_RERANKERS,
    PackagedReranker,
)
from corag_ray.types import Chunk, Document, Evidence, Question, Score, Span
from jobs import pack_reranker as job
from jobs.document_parts import part_of_document
from jobs.fit_calibration import Sample, half_of_document, score_set
from jobs.train_reranker import FIGURES, PARTS, TEST_PART

NAME = "passage_facts"
TRAINING = {
    "data": ["selqa", "squad-v1.1-part"],
    "recipe": {"passes": 1.0, "kind": "facts"},
    "questions": 1234,
    "mrr_reranked": 0.7534,
    "folder": "/home/somebody/out",
    "before": {"questions": 99, "folder": "/home/somebody/before", "before": None},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A cross-encoder of the real architecture with a trained head."""
    return tiny_models.bert(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def model(checkpoint, tmp_path, monkeypatch):
    """The folder of a training, which moved all matrices of a layer, and its encoder before that as the base."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "trained"
    shutil.copytree(checkpoint, folder)
    weights = load_file(folder / CHECKPOINT)
    encoder = {name.removeprefix("bert."): weight for name, weight in weights.items() if name.startswith("bert.")}

    def unpack(source, target):
        shutil.copytree(checkpoint, target, dirs_exist_ok=True)
        save_file(encoder, target / CHECKPOINT, metadata={"format": "pt"})

    base = PackagedModel("iniconfig", "METADATA", unpack)
    monkeypatch.setitem(PACKAGED_RERANKERS, NAME, PackagedReranker(NAME, "facts", tmp_path / "nowhere", base))
    torch.manual_seed(0)
    for name, weight in weights.items():
        if "layer.1." in name or "pooler" in name:
            weights[name] = weight + 0.1 * torch.randn(weight.shape)
    save_file(weights, folder / CHECKPOINT, metadata={"format": "pt"})
    (folder / FIGURES).write_text(json.dumps(TRAINING))
    return folder


SCORES = {
    (job.UNPACKED, 0): ([1.0, 2.0], [False, True]),
    (job.UNPACKED, 1): ([3.0, 4.0, -1.0], [False, True, False]),
    (NAME, 0): ([1.0, 3.5, 2.0], [False, True, True]),
    (NAME, 1): ([3.0, 4.0, 2.5], [False, True, False]),
}


def samples():
    return {key: Sample(list(read), [0.5] * len(read), list(relevant)) for key, (read, relevant) in SCORES.items()}


@pytest.fixture
def packing(model, tmp_path, monkeypatch):
    """Runs the job without data: both models score alike, and the merged folder is seen."""
    asked = []

    def scored(models, data, config, limit, root):
        asked.append((models, data, limit))
        assert (models[NAME] / "config.json").is_file()
        halves = {0: ([1.0, 2.0, 2.5, 4.0], [False, True, False, True]), 1: ([1.0, 4.0], [False, True])}
        both = {half: Sample(read, [0.5] * len(read), relevant) for half, (read, relevant) in halves.items()}
        return {(name, half): sample for name in models for half, sample in both.items()}

    monkeypatch.setattr(job, "scored", scored)
    monkeypatch.setattr(job, "prepare_weights", lambda config: None)
    monkeypatch.setattr(job, "LIMIT_BYTES", 20_000)
    read_calibrations.cache_clear()
    return lambda **given: job.main(**{"model": model, "name": NAME, "out": tmp_path / "out", **given}) or asked[-1]


def told(home):
    return load_file(home / DIFFERENCE)


def test_what_it_writes_is_the_reranker_that_the_package_has_from_then_on(
    packing, model, tmp_path, monkeypatch, capsys
):
    models, data, _ = packing()
    home = tmp_path / "out" / NAME
    assert data == ["selqa", "squad-v1.1-part"] and models[job.UNPACKED] == model
    reranker = PackagedReranker(NAME, "facts", home, PACKAGED_RERANKERS[NAME].base)
    assert reranker.folder() == models[NAME]
    card = json.loads((home / CARD).read_text("utf-8"))
    assert card == json.loads(capsys.readouterr().out.splitlines()[-1])
    assert card["revision"] == reranker.revision
    curve = reranker.calibration()
    assert (curve.slope, curve.offset, curve.version) == (card["curve"]["slope"], card["curve"]["offset"], 1)
    assert packing(data="selqa")[1] == ["selqa"]


def test_the_card_tells_licences_training_and_size_and_where_nothing_lay(packing, tmp_path):
    packing()
    text = (tmp_path / "out" / NAME / CARD).read_text("utf-8")
    card = json.loads(text)
    assert card["licence"].startswith("CC BY-SA 4.0") and card["base"]["licence"] == "Apache-2.0"
    assert card["data"][1] == {"name": "squad-v1.1-part", "licence": "CC BY-SA 4.0 (SQuAD)"}
    assert card["training"]["recipe"] == TRAINING["recipe"] and card["training"]["before"]["questions"] == 99
    assert "somebody" not in text and str(tmp_path) not in text
    assert card["packed"]["bytes"] == (tmp_path / "out" / NAME / DIFFERENCE).stat().st_size <= 20_000
    assert 0.3 < card["packed"]["share_of_squared_difference"] < 0.99
    assert card["packed"]["ranks"][1] >= card["packed"]["ranks"][0] >= 1
    assert card["limits"]


def test_the_head_is_told_in_full_and_other_matrices_at_low_rank(packing, model, tmp_path):
    packing()
    names = told(tmp_path / "out" / NAME)
    assert "bert.pooler.dense.weight" + ADDED in names and "classifier.weight" in names
    assert torch.equal(names["classifier.weight"], load_file(model / CHECKPOINT)["classifier.weight"])
    assert [name for name in names if "pooler" in name and name.endswith(LEFT)] == []
    assert [name for name in names if "layer.1.intermediate" in name and name.endswith(LEFT)] != []


def test_card_and_curve_are_written_before_the_weights_and_all_can_be_read_by_others(packing, tmp_path, monkeypatch):
    written, put = [], job._put
    monkeypatch.setattr(job, "_put", lambda path, content: written.append(path.name) or put(path, content))
    before = os.umask(0o077)
    try:
        packing()
    finally:
        os.umask(before)
    assert written == [CARD, CURVES, DIFFERENCE]
    files = list((tmp_path / "out" / NAME).iterdir())
    assert {file.name for file in files} == set(written)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}


def test_another_name_another_data_and_another_model_are_refused(packing, model):
    with pytest.raises(ConfigError, match=r"unknown packaged reranker 'passage'; did you mean 'passage_facts'\?"):
        packing(name="passage")
    weights = load_file(model / CHECKPOINT)
    save_file({f"{name}.other": weight for name, weight in weights.items()}, model / CHECKPOINT)
    with pytest.raises(DataError, match=r"was trained from iniconfig: .* above the limit of 20,000\.$"):
        packing()
    (model / CHECKPOINT).unlink()
    with pytest.raises(DataError, match="was trained from iniconfig"):
        packing()
    (model / FIGURES).write_text(json.dumps(TRAINING | {"data": ["selqa", "msmarco-passage"]}))
    with pytest.raises(DataError, match=r"learned from msmarco-passage: no licence is known"):
        packing()
    (model / FIGURES).unlink()
    with pytest.raises(DataError, match="no finished training"):
        packing()


def test_packed_and_whole_are_compared_over_all_pairs():
    # Of the 6 pairs of places, 2 and 3 stand otherwise: tau 4 / 6. Above 1 and 3, evidence is in 4 of 4 and in 3 of 4.
    truth = [False, False, True, True]
    found = job.compared(Sample(read=[1.0, 2.0, 3.0, 4.0], relevant=truth), Sample(read=[1, 3, 2, 4], relevant=truth))
    assert found == {"pairs": 4, "kendall_tau": 0.6667, "evidence_higher": {"whole": 1.0, "packed": 0.75}}
    joined = job.both_halves(samples(), NAME)
    assert (joined.read, joined.relevant[-2:]) == ([1.0, 3.5, 2.0, 3.0, 4.0, 2.5], [True, False])


class Noting:
    """A reranker that notes the documents that it is shown, and gives every combination its number of chunks."""

    name = NAME

    def __init__(self):
        self.shown = []

    def prepare(self, query, chunks, rows):
        self.shown.append({chunk.doc_id for chunk in chunks})

    def score(self, pairs):
        return [Score(float(len(chosen)), 0.5) for _, chosen in pairs]


def test_the_questions_and_candidates_are_of_documents_that_were_kept_back_alone():
    documents = [f"d{n}" for n in range(400)]
    kept = [doc for doc in documents if part_of_document(doc, PARTS) == TEST_PART]
    chunks = [Chunk(n, doc, 0, 0, 9, "text", 1) for n, doc in enumerate(documents)]
    asked = [kept[0], kept[1], next(doc for doc in documents if doc not in kept)]
    questions = [Question(doc, "why?", evidence=(Evidence(Span(doc, 0, 9)),)) for doc in asked]
    search = SimpleNamespace(search=lambda texts, limit: [[(row, 1.0) for row in range(400)]])
    index = SimpleNamespace(first_stage=search, store=SimpleNamespace(take=lambda rows: [chunks[row] for row in rows]))
    reranker, found = Noting(), defaultdict(Sample)
    dataset = Dataset("d", (Document("a", "text"),), tuple(questions), 0, "c0", "q0")
    assert score_set(dataset, index, [reranker], 9, found, job.unseen_half) == 2
    halves = [half_of_document(doc) for doc in asked[:2]]
    assert reranker.shown == [{doc for doc in kept if half_of_document(doc) == half} for half in halves]
    # A combination of each size with evidence, and one without.
    assert sorted(value for sample in found.values() for value in sample.read) == sorted([1.0, 2.0, 3.0] * 4)
