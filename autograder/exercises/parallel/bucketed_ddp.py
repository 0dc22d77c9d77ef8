"""Gradients averaged while backward goes on, and a bucket that goes stale.

**Tolerance.** A gradient is a sum over three rows of products along the chain, rounded
in fp32 at each of some ten steps, and then one over ranks: 16 eps of the largest.
"""

from __future__ import annotations

from dataclasses import replace

from autograder.exercise import Count, Exercise, Structure, Tolerance
from autograder.exercises.parallel.shared import (
    PRELUDE,
    SHARES,
    averaged,
    draw_training,
    largest,
    reduced_bytes,
    training_case,
)

_TOLERANCE = Tolerance(16.0, scale=lambda arguments: largest(averaged(arguments)))
# Two steps of 5 x 8 + 8, 8 x 6 + 6 and 6 x 3 + 3 numbers; each step three buckets.
_NUMBERS, _BUCKETS, _STEPS = 123, 3, 2

BUCKETED_DDP = Exercise(
    id="bucketed_ddp",
    title="Averaged under backward",
    kind="core",
    points=25,
    language="python",
    entry="ranks",
    name="bucketed_ddp",
    source="solutions/parallel/bucketed_ddp.py",
    goal="Average gradients over ranks in buckets, each of which leaves while backward "
    "goes on with the layers before.",
    requirements=(
        "`parameters` are a model's, the same on each rank; your `bucket_gradients` "
        "says which travel together, of at most `limit` bytes (a float32 has 4).",
        "`bucketed_ddp` returns a function, `finish()`. Each step computes gradients "
        "anew (`grad` is `None` before) and calls `finish()` after backward; then each "
        "`grad` is the mean over ranks.",
        "A bucket's `dist.all_reduce` begins in the hook of its last gradient, with "
        "`async_op=True`, and is waited for in `finish()`: one message a bucket.",
    ),
    problem=draw_training,
    reference=averaged,
    cases=(
        training_case(2, (5, 8, 6, 3), 240),
        training_case(3, (4, 7, 5), 100, steps=3),
        training_case(2, (6, 4), 4000),
        training_case(2, (3, 5, 2, 4), 4),
    ),
    tolerance=_TOLERANCE,
    hints=(
        "parameter.register_post_accumulate_grad_hook(hook) calls hook(parameter) when "
        "its grad is there. What must a hook know to see that its bucket is full?",
        "Count for each bucket how many gradients are missing. At zero, torch.cat the "
        "flattened grads and begin dist.all_reduce; keep the tensor and the handle. "
        "What must be so again when the next step begins?",
        "finish(): for each bucket handle.wait(), divide by dist.get_world_size(), "
        "split(numbers of the members), view_as(parameter) into its grad, and set the "
        "count back to len(bucket). A hook for bucket `which` is made by a function "
        "ready(which), so that each has a `which` of its own.",
    ),
    onward="Give grad a view of the bucket from the start: what is never copied then?",
    counts=(
        Count("messages", ideal=_STEPS * _BUCKETS, times=1),
        Count("sent bytes", ideal=_STEPS * reduced_bytes(2, _NUMBERS), times=1.0),
    ),
    structure=(
        Structure(
            lacks=("torch.nn.parallel", "DistributedDataParallel"),
            message="The values are right, and torch's own DistributedDataParallel "
            "made them: use hooks and dist.all_reduce.",
        ),
    ),
    repeats=("widths",),
    needs=("bucket_gradients",),
    prelude=PRELUDE
    + "from autograder.worker.adapters.averaging import adapt_averaging as __adapt__\n",
    shares=SHARES,
)

STALE_BUCKET = replace(
    BUCKETED_DDP,
    id="stale_bucket",
    title="Gradients of another step",
    kind="detective",
    points=20,
    name="stale_bucket",
    source="autograder/exercises/parallel/stale_bucket_answer.py",
    goal="Mend what averages gradients through a buffer that is allocated once: the "
    "first step's loss is right, with one bucket, and the model does not learn.",
    requirements=(
        "`finish()` leaves the mean over ranks in each `grad`, in every step.",
        "The buffer is allocated once, before the first step.",
        "Each bucket leaves in the hook of its last gradient, as one message.",
        "`bucket_gradients`, and the loop that registers hooks, are right.",
    ),
    cases=(
        training_case(2, (5, 8, 6, 3), 240),
        training_case(3, (4, 7, 5), 100, steps=3),
        training_case(2, (6, 4), 4000, steps=3),
        training_case(2, (3, 5, 2, 4), 4, steps=1),
    ),
    hints=(
        "Which cases are wrong in the first step, and which only in the second? Two "
        "faults are at work.",
        "An all-reduce reads and writes its tensor until it is waited for. Which "
        "memory does the second bucket's torch.cat write? And what is came[which] when "
        "the second step begins?",
        "buffer = torch.empty(sum(numbers)); places = buffer.split(numbers) gives each "
        "bucket its own place. At the end of finish(): came[:] = [0] * len(buckets).",
    ),
    onward="With two buffers that take turns, when may the first be written again?",
    prelude=PRELUDE + "from autograder.worker.adapters.averaging import (\n"
    "    adapt_one_buffer as __adapt__,\n"
    ")\n",
    shares=SHARES,
)
