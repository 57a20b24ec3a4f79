"""A cross-encoder of transformers as an ONNX file, and its matrices in 8 bits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

SMALL_IDS = 4
"""Ids below are in every vocabulary: those of special tokens, as a rule."""
TOLERANCE = 1e-3
"""What a logit in float32 may differ by between two libraries: rounding makes less than 1e-4 of it."""


def export_float32(model: torch.nn.Module, arguments: Sequence[str], file: Path) -> None:
    """Write a model as it is (with a last layer for the first token alone, if it has that) for inputs of any shape.

    The file takes `arguments`, [inputs, length] each, and gives `logits`, [inputs].

    Raises:
        ValueError: the model has no normalisation, behind which what is no number could be seen, or the file gives
            other logits than the model where the inputs have another shape than the example's.
    """
    if not _normalisations(model):
        raise ValueError("the model has no normalisation, so that what is no score could not be told from one")
    whole = Logit(model, arguments).eval()
    axes = {argument: {0: "inputs", 1: "length"} for argument in arguments} | {"logits": {0: "inputs"}}
    # Of unlike lengths: traced on one alone, the model would have no mask and the file none either.
    example = _example(arguments, [8, 4])
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the tracer cannot know of any model
        torch.onnx.export(
            whole,
            tuple(example.values()),
            str(file),
            input_names=list(arguments),
            output_names=["logits"],
            dynamic_axes=axes,
            dynamo=False,  # the other exporter needs a package more
        )
        _check(whole, file, _example(arguments, [13, 6, 1]))


def _example(arguments: Sequence[str], lengths: Sequence[int]) -> dict[str, torch.Tensor]:
    """Padded inputs of these lengths, longest first, of ids and token types that any model knows."""
    shape = len(lengths), lengths[0]
    made = {argument: torch.zeros(shape, dtype=torch.int64) for argument in arguments}
    made["input_ids"] = torch.arange(shape[1]).remainder(SMALL_IDS).expand(shape).contiguous()
    made["attention_mask"] = (torch.arange(shape[1]) < torch.tensor(lengths)[:, None]).long()
    return made


def _check(whole: torch.nn.Module, file: Path, inputs: dict[str, torch.Tensor]) -> None:
    """A tracer keeps the way that the example took through a model's branches, which may be another's wrong way."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    [found] = session.run(None, {argument: tensor.numpy() for argument, tensor in inputs.items()})
    expected = whole(*inputs.values())
    if not torch.allclose(torch.from_numpy(found), expected, rtol=TOLERANCE, atol=TOLERANCE):
        raise ValueError("what was exported computes other logits than the model")


class Logit(torch.nn.Module):
    """A model's one output, [inputs], from positional arguments; NaN where a hidden state is not finite.

    Quantising takes the least and the greatest of a layer's inputs, and a NaN among them becomes some number: what is
    no score in float32 would look like one. Every state passes a normalisation, so it is looked for behind those.
    """

    def __init__(self, model: torch.nn.Module, arguments: Sequence[str]) -> None:
        super().__init__()
        self.model, self._arguments = model, tuple(arguments)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        """Values stand in the order of the arguments' names."""
        states: list[torch.Tensor] = []
        hooks = [part.register_forward_hook(lambda *of: states.append(of[-1])) for part in _normalisations(self.model)]
        try:
            logits: Any = self.model(**dict(zip(self._arguments, values, strict=True))).logits[:, 0]
        finally:
            for hook in hooks:
                hook.remove()
        for state in states:
            logits = logits + 0 * state.flatten(1).sum(1)  # 0 times what is not finite is NaN
        return logits


def _normalisations(model: torch.nn.Module) -> list[torch.nn.Module]:
    """By the name of their class, which ends so in torch, in transformers and in the code of checkpoints alike."""
    return [part for part in model.modules() if type(part).__name__.endswith("Norm")]


def quantise(file: Path, target: Path) -> None:
    """Matrices of layers as unsigned 8-bit integers with a scale an output; embeddings and attention stay in float32.

    Unsigned, because products of unsigned inputs and signed weights overflow 16 bits on processors without VNNI.
    """
    from onnxruntime.quantization import QuantType, quant_pre_process, quantize_dynamic

    shaped = file.with_name("shaped.onnx")
    quant_pre_process(
        str(file),
        str(shaped),
        skip_optimization=True,  # a session does it in any case
        skip_symbolic_shape=True,
        save_as_external_data=True,  # beside the file, which cannot hold 2 GB
        all_tensors_to_one_file=True,
    )
    quantize_dynamic(
        str(shaped), str(target), op_types_to_quantize=["MatMul"], weight_type=QuantType.QUInt8, per_channel=True
    )
