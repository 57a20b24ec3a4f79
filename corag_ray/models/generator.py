"""A chat model by transformers: greedy, in batches, and its tokenizer alone for counting."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from corag_ray.errors import ConfigError
from corag_ray.models.causal_model import load_causal_model
from corag_ray.models.decoding import GreedyDecoding
from corag_ray.models.prefix_forward import Reading, read
from corag_ray.models.torch_setup import Compute
from corag_ray.types import Generation

READ_TOKENS = 32768
"""Prompt tokens read at once, at most: bounds memory (their keys and values take 1.5 GB in float32)."""
DECODE_TOKENS = 32768
"""Padded tokens of a decoding batch, at most, the new ones included."""
DECODE_PROMPTS = 48
HIDDEN = "\ue000"
"""Stands for each character of a special token's name in a prompt while the template is laid around it."""
INCOMPLETE = "\ufffd"
"""What decoding shows for the first bytes of a character whose others are not there yet."""


class ChatTokenizer:
    """The generator's tokenizer and chat template, without its weights.

    Special tokens come from the template alone: their names in a question or a passage are read as any other text.
    """

    def __init__(self, folder: Path, name: str, context_window: int | None = None) -> None:
        """Load `tokenizer.json` and the chat template from a checkpoint folder, and its positions unless given.

        Raises:
            ConfigError: the folder holds no tokenizer with a chat template.
        """
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._plain.encode_special_tokens = True  # that is, as text
            self._chat = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
            if context_window is None:
                config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
                context_window = int(config["max_position_embeddings"])
        except Exception as error:  # tokenizers raises nothing narrower
            raise ConfigError(f"{folder} holds no tokenizer that can be read: {str(error)[:200]}") from error
        if not self._chat.chat_template:
            raise ConfigError(f"the tokenizer in {folder} has no chat template: tokenizer_config.json must hold one.")
        added = self._tokenizer.get_added_tokens_decoder().items()
        self._special = {token.content: number for number, token in added if token.special}
        longest_first = sorted(map(re.escape, self._special), key=len, reverse=True)
        self._names = re.compile(f"({'|'.join(longest_first) or '(?!)'})")
        self.context_window = context_window
        self.name = name

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text on its own."""
        return [len(e.ids) for e in self._plain.encode_batch(list(texts), add_special_tokens=False)]

    def offsets(self, texts: Sequence[str]) -> list[list[int]]:
        """Start character of each token; the bytes of one character may be several tokens with the same start."""
        encodings = self._plain.encode_batch(list(texts), add_special_tokens=False)
        return [[start for start, _ in e.offsets] for e in encodings]

    def encode_prompts(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids as the model receives them: one user turn in the chat template, ready for the answer."""
        hidden = [self._names.sub(lambda name: HIDDEN * len(name[0]), prompt) for prompt in prompts]
        texts = [
            self._chat.apply_chat_template([{"role": "user", "content": h}], tokenize=False, add_generation_prompt=True)
            for h in hidden
        ]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            e.ids if safe == prompt else self._ids(text, [p for p, s in zip(prompt, safe, strict=True) if s == HIDDEN])
            for prompt, safe, text, e in zip(prompts, hidden, texts, encodings, strict=True)
        ]

    def _ids(self, text: str, characters: Sequence[str]) -> list[int]:
        """Token ids of a turn in which characters were hidden: the names that it still shows are the template's."""
        in_turn = itertools.cycle(characters)  # a template may show the prompt twice
        ids: list[int] = []
        for piece in self._names.split(text):
            if piece in self._special:
                ids.append(self._special[piece])
            elif piece:
                revealed = re.sub(HIDDEN, lambda _: next(in_turn), piece)
                ids += self._plain.encode(revealed, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens and outer blanks."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True).strip()

    def count_prompts(self, prompts: Sequence[str]) -> list[int]:
        """Tokens of each prompt, template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]


class TransformersGenerator:
    """Greedy decoding of a causal language model; what prompts share is read once a portion (`READ_TOKENS`)."""

    def __init__(self, folder: Path, tokenizer: ChatTokenizer, compute: Compute) -> None:
        """Load the weights from a transformers folder."""
        self.name = tokenizer.name
        self._tokenizer = tokenizer
        self._model = load_causal_model(folder, compute)
        self._end = int(self._model.generation_config.eos_token_id)

    def generate(self, prompts: Sequence[str], max_new_tokens: int) -> list[Generation]:
        """Greedy answers in the order of the prompts."""
        encoded = self._tokenizer.encode_prompts(prompts)
        answers: list[Generation] = []
        for portion in _portions(encoded):
            reading = read(self._model, portion, keep=True)
            new: dict[int, list[int]] = {}
            for members in _decode_batches([len(ids) + max_new_tokens for ids in portion]):
                new |= zip(members, self._decode(reading, members, max_new_tokens), strict=True)
            answers += [self._finish(len(ids), new[i]) for i, ids in enumerate(portion)]
        return answers

    def stream(self, prompt: str, max_new_tokens: int) -> Iterator[str | Generation]:
        """See `StreamingGenerator`; what a character's first bytes alone would show is held back."""
        [ids] = self._tokenizer.encode_prompts([prompt])
        decoding = GreedyDecoding(self._model, read(self._model, [ids], keep=True), [0], max_new_tokens)
        new: list[int] = []
        shown = ""
        while len(new) < max_new_tokens and self._end not in new:
            new += decoding.step()
            text = self._finish(len(ids), new).text
            piece = "" if text.endswith(INCOMPLETE) else text[len(shown) :]
            shown += piece
            yield piece
        answer = self._finish(len(ids), new)
        if rest := answer.text[len(shown) :]:
            yield rest
        yield answer

    def _decode(self, reading: Reading, members: Sequence[int], max_new_tokens: int) -> list[list[int]]:
        """The most likely tokens, one after another, until all members have ended."""
        decoding = GreedyDecoding(self._model, reading, members, max_new_tokens)
        new: list[list[int]] = [[] for _ in members]
        ended: set[int] = set()
        for _ in range(max_new_tokens):
            for row, token in enumerate(decoding.step()):
                new[row].append(token)
                if token == self._end:
                    ended.add(row)
            if len(ended) == len(members):
                break
        return new

    def _finish(self, prompt_tokens: int, new_ids: list[int]) -> Generation:
        stopped = self._end in new_ids
        kept = new_ids[: new_ids.index(self._end)] if stopped else new_ids
        text = self._tokenizer.decode(kept)
        return Generation(text, prompt_tokens, len(kept), "stop" if stopped else "length")


def _portions(encoded: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """The prompts in their order (those of one question stand together), in portions bounded in tokens."""
    portion: list[list[int]] = []
    for ids in encoded:
        if portion and sum(map(len, portion)) + len(ids) > READ_TOKENS:
            yield portion
            portion = []
        portion.append(ids)
    if portion:
        yield portion


def _decode_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Prompt numbers, shortest first, in batches bounded in prompts and in padded tokens."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and (len(batch) == DECODE_PROMPTS or lengths[i] * (len(batch) + 1) > DECODE_TOKENS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
