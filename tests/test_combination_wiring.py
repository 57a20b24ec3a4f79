"""`combination` in a configuration: its weights are found, refused where missing, and part of the fingerprint."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from corag_ray import build, identity, names
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import DataError, MissingModelError
from corag_ray.identity import run_fingerprint
from corag_ray.models.calibration import Calibration, read_calibrations, sigmoid
from corag_ray.models.combination_weights import WEIGHTS
from corag_ray.models.packaged import PackagedModel
from corag_ray.models.set_head import HeadShape, SetHead, save_head
from corag_ray.names import EMBEDDERS, reranker_traits
from corag_ray.prepare import prepare_weights
from corag_ray.types import Chunk, Document, Question
from jobs.combination.curve import write_curve

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")


def config_of(reranker="combination"):
    return Config.model_validate({"methods": {"m": {"strategy": {"kind": "ranked"}, "reranker": reranker}}})


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Writes the weights of a seed where the package's are looked for."""
    monkeypatch.setattr(PackagedModel, "folder", lambda model: None)

    def write(seed, embedder=None):
        folder = tmp_path / f"{seed}"
        folder.mkdir(exist_ok=True)
        torch.manual_seed(seed)
        save_head(SetHead(HeadShape(8)), folder, embedder or str(EMBEDDERS["minilm"].revision))
        for module in (identity, names):
            monkeypatch.setattr(module, "COMBINATION_HEAD", folder)

    return write


def test_the_head_is_loaded_where_a_method_asks_for_it(weights):
    weights(1)
    prepare_weights(config_of())
    assert reranker_traits(config_of()) == {"combination": {"order_sensitive": True, "monotone": False}}


def test_a_head_that_is_missing_or_of_another_embedder_is_one_sentence_beforehand(weights, tmp_path, monkeypatch):
    weights(1, embedder="another 1.0")
    with pytest.raises(DataError, match=r"trained over the vectors of another 1\.0"):
        prepare_weights(config_of())
    monkeypatch.setattr(names, "COMBINATION_HEAD", tmp_path / "nowhere")
    with pytest.raises(MissingModelError, match=r"python -m jobs\.train_combination_reranker"):
        prepare_weights(config_of())
    prepare_weights(config_of("late_interaction"))


def test_the_fingerprint_holds_the_head_of_a_method_that_asks_for_it_alone(weights):
    found = []
    for seed in (1, 2):
        weights(seed)
        found.append((run_fingerprint(config_of(), DATA), run_fingerprint(config_of("bm25"), DATA)))
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


class Vectors:
    """One word piece a text, always the same."""

    dim, windowed = 8, 0

    def embed_with_tokens(self, texts):
        one = np.full((1, 8), 8**-0.5, np.float32)
        return np.repeat(one, len(texts), axis=0), [one] * len(texts)


def test_the_built_reranker_has_the_curve_that_was_fitted_for_the_head_and_no_other(weights):
    read_calibrations.cache_clear()
    weights(1)
    folder = names.COMBINATION_HEAD
    assert names.calibration_of(config_of(), "combination") is None
    write_curve(folder, {"slope": 2.0, "offset": -1.0}, ["d"])
    assert names.calibrations(config_of()) == {"combination": Calibration(2.0, -1.0, 1)}
    reranker = build.build_reranker(config_of(), "combination", Vectors(), SimpleNamespace(token_vectors=None))
    prepared = reranker.prepare("why?", [Chunk(0, "a", 0, 0, 4, "text", 1)], [0])
    [score] = reranker.score([(prepared, (0,))])
    assert score.calibrated == pytest.approx(sigmoid(2 * score.raw - 1))
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes() + b" ")
    assert names.calibration_of(config_of(), "combination") is None
