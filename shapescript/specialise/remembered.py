"""A call like the one before, recognised at a glance.

Takes a call that was prepared and the arguments it was made from; gives `Remembered`, whose `tensors` are the inputs of
the same plan for other arguments, or None where anything but the numbers may differ: another container, axes, element
or size. A training loop calls one function with the same model and optimizer over and over, and what its types and keys
say needn't be worked out for each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from shapescript.devices.held import Somewhere
from shapescript.specialise.values import BatchValue, DeviceTensor, ModelValue, OptimizerValue, Slots, Value, slots_of
from shapescript.types.axes import Axis
from shapescript.types.element import Element

PLAIN = (bool, int, str, type(None))


@dataclass(frozen=True)
class Form:
    """What is compared of a tensor: where its shape is a batch's, it must be the same batch's length too."""

    axes: tuple[Axis, ...]
    element: Element
    shape: tuple[int, ...]
    sizes: Mapping[str, int]

    def fits(self, tensor: object) -> bool:
        """Whether a tensor is of this form."""
        if not isinstance(tensor, DeviceTensor):
            return False
        if tensor.axes is self.axes and tensor.element is self.element and tensor.sizes is self.sizes:
            return True  # as an update leaves a parameter
        return (
            (tensor.axes is self.axes or tensor.axes == self.axes)
            and (tensor.element is self.element or tensor.element == self.element)
            and tensor.shape == self.shape
        )


def form_of(tensor: DeviceTensor) -> Form:
    """The form of a tensor."""
    return Form(tensor.axes, tensor.element, tensor.shape, tensor.sizes)


class Remembered:
    """The arguments of a call by their forms, and where in them each input is found."""

    def __init__(self, arguments: Sequence[Value]) -> None:
        self.arguments: list[Value] = []
        self.slots: dict[int, list[tuple[Slots, str]]] = {}
        self._forms: list[tuple[Slots, str, Form]] = []
        self._options: dict[int, dict[str, object]] = {}
        self._fields: dict[int, dict[str, Form]] = {}
        self._batches: dict[int, tuple[object, Axis]] = {}
        self._tensors: dict[int, Form] = {}
        self._inputs: list[tuple[int, Slots | None, str]] = []
        for at, argument in enumerate(arguments):
            self._keep(at, argument)

    @staticmethod
    def of(arguments: Sequence[Value], values: Sequence[Value], leaves: Sequence[object]) -> Remembered | None:
        """What is remembered of a call; None where its arguments aren't so simple."""
        try:
            made = Remembered(arguments)
            made._find(arguments, values, leaves)
        except LookupError:
            return None
        return made

    def tensors(self, arguments: Sequence[Value], device: torch.device) -> list[Somewhere] | None:
        """The inputs for arguments that differ in their numbers alone."""
        if len(arguments) != len(self.arguments):
            return None
        for at, (argument, known) in enumerate(zip(arguments, self.arguments, strict=True)):
            if not self._alike(at, argument, known):
                return None
        for slots, name, form in self._forms:
            if not form.fits(slots[name]):
                return None
        found: list[Somewhere] = []
        for at, owner, name in self._inputs:
            argument = arguments[at]
            leaf = argument.fields[name] if isinstance(argument, BatchValue) else argument
            if owner is not None:
                leaf = owner[name]
            if isinstance(leaf, float):
                found.append(torch.tensor(leaf, dtype=torch.float64, device=device))
            else:
                assert isinstance(leaf, DeviceTensor)
                found.append(leaf.held)
        return found

    # --- making

    def _keep(self, at: int, argument: Value) -> None:
        """Remembers an argument, but for what would keep a batch's memory.

        Raises:
            LookupError: it is of a kind that isn't remembered.
        """
        if isinstance(argument, (ModelValue, OptimizerValue)):
            slots = self.slots[at] = list(slots_of(argument))
            for owner, name in slots:
                tensor = owner[name]
                if not isinstance(tensor, DeviceTensor):
                    raise LookupError(name)
                self._forms.append((owner, name, form_of(tensor)))
            if isinstance(argument, OptimizerValue):
                self._options[at] = dict(argument.options)
            self.arguments.append(argument)
        elif isinstance(argument, BatchValue):
            self._batches[at] = (argument.data, argument.axis)
            self._fields[at] = {}
            for name, part in argument.fields.items():
                if not isinstance(part, DeviceTensor):
                    raise LookupError(name)
                self._fields[at][name] = form_of(part)
            self.arguments.append(None)
        elif isinstance(argument, DeviceTensor):
            self._tensors[at] = form_of(argument)
            self.arguments.append(None)
        elif isinstance(argument, (float, *PLAIN)):
            self.arguments.append(argument)
        else:
            raise LookupError(type(argument).__name__)

    def _find(self, arguments: Sequence[Value], values: Sequence[Value], leaves: Sequence[object]) -> None:
        """Finds where each leaf comes from.

        Raises:
            LookupError: one comes from several places, or from none.
        """
        places: dict[int, tuple[int, Slots | None, str]] = {}
        floats = [at for at, argument in enumerate(arguments) if isinstance(argument, float)]

        def put(leaf: object, place: tuple[int, Slots | None, str]) -> None:
            if id(leaf) in places:
                raise LookupError(place[2])
            places[id(leaf)] = place

        for at, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            if at in self.slots:
                for owner, name in self.slots[at]:
                    put(owner[name], (at, owner, name))
            elif isinstance(argument, BatchValue) and isinstance(value, BatchValue):
                for name, part in value.fields.items():
                    given = argument.fields[name]
                    if not isinstance(part, DeviceTensor) or not isinstance(given, DeviceTensor):
                        raise LookupError(name)
                    if part.held is not given.held:
                        raise LookupError(name)
                    put(part, (at, None, name))
            elif isinstance(argument, DeviceTensor) and isinstance(value, DeviceTensor):
                if value.held is not argument.held:
                    raise LookupError("converted")
                put(value, (at, None, ""))
        for leaf in leaves:
            if isinstance(leaf, float):
                if not floats:
                    raise LookupError("a float")
                self._inputs.append((floats.pop(0), None, ""))
            else:
                self._inputs.append(places[id(leaf)])
        if floats:
            raise LookupError("a float that is no input")

    # --- comparing

    def _alike(self, at: int, argument: Value, known: Value) -> bool:
        if at in self.slots:
            return argument is known and (
                not isinstance(argument, OptimizerValue) or _same_options(argument.options, self._options[at])
            )
        if at in self._fields:
            return isinstance(argument, BatchValue) and self._same_batch(at, argument)
        if at in self._tensors:
            return self._tensors[at].fits(argument)
        if isinstance(known, float):
            return isinstance(argument, float)
        return type(argument) is type(known) and argument == known

    def _same_batch(self, at: int, batch: BatchValue) -> bool:
        data, axis = self._batches[at]
        forms = self._fields[at]
        return (
            batch.data is data
            and (batch.axis is axis or batch.axis == axis)
            and batch.fields.keys() == forms.keys()
            and all(form.fits(batch.fields[name]) for name, form in forms.items())
        )


def _same_options(options: Mapping[str, object], known: Mapping[str, object]) -> bool:
    return options.keys() == known.keys() and all(
        option is known[name] or (type(option) is type(known[name]) and option == known[name])
        for name, option in options.items()
    )
