"""Chunks: slices of a fixed number of tokens, their ids, and costs as the prompt renders them."""

import hashlib
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_ray.errors import ConfigError
from corag_ray.indexing.chunking import Chunking, chunk_documents
from corag_ray.prompts import concise, numbered_passage, seed
from corag_ray.types import Document

MIXED = "Tea 茶葉史 👩‍🚀 in 1660, ¿qué?  \n\n 北京很大。🏳️‍🌈 fin"


class Bytes:
    """One token a byte of UTF-8: every character beyond ASCII is several tokens that start where it starts."""

    name, context_window = "bytes", 1 << 30

    def count(self, texts):
        return [len(text.encode()) for text in texts]

    def offsets(self, texts):
        return [[i for i, character in enumerate(text) for _ in character.encode()] for text in texts]


class Letters(Bytes):
    """One token a character."""

    def count(self, texts):
        return [len(text) for text in texts]

    def offsets(self, texts):
        return [list(range(len(text))) for text in texts]


def cut(text, size, overlap=0, tokenizer=None, doc_id="d"):
    return list(chunk_documents([Document(doc_id, text)], Chunking(size, overlap), tokenizer or Letters()))


def check_chunks(text, chunks, overlap):
    """Every chunk is its slice, none is blank or comes twice; what no chunk holds is blank."""
    held = [False] * len(text)
    for number, chunk in enumerate(chunks):
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip() != ""
        assert chunk.position == number
        held[chunk.start : chunk.end] = [True] * (chunk.end - chunk.start)
    assert "".join(c for c, is_held in zip(text, held, strict=True) if not is_held).strip() == ""
    assert len({chunk.chunk_id for chunk in chunks}) == len(chunks)
    if overlap == 0:
        assert all(before.end <= after.start for before, after in pairwise(chunks))


texts = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("ab 茶葉👩\u200d🚀\n")), max_size=60)
sizes = st.integers(1, 9).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))


@given(texts, sizes)
def test_chunks_are_slices_that_hold_all_but_blanks_whatever_the_characters(text, size_overlap):
    size, overlap = size_overlap
    check_chunks(text, cut(text, size, overlap, Bytes()), overlap)


@given(texts, st.integers(1, 9))
def test_without_overlap_a_chunk_of_bytes_never_exceeds_its_size_by_more_than_one_character(text, size):
    # A character belongs to the chunk of its last byte, so up to 3 bytes of it may come from the chunk before.
    assert all(len(chunk.text.encode()) <= size + 3 for chunk in cut(text, size, 0, Bytes()))


def test_chunks_without_overlap_stand_side_by_side():
    assert [(c.start, c.end, c.text) for c in cut("abcdefgh", 3)] == [(0, 3, "abc"), (3, 6, "def"), (6, 8, "gh")]


def test_overlap_repeats_that_many_tokens_and_the_last_chunk_brings_something_new():
    assert [c.text for c in cut("abcdefgh", 4, 2)] == ["abcd", "cdef", "efgh"]
    assert [c.text for c in cut("abcdefg", 4, 2)] == ["abcd", "cdef", "efg"]


def test_blanks_at_a_chunks_ends_are_outside_its_span():
    assert [(c.start, c.end, c.text) for c in cut(" ab   c", 4)] == [(1, 3, "ab"), (6, 7, "c")]


def test_a_character_of_several_tokens_goes_whole_to_the_chunk_of_its_last_token():
    # 茶 and 葉 are three bytes each: a 茶 | 葉, cut after 2, 4 and 6 of the 7 bytes.
    assert [(c.start, c.end, c.text) for c in cut("a茶葉", 2, 0, Bytes())] == [
        (0, 1, "a"),
        (1, 2, "茶"),
        (2, 3, "葉"),
    ]
    assert [c.text for c in cut("👩🚀", 1, 0, Bytes())] == ["👩", "🚀"]


def test_a_slice_to_which_two_overlapping_chunks_come_is_one_chunk():
    # é has 2 bytes and 茶 3. Windows of 3 bytes, 1 on: the first two both end inside 茶, and so before it.
    assert [c.text for c in cut("é茶b", 3, 2, Bytes())] == ["é", "茶", "茶b"]
    assert [c.text for c in cut("ab    ", 4, 3)] == ["ab", "b"]
    assert [c.text for c in cut("  ab  ", 4, 3)] == ["ab"]


class Deaf(Letters):
    """Has no token for a control character, like the vocabulary of SmolLM2."""

    def offsets(self, texts):
        return [[i for i, character in enumerate(text) if character >= " "] for text in texts]


def test_characters_without_a_token_stay_in_the_chunk_before_them_or_in_the_first():
    assert [c.text for c in cut("\x16ab\x16cd", 2, 0, Deaf())] == ["\x16ab\x16", "cd"]
    assert cut("\x16\x16", 2, 0, Deaf()) == []  # nothing of it reaches a model


