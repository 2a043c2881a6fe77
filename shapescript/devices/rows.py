"""Rows out of a column, as each batch takes them.

Takes a column in the CPU's memory and numbers of rows; gives them side by side. Rows that lie on a GPU are taken there.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def rows_of(column: torch.Tensor, numbers: NDArray[np.int64]) -> torch.Tensor:
    """The rows of these numbers, of a column in the CPU's memory, copied by this thread alone.

    Torch's `index_select` wakes threads for it, which then wait for more in a loop: two for a batch of 64 rows of 784
    values took a core from the step for as long as the copy's whole step lasted.
    """
    bits = column.view(BITS[column.element_size()])  # numpy has no bf16
    return torch.from_numpy(bits.numpy().take(numbers, axis=0)).view(column.dtype)
