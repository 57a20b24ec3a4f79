"""The set head: its size, what it sees and what it does not, padding, and the file of its weights."""

import numpy as np
import pytest
import torch

from corag_ray.errors import DataError, MissingModelError
from corag_ray.models.combination_weights import WEIGHTS
from corag_ray.models.set_head import NEARNESS, HeadShape, SetHead, _Dropout, _mixed, _rivals, load_head, save_head
from corag_ray.models.token_matches import TokenMatches, match_tokens

SHAPE = HeadShape(6, projected=5, width=8, heads=2, hidden=12, places=3)


def made_head(seed=0, shape=SHAPE):
    torch.manual_seed(seed)
    return SetHead(shape).eval()


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def matches():
    draw = np.random.default_rng(1)
    return match_tokens(unit(draw.normal(size=(3, 6))), [unit(draw.normal(size=(4, 6))) for _ in range(5)])


def logit(head, rows, combination):
    with torch.inference_mode():
        return float(head(rows[[0, *(1 + number for number in combination)]][None]))


def test_over_minilm_a_head_has_at_most_200_000_parameters():
    numbers = sum(tensor.numel() for tensor in SetHead(HeadShape(384)).parameters())
    # Projection, join (97 numbers to 48), beside, 7 places; three blocks: two norms, query and out, key and value,
    # feed-forward; what chunks bring and are worth; norm and logit; the factor of late interaction.
    block = 2 * 96 + 2 * (48 * 48 + 48) + (48 * 96 + 96) + (48 * 96 + 96) + (96 * 48 + 48)
    worth = 96 + (48 * 48 + 48) + 96 + (48 * 96 + 96) + 97
    assert numbers == 384 * 32 + (97 * 48 + 48) + 3 * 48 + 7 * 48 + 3 * block + worth + 96 + 49 + 1
    assert numbers <= 200_000


def test_a_row_is_what_one_chunk_has_nearest_to_one_token_and_the_first_that_of_no_chunk(matches):
    head = made_head()
    rows = head.rows(matches)
    assert rows.shape == (6, 4, SHAPE.row) == (6, 4, 8 + 5 + 1)
    found = head.project(torch.from_numpy(matches.nearest[2, 1]))
    asked = head.project(torch.from_numpy(matches.query[1]))
    joined = head.join(torch.cat([found, asked, found * asked, torch.tensor([matches.cosines[2, 1]])]))
    expected = torch.cat([joined, found / found.norm(), torch.tensor([matches.cosines[2, 1]])])
    torch.testing.assert_close(rows[3, 1], expected)
    nothing = head.join(torch.cat([0 * asked, asked, 0 * asked, torch.zeros(1)]))
    torch.testing.assert_close(rows[0, 1], torch.cat([nothing, torch.zeros(6)]))


def test_a_row_is_told_how_like_the_likest_and_how_near_the_nearest_other_chunk_is_but_nothing_of_no_chunk():
    vectors = torch.tensor([[0.0, 0], [1, 0], [0.6, 0.8], [0, 1], [1, 0]])
    cosines = torch.tensor([[0.0], [0.5], [0.3], [-0.2], [0.9]])
    alike, nearest = _rivals(vectors, cosines).T
    # The last is a copy of the first chunk; the second is as like them as .6 and the third as .8.
    torch.testing.assert_close(alike[1:], torch.tensor([1.0, 0.8, 0.8, 1.0]))
    torch.testing.assert_close(nearest, torch.tensor([0.9, 0.9, 0.9, 0.9, 0.5]))
    alone = _rivals(vectors[:2], cosines[:2])
    torch.testing.assert_close(alone[1], torch.tensor([-1.0, -1.0]))


def test_a_copy_is_told_from_a_single_chunk_and_from_two_that_are_alike(matches):
    head = made_head()
    rows = head.rows(matches)
    nearly = rows.clone()
    nearly[2] = nearly[1] + 0.05
    for other in ((0,), (0, 1)):
        assert abs(logit(head, nearly, (0, 0)) - logit(head, nearly, other)) > 1e-4


def test_what_chunks_are_worth_is_added_up_over_chunks(matches):
    head = made_head()
    rows = head.rows(matches)
    for bias in (1.0, 2.0):
        with torch.no_grad():
            before = [logit(head, rows, chosen) for chosen in ((), (1,), (1, 2, 3))]
            head.worth[-1].bias += bias
        after = [logit(head, rows, chosen) for chosen in ((), (1,), (1, 2, 3))]
        assert np.subtract(after, before) == pytest.approx([0, bias, 3 * bias], abs=1e-5)


@pytest.mark.parametrize(("asking", "asked"), [(7, 7), (1, 40), (9, 9)])
def test_attention_written_out_or_not_is_that_of_the_library(asking, asked):
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 2, asking, 4), torch.randn(3, 2, asked, 4), torch.randn(3, 2, asked, 4)
    mask = torch.rand(3, asked) < 0.8
    mask[:, 0] = True
    for read in (None, mask):
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, None if read is None else read[:, None, None, :]
        )
        torch.testing.assert_close(_mixed(query, key, value, read), expected)


