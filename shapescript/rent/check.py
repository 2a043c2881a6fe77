"""The mistakes that are found here, before anything is rented.

Takes a request; gives `Checked`: the diagnostics of every `.ss` that the program reaches, E1906 where one asks for
more than is rented, the lines for what no diagnostic fits, and the packages to install. `main`'s own arguments are
checked by who knows its signature.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.rent.ask import Machine
from shapescript.rent.imports import Loaded, follow_imports
from shapescript.rent.prices import GPUS
from shapescript.session import OverrideError, Session
from shapescript.source import Source, SourceError
from shapescript.types.typed import DevicesInfo


@dataclass
class Checked:
    """What was found; nothing is rented while there is an error or a problem."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)

    @property
    def bad(self) -> bool:
        """Is there a mistake?"""
        return bool(self.problems) or any(found.severity == "error" for found in self.diagnostics)


def check_program(program: Path, name: str, machine: Machine, session: Session | None) -> Checked:
    """Checks a program and all that it imports. `session`: of a `.ss`, with what stands in the place of its lines."""
    checked = Checked()
    if session is not None:
        check_session(session, machine, checked)
    imported = follow_imports(program, name)
    told: set[tuple[Path, str | None, tuple[tuple[str, int], ...]]] = set()
    for loaded in imported.loaded:
        if (key := (loaded.path, loaded.devices, loaded.dims)) not in told:
            told.add(key)
            check_loaded(loaded, program.parent, name[: len(name) - len(program.name)], machine, checked)
    checked.diagnostics.sort(key=lambda diagnostic: diagnostic.sort_key)
    checked.problems += imported.problems
    checked.packages = imported.packages
    return checked


def check_loaded(loaded: Loaded, folder: Path, prefix: str, machine: Machine, checked: Checked) -> None:
    """Checks a `.ss` that a Python program loads."""
    known = loaded.path.is_relative_to(folder)
    name = prefix + str(loaded.path.relative_to(folder)) if known else str(loaded.path)
    session = Session(loaded.path, name, loaded.devices, dict(loaded.dims))
    try:
        if not loaded.complete:  # its devices may be others
            checked.diagnostics += [found for found in session.diagnostics if found not in checked.diagnostics]
            return
        check_session(session, machine, checked, loaded.place)
    except (SourceError, OverrideError) as error:
        checked.problems.append(f"{loaded.place}: {error}")


def check_session(session: Session, machine: Machine, checked: Checked, place: str = "") -> None:
    """The checker's words on one program, and whether its devices will be there; `place` is the line that loads it."""
    checked.diagnostics += [found for found in session.diagnostics if found not in checked.diagnostics]
    devices = session.typed.devices
    if session.errors or devices is None:
        return
    if devices.kind == "mps":
        checked.problems.append(
            f"{place or session.name}: `devices mps` is an Apple GPU, and Modal's are NVIDIA's: "
            + ("write `cuda[0]`" if place else "`--devices cuda[0]` takes its place for this run")
        )
    elif devices.kind == "cpu":
        checked.notes.append(f"`{session.name}` says `devices {devices}`, so the {machine} will do nothing")
    elif missing_devices(devices, machine):
        checked.diagnostics.append(too_many_devices(session, devices, machine, place or "--devices"))
    elif len(devices.numbers or (0,)) < machine.count:
        used = len(devices.numbers or (0,))
        checked.notes.append(
            f"`{session.name}` says `devices {devices}`, so {used} of the {machine.count} GPUs will work"
        )


def needed(devices: DevicesInfo) -> int:
    """How many GPUs a machine must have for every number to be one of its own."""
    return max(devices.numbers, default=0) + 1


def missing_devices(devices: DevicesInfo, machine: Machine) -> list[int]:
    """The numbers that no GPU of the machine has."""
    return [number for number in devices.numbers if number >= machine.count]


def too_many_devices(session: Session, devices: DevicesInfo, machine: Machine, given: str) -> Diagnostic:
    """E1906, with what to rent or to write in its place; `given`: where devices stand that aren't the file's own."""
    count, wanted = machine.count, needed(devices)
    there = "cuda[0]" if count == 1 else f"cuda[0] to cuda[{count - 1}]"
    if session.devices is None and devices.node is not None:
        spec = devices.node.spec
        span = session.source.span(spec.start, spec.end)
    else:
        text = f"devices {session.devices}"
        span = Source(given, text).span(text.index(" ") + 1, len(text))
    words = f"{wanted} GPUs" if devices.count == wanted else f"number {max(devices.numbers)}"
    helps = []
    if wanted <= GPUS[machine.gpu].most:
        helps.append(f"rent {wanted}: `--modal {machine.gpu}:{wanted}`")
    else:
        helps.append(f"one machine has at most {GPUS[machine.gpu].most} {machine.gpu}")
    fitting = "cuda[0]" if count == 1 else f"cuda[{' '.join(map(str, range(min(count, devices.count))))}]"
    if given == "--devices":
        helps.append(f"or run on what is rented: `--devices '{fitting}'`")
    return Diagnostic(
        "E1906",
        f"`devices {devices}` needs {wanted} GPUs, and `--modal {machine}` rents {count}",
        Label(span, words),
        notes=(f"in the rented machine the {'GPU is' if count == 1 else 'GPUs are'} {there}",),
        helps=tuple(helps),
    )
