"""The module written in C++ (`csrc/cpu/core.cpp`); it is missing where there was no compiler."""

import numpy as np
from numpy.typing import NDArray

def fill_philox(
    bits: NDArray[np.uint32], key: int, first_index: int, first_row: int, place: int, call: int
) -> None: ...
