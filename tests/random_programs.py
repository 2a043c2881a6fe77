"""For tests: random device functions, differentiated, that check and are the same on any number of devices.

Gives `programs()`, a strategy of texts with a model, batches of examples and a `step`. All is in f64 and bounded, so
that results can be compared closely. Nothing is taken along the batch axis that can't be split exactly, unless `whole`
gathers it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as some

HEAD = """dim D = 4
dim E = 3
model M:
    param w: [D E] f64 = normal(std=0.5)
    param v: [E D] f64 = normal(std=0.5)
    param u: [D] f64 = normal(std=0.5)
data Ex:
    x: [D] f64
    y: [E] f64
    s: [] f64
    k: [] Index[D]
"""
UNARY = ("tanh", "sigmoid", "relu", "silu", "gelu", "softplus", "sin", "cos", "square", "abs", "expm1", "sign", "-")
REDUCTIONS = ("sum", "mean", "max", "min", "logsumexp", "var", "prod", "norm")
ALONG = ("softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum", "sort", "cumprod")
Axes = tuple[str, ...]


@dataclass
class Writer:
    """The lines of a function so far, and the axes of each of its values."""

    draw: Callable[[some.SearchStrategy[object]], object]
    lines: list[str] = field(default_factory=list)
    values: dict[str, Axes] = field(default_factory=dict)

    def one(self, of: object) -> str:
        """One of these."""
        return str(self.draw(some.sampled_from(list(of))))  # type: ignore[call-overload]

    def line(self, text: str, axes: Axes, bounded: bool = True) -> None:
        """One more value; what may have grown is bounded again."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {text if bounded else f'tanh({text})'}")
        self.values[name] = axes

    def step(self) -> None:
        """A value made of earlier ones, the latest more often."""
        names = list(self.values)
        x = self.one(names + names[-2:] * 2)
        axes = self.values[x]
        inner = [axis for axis in axes if axis != "b"]
        forms = [self.unary, self.binary, self.binary]
        forms += [self.reduction] * bool(axes) + [self.along, self.pick, self.turn] * bool(inner)
        forms += [self.product] * (axes[-1:] in (("D",), ("E",))) + [self.whole] * ("b" in axes)
        forms += [self.transposed] * (len(axes) > 1) + [self.outer, self.drawn]
        forms[int(self.draw(some.integers(0, len(forms) - 1)))](x, axes, inner)  # type: ignore[call-overload]

    def unary(self, x: str, axes: Axes, inner: list[str]) -> None:
        f = self.one(UNARY)
        self.line(f"-{x}" if f == "-" else f"{f}({x})", axes, f not in ("square", "expm1"))

    def binary(self, x: str, axes: Axes, inner: list[str]) -> None:
        fitting = [name for name, of in self.values.items() if [axis for axis in axes if axis in of] == list(of)]
        y = self.one(fitting)
        form = self.one(
            (
                "{} + {}",
                "{} * {}",
                "{} - {}",
                "{} / (1 + square({}))",
                "maximum({}, {})",
                "where({0} > {1}, {0}, 0.5 * {0} + {1})",
            )
        )
        self.line(form.format(x, y), axes, False)

    def reduction(self, x: str, axes: Axes, inner: list[str]) -> None:
        over = self.one(axes)
        allowed = ("sum", "mean", "max", "min") if over == "b" else REDUCTIONS
        f = self.one(allowed)
        self.line(f"{f}({x}, over={over})", tuple(axis for axis in axes if axis != over), f != "sum")

    def along(self, x: str, axes: Axes, inner: list[str]) -> None:
        self.line(f"{self.one(ALONG)}({x}, over={self.one(inner)})", axes, False)

    def pick(self, x: str, axes: Axes, inner: list[str]) -> None:
        over = self.one(inner)
        if over == "D" and "b" in axes and self.draw(some.booleans()):
            self.line(f"{x}[D=batch.k]", tuple(axis for axis in axes if axis != over))
        else:
            self.line(f"{x}[{over}={self.one((0, 1, -1))}]", tuple(axis for axis in axes if axis != over))

    def turn(self, x: str, axes: Axes, inner: list[str]) -> None:
        over = self.one(inner)
        self.line(self.one((f"flip({x}, over={over})", f"roll({x}, {over}=1)")), axes)

    def product(self, x: str, axes: Axes, inner: list[str]) -> None:
        if axes[-1] == "D" and "E" not in axes:
            self.line(f"{x} @ m.w", (*axes[:-1], "E"), False)
        elif axes[-1] == "E" and "D" not in axes:
            self.line(f"{x} @ m.v", (*axes[:-1], "D"), False)
        elif axes[-1] == "D":
            self.line(f"{x} @ m.u", axes[:-1], False)
        else:
            self.unary(x, axes, inner)

    def whole(self, x: str, axes: Axes, inner: list[str]) -> None:
        self.line(f"softmax(whole({x}), over=b)", axes)

    def transposed(self, x: str, axes: Axes, inner: list[str]) -> None:
        turned = (*axes[1:], axes[0])
        self.line(f"rearrange({x}: {' '.join(axes)} -> {' '.join(turned)})", turned)

    def outer(self, x: str, axes: Axes, inner: list[str]) -> None:
        """The contraction of two values over what they share, but for the batch axis, which may stay."""
        y = self.one([name for name, of in self.values.items() if of])
        of = self.values[y]
        if not axes:
            return self.unary(x, axes, inner)
        shared = [axis for axis in axes if axis in of]
        left = [axis for axis in axes if axis not in shared] + [axis for axis in of if axis not in shared]
        kept = [axis for axis in shared if self.draw(some.booleans())]
        result = (*kept, *left)
        self.line(f"einsum({x}, {y}: {' '.join(axes)}, {' '.join(of)} -> {' '.join(result)})", result, False)

    def drawn(self, x: str, axes: Axes, inner: list[str]) -> None:
        if "b" in axes:
            self.line(f"{x} + (uniform[{' '.join(axes)}](0, 1) as f64)", axes, False)
        else:
            self.unary(x, axes, inner)


