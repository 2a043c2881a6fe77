"""The GPUs that Modal rents, and what they cost.

Gives `GPUS`, by the names that `--modal` takes, and the most that a machine can cost for a time. The prices are those
of one day and an estimate: what Modal bills is what counts.
"""

from __future__ import annotations

from dataclasses import dataclass

AS_OF = "July 2026"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU: dollars for a second of one of them, and how many one machine can have."""

    dollars_per_second: float
    most: int = 8


GPUS: dict[str, Gpu] = {
    "T4": Gpu(0.000164),
    "L4": Gpu(0.000222),
    "A10": Gpu(0.000306, most=4),
    "L40S": Gpu(0.000542),
    "A100": Gpu(0.000583),
    "A100-40GB": Gpu(0.000583),
    "A100-80GB": Gpu(0.000694),
    "RTX-PRO-6000": Gpu(0.000842),
    "H100": Gpu(0.001097),
    "H100!": Gpu(0.001097),
    "H200": Gpu(0.001261),
    "B200": Gpu(0.001736),
    "B200+": Gpu(0.001736),
}


def cost(gpu: str, count: int, seconds: float) -> float:
    """What so many GPUs cost for so long, in dollars."""
    return GPUS[gpu].dollars_per_second * count * seconds


def dollars(amount: float) -> str:
    """An amount as people write it: cents from a dollar on, and never nothing for something."""
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}"
