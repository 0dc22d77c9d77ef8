"""Chapter 5: merging statistics, rows in registers, RMSNorm, gradients, cancelling."""

from autograder.exercises import chapter
from autograder.exercises.layernorm.layer_norm import LAYER_NORM
from autograder.exercises.layernorm.layer_norm_backward import LAYER_NORM_BACKWARD
from autograder.exercises.layernorm.layer_norm_relu import LAYER_NORM_RELU
from autograder.exercises.layernorm.rms_norm import RMS_NORM
from autograder.exercises.layernorm.variance_cancels import VARIANCE_CANCELS
from autograder.exercises.layernorm.welford_combine import WELFORD_COMBINE

EXERCISES = chapter(
    __name__,
    WELFORD_COMBINE,
    LAYER_NORM,
    LAYER_NORM_RELU,
    RMS_NORM,
    LAYER_NORM_BACKWARD,
    VARIANCE_CANCELS,
)
