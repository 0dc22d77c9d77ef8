"""A whole transformer in which every operation is the course's own.

    y   = x + attention(norm(x)) W,      out = y + mlp(norm(y))
    loss = mean over tokens of -log softmax(norm(out) H)[next token]

    model = Model(Config(vocabulary=1024))     # on a GPU with our kernels
    losses = train(model, tokens, steps=300)   # alone, or with torch.distributed
    small = compress(model)                    # four bits a weight
    save("small.kw4", small); small = load("small.kw4")
    generate(small, prompt, 100)               # KV cache, a CUDA graph on a GPU
    convert(existing)                          # torch.nn's or a Hugging Face Llama

    operations.py    who computes what: ``plain`` torch or ours, one by one
    layer.py         ``TransformerLayer(d_model, heads, d_ff)``
    model.py         embedding, layers, head, loss
    rotary.py, loss.py, decoding.py, kernels.py    what no earlier chapter has
    training.py      AdamW; gradients averaged over processes
    compression.py   INT4, and perplexity
    files.py         one file, opened without being read
    cache.py, generation.py, speculative.py    tokens, one pass each, or fewer
    conversion.py, drop_ins.py    for models and programs that exist
    text.py          the course's text and its tokens
    demo.py          all of it in one go: ``make demo``

When not to use it: to serve a model to many. A server adds requests to a running batch,
shares prefixes, and pages its cache; this adds none of that.
"""

from __future__ import annotations

from solutions.transformer.cache import KVCache
from solutions.transformer.compression import compress, perplexity, weight_bytes
from solutions.transformer.conversion import Converted, convert
from solutions.transformer.drop_ins import (
    FlashAttention,
    FusedLayerNorm,
    NeuroProfiler,
    Profiler,
)
from solutions.transformer.files import load, save
from solutions.transformer.generation import generate
from solutions.transformer.layer import TransformerLayer
from solutions.transformer.loss import linear_cross_entropy
from solutions.transformer.model import Config, Model
from solutions.transformer.operations import Operations
from solutions.transformer.rotary import rotate
from solutions.transformer.speculative import generate_speculative
from solutions.transformer.text import Bytes, Tokenizer, course_text, tokenizer_for
from solutions.transformer.training import train, train_step

__all__ = [
    "Bytes",
    "Config",
    "Converted",
    "FlashAttention",
    "FusedLayerNorm",
    "KVCache",
    "Model",
    "NeuroProfiler",
    "Operations",
    "Profiler",
    "Tokenizer",
    "TransformerLayer",
    "compress",
    "convert",
    "course_text",
    "generate",
    "generate_speculative",
    "linear_cross_entropy",
    "load",
    "perplexity",
    "rotate",
    "save",
    "tokenizer_for",
    "train",
    "train_step",
    "weight_bytes",
]
