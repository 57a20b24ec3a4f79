"""Cross-encoders of the real architectures with random weights and a small tokenizer, made on the spot."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

SAMPLE = Path(__file__).parents[2] / "corag_ray" / "datasets" / "sample" / "corpus.jsonl"
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "num_labels": 1,
    "initializer_range": 0.3,
}


def sample_texts():
    """The sample's texts in plain ASCII: a small vocabulary holds all their characters."""
    texts = [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()]
    return [text for text in texts if text.isascii()]


def bert(folder):
    """A BERT cross-encoder with 128 positions and a WordPiece tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()  # FlagEmbedding 1.4.2 turns ids into text and back
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(sample_texts(), trainers.WordPieceTrainer(vocab_size=800, special_tokens=special))
    learned = sorted(tokenizer.get_vocab().keys() - set(special))  # the trainer numbers them otherwise at each run
    numbered = {piece: number for number, piece in enumerate([*special, *learned])}
    tokenizer.model = models.WordPiece(numbered, unk_token="[UNK]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    config = BertConfig(vocab_size=800, max_position_embeddings=128, **SHAPE)
    return _save(folder, tokenizer, names, BertForSequenceClassification, config)


def cased_bert(folder):
    """`bert`, but by its tokenizer_config.json no letter is made small; transformers heeds it, not tokenizer.json."""
    bert(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    path.write_text(json.dumps(settings))
    return folder


def typed_bert(folder):
    """`bert`, told which tokens are the query's."""
    bert(folder)
    path = folder / "tokenizer_config.json"
    names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | names))
    return folder


def roberta(folder):
    """A RoBERTa cross-encoder with 128 positions (two are kept for padding) and BPE over bytes: `a b` is a, Ġb."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(sample_texts(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"}
    config = RobertaConfig(vocab_size=800, max_position_embeddings=130, type_vocab_size=1, pad_token_id=1, **SHAPE)
    return _save(folder, tokenizer, names, RobertaForSequenceClassification, config)


def xlm_roberta(folder):
    """An XLM-R cross-encoder with 128 positions (two are kept for padding) and a Unigram tokenizer."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=800, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(sample_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"}
    size = tokenizer.get_vocab_size()
    config = XLMRobertaConfig(vocab_size=size, max_position_embeddings=130, type_vocab_size=1, pad_token_id=1, **SHAPE)
    return _save(folder, tokenizer, names, XLMRobertaForSequenceClassification, config)


CODE = '''
import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class CountingConfig(PreTrainedConfig):
    model_type = "counting"


class CountingModel(PreTrainedModel):
    """The logit is the number of tokens times a weight, plus a tensor that no checkpoint stores."""

    config_class = CountingConfig

    def __init__(self, config):
        super().__init__(config)
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("shift", torch.full((1,), -4.0), persistent=False)
        self.post_init()

    def forward(self, input_ids, attention_mask, **others):
        logits = self.weight * attention_mask.sum(1) + self.shift
        return SequenceClassifierOutput(logits=logits[:, None])
'''
AUTO_MAP = {"AutoConfig": "counting.CountingConfig", "AutoModelForSequenceClassification": "counting.CountingModel"}


def with_code(folder, code=CODE, **changes):
    """A checkpoint that runs code of its own, with the tokenizer of `bert`: its logit is half the tokens less 4."""
    bert(folder)
    (folder / "counting.py").write_text(code)
    config = {"model_type": "counting", "id2label": {"0": "LABEL_0"}, "auto_map": AUTO_MAP} | changes
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"weight": torch.tensor([0.5])}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _save(folder, tokenizer, names, model_class, config):
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=128, **{f"{name}_token": token for name, token in names.items()}
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    model_class(config).eval().save_pretrained(folder)
    return folder
