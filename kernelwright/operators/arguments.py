"""What every launcher asks of a tensor before it looks at shapes."""

from __future__ import annotations

from collections.abc import Collection

import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_tensor(
    function: str,
    name: str,
    value: object,
    dtypes: Collection[torch.dtype] | None = FLOATS,
) -> None:
    """Refuse what is no tensor of these dtypes on the CPU or an NVIDIA GPU.

    Args:
        function: that was called, for the message.
        name: of the argument.
        value: what was passed.
        dtypes: that are taken; ``None`` where the caller asks itself.

    Raises:
        TypeError: it is no tensor, or of another dtype.
        ValueError: it is on another kind of device.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{function}: {name} is {type(value).__name__}; wanted a torch tensor: "
            f"torch.as_tensor({name})."
        )
    if dtypes is not None and value.dtype not in dtypes:
        listed = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(
            f"{function}: {name} is {value.dtype}; wanted one of {listed}: "
            f"{name}.float()."
        )
    if value.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{function}: {name} is on {value.device}; move it with {name}.cpu()."
        )
