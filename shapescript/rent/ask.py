"""What the command line asks of a rented machine, from its words to values.

Takes the words of `--modal`, `--timeout`, `--env` and `--secret`; gives `Machine`, seconds, variables and names. A
word that can't be raises `RentError`. The value of a variable stands in no message and in no `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shapescript.diagnostics.suggest import nearest
from shapescript.rent.errors import RentError
from shapescript.rent.prices import GPUS

SHORTEST, LONGEST = 10, 23 * 3600
UNITS = {"h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class Machine:
    """The GPUs to rent, all in one machine."""

    gpu: str
    count: int = 1

    def __str__(self) -> str:
        return self.gpu if self.count == 1 else f"{self.gpu}:{self.count}"


@dataclass(frozen=True)
class Request:
    """One run: `options` are the words of `run` before the program's name, `arguments` those after it."""

    machine: Machine
    program: Path
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    timeout: int = 3600
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = ()
    dry_run: bool = False


def machine(word: str) -> Machine:
    """`T4`, `H100:3`."""
    name, colon, number = word.partition(":")
    gpu = name.upper()
    if gpu not in GPUS:
        begun = [known for known in GPUS if len(gpu) > 1 and known.startswith(gpu)]
        close = begun[0] if begun else nearest(gpu, GPUS) if gpu else None
        hint = f"did you mean `{close}`?" if close else f"there are {', '.join(GPUS)}"
        raise RentError(f"Modal has no GPU `{name}`; {hint}")
    most = GPUS[gpu].most
    if colon and not (number.isdecimal() and 1 <= int(number) <= most):
        raise RentError(f"`--modal {word}`: one machine has 1 to {most} {gpu}, as in `--modal {gpu}:{min(3, most)}`")
    return Machine(gpu, int(number) if colon else 1)


def seconds(word: str) -> int:
    """`90s`, `10m`, `2h`, `1h30m`."""
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", word)
    if not word or found is None:
        raise RentError(f"`--timeout {word}` should be a time with its unit: `90s`, `10m`, `2h`, `1h30m`")
    total = sum(int(part) * size for part, size in zip(found.groups(), UNITS.values(), strict=True) if part)
    if not SHORTEST <= total <= LONGEST:
        raise RentError(f"`--timeout {word}` should be from 10s to 23h: Modal ends every machine after a day")
    return total


def duration(total: float) -> str:
    """Seconds as `--timeout` takes them: `1h30m`."""
    rest, words = round(total), ""
    for unit, size in UNITS.items():
        if rest >= size:
            words += f"{rest // size}{unit}"
            rest %= size
    return words or "0s"


def variables(words: Iterable[str], here: Mapping[str, str]) -> dict[str, str]:
    """`KEY`, which is set `here`, and `KEY=value`."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise RentError(f"`--env` takes a variable's name, `--env KEY` or `--env KEY=value`, and `{name}` is none")
        if not equals and name not in here:
            close = nearest(name, here)
            hint = f"did you mean `{close}`?" if close else f"set it, or write `--env {name}=value`"
            raise RentError(f"`--env {name}`: no such variable is set here; {hint}")
        found[name] = value if equals else here[name]
    return found


def secret_names(words: Iterable[str]) -> tuple[str, ...]:
    """Names of secrets that Modal keeps; whether it has them is known once it is asked."""
    for word in words:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", word):
            raise RentError(
                f"`--secret {word.partition('=')[0]}` should be the name of a secret that Modal keeps; "
                "`modal secret list` shows them, `--env` passes a variable from here"
            )
    return tuple(dict.fromkeys(words))