def test_dropout_keeps_the_mean_drops_the_share_and_follows_the_seed():
    drop, ones = _Dropout(0.25), torch.ones(400, 100)
    torch.manual_seed(3)
    found, other = drop(ones), drop(ones)
    torch.manual_seed(3)
    torch.testing.assert_close(drop(ones), found)
    assert not torch.equal(found, other)
    assert float((found == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(found.mean()) == pytest.approx(1, abs=0.01)
    assert torch.equal(drop.eval()(ones), ones)


def test_order_counts_up_to_the_last_place_and_chunks_beyond_share_it(matches):
    head = made_head()
    rows = head.rows(matches)
    assert abs(logit(head, rows, (0, 1)) - logit(head, rows, (1, 0))) > 1e-6
    assert abs(logit(head, rows, (0, 1, 2, 3)) - logit(head, rows, (0, 2, 1, 3))) > 1e-6
    assert logit(head, rows, (0, 1, 2, 3)) == pytest.approx(logit(head, rows, (0, 1, 3, 2)), abs=1e-6)


def test_query_tokens_but_the_first_have_no_order(matches):
    head = made_head()
    turned = [0, 3, 1, 2]
    other = TokenMatches(matches.query[turned], matches.nearest[:, turned], matches.cosines[:, turned])
    assert logit(head, head.rows(other), (4, 2)) == pytest.approx(logit(head, head.rows(matches), (4, 2)), abs=1e-6)


def test_a_padded_token_changes_nothing_whatever_stands_there(matches):
    head = made_head()
    rows = head.rows(matches)[[0, 3, 1]]
    padded = torch.nn.functional.pad(rows, (0, 0, 0, 2), value=7.0)[None]
    read = torch.tensor([[True] * 4 + [False] * 2])
    with torch.inference_mode():
        assert float(head(padded, read)) == pytest.approx(float(head(rows[None])), abs=1e-6)
        assert abs(float(head(padded)) - float(head(rows[None]))) > 1e-6


def test_every_weight_learns(matches):
    head = made_head().train()
    rows = head.rows(matches)
    head(torch.stack([rows[[0, 1, 2, 3]], rows[[0, 4, 2, 5]]])).square().sum().backward()
    assert [name for name, weight in head.named_parameters() if not weight.grad.abs().sum() > 0] == []


def test_saved_weights_come_back_with_their_shape_and_cannot_be_trained(tmp_path, matches):
    head = made_head()
    save_head(head, tmp_path, "embedder 1")
    loaded = load_head(tmp_path, "embedder 1")
    assert loaded.shape == SHAPE
    assert not loaded.training
    assert not any(weight.requires_grad for weight in loaded.parameters())
    assert logit(loaded, loaded.rows(matches), (2, 0)) == logit(head, head.rows(matches), (2, 0))
    assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]
    assert (tmp_path / WEIGHTS).stat().st_mode & 0o777 == 0o644


def test_weights_that_are_missing_damaged_or_of_another_embedder_are_refused(tmp_path):
    with pytest.raises(MissingModelError, match="train_combination_reranker"):
        load_head(tmp_path, "embedder 1")
    save_head(made_head(), tmp_path, "embedder 1")
    with pytest.raises(DataError, match="trained over the vectors of embedder 1, not of embedder 2"):
        load_head(tmp_path, "embedder 2")
    whole = (tmp_path / WEIGHTS).read_bytes()
    for damaged in (b"", b"no weights", whole[:-4], whole.replace(b"place.weight", b"plume.weight")):
        (tmp_path / WEIGHTS).write_bytes(damaged)
        with pytest.raises(DataError, match="holds no set head that can be read"):
            load_head(tmp_path, "embedder 1")


def test_late_interaction_counts_by_a_factor_in_the_logit_whatever_else_the_head_says(matches):
    head, rows = made_head(), made_head().rows(matches)
    nearest = rows[[2, 4], 1:, -1].amax(dim=0).mean().item()  # token 0 is the query's mean, which MaxSim does not know
    without = made_head()
    without.nearness.data.zero_()
    assert logit(head, rows, (1, 3)) - logit(without, rows, (1, 3)) == pytest.approx(NEARNESS * nearest, abs=1e-5)
    assert logit(head, rows, ()) == pytest.approx(logit(without, rows, ()), abs=1e-6)
    padded = torch.cat([rows, torch.ones(6, 2, SHAPE.row)], dim=1)[[0, 2, 4]][None]
    read = torch.tensor([[True, True, True, True, False, False]])
    with torch.inference_mode():
        assert float(head(padded, read)) == pytest.approx(logit(head, rows, (1, 3)), abs=1e-5)
