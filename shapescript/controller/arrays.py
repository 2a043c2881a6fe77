"""Numbers from Python as torch tensors, and whether they are what an element asks for.

Takes tensors, numpy arrays, numbers and lists of them; gives `as_tensor`, which copies only what torch can't share,
and never writes to what it was given, and `fitted`, the one conversion there is: a tensor in the element of a field,
an argument or a weight, its values checked. f64 is taken as f32, because numpy and Python make f64 of every number;
whole numbers of any width are taken as another whose range they fit; nothing else is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from shapescript.controller.errors import DataError, ShapeError
from shapescript.devices.dtypes import DTYPES
from shapescript.types.element import FLOATS, WHOLES

ELEMENT_OF = {dtype: name for name, dtype in DTYPES.items()}
WIDER: Mapping[str, type[np.generic]] = {"uint16": np.int32, "uint32": np.int64}


class SharedMemory:
    """Memory of an array that may not be written, as numpy's protocol describes it, without that mark.

    torch can't mark a tensor so, and warns; nothing here writes to a tensor that came from Python.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def as_tensor(value: object, where: str) -> torch.Tensor:
    """A tensor of a number, a list of numbers, an array or a tensor; not a copy where it needn't be.

    Raises:
        DataError: it is none of these.
    """
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_nested:
            dense = "stack its rows" if value.is_nested else "hand over `x.to_dense()`"
            raise DataError(f"{where} is {type(value).__name__}, which isn't a dense tensor: {dense}")
        return value.detach()
    try:
        if isinstance(value, (bool, int, float)):
            return torch.tensor(value)
        try:
            array = np.asarray(value)
        except ValueError as error:
            uneven = "inhomogeneous" in str(error)
            raise TypeError("its rows aren't of one length") if uneven else error from None
        if array.dtype == object or array.dtype.kind not in "biuf":
            complex_numbers = array.dtype.kind == "c"
            raise TypeError("its numbers are complex" if complex_numbers else "it isn't numbers of one shape")
        return from_array(array)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(f"{where} is {type(value).__name__}, which isn't a tensor: {error}") from None


def from_array(array: np.ndarray) -> torch.Tensor:
    """A tensor of an array of numbers, which may be read-only, turned around, or in another machine's byte order."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name in WIDER:
        array = array.astype(WIDER[array.dtype.name])
    if array.dtype.name in ("float128", "longdouble"):
        array = array.astype(np.float64)
    if array.dtype.name == "uint64":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise ValueError("a value is more than i64 holds")
        array = array.astype(np.int64)
    if any(step < 0 for step in array.strides):
        array = array.copy()
    if not array.flags.writeable and array.size:
        array = np.asarray(SharedMemory(array))
    return torch.as_tensor(array)


def plain_number(value: object) -> object:
    """A scalar of numpy's or torch's as Python's number; anything else as it is."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) and value.ndim == 0:
        number: object = value.item()
        return number
    return value


def sizes_text(shape: Sequence[int]) -> str:
    """Sizes as a reader counts them: `8 x 8`, or `one value`."""
    return " x ".join(map(str, shape)) if len(shape) else "one value"


def element_of(tensor: torch.Tensor) -> str:
    """The element that a tensor holds, by our name where there is one."""
    return ELEMENT_OF.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


def fitted(
    value: torch.Tensor,
    element: str,
    where: str,
    written: str,
    refinement: str | None = None,
    bound: int | None = None,
    error: type[DataError] | type[ShapeError] = DataError,
    rows: bool = False,
) -> torch.Tensor:
    """A tensor in an element, `written` as the program has it; `error` is raised for an element that doesn't fit.

    `rows`: the first axis is that of examples, and a wrong value is said with its row.

    Raises:
        DataError: a value is out of range.
    """
    found = element_of(value)
    if found != element:
        to_f32 = element == "f32" and found == "f64"
        whole = element in WHOLES and found in WHOLES
        if not to_f32 and not whole:
            both = {found, element} <= {*FLOATS, *WHOLES}
            hint = "; convert it where the dataset makes it" if both and error is DataError else ""
            if both and error is ShapeError:
                hint = f"; hand over `x.to(torch.{str(DTYPES[element]).removeprefix('torch.')})`"
            raise error(f"{where} should be {written}, elements {element}, and holds {found}{hint}")
    check_values(value, element, where, written, refinement, bound, rows)
    return value.to(DTYPES[element])


def check_values(
    value: torch.Tensor, element: str, where: str, written: str, refinement: str | None, bound: int | None, rows: bool
) -> None:
    """Are whole numbers in their range, and refined floats in theirs?"""
    low, high = limits(element, refinement, bound, value.dtype)
    if (low is None and high is None) or value.numel() == 0:
        return
    compared = value if value.is_floating_point() else value.to(torch.int64)  # a u8 is compared with -1 too
    wrong = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    if low is not None:
        wrong |= ~(compared >= low)  # NaN is wrong too
    if high is not None:
        wrong |= ~(compared <= high)
    if not bool(wrong.any()):
        return
    place = torch.nonzero(wrong)[0].tolist()
    bad = value[tuple(place)].item()
    number = f" in row {place[0]}" if rows else ""
    if bound is not None:
        raise DataError(f"{where} should be {written}, whole numbers in 0..{bound}, and holds {bad}{number}")
    expected = f"from {low} to {high}" if high is not None else f"{low} or more"
    raise DataError(f"{where} should be {written}, {expected}, and holds {bad}{number}")


def limits(
    element: str, refinement: str | None, bound: int | None, found: torch.dtype
) -> tuple[int | float | None, int | float | None]:
    """The least and the greatest value that is allowed, where the element alone doesn't see to it."""
    if bound is not None:
        return 0, bound - 1
    if refinement in ("NonNeg", "Prob"):
        return 0.0, 1.0 if refinement == "Prob" else None
    if element in WHOLES and found != DTYPES[element]:
        about = torch.iinfo(DTYPES[element])
        return about.min, about.max
    return None, None
