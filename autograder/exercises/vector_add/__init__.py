"""Chapter 1: one thread an element, guard, grid stride, float4, and Triton."""

from autograder.exercises import chapter
from autograder.exercises.vector_add.add_one import ADD_ONE
from autograder.exercises.vector_add.saxpy_grid_stride import SAXPY
from autograder.exercises.vector_add.scale_offset import SCALE_OFFSET
from autograder.exercises.vector_add.vector_add import VECTOR_ADD
from autograder.exercises.vector_add.vector_add_triton import VECTOR_ADD_TRITON
from autograder.exercises.vector_add.vector_add_vec4 import VECTOR_ADD_VEC4

EXERCISES = chapter(
    __name__,
    ADD_ONE,
    VECTOR_ADD,
    SAXPY,
    SCALE_OFFSET,
    VECTOR_ADD_TRITON,
    VECTOR_ADD_VEC4,
)
