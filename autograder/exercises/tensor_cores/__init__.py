"""Chapter 7: fragments, WMMA, mma.sync with a swizzle, asynchronous stages."""

from autograder.exercises import chapter
from autograder.exercises.tensor_cores.gemm_half import GEMM_HALF
from autograder.exercises.tensor_cores.gemm_pipelined import GEMM_PIPELINED
from autograder.exercises.tensor_cores.mma_sync_gemm import MMA_SYNC_GEMM
from autograder.exercises.tensor_cores.stale_stage import STALE_STAGE
from autograder.exercises.tensor_cores.swizzle import SWIZZLE
from autograder.exercises.tensor_cores.wmma_gemm import WMMA_GEMM
from autograder.exercises.tensor_cores.wmma_tile import WMMA_TILE

EXERCISES = chapter(
    __name__,
    WMMA_TILE,
    WMMA_GEMM,
    SWIZZLE,
    MMA_SYNC_GEMM,
    GEMM_PIPELINED,
    STALE_STAGE,
    GEMM_HALF,
)
