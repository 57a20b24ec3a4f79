"""A last layer computed for the first token alone gives the logits of the whole layer, for each architecture."""

import copy

import pytest
import tiny_models
import torch
from transformers import AutoModelForSequenceClassification

from corag_ray.models.first_token import FirstTokenLayer, compute_first_token_alone

pytestmark = pytest.mark.models


@pytest.fixture(params=["bert", "xlm_roberta"])
def model(request, tmp_path):
    return AutoModelForSequenceClassification.from_pretrained(getattr(tiny_models, request.param)(tmp_path)).eval()


@pytest.mark.parametrize("lengths", [[9], [9, 9, 9], [9, 4, 1]], ids=["one", "equal lengths", "padded"])
def test_logits_are_those_of_the_whole_layer(model, lengths):
    torch.manual_seed(0)
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    ids = torch.where(mask == 1, torch.randint(5, 90, mask.shape), model.config.pad_token_id)
    whole = copy.deepcopy(model)
    assert compute_first_token_alone(model)
    with torch.inference_mode():
        first, expected = (one(input_ids=ids, attention_mask=mask).logits for one in (model, whole))
    assert torch.allclose(first, expected, atol=1e-6)
    assert isinstance(model.base_model.encoder.layer[-1], FirstTokenLayer)


def test_an_architecture_that_is_not_known_is_left_as_it_is():
    assert not compute_first_token_alone(torch.nn.Linear(2, 1))
