"""A trained cross-encoder, packed, put together again by the package, and asked by its name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from corag_ray import names, settling
from corag_ray.build import build_cross_encoder
from corag_ray.config_file import load_config
from corag_ray.errors import DataError, MissingModelError
from corag_ray.identity import reranker_identities
from corag_ray.models import packaged_rerankers
from corag_ray.models.calibration import Calibration
from corag_ray.models.packaged_rerankers import CARD, CHECKPOINT, DIFFERENCE, PackagedReranker, encoder_weights
from jobs.pack_reranker import card, main, read_figures
from tests.models.tiny_models import bert

FIGURES = {
    "data": ["squad-v1.1-part"],
    "recipe": {"passes": 1.0, "peak_learning_rate": 1e-4},
    "questions": 1234,
    "pairs": 4936,
    "questions_judged": 50,
    "mrr_first_stage": 0.7012,
    "mrr_reranked": 0.7534,
    "mrr_best_possible": 0.91,
}


@pytest.fixture
def base(tmp_path, monkeypatch):
    """An encoder of the real architecture as the packaged base, its checkpoint without the head."""
    folder = tmp_path / "base"
    bert(folder)
    weights = load_file(folder / CHECKPOINT)
    encoder = {name.removeprefix("bert."): weight for name, weight in weights.items() if name.startswith("bert.")}
    save_file(encoder, folder / CHECKPOINT, metadata={"format": "pt"})
    monkeypatch.setattr(packaged_rerankers.PackagedModel, "folder", lambda self: folder)
    monkeypatch.setattr(packaged_rerankers, "cache_folder", lambda revision: tmp_path / "cache" / revision)
    monkeypatch.setattr(packaged_rerankers, "WEIGHTS", tmp_path / "weights")
    return folder


@pytest.fixture
def trained(base, tmp_path):
    """The base with a head, one matrix moved in two directions and a bias moved."""
    torch.manual_seed(1)
    folder = tmp_path / "trained"
    folder.mkdir()
    weights = encoder_weights(base)
    weights |= {"classifier.weight": torch.randn(1, 32), "classifier.bias": torch.randn(1)}
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    weights[name] = weights[name] + torch.randn(64, 2) @ torch.randn(2, 32)
    weights["bert.encoder.layer.1.output.dense.bias"] += 1
    save_file(weights, folder / CHECKPOINT)
    (folder / "figures.json").write_text(json.dumps(FIGURES))
    return folder


def test_what_is_packed_loads_as_the_checkpoint_that_was_trained(trained, tmp_path, capsys):
    main(trained, "mine", rank=2, out=tmp_path / "weights")
    printed = json.loads(capsys.readouterr().out)
    folder = PackagedReranker("mine").folder()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    weights = load_file(trained / CHECKPOINT)
    assert model.config.num_labels == 1 and (folder / "tokenizer.json").is_file()
    for name, weight in model.state_dict().items():
        assert torch.allclose(weight, weights[name], atol=0.1), name
    assert torch.equal(model.state_dict()["classifier.weight"], weights["classifier.weight"])
    assert printed["share_told"] > 0.999
    assert printed["bytes"] == (tmp_path / "weights" / "mine" / DIFFERENCE).stat().st_size < 10_000


def test_it_is_put_together_once_and_anew_when_the_difference_is_another(trained, tmp_path):
    main(trained, "mine", rank=2, out=tmp_path / "weights")
    reranker = PackagedReranker("mine")
    first = reranker.folder()
    (first / "kept").touch()
    assert reranker.folder() == first and (first / "kept").exists()
    main(trained, "mine", rank=1, out=tmp_path / "weights")
    assert reranker.folder() != first


def test_a_package_without_the_difference_says_what_to_do(base):
    with pytest.raises(MissingModelError, match="install corag_ray again"):
        PackagedReranker("mine").folder()


def test_the_card_tells_figures_data_and_licences(trained, tmp_path):
    main(trained, "mine", rank=2, out=tmp_path / "weights")
    text = (tmp_path / "weights" / "mine" / CARD).read_text("utf-8")
    for part in ("SQuAD 1.1, CC BY-SA 4.0", "1,234 questions (4,936 pairs)", "0.753", "0.701", "| passes | 1.0 |"):
        assert part in text
    assert "selqa" not in text
    assert card(FIGURES, {"name": "x", "rank": 3, "bytes": 10, "share_told": 0.5}).startswith("# x")


def test_data_without_a_known_licence_and_an_unfinished_training_are_refused(tmp_path):
    with pytest.raises(DataError, match="no finished training"):
        read_figures(tmp_path)
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES | {"data": ["selqa", "msmarco-passage"]}))
    with pytest.raises(DataError, match="msmarco-passage"):
        read_figures(tmp_path)


@pytest.fixture
def mine(trained, tmp_path, monkeypatch):
    """The packed reranker under the name `mine`."""
    main(trained, "mine", rank=2, out=tmp_path / "weights")
    for module in (names, settling):
        monkeypatch.setattr(module, "PACKAGED_RERANKERS", {"mine": PackagedReranker("mine")})
    monkeypatch.setattr(settling, "WINDOW_TOKENS", 128)
    return PackagedReranker("mine")


def asking(name, **more):
    method = {"reranker": name, "strategy": {"kind": "greedy"}}
    return load_config(None, {"dtype": "float32", "methods": {"m": method}, **more})


def test_a_packaged_reranker_is_asked_by_its_name_alone(mine):
    config = settling.settle(asking("mine"))
    assert config.cross_encoders["mine"].folder == mine.folder()
    reranker = build_cross_encoder(config, "mine")
    [score] = reranker.score([(reranker.prepare("why?", [], []), ())])
    assert 0 <= score.calibrated <= 1
    assert list(reranker_identities(asking("mine"))) == ["mine"]


def test_it_is_put_together_only_where_a_method_asks_it(mine):
    assert settling.settle(asking("bm25")).cross_encoders == {}
    assert not mine.target.exists() and mine.state == "at first use"
    settling.settle(asking("mine"))
    assert mine.state == "yes"


def test_its_curve_is_that_of_its_own_weights_and_not_of_a_folder_that_takes_its_name(mine, trained, monkeypatch):
    asked = []
    curve = Calibration(2.0, 0.0, 1)
    monkeypatch.setattr(names, "load_calibration", lambda *of: asked.append(of) or curve)
    assert names.calibration_of(settling.settle(asking("mine")), "mine") is curve
    assert asked == [("mine", mine.revision)]
    own = settling.settle(asking("mine", cross_encoders={"mine": {"folder": str(trained), "max_tokens": 128}}))
    assert own.cross_encoders["mine"].folder == trained and names.calibration_of(own, "mine") is None
