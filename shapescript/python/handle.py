"""What every object that stands for a value of a running program has in common.

A handle has the runtime and the controller's value; what it gives to Python is always a copy. It can't be pickled: the
value lies on the program's devices, and another process has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import torch

from shapescript.specialise.values import DeviceTensor, copied

if TYPE_CHECKING:
    from shapescript.python.runtime import Runtime


class Handle:
    """A value of a running program, as Python has it."""

    _runtime: Runtime
    _value: Any

    def _hold(self, runtime: Runtime, value: object) -> None:
        """Gives the handle its value."""
        object.__setattr__(self, "_runtime", runtime)
        object.__setattr__(self, "_value", value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: object) -> Any:
        """A value of its own in the same program."""
        with self._runtime.running():
            return self._runtime.results.of(copied(self._value))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"this {type(self).__name__} lies on the devices of the running program `{self._runtime.name}`, so it "
            "can't be pickled; `state_dict()` gives its tensors, and `shapescript.save` writes them to a file"
        )


def own_copy(tensor: DeviceTensor) -> torch.Tensor:
    """A tensor's numbers, whole, in memory of their own."""
    return tensor.data.detach().clone()
