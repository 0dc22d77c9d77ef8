"""What the README says is what stands in the tree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_its_files_exist() -> None:
    targets = re.findall(r"\]\(([\w./-]+)\)", README)
    assert len(targets) > 4
    assert [name for name in targets if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("_toc.yml", "- file: chapters/{}\n"),
        ("README.md", "](chapters/{}.md) |"),
        ("book/index.md", "](../chapters/{}.md) |"),
    ],
)
def test_every_chapter_is_listed(page: str, wanted: str) -> None:
    text = (ROOT / page).read_text()
    chapters = [path.stem for path in (ROOT / "chapters").glob("[0-9]*.md")]
    absent = [name for name in chapters if wanted.format(name) not in text]
    assert chapters and not absent, f"{page} has no line for {', '.join(absent)}"


def test_its_figures_are_the_stored_ones() -> None:
    figures = re.findall(r"(\w+): (\d+)% of copy bandwidth", README)
    assert figures
    for stem, percent in figures:
        file = ROOT / "benchmarks" / "results" / f"{stem}-nvidia-h200.json"
        rows = json.loads(file.read_text())["rows"]
        assert int(percent) in {
            round(100 * row["ratio"]) for row in rows if "ratio" in row
        }, f"{file.name} stores no {percent}%"


# What is said of newer chapters, by the rows that it comes from; of an H200, unless
# the key names another card.
CLAIMS = {
    "flash_attention_triton": "the last Triton rung you write "
    "{fast_rung_128_causal.ratio:.0%} of cuDNN under a causal mask; the library's "
    "Triton {triton_128_full.ratio:.0%} to {triton_128_causal.ratio:.0%}, its Gluon "
    "{gluon_128_full.ratio:.0%} to {gluon_128_causal.ratio:.0%}, heads of 64: "
    "{gluon_64_full.ratio:.0%} to {gluon_64_causal.ratio:.0%}; backward "
    "{backward_4096_full.ratio:.1f} to {backward_16384_full.ratio:.1f} times FA2, with "
    "the same bits every time; decoding at {decode.ratio:.1f} times SDPA's bandwidth",
    "fusion": "{gelu_bfloat16.of_peer:.1f}, {bias_gelu_bfloat16.of_peer:.1f} and "
    "{gelu_dropout_bfloat16.of_peer:.1f} times the better of PyTorch and torch.compile",
    "epilogue": "linear with GELU {linear_gelu.of_peer:.1f} times PyTorch, gated MLP "
    "{gated_mlp.of_peer:.1f} times the better of PyTorch and torch.compile, with the "
    "way back too; 3 x 3 convolutions with bias and ReLU "
    "{conv_8x28x28_512_512_1.of_peer:.1f} to {conv_8x112x112_128_128_1.of_peer:.1f} "
    "times, with 64 channels {conv_8x224x224_64_64_1.of_peer:.2f} times",
    "int4": "one token {w4a16_1.ratio:.1f} times PyTorch's product with four bits; "
    "against bf16, 8 tokens {w4a16_8.ratio:.1f}, 16 tokens {w4a16_16.ratio:.1f}, 64 "
    "tokens {w4a16_64.ratio:.1f} and 256 tokens {w4a16_256.ratio:.1f} times",
    "moe": "{moe_8192_64.of_peer:.1f} and {moe_32768_128.of_peer:.1f} times the better "
    "of PyTorch and torch.compile, with the way back "
    "{moe_8192_64_training.of_peer:.1f} and {moe_32768_128_training.of_peer:.1f}; "
    "routing and moving at {around_moe_8192_64.of_peer:.0%} and "
    "{around_moe_32768_128.of_peer:.0%} of copy bandwidth; the prefix sum of 2^28 "
    "numbers {prefix_sum.of_peer:.1f} times PyTorch's",
    "transformer": "a training step at {step_graph.tflops:.0f} TFLOP/s, one CUDA graph "
    "(torch.compile {step_compile.tflops:.0f}, one graph "
    "{step_compile_graph.tflops:.0f}; PyTorch {step_eager.tflops:.0f}), with "
    "{step.memory:.2f} of PyTorch's memory; a token with four bits "
    "{token_int4.ratio:.1f} times torch.compile's",
    "ring_allreduce-nvidia-h100-80gb-hbm3": "two H100s, NVLink without multicast: "
    "{all_reduce_1048576.ratio:.1f} times NCCL with 1 MiB, "
    "{all_reduce_268435456.ratio:.2f} times with 256 MiB; with 1 GiB "
    "{all_reduce_1073741824.gbps:.0f} GB/s of bus bandwidth, NCCL's "
    "{all_reduce_1073741824_nccl.gbps:.0f}",
    "parallel-nvidia-h100-80gb-hbm3": "two H100s: a step of training "
    "{ddp_ours.ratio:.2f} times PyTorch's DistributedDataParallel; an MLP spread over "
    "both {mlp_two.ratio:.1f} times one; ring attention over 131,072 tokens at "
    "{ring_two.ratio:.0%} of its bound, with the way back "
    "{ring_training_two.ratio:.0%}",
}


@pytest.mark.parametrize("stem", CLAIMS)
def test_what_it_claims_is_what_was_stored(stem: str) -> None:
    name = stem if "-" in stem else f"{stem}-nvidia-h200"
    file = ROOT / "benchmarks" / "results" / f"{name}.json"
    rows = json.loads(file.read_text())["rows"]
    named = {row["name"]: SimpleNamespace(**row) for row in rows}
    claim = CLAIMS[stem].format(**named)
    assert claim in README, f"{file.name} says: {claim}"


def test_its_commands_are_the_makefile_s() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make (\w+)|^make (\w+)", README, re.MULTILINE))
    names = {a or b for a, b in commands}
    assert {"grade", "test", "lab", "book", "release"} <= names
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in names)


def test_it_is_no_longer_than_two_screens() -> None:
    assert len(README.splitlines()) <= 90
