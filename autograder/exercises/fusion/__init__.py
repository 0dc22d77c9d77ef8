"""Chapter 11: GELU, wide loads, gradients, a bias, dropout; rows, scores, a fuser."""

from autograder.exercises import chapter
from autograder.exercises.fusion.add_relu import ADD_RELU
from autograder.exercises.fusion.attention_score import ATTENTION_SCORE
from autograder.exercises.fusion.bias_gelu import BIAS_GELU
from autograder.exercises.fusion.dropout_replay import DROPOUT_REPLAY
from autograder.exercises.fusion.fuser import FUSER
from autograder.exercises.fusion.gelu import GELU
from autograder.exercises.fusion.gelu_dropout import GELU_DROPOUT
from autograder.exercises.fusion.layer_norm_relu_fused import LAYER_NORM_RELU_FUSED
from autograder.exercises.fusion.mul_tanh import MUL_TANH

EXERCISES = chapter(
    __name__,
    GELU,
    ADD_RELU,
    MUL_TANH,
    BIAS_GELU,
    GELU_DROPOUT,
    DROPOUT_REPLAY,
    LAYER_NORM_RELU_FUSED,
    ATTENTION_SCORE,
    FUSER,
)
