"""For tests: a program from its text to its results in this process, and what the checker says about a text.

Gives `Program`, whose `call` runs a function on torch tensors and numbers and gives torch tensors back, `codes` and
`checks`. A text without a `devices` line runs on `cpu`.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import torch

from shapescript.controller.host_builtins import HOST
from shapescript.controller.host_domain import HostDomain, host_evaluator
from shapescript.controller.output import Output
from shapescript.controller.placing import Place
from shapescript.diagnostics.diagnostic import Diagnostic
from shapescript.placement.kinds import Kind
from shapescript.session import Session
from shapescript.specialise.values import BatchValue, DeviceTensor, ModelValue, Value, named_tensors
from shapescript.types.axes import Axis
from shapescript.types.element import Element
from shapescript.types.kinds import Batch, Tensor

NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "bool",
}

CHAPTER = """\
devices cuda[0 1 2]

dim D  = 784
dim Hd = 256
dim C  = 10

model Mlp:
    param w1: [D Hd] = normal(std=0.02)
    param w2: [Hd C] = normal(std=0.02)

data Digit:
    img:   [D]
    label: [] Index[C]

fn loss(m: Mlp, batch: [b] Digit) -> [] NonNeg:
    return cross_entropy(batch.img @ m.w1 |> gelu |> matmul(m.w2), batch.label, over=C)

fn step(mut m: Mlp, mut opt: AdamW[Mlp], batch: [b] Digit) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn train(mut m: Mlp, data: Dataset[Digit], epochs: int):
    opt = adamw(m, lr=3e-4)
    for epoch in 0..epochs:
        for batch in data |> shuffle(seed=epoch) |> batches(64):
            print("loss", step(mut m, mut opt, batch))
"""
"""The program of the chapter on several devices."""


def session(text: str) -> Session:
    """A session of this text, in a folder of its own."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "program.ss"
    path.write_text(text if text.lstrip().startswith("devices") else f"devices cpu\n{text}", encoding="utf-8")
    return Session(path, "program.ss")


def diagnose(text: str) -> list[Diagnostic]:
    """All that the checker says."""
    return session(text).diagnostics


def codes(text: str) -> list[str]:
    """The codes of all that the checker says, in order."""
    return [diagnostic.code for diagnostic in diagnose(text)]


class Program:
    """A program that checks, ready to run, on one device by default; `warned`: it may have warnings."""

    def __init__(self, text: str, seed: int = 0, place: Place | None = None, warned: bool = False) -> None:
        self.session = session(text)
        found = [(each.code, each.message, each.primary.span.line) for each in self.session.diagnostics]
        found = [each for each in found if not (warned and each[0].startswith("W"))]
        assert not found, found
        self.typed = self.session.typed
        kinds = self.session.placed.kinds
        self.printed = io.StringIO()
        output = Output("program", self.session.path.parent, self.printed, io.StringIO())
        self.domain = HostDomain(
            self.typed,
            self.typed.known_sizes(),
            lambda function: kinds[function].kind is Kind.DEVICE,
            output,
            HOST,
            seed=seed,
            place=place,
            folder=self.session.path.parent,
        )
        self.evaluator = host_evaluator(self.domain)

    def call(self, name: str, *arguments: object) -> object:
        """What a function gives; a mapping among the arguments becomes a batch."""
        info = self.typed.functions[name]
        values = {
            parameter.name: self._value(argument, parameter.type)
            for parameter, argument in zip(info.parameters, arguments, strict=False)
        }
        return plain(self.evaluator.apply(info, values)[0])

    def _value(self, value: object, of: object) -> Value:
        if isinstance(value, dict) and isinstance(of, Batch):
            axis = Axis.named("batch", batch=True)
            fields: dict[str, object] = {}
            for member in self.typed.data_of[of.data].fields.values():
                assert isinstance(member.type, Tensor)
                rows = value[member.name]
                sizes = {"batch": rows.shape[0]}
                fields[member.name] = DeviceTensor(rows, (axis, *member.type.axes), member.type.element, sizes)
            return BatchValue(of.data, axis, fields)
        if isinstance(value, torch.Tensor):
            axes = tuple(Axis.named(f"given{place}") for place in range(value.dim()))
            return DeviceTensor(value, axes, Element(NAMES[value.dtype]))
        return value


def plain(value: object) -> object:
    """A value as tests compare it: torch tensors, and a model or gradients as a dict by path."""
    if isinstance(value, DeviceTensor):
        return value.data
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value


def tensors(value: object) -> dict[str, torch.Tensor]:
    """The tensors of a model or of gradients by their paths."""
    found: dict[str, torch.Tensor] = {}
    for path, slots, name in named_tensors(value):
        held = slots[name]
        assert isinstance(held, DeviceTensor)
        found[path] = held.data
    return found


def f64(*rows: object) -> torch.Tensor:
    """A tensor of f64."""
    return torch.tensor(rows, dtype=torch.float64)


__all__ = ["ModelValue", "Program", "codes", "diagnose", "f64", "plain", "session", "tensors"]
