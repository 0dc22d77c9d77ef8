"""INT4 weights: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.int4.int4_gemm import INT4_GEMM
from autograder.exercises.int4.int4_gemv import INT4_GEMV
from autograder.exercises.int4.mmap_weights import MMAP_WEIGHTS
from autograder.exercises.int4.pack_int4 import PACK_INT4
from autograder.exercises.int4.quantize_groups import QUANTIZE_GROUPS
from autograder.exercises.int4.sign_extension import SIGN_EXTENSION
from autograder.exercises.int4.unpack_int4 import UNPACK_INT4

EXERCISES = chapter(
    __name__,
    QUANTIZE_GROUPS,
    PACK_INT4,
    UNPACK_INT4,
    SIGN_EXTENSION,
    INT4_GEMV,
    INT4_GEMM,
    MMAP_WEIGHTS,
)
