"""A last layer computed for the first token alone: for three classes, where it gives the logits of the whole layer."""

import copy
import functools

import pytest
import tiny_models
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification, BertModel
from transformers.modeling_outputs import SequenceClassifierOutput

from corag_ray.errors import ConfigError
from corag_ray.models.first_token import FirstTokenLayer, compute_first_token_alone

pytestmark = pytest.mark.models
IDS = torch.tensor([[2, 50, 60, 70, 3]])


@pytest.fixture(params=["bert", "xlm_roberta"])
def model(request, tmp_path):
    return AutoModelForSequenceClassification.from_pretrained(getattr(tiny_models, request.param)(tmp_path)).eval()


@pytest.fixture
def bert(tmp_path):
    return BertForSequenceClassification.from_pretrained(tiny_models.bert(tmp_path)).eval()


class MeanPooled(BertForSequenceClassification):
    """transformers' layers under a head that reads every position."""

    def forward(self, input_ids, **others):
        states = self.bert(input_ids, **others).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(states.mean(1)))


def logit_of(model, ids=IDS):
    with torch.inference_mode():
        return float(model(input_ids=ids).logits[0, 0])


def replaced(model):
    return compute_first_token_alone(model, functools.partial(logit_of, model))


def is_whole(model):
    return not isinstance(model.base_model.encoder.layer[-1], FirstTokenLayer)


@pytest.mark.parametrize("lengths", [[9], [9, 9, 9], [9, 4, 1]], ids=["one", "equal lengths", "padded"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_are_those_of_the_whole_layer(model, lengths, attention):
    torch.manual_seed(0)
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    ids = torch.where(mask == 1, torch.randint(5, 90, mask.shape), model.config.pad_token_id)
    model.set_attn_implementation(attention)
    whole = copy.deepcopy(model)
    assert replaced(model)
    assert not is_whole(model)
    with torch.inference_mode():
        first, expected = (one(input_ids=ids, attention_mask=mask).logits for one in (model, whole))
    assert torch.allclose(first, expected, atol=1e-6)


def test_a_mean_pooling_head_over_the_same_layers_keeps_all_positions(bert):
    model = MeanPooled(bert.config).eval()
    model.load_state_dict(bert.state_dict())
    before = logit_of(model)
    assert not replaced(model)
    assert is_whole(model)
    assert logit_of(model) == before
    model.bert.encoder.layer[-1] = FirstTokenLayer(model.bert.encoder.layer[-1])  # what would have been read
    assert abs(logit_of(model) - before) > 1e-3


def test_a_class_that_bears_the_name_of_one_known_is_another(bert):
    named = type("BertForSequenceClassification", (BertForSequenceClassification,), {})(bert.config).eval()
    assert type(named).__name__ == type(bert).__name__
    assert not replaced(named)
    assert is_whole(named)


@pytest.mark.parametrize("change", [{"_attn_implementation": "flex_attention"}, {"is_decoder": True}])
def test_attention_of_another_kind_is_left_as_it_is(bert, change):
    for key, value in change.items():
        setattr(bert.config, key, value)
    assert not compute_first_token_alone(bert, lambda: 0.0)
    assert is_whole(bert)


@pytest.mark.parametrize(("second", "kept"), [(0.5009, True), (0.5011, False), (float("nan"), False)])
def test_where_the_probe_differs_by_more_than_a_thousandth_the_whole_layer_is_put_back_and_that_is_said(
    bert, caplog, second, kept
):
    logits = iter([0.5, second])
    assert compute_first_token_alone(bert, lambda: next(logits)) == kept
    assert is_whole(bert) != kept
    assert len(caplog.messages) == (0 if kept else 1)
    assert kept or "is computed for all tokens" in caplog.messages[0]


def test_where_the_new_layer_fails_the_whole_one_is_put_back_and_where_the_model_fails_that_is_told(bert):
    def logit():
        if not is_whole(bert):
            raise ConfigError("no such part")
        return 0.5

    assert not compute_first_token_alone(bert, logit)
    assert is_whole(bert)
    with pytest.raises(StopIteration):
        compute_first_token_alone(bert, functools.partial(next, iter([])))


def test_an_architecture_that_is_not_known_is_left_as_it_is(bert):
    assert not compute_first_token_alone(torch.nn.Linear(2, 1), lambda: 0.0)
    assert not compute_first_token_alone(BertModel(bert.config), lambda: 0.0)
