"""Activations of a tile in registers, in Gluon: ten instructions a number or so."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LOG2E = gl.constexpr(1.4426950408889634)
TANH = gl.constexpr(1.5957691216057308)  # 2 sqrt(2 / pi)


@gluon.jit
def _sigmoid(x):
    return 1.0 / (1.0 + gl.exp2(-LOG2E * x))


@gluon.jit
def _normal_cdf(x):
    """Return the share of a normal distribution below x, as kw/normal.cuh does."""
    t = gl.abs(x)
    power = -2.0168471e-4 * t + 4.4676098e-3
    power = power * t - 4.2832747e-2
    power = power * t - 4.7278568e-1
    power = power * t - 1.1443996
    power = power * t - 1.0005318
    above = gl.exp2(power)
    return gl.where(x > 0.0, 1.0 - above, above)


@gluon.jit
def activated(x, KIND: gl.constexpr):
    """Apply an activation in fp32."""
    if KIND == "relu":
        return gl.where(x < 0.0, 0.0, x)  # a NaN stays one
    elif KIND == "silu":
        return x * _sigmoid(x)
    elif KIND == "gelu":
        return x * _normal_cdf(x)
    elif KIND == "gelu_tanh":
        return x * _sigmoid(TANH * x * (1.0 + 0.044715 * x * x))
    else:
        return x