@some.composite
def programs(draw: Callable[[some.SearchStrategy[object]], object], most: int = 12) -> str:
    """A text with `make() -> M` and `step(m, batch)`, which gives a loss, two more values and the gradients."""
    writer = Writer(draw)
    writer.values = {"batch.x": ("b", "D"), "batch.y": ("b", "E"), "batch.s": ("b",), "m.u": ("D",), "m.w": ("D", "E")}
    for _ in range(int(draw(some.integers(3, most)))):  # type: ignore[call-overload]
        writer.step()
    made = [name for name in writer.values if name.startswith("t")]
    last, other = made[-1], writer.one(made)
    terms = " + ".join(
        f"mean({name}, over=[{' '.join(writer.values[name])}])" if writer.values[name] else name
        for name in {last: 0, other: 0}
    )
    use = "mean(batch.x @ m.u, over=b) + sum(m.w, over=[D E]) * 0.01 + sum(m.v, over=[E D]) * 0.01"
    axes = " ".join(writer.values[last])
    body = "".join(f"    {line}\n" for line in writer.lines)
    more = f"[{axes}] f64, [{' '.join(writer.values[other])}] f64"
    return (
        f"{HEAD}fn loss(m: M, batch: [b] Ex) -> ([] f64, {more}):\n{body}    return {terms} + {use}, {last}, {other}\n"
        f"fn step(m: M, batch: [b] Ex) -> ([] f64, {more}, [D E] f64, [E D] f64, [D] f64):\n"
        f"    (l, more, other), g = value_and_grad(loss, m, batch)\n    return l, more, other, g.w, g.v, g.u\n"
        "fn make() -> M:\n    return M(seed=1)\n"
    )


def examples(count: int) -> dict[str, torch.Tensor]:
    """A batch of so many."""
    random = torch.Generator().manual_seed(count)
    return {
        "x": torch.randn(count, 4, generator=random, dtype=torch.float64),
        "y": torch.randn(count, 3, generator=random, dtype=torch.float64),
        "s": torch.randn(count, generator=random, dtype=torch.float64),
        "k": torch.randint(0, 4, (count,), generator=random),
    }
