"""Public functions that cost little to call, and that torch can trace.

``recorded`` makes a function's calls cheap. What a call decides (checks, plans, packed
arguments, the device) depends on its tensors' shapes, dtypes, strides and alignment,
never on their values: so a call that comes again is recorded, and later ones only
allocate what it allocated and launch what it launched.

``operator`` makes a launch an operator of ``torch.library``, with a fake kernel for
what traces it (``torch.compile``, ``torch.export``, ``torch.func``) and a gradient.

    fingerprint.py   what two calls have in common that may share a recording
    calls.py         records a call that comes again, and repeats it
    onlooker.py      sees what reaches no dispatcher
    recorder.py      watches one call
    program.py       writes a recording down as a Python function of its own
    memory.py        the parameters of its launches, and where addresses go
    triton.py        launches of Triton's and Gluon's kernels
    operator.py      torch's side
    autocast.py      what torch.autocast asks for
    arguments.py     what every launcher asks of a tensor
"""

from kernelwright.cuda.watch import Varying
from kernelwright.operators.arguments import check_tensor
from kernelwright.operators.autocast import autocast
from kernelwright.operators.calls import recorded
from kernelwright.operators.operator import Operator, operator, traced
from kernelwright.operators.recorder import mark_written, zeros_between_launches
from kernelwright.operators.triton import held

__all__ = [
    "Operator",
    "Varying",
    "autocast",
    "check_tensor",
    "held",
    "mark_written",
    "operator",
    "recorded",
    "traced",
    "zeros_between_launches",
]
