"""The store of explanations keeps the last ones, within its bounds."""

import asyncio

from corag_ray.serving.deployments.explanations import ExplanationStore


def kept(store, *puts):
    async def run():
        for name, text in puts:
            await store.put(name, text)
        return [name for name in "abcd" if await store.get(name) is not None]

    return asyncio.run(run())


def test_the_oldest_go_first_by_number_and_by_bytes():
    assert kept(ExplanationStore(2, 100), ("a", b"1"), ("b", b"2"), ("c", b"3")) == ["b", "c"]
    assert kept(ExplanationStore(9, 10), ("a", b"x" * 4), ("b", b"x" * 4), ("c", b"x" * 4)) == ["b", "c"]


def test_a_text_that_is_put_again_counts_once_and_one_that_is_too_large_is_not_kept():
    store = ExplanationStore(9, 10)
    assert kept(store, ("a", b"x" * 9), ("a", b"y" * 3), ("b", b"z" * 7)) == ["a", "b"]
    assert asyncio.run(store.get("a")) == b"yyy"
    assert kept(store, ("a", b"x" * 11)) == ["b"]
