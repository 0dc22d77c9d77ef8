"""A state_dict whose layers' matrices take four bits a number."""

from __future__ import annotations

import torch


# [exercise:compress_model]
def compress_model(state, group_size):
    """Return a dict: each layer's matrices as (packed, scales), the rest as it is.

    A scale is max |w| / 7 of group_size columns; a code is
    round(w / scale) + 8; byte j of a row holds codes 2j and 2j + 1.
    """
    # [hole]
    done, small = {}, {}
    for name, tensor in state.items():
        if not name.startswith("layers.") or tensor.dim() != 2:
            small[name] = tensor
            continue
        key = tensor.data_ptr()
        if key not in done:
            rows, columns = tensor.shape
            grouped = tensor.float().view(rows, -1, group_size)
            scales = grouped.abs().amax(-1) / 7
            safe = torch.where(scales > 0, scales, 1.0)
            codes = torch.round(grouped / safe[..., None]) + 8
            codes = codes.to(torch.uint8).view(rows, columns)
            packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
            done[key] = packed, scales.half()
        small[name] = done[key]
    return small
    # [/hole]


# [/exercise]
