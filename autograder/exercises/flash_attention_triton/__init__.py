"""Chapter 10: attention in Triton, from one tile to gradients and a split KV cache."""

from autograder.exercises import chapter
from autograder.exercises.flash_attention_triton.absorb_tile import ABSORB_TILE
from autograder.exercises.flash_attention_triton.decode_pieces import DECODE_PIECES
from autograder.exercises.flash_attention_triton.decode_split_kv import DECODE_SPLIT_KV
from autograder.exercises.flash_attention_triton.flash_backward import FLASH_BACKWARD
from autograder.exercises.flash_attention_triton.flash_fast import FLASH_FAST
from autograder.exercises.flash_attention_triton.flash_gqa import FLASH_GQA
from autograder.exercises.flash_attention_triton.flash_triton import FLASH_TRITON
from autograder.exercises.flash_attention_triton.flash_triton_causal import (
    FLASH_TRITON_CAUSAL,
)
from autograder.exercises.flash_attention_triton.tile_gradients import TILE_GRADIENTS

EXERCISES = chapter(
    __name__,
    ABSORB_TILE,
    FLASH_TRITON,
    FLASH_TRITON_CAUSAL,
    TILE_GRADIENTS,
    FLASH_BACKWARD,
    FLASH_GQA,
    DECODE_PIECES,
    DECODE_SPLIT_KV,
    FLASH_FAST,
)
