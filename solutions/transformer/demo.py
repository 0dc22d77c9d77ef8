"""Train, compress and generate in one go: ``make demo``.

    python -m solutions.transformer.demo --steps 100 --out FOLDER

A small model learns the course's own text, is rounded to four bits, saved, opened as a
mapped file, and continues a sentence. On two CPU cores this takes under three minutes.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from solutions.transformer.compression import compress, perplexity, weight_bytes
from solutions.transformer.files import load, save
from solutions.transformer.generation import generate
from solutions.transformer.model import Config, Model
from solutions.transformer.text import course_text, tokenizer_for
from solutions.transformer.training import train

PROMPT = "A kernel that reads each number once"
HELD_OUT = 0.05
"""Share of the text that is not trained on: its end."""


class Run(NamedTuple):
    """What a machine is given to do."""

    config: Config
    steps: int
    batch: int
    length: int
    lr: float
    dtype: torch.dtype


def run_for(device: str, vocabulary: int) -> Run:
    """Choose sizes that a machine trains in a minute or two."""
    if device == "cuda":
        config = Config(
            vocabulary, d_model=512, layers=8, heads=8, kv_heads=4, d_ff=1408
        )
        return Run(config, 600, 32, 256, 1e-3, torch.bfloat16)
    config = Config(vocabulary, d_model=192, layers=4, heads=6, kv_heads=2, d_ff=512)
    return Run(config, 240, 12, 128, 4e-3, torch.float32)


def main() -> None:
    """Do all of it, and show a table and a picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, help="of training")
    parser.add_argument("--out", type=Path, default=Path("grades/demo"))
    options = parser.parse_args()
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    text = course_text()
    tokenizer = tokenizer_for(text)
    tokens = tokenizer.encode(text)
    cut = int(len(tokens) * (1 - HELD_OUT))
    run = run_for(device, tokenizer.vocabulary)
    steps = options.steps or run.steps
    model = Model(run.config, device=device, dtype=run.dtype)
    numbers = sum(p.numel() for p in model.parameters())
    console.print(
        f"{len(text):,} characters are {len(tokens):,} tokens; {numbers:,} parameters "
        f"on {device}, {model.operations}"
    )

    losses, seconds = _train(model, tokens[:cut], run, steps, console)
    small = compress(model, 64)
    path = options.out / "model.kw4"
    save(path, small)
    start = time.perf_counter()
    opened = load(path, device=device)
    opened_ms = (time.perf_counter() - start) * 1e3
    prompt = tokenizer.encode(PROMPT)[None].to(device)

    table = Table(title="One model, twice")
    for column in ("", "weights (MB)", "perplexity, unseen", "tokens a second"):
        table.add_column(column, justify="left" if not column else "right")
    for name, one in ((str(run.dtype).removeprefix("torch."), model), ("INT4", opened)):
        unseen = perplexity(one, tokens[cut:], run.length)
        rate, said = _generate(one, prompt, 60)
        table.add_row(
            name, f"{weight_bytes(one) / 1e6:.2f}", f"{unseen:.1f}", f"{rate:.0f}"
        )
        console.print(f"\n[bold]{name}[/bold]: {tokenizer.decode(said)}", markup=True)
    console.print(table)
    picture = draw(losses, math.log(run.config.vocabulary), options.out / "loss.svg")
    console.print(
        f"trained {steps} steps in {seconds:.0f} s, loss {losses[0]:.2f} to "
        f"{losses[-1]:.2f}; the file opened in {opened_ms:.1f} ms; picture: {picture}"
    )


def _train(
    model: Model, tokens: torch.Tensor, run: Run, steps: int, console: Console
) -> tuple[list[float], float]:
    """Train with progress shown; return the losses and the seconds."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}, loss {task.fields[loss]:.2f}"),
        TimeRemainingColumn(),
    )
    start = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=steps, loss=math.nan)
        losses = train(
            model, tokens, steps=steps, batch=run.batch, length=run.length, lr=run.lr,
            told=lambda step, loss: progress.update(
                task, completed=step + 1, loss=loss
            ),
        )  # fmt: skip
    return losses, time.perf_counter() - start


def _generate(
    model: Model, prompt: torch.Tensor, new: int
) -> tuple[float, torch.Tensor]:
    """Return tokens a second, and the prompt with its continuation."""
    generate(model, prompt, 2)  # compiles what is not yet
    start = time.perf_counter()
    drawn = torch.Generator(prompt.device).manual_seed(1)
    said = generate(model, prompt, new, temperature=0.7, top_k=40, generator=drawn)
    out = said[0].cpu()
    return new / (time.perf_counter() - start), out


def draw(losses: list[float], guess: float, path: Path) -> Path:
    """Draw the loss beside that of a uniform guess."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axes.plot(range(1, len(losses) + 1), losses, label="training loss")
    axes.axhline(guess, linestyle="--", color="gray", label="every token as likely")
    axes.set(xlabel="step", ylabel="cross entropy (nats a token)", ylim=(0, None))
    axes.legend()
    figure.savefig(path)
    plt.close(figure)
    return path


if __name__ == "__main__":
    main()
