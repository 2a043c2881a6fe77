"""Live parameters: what `m.parameters()` gives to a PyTorch optimizer, and how the two sides stay the same.

A live parameter is an `nn.Parameter` of Python's own on the device where tensors are handed in. Before the program does
anything, what Python wrote into one is put into the model; after it, what the program changed is put into the
parameter. Both look at the values, for there are ways of writing that torch doesn't count. Nothing is done for those
that nobody has any more.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch

from shapescript.controller.arrays import sizes_text
from shapescript.controller.errors import ShapeError
from shapescript.specialise.values import DeviceTensor, ModelValue, Slots, slots_of


@dataclass(slots=True)
class Live:
    """A place of a model and its parameter; `seen` is what was there when both were the same, `values` its numbers."""

    name: str
    slots: Slots
    key: str
    parameter: weakref.ref[torch.nn.Parameter]
    seen: DeviceTensor
    values: torch.Tensor


@dataclass(slots=True)
class LiveParameters:
    """The live parameters of one program, by where in a model they stand."""

    known: dict[tuple[int, str], Live] = field(default_factory=dict)

    def of(self, name: str, slots: Slots, key: str) -> torch.nn.Parameter:
        """The parameter of a place, the same one as long as someone has it."""
        live = self.known.get((id(slots), key))
        parameter = live.parameter() if live is not None else None
        if parameter is not None:
            return parameter
        held = slots[key]
        assert isinstance(held, DeviceTensor)
        values = held.data.detach()
        parameter = torch.nn.Parameter(values.clone(), requires_grad=values.is_floating_point())
        self.known[id(slots), key] = Live(name, slots, key, weakref.ref(parameter), held, values)
        return parameter

    def held(self) -> bool:
        """Whether someone has one of them."""
        return any(live.parameter() is not None for live in self.known.values())

    def requiring(self, model: ModelValue) -> list[torch.nn.Parameter]:
        """The live parameters of a model that require a gradient."""
        if not self.known:
            return []
        places = {(id(slots), key) for slots, key in slots_of(model)}
        found = [live.parameter() for place, live in self.known.items() if place in places]
        return [parameter for parameter in found if parameter is not None and parameter.requires_grad]

    def put_into_models(self) -> None:
        """Before the program runs: what Python wrote goes into the models.

        Raises:
            ShapeError: a parameter has another shape or element now; no model was changed.
        """
        changed: list[tuple[Live, torch.Tensor]] = []
        for place, live in list(self.known.items()):
            parameter = live.parameter()
            if parameter is None:
                del self.known[place]
                continue
            now = parameter.detach()
            if now.shape != live.values.shape or now.dtype != live.values.dtype or now.device != live.values.device:
                raise ShapeError(
                    f"the parameter `{live.name}` was {form(live.values)}, and has become {form(now)}: write values "
                    "of the same shape, element and device into it"
                )
            if not torch.equal(now, live.values):
                changed.append((live, now.clone()))
        for live, values in changed:
            old = live.slots[live.key]
            assert isinstance(old, DeviceTensor)
            live.seen = DeviceTensor(values, old.axes, old.element, old.sizes)
            live.slots[live.key], live.values = live.seen, values

    def take_from_models(self) -> None:
        """After the program ran: what it changed goes into the parameters."""
        for live in list(self.known.values()):
            parameter, held = live.parameter(), live.slots[live.key]
            if parameter is None or held is live.seen:
                continue
            assert isinstance(held, DeviceTensor)
            live.seen, live.values = held, held.data.detach()
            with torch.no_grad():
                parameter.copy_(live.values)


def form(tensor: torch.Tensor) -> str:
    """A tensor's sizes, element and device in words."""
    return f"{sizes_text(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
