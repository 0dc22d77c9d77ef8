"""The course's own text, and a small byte-pair encoding that is trained on it."""

from __future__ import annotations

import re
from pathlib import Path

import torch

CHAPTERS = Path(__file__).parents[2] / "chapters"


def course_text(folder: str | Path = CHAPTERS) -> str:
    """Return the prose of all chapters: no code cells, no directives, no headers.

    Args:
        folder: that holds ``NN_stem.md``.

    Raises:
        FileNotFoundError: a folder without chapters.
    """
    paths = sorted(Path(folder).glob("[0-9]*.md"))
    if not paths:
        raise FileNotFoundError(f"no chapter in {folder}; wanted NN_stem.md files.")
    return "\n\n".join(prose(path.read_text()) for path in paths)


def prose(chapter: str) -> str:
    """Take away what is not prose of a chapter in MyST Markdown."""
    text = re.sub(r"\A---\n.*?\n---\n", "", chapter, flags=re.S)
    text = re.sub(r"^(`{3,}).*?^\1`*$", "", text, flags=re.S | re.M)
    text = re.sub(r"^:{3,}.*?$|^:\w+:.*?$|^\(.*\)=$", "", text, flags=re.M)
    text = re.sub(r"\{result\}`[^`]*`", "", text)
    text = re.sub(r"\{\w+\}`([^`<]*?)(?: <[^`]*>)?`", r"\1", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class Bytes:
    """The simplest tokens, a text's bytes: where ``tokenizers`` is not installed."""

    vocabulary = 256

    def encode(self, text: str) -> torch.Tensor:
        """Return a text's bytes: int64 (n)."""
        return torch.tensor(list(text.encode()), dtype=torch.int64)

    def decode(self, tokens: torch.Tensor) -> str:
        """Return the text of bytes, (n)."""
        return bytes(tokens.tolist()).decode(errors="replace")


def tokenizer_for(text: str, vocabulary: int = 1024) -> Bytes | Tokenizer:
    """Train a byte-pair encoding on a text; without ``tokenizers``, take its bytes."""
    try:
        return Tokenizer.train(text, vocabulary)
    except ModuleNotFoundError as error:
        print(f"{error}; until then each byte is a token")
        return Bytes()


class Tokenizer:
    """A byte-pair encoding over bytes: any text can be encoded, and comes back.

    Args:
        inner: a ``tokenizers.Tokenizer``.
    """

    def __init__(self, inner) -> None:  # type: ignore[no-untyped-def]
        self.inner = inner

    @classmethod
    def train(cls, text: str, vocabulary: int = 1024) -> Tokenizer:
        """Join the commonest pairs of a text, until there are so many tokens.

        Args:
            text: to learn from.
            vocabulary: tokens wanted, 256 of which are the bytes.

        Raises:
            ModuleNotFoundError: ``tokenizers`` is not installed; says how.

        Source: Sennrich and others, Neural Machine Translation of Rare Words with
        Subword Units (2016), section 3.2.
        """
        try:
            from tokenizers import Tokenizer as Inner
            from tokenizers import decoders, models, pre_tokenizers, trainers
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the tokenizer needs `tokenizers`, which is not installed: "
                "pip install tokenizers"
            ) from error
        inner = Inner(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(text.split("\n\n"), trainer)
        return cls(inner)

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> torch.Tensor:
        """Return a text's tokens: int64 (n)."""
        return torch.tensor(self.inner.encode(text).ids, dtype=torch.int64)

    def decode(self, tokens: torch.Tensor) -> str:
        """Return the text of tokens, (n)."""
        text: str = self.inner.decode(tokens.tolist())
        return text