def test_a_document_shorter_than_a_chunk_is_one_chunk():
    [chunk] = cut("short", 128)
    assert (chunk.start, chunk.end, chunk.text, chunk.position) == (0, 5, "short", 0)


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000\u00a0\n"])
def test_a_blank_document_has_no_chunk(text):
    assert cut(text, 2) == []


def test_documents_keep_their_order_beyond_one_call_of_the_tokenizer():
    documents = [Document(f"d{n}", f"word{n}") for n in range(600)]
    chunks = list(chunk_documents(documents, Chunking(64), Letters()))
    assert [(c.doc_id, c.text, c.position) for c in chunks] == [(f"d{n}", f"word{n}", 0) for n in range(600)]


@pytest.mark.parametrize(("size", "overlap"), [(4, 4), (4, 5), (4, -1), (0, 0), (-3, 0)])
def test_sizes_that_cannot_advance_are_refused(size, overlap):
    with pytest.raises(ConfigError, match="chunking"):
        Chunking(size, overlap)


def expected_id(key):
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def test_a_chunks_id_is_the_hash_of_document_span_and_chunking():
    first, second = cut("abcdefg", 4, doc_id="茶#1")
    assert first.chunk_id == expected_id("茶#1\x000\x004\x004\x000")
    assert second.chunk_id == expected_id("茶#1\x004\x007\x004\x000")


def test_ids_differ_by_document_span_and_chunking_even_for_equal_text():
    one = cut("same", 128)[0].chunk_id
    others = [
        cut("same", 128, doc_id="e")[0].chunk_id,
        cut(" same", 128)[0].chunk_id,
        cut("same", 127)[0].chunk_id,
        cut("same", 128, 1)[0].chunk_id,
    ]
    assert cut("same", 128)[0].chunk_id == one
    assert len({one, *others}) == 5


def test_a_chunks_cost_is_that_of_its_numbered_passage():
    assert [c.cost for c in cut("abcdef", 4)] == [len("99. abcd\n"), len("99. ef\n")]
    assert [c.cost for c in cut("茶", 4, 0, Bytes())] == [len("99. \n") + 3]


@pytest.mark.models
@settings(max_examples=60, deadline=None)
@given(text=texts, size_overlap=sizes)
def test_the_real_tokenizer_cuts_any_text_into_slices(chat_tokenizer, text, size_overlap):
    size, overlap = size_overlap
    chunks = cut(text, size, overlap, chat_tokenizer)
    if chat_tokenizer.count([text]) == [0]:
        assert chunks == []
    else:
        check_chunks(text, chunks, overlap)
    assert [c.cost for c in chunks] == chat_tokenizer.count([f"99. {c.text}\n" for c in chunks])


@pytest.mark.models
def test_the_real_tokenizers_chunks_of_plain_words_have_their_size(chat_tokenizer):
    text = " ".join(["the quick brown fox jumps over the lazy dog"] * 30)
    chunks = cut(text, 16, 0, chat_tokenizer)
    counts = chat_tokenizer.count([" " + c.text for c in chunks])  # the blank in front was part of the first token
    assert set(counts[1:-1]) == {16}
    assert sum(c.cost for c in chunks) > sum(counts)


@pytest.mark.models
@pytest.mark.parametrize("render", [seed, concise])
def test_the_sum_of_costs_bounds_the_contexts_tokens_in_the_encoded_prompt(chat_tokenizer, render):
    source = random.Random(7)
    words = [
        "tea",
        "1660",
        "北京很大",
        "¿qué?",
        "👩‍🚀",
        "(3.14)",
        "\n\n",
        "_x_",
        "Ω≈ç",
        "'tis",
        "…",
        "\t",
        "42",
        "don't",
    ]
    documents = [
        Document(f"d{n}", source.choice([" ", "", "  "]).join(source.choices(words, k=120))) for n in range(12)
    ]
    chunks = list(chunk_documents([*documents, Document("m", MIXED)], Chunking(12), chat_tokenizer))
    assert len(chunks) > 60
    for size in [1, 2, 9, 10, 11, 30, 59, 60]:
        selection = source.sample(chunks, size)
        context = [render("¿Cuánto?", passages, "es") for passages in ([c.text for c in selection], [])]
        full, empty = chat_tokenizer.count_prompts(context)
        budgeted = sum(c.cost for c in selection)
        assert full - empty <= budgeted
        # and no more than the numbers' second digit is wasted: nine passages at most, and line ends that merge
        assert full - empty >= budgeted - 2 * size
        assert all(numbered_passage(n, c.text) in context[0] for n, c in enumerate(selection, start=1))
