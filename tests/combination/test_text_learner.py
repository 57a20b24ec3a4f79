"""The cross-encoder that learns combinations, with tiny models of the real architecture."""

import pytest
import torch
from models import tiny_models

from corag_ray.models.pair_inputs import Pooling
from corag_ray.models.set_head import HeadShape
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Chunk
from jobs.combination.checkpoint import Example, Recipe
from jobs.combination.examples import Asked
from jobs.combination.text_learner import ByText, soft_maximum

TEXTS = [text[:140] for text in tiny_models.sample_texts()[:6]]
CHUNKS = tuple(Chunk(n, f"d{n}", 0, 0, len(text), text, 9) for n, text in enumerate(TEXTS))
RECIPE = Recipe(HeadShape(4), batch=2)
CHOSEN = [[(), (0,), (1, 0), (0, 1)], [(0, 1, 2, 3, 4, 5), (2, 2)]]


class Query:
    """Token matches of which nothing but the query's length is read."""

    query = (0,) * 5


def asked(text):
    holds = tuple(frozenset({n}) if n < 2 else frozenset() for n in range(6))
    return Asked(text, "train", "several", CHUNKS, tuple(range(6)), holds, 2)


EXAMPLES = [Example(asked(f"{text[:30]}?"), Query()) for text in TEXTS[:4]]


@pytest.fixture(scope="module", params=["bert", "typed_bert"])
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


def test_what_is_trained_scores_as_the_saved_model_does_in_one_window_and_in_several(folder, tmp_path):
    learner = ByText(folder, EXAMPLES, RECIPE, 128, 1)
    learner.model.eval()
    own = [EXAMPLES[0].asked, EXAMPLES[1].asked]
    logits = learner.logits(own, CHOSEN).detach()
    assert logits.shape == (2, 4)
    assert logits[1, 2:].tolist() == [0, 0]
    reranker = learner.reranker(tmp_path / "saved", "mine", Compute(1))
    windows = 0
    for row, (one, combinations) in enumerate(zip(own, CHOSEN, strict=True)):
        prepared = reranker.prepare(one.text, one.chunks, [])
        pairs = [(prepared, combination) for combination in combinations]
        windows = max(windows, *reranker.windows(pairs))
        raw = [score.raw for score in reranker.score(pairs)]
        assert logits[row, : len(raw)].tolist() == pytest.approx(raw, abs=1e-4)
    assert windows > 1


def test_training_lowers_the_loss_and_leaves_vocabulary_and_lowest_layers_as_they_are(folder):
    learner = ByText(folder, EXAMPLES, RECIPE, 128, 1)
    assert learner.steps_a_pass == 2
    model = learner.model.eval()  # no dropout: the same step's loss before and after
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    first = learner.loss(0)
    optimiser.zero_grad()
    first.backward()
    optimiser.step()
    assert float(learner.loss(0).detach()) < float(first.detach())
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert any(".layer.1." in name for name in changed)
    assert any("classifier" in name for name in changed)
    assert not any(".layer.0." in name or ".embeddings." in name for name in changed)


def test_windows_are_pooled_as_in_scoring():
    for logits in ([2.5], [1.0, -3.0, 2.0]):
        pooled = soft_maximum(torch.tensor(logits))
        assert float(pooled) == pytest.approx(Pooling.SOFT_MAXIMUM.pooled(logits), rel=1e-6)
