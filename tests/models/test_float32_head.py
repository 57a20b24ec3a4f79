"""A toy of an encoder and a head, by hand: what is rounded to bfloat16, which has eight bits, and what is not."""

import pytest
import torch

from corag_ray.models.float32_head import compute_in

FINE = 1.001  # 1.0 in bfloat16, whose next number is 1.0078


class Encoder(torch.nn.Module):
    """States are the inputs times a weight; the pooler triples the first one."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(FINE))
        self.pooler = torch.nn.Linear(2, 2, bias=False)
        self.pooler.weight.data = torch.eye(2) * 3 * FINE
        self.register_buffer("table", torch.tensor(FINE), persistent=False)
        self.register_buffer("stored", torch.tensor(FINE))
        self.register_buffer("numbers", torch.arange(2))

    def forward(self, values):
        return self.pooler((values * self.weight)[:, 0])


class Unnamed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.classifier = Encoder(), torch.nn.Linear(2, 1, bias=False)
        self.classifier.weight.data = torch.tensor([[FINE, 0.0]])

    def forward(self, values):
        return self.classifier(self.encoder(values))


class Model(Unnamed):
    """As transformers' models do, it says which part is the encoder."""

    base_model = property(lambda self: self.encoder)


def test_the_head_computes_in_float32_with_its_own_weights_and_the_encoder_in_bfloat16():
    model = Model()
    compute_in(model, "bfloat16")
    logit = model(torch.tensor([[[5.0, 1.0], [9.0, 9.0]]], dtype=torch.bfloat16))
    assert logit.dtype == torch.float32
    assert logit.item() == pytest.approx(5 * 3 * FINE * FINE, rel=1e-6)  # the encoder's weight is 1.0
    assert model.encoder.weight.dtype == model.encoder.stored.dtype == torch.bfloat16
    assert model.encoder.pooler.weight.dtype == model.classifier.weight.dtype == torch.float32


def test_a_table_that_no_checkpoint_stores_and_integers_keep_their_type():
    model = Model()
    compute_in(model, "bfloat16")
    assert float(model.encoder.table) == pytest.approx(FINE, rel=1e-6)
    assert model.encoder.numbers.dtype == torch.int64


def test_a_model_that_names_no_encoder_is_in_bfloat16_as_a_whole():
    model = Unnamed()
    compute_in(model, "bfloat16")
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert model(torch.ones(1, 1, 2, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_in_float32_nothing_changes():
    model = Model()
    compute_in(model, "float32")
    assert model(torch.tensor([[[5.0, 1.0]]])).item() == pytest.approx(15 * FINE**3, rel=1e-6)
    assert not model.classifier._forward_pre_hooks
