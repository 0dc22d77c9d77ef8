"""Chapter 9: attention without its matrix of scores, from PyTorch to tensor cores."""

from autograder.exercises import chapter
from autograder.exercises.flash_attention.attention_reference import ATTENTION_REFERENCE
from autograder.exercises.flash_attention.attention_tile import ATTENTION_TILE
from autograder.exercises.flash_attention.flash_causal import FLASH_CAUSAL
from autograder.exercises.flash_attention.flash_forward import FLASH_FORWARD
from autograder.exercises.flash_attention.flash_wmma import FLASH_WMMA
from autograder.exercises.flash_attention.weigh_rows import WEIGH_ROWS
from autograder.exercises.flash_attention.wrong_rescale import WRONG_RESCALE

EXERCISES = chapter(
    __name__,
    ATTENTION_REFERENCE,
    ATTENTION_TILE,
    FLASH_FORWARD,
    FLASH_CAUSAL,
    WEIGH_ROWS,
    FLASH_WMMA,
    WRONG_RESCALE,
)
