"""A chat model by transformers: greedy, batched by length, and its tokenizer alone for counting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from corag_ray.models import grouped_attention
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Generation

BATCH_TOKENS = 32768
"""Padded prompt tokens a batch, at most: bounds memory (their keys and values take 1.5 GB in float32)."""
BATCH_PROMPTS = 48
BATCH_PADDING = 2000
"""Padding tokens a batch, at most: reading more costs what decoding one more batch of 48 tokens does (two cores)."""


class ChatTokenizer:
    """The generator's tokenizer and chat template, without its weights."""

    def __init__(self, folder: Path, name: str) -> None:
        """Load `tokenizer.json`, the chat template and the model's positions from a checkpoint folder."""
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._chat = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.context_window = int(config["max_position_embeddings"])
        self.name = name

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text on its own."""
        return [len(e.ids) for e in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def offsets(self, texts: Sequence[str]) -> list[list[int]]:
        """Start character of each token; the bytes of one character may be several tokens with the same start."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[start for start, _ in e.offsets] for e in encodings]

    def encode_prompts(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids as the model receives them: one user turn in the chat template, ready for the answer."""
        texts = [
            self._chat.apply_chat_template([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True)
            for p in prompts
        ]
        return [e.ids for e in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens and outer blanks."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True).strip()

    def count_prompts(self, prompts: Sequence[str]) -> list[int]:
        """Tokens of each prompt, template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]


class TransformersGenerator:
    """Greedy decoding of a causal language model."""

    def __init__(self, folder: Path, tokenizer: ChatTokenizer, compute: Compute) -> None:
        """Load the weights from a transformers folder."""
        compute.apply()
        self.name = tokenizer.name
        self._tokenizer = tokenizer
        self._model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, compute.dtype),
            attn_implementation=grouped_attention.register(),
            local_files_only=True,
        ).eval()

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[Generation]:
        """Greedy answers in the order of the prompts."""
        encoded = self._tokenizer.encode_prompts(prompts)
        answers: dict[int, Generation] = {}
        for members in _batches([len(ids) for ids in encoded]):
            answers |= self._generate_batch(members, encoded, max_new_tokens)
        return [answers[i] for i in range(len(prompts))]

    def _generate_batch(
        self, members: Sequence[int], encoded: Sequence[list[int]], max_new_tokens: int
    ) -> dict[int, Generation]:
        end = self._model.generation_config.eos_token_id
        longest = max(len(encoded[i]) for i in members)
        ids = torch.full((len(members), longest), end, dtype=torch.long)
        mask = torch.zeros((len(members), longest), dtype=torch.long)
        for row, i in enumerate(members):
            ids[row, longest - len(encoded[i]) :] = torch.tensor(encoded[i])
            mask[row, longest - len(encoded[i]) :] = 1
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=max_new_tokens,
                pad_token_id=end,
                cache_implementation="static",  # a growing cache is copied whole at every step
                disable_compile=True,
            )
        return {i: self._finish(len(encoded[i]), output[row, longest:].tolist(), end) for row, i in enumerate(members)}

    def _finish(self, prompt_tokens: int, new_ids: list[int], end: int) -> Generation:
        stopped = end in new_ids
        kept = new_ids[: new_ids.index(end)] if stopped else new_ids
        text = self._tokenizer.decode(kept)
        return Generation(text, prompt_tokens, len(kept), "stop" if stopped else "length")


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Prompt numbers, shortest first, in batches bounded in prompts, in padded tokens and in padding."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        padded = lengths[i] * (len(batch) + 1)
        padding = padded - lengths[i] - sum(lengths[j] for j in batch)
        if batch and (len(batch) == BATCH_PROMPTS or padded > BATCH_TOKENS or padding > BATCH_PADDING):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
