"""A mode that sees torch's operations and does not load torch's compiler for it."""

from __future__ import annotations

from types import CodeType

from torch.utils._python_dispatch import TorchDispatchMode


class QuickMode(TorchDispatchMode):
    """A ``TorchDispatchMode`` whose first use takes no second.

    torch's compiler must leave a mode's own functions alone. Torch tells it so through
    the compiler itself, which it imports for that at the mode's first operation; here
    the same is written where the interpreter looks before it asks the compiler.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Asked once for each subclass, when it is made.
        own = vars(cls).get("__torch_dispatch__")
        return own is None or not _left_alone(own.__code__)


def _left_alone(code: CodeType) -> bool:
    """Keep the compiler from a function and what it calls; say whether that worked."""
    try:
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(code, strategy)
    except (ImportError, AttributeError):
        return False  # a torch that names it otherwise: its own way, then
    return True
