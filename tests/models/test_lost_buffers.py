"""Models written for older transformers: their tables come back, and no second set of weights is made for them."""

import pytest
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from corag_ray.models.lost_buffers import make_lost_buffers


class Tabled(PreTrainedModel):
    """Weights, and tables that no checkpoint stores."""

    config_class = PreTrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(50, 4, padding_idx=1)
        self.inner = torch.nn.Linear(4, 4)
        self.inner.register_buffer("table", self.table(), persistent=False)
        self.register_buffer("stored", torch.ones(2))
        self.places = [weight.device.type for weight in self.parameters()]
        self.post_init()
        self.made.append(self)

    def table(self):
        return torch.arange(4.0) * 2


class FilledTable(Tabled):
    def table(self):
        return torch.empty(4).copy_(torch.arange(4.0) * 2)


class ReadsValues(Tabled):
    def table(self):
        return torch.arange(4.0) * float(torch.empty(1).fill_(2))


def mended(kind, dtype=torch.float32):
    kind.made = []
    model = kind(PreTrainedConfig())
    model.inner.table = torch.full((4,), torch.nan)
    weights = {name: weight.clone() for name, weight in model.named_parameters()}
    make_lost_buffers(model, dtype)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.named_parameters())
    return model


@pytest.mark.parametrize("kind", [Tabled, FilledTable, ReadsValues])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_lost_table_is_made_anew_in_the_type_that_the_model_computes_in_and_nothing_else_changes(kind, dtype):
    table = mended(kind, dtype).inner.table
    assert table.tolist() == [0, 2, 4, 6]
    assert table.dtype == dtype
    assert torch.get_default_dtype() == torch.float32


def test_for_it_no_weight_gets_memory_but_where_a_table_needs_that():
    mended(Tabled)
    assert [set(one.places) for one in Tabled.made] == [{"cpu"}, {"meta"}]
    mended(FilledTable)
    assert [set(one.places) for one in FilledTable.made] == [{"cpu"}, {"meta"}, {"cpu"}]


def test_a_model_that_lost_nothing_is_made_once():
    Tabled.made = []
    model = Tabled(PreTrainedConfig())
    del model.inner.table
    make_lost_buffers(model, torch.float32)
    assert len(Tabled.made) == 1
