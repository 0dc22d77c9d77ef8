"""Chapter 3: time a kernel, profile regions, find memory's peak, lies in numbers."""

from autograder.exercises import chapter
from autograder.exercises.profiling.arithmetic_intensity import ARITHMETIC_INTENSITY
from autograder.exercises.profiling.lying_benchmark import LYING_BENCHMARK
from autograder.exercises.profiling.peak_memory import PEAK_MEMORY
from autograder.exercises.profiling.profiler import PROFILER
from autograder.exercises.profiling.time_kernel import TIME_KERNEL

EXERCISES = chapter(
    __name__,
    ARITHMETIC_INTENSITY,
    TIME_KERNEL,
    PROFILER,
    PEAK_MEMORY,
    LYING_BENCHMARK,
)
