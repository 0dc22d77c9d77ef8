"""Mixture of experts: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.moe.dropped_tokens import DROPPED_TOKENS
from autograder.exercises.moe.expert_offsets import EXPERT_OFFSETS
from autograder.exercises.moe.grouped_gemm import GROUPED_GEMM
from autograder.exercises.moe.moe_layer import MOE_LAYER
from autograder.exercises.moe.permute_tokens import PERMUTE_TOKENS
from autograder.exercises.moe.topk_gating import TOPK_GATING

EXERCISES = chapter(
    __name__,
    TOPK_GATING,
    EXPERT_OFFSETS,
    PERMUTE_TOKENS,
    GROUPED_GEMM,
    MOE_LAYER,
    DROPPED_TOKENS,
)
