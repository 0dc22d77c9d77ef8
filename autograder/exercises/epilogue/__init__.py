"""Chapter 12: what is done to a product's sums before they leave the registers."""

from autograder.exercises import chapter
from autograder.exercises.epilogue.conv_bias_act import CONV_BIAS_ACT
from autograder.exercises.epilogue.linear_gelu import LINEAR_GELU
from autograder.exercises.epilogue.linear_gelu_fast import LINEAR_GELU_FAST
from autograder.exercises.epilogue.mlp_fused import MLP_FUSED
from autograder.exercises.epilogue.wrong_halo import WRONG_HALO

EXERCISES = chapter(
    __name__,
    LINEAR_GELU,
    MLP_FUSED,
    CONV_BIAS_ACT,
    WRONG_HALO,
    LINEAR_GELU_FAST,
)
