"""all-MiniLM-L6-v2 against transformers itself, and texts longer than its window."""

import numpy as np
import pytest
import torch

from corag_ray.models.embedder import MeanPooledEmbedder
from corag_ray.models.packaged import MINILM
from corag_ray.models.torch_setup import Compute, native_dtype

pytestmark = pytest.mark.models

TEXTS = [
    "The Eiffel Tower is 330 metres high.",
    "tea",
    "埃菲尔铁塔高330米。",
    "¿Cuánto mide la torre? " * 9,
    "naïve 👩‍🚀",
]
LONG = " ".join(["The weather was dull and nothing happened that day."] * 60)
EVIDENCE = "The treasure is buried under the old lighthouse in Lisbon."


@pytest.fixture(scope="module")
def reference():
    """transformers' own tokenizer and model."""
    from transformers import AutoModel, AutoTokenizer

    folder = MINILM.folder()
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=torch.float32).eval()


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def states(reference, piece_ids):
    """Last hidden states of one window of piece ids, [CLS] and [SEP] put around it."""
    tokenizer, model = reference
    ids = [tokenizer.cls_token_id, *piece_ids, tokenizer.sep_token_id]
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()


def test_a_text_of_one_window_is_the_masked_mean_of_a_padded_batch_of_length_one(embedder, reference):
    tokenizer, model = reference
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert len(set(batch["attention_mask"].sum(dim=1).tolist())) > 1  # so that the mask matters
    with torch.inference_mode():
        hidden = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    expected = ((hidden * mask).sum(dim=1) / mask.sum(dim=1)).numpy()
    np.testing.assert_allclose(embedder.embed(TEXTS), unit(expected), atol=2e-6)


def test_vectors_have_length_one_and_order_is_the_callers(embedder):
    vectors = embedder.embed([*TEXTS, LONG])
    assert vectors.shape == (6, 384)
    assert vectors.dtype == np.float32
    assert embedder.dim == 384
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(embedder.embed([LONG, *TEXTS[::-1]]), vectors[::-1])


def test_meaning_is_nearer_than_words(embedder):
    near, far, query = embedder.embed(
        ["The tower is 330 metres tall.", "The chess tower moves straight.", "How high is the Eiffel Tower?"]
    )
    assert query @ near > query @ far


def test_alone_and_in_company_vectors_are_equal_to_the_byte(embedder):
    texts = [*TEXTS, LONG]
    together, tokens = embedder.embed_with_tokens(texts)
    for text, vector, pieces in zip(texts, together, tokens, strict=True):
        alone, [own] = embedder.embed_with_tokens([text])
        assert alone[0].tobytes() == vector.tobytes()
        assert own.tobytes() == pieces.tobytes()


def test_padded_batches_give_the_same_vectors_up_to_the_number_type(embedder):
    compute = Compute(threads=1, dtype=native_dtype())
    batched = MeanPooledEmbedder(MINILM.folder(), compute).embed([*TEXTS, LONG])
    tolerance = 2e-6 if compute.dtype == "float32" else 2e-2
    np.testing.assert_allclose(batched, embedder.embed([*TEXTS, LONG]), atol=tolerance)


def test_a_long_text_is_the_mean_of_its_windows_weighted_by_their_pieces(embedder, reference):
    pieces = reference[0](LONG, add_special_tokens=False, truncation=False)["input_ids"]
    # Windows of 254 pieces, 64 of them shared, so 190 apart, until the end of the text is inside.
    starts = [0]
    while starts[-1] + 254 < len(pieces):
        starts.append(starts[-1] + 190)
    windows = [states(reference, pieces[start : start + 254]) for start in starts]
    assert len(windows) >= 3
    assert len(windows[-1]) < len(windows[0])  # so that the weights matter
    expected = np.average([w.mean(axis=0) for w in windows], axis=0, weights=[len(w) for w in windows])

    vectors, [tokens] = embedder.embed_with_tokens([LONG])

    np.testing.assert_allclose(vectors[0], unit(expected), atol=2e-6)
    np.testing.assert_allclose(tokens, unit(np.concatenate([w[1:-1] for w in windows])), atol=2e-5)


def test_what_stands_at_the_end_of_a_long_text_is_not_cut(embedder):
    plain, ending, query = embedder.embed([LONG, f"{LONG} {EVIDENCE}", "Where is the treasure buried?"])
    assert query @ ending > query @ plain + 0.02
    _, [tokens, of_query] = embedder.embed_with_tokens([f"{LONG} {EVIDENCE}", EVIDENCE])
    assert (of_query @ tokens.T).max(axis=1).mean() > 0.7  # its own pieces are among the text's


@pytest.mark.parametrize(("pieces", "windows"), [(254, 1), (255, 2), (444, 2), (445, 3)])
def test_a_window_holds_254_pieces_and_texts_of_several_are_counted(embedder, pieces, windows):
    before = embedder.windowed
    _, [tokens] = embedder.embed_with_tokens([" ".join(["tea"] * pieces)])
    assert len(tokens) == pieces + 64 * (windows - 1)  # neighbours share 64
    assert embedder.windowed - before == (windows > 1)


def test_token_vectors_are_those_of_the_word_pieces_without_special_ones(embedder, reference):
    vectors, tokens = embedder.embed_with_tokens(TEXTS)
    np.testing.assert_array_equal(vectors, embedder.embed(TEXTS))
    for text, own in zip(TEXTS, tokens, strict=True):
        pieces = reference[0](text, add_special_tokens=False)["input_ids"]
        assert own.shape == (len(pieces), 384)
        np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(own, unit(states(reference, pieces)[1:-1]), atol=2e-5)


def test_no_texts_give_no_vectors_and_a_blank_text_no_pieces(embedder):
    assert embedder.embed([]).shape == (0, 384)
    vectors, tokens = embedder.embed_with_tokens([])
    assert (vectors.shape, tokens) == ((0, 384), [])
    vectors, [tokens] = embedder.embed_with_tokens([""])
    assert tokens.shape == (0, 384)
    assert np.isfinite(vectors).all()
