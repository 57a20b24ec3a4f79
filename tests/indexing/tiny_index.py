"""A tokenizer and an embedder made of words, and an index built with them in one process."""

import hashlib

import numpy as np

from corag_ray.indexing.build_index import embed_shard, update_index
from corag_ray.indexing.chunking import Chunking
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.indexing.token_vectors import TokenVectorFormat
from corag_ray.indexing.versions import IndexSpec

DIM = 8
WINDOW = 2
"""Words: a chunk of more is windowed."""
SPEC = IndexSpec("corpus-1", Chunking(3), "hashes 1", "float32", "words 1", TokenVectorFormat(up_to_mb=100))


class Words:
    """One token a word."""

    name, context_window = "words", 1000

    def count(self, texts):
        return [len(text.split()) for text in texts]

    def offsets(self, texts):
        starts = []
        for text in texts:
            words, position = [], 0
            for word in text.split():
                position = text.index(word, position)
                words.append(position)
                position += len(word)
            starts.append(words)
        return starts


class Hashes:
    """A word's vector is made of its hash, a text's is the sum of its words', all of unit length."""

    dim = DIM

    def __init__(self):
        self.windowed, self.embedded = 0, []

    def embed_with_tokens(self, texts):
        self.embedded += texts
        self.windowed += sum(len(text.split()) > WINDOW for text in texts)
        tokens = [np.stack([vector_of(word) for word in text.split()]) for text in texts]
        sums = np.array([t.sum(axis=0) for t in tokens], dtype=np.float32).reshape(-1, DIM)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True), tokens

    def embed(self, texts):
        return self.embed_with_tokens(texts)[0]


def vector_of(word):
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
    vector = np.random.default_rng(seed).normal(size=DIM).astype(np.float32)
    return vector / np.linalg.norm(vector)


def build(index, documents, spec=SPEC, embedder=None):
    """Bring the index to these documents; returns what `update_index` says."""
    embedder = embedder or Hashes()

    def embed(version, missing, total):
        store = ChunkStore.open(version / CHUNKS)
        for shard in missing:
            assert embed_shard(version, store, shard, spec, embedder) == shard.stop - shard.start

    return update_index(index, documents, spec, Words(), embed)


def contents(folder):
    """Every file's bytes by its path within the folder."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
