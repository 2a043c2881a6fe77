"""Runs a checked program's `main`, once, in this process.

Takes the program, where its functions run, and the values that `main` is given; first finds the sizes that the text
leaves open (dims that Python gives), and the device, which must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shapescript.controller import checkpoint_files
from shapescript.controller.errors import Error, ShapeError
from shapescript.controller.failures import failures_told
from shapescript.controller.find_devices import found_devices, place_of
from shapescript.controller.host_builtins import HOST
from shapescript.controller.host_domain import HostDomain, host_evaluator
from shapescript.controller.output import Output
from shapescript.controller.placing import Place
from shapescript.controller.python_modules import attribute, call_python, import_python
from shapescript.devices.workers.launching import Launcher
from shapescript.diagnostics.render import render_all
from shapescript.placement.kinds import Kind, Placement
from shapescript.room import room
from shapescript.specialise.domain import problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import evaluate
from shapescript.specialise.specialise import Specialised
from shapescript.syntax import tree
from shapescript.types.check_dims import not_divided
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import DevicesInfo, DimInfo, TypedProgram


def run_program(
    program: TypedProgram,
    kinds: Mapping[tree.Function, Placement],
    values: Mapping[str, object],
    seed: int = 0,
    path: str | Path = "program.ss",
    place: Place | None = None,
    launcher: Launcher | None = None,
) -> dict[str, Specialised]:
    """Calls `main` with these values by name; a parameter that isn't there takes its default.

    `place` stands for the devices that the program names, and isn't closed; `launcher` is what their workers come
    from, where it was begun before.

    Gives how often each device function was specialised, by name, and the seconds that took.

    Raises:
        ProgramError: a line of the program went wrong.
        Error: something that no line says: a device that isn't there or fails, a dim without a value.
    """
    evaluator = start_program(program, kinds, seed, path, place, launcher)
    domain = evaluator.domain
    assert isinstance(domain, HostDomain)
    output = domain.output
    info = program.functions["main"]
    frame = evaluator.frame(info.source, info)
    arguments = []
    for parameter in info.parameters:
        if parameter.name in values:
            arguments.append(values[parameter.name])
        elif parameter.default is not None:
            arguments.append(evaluate(evaluator, frame, parameter.default))
        else:
            raise Error(f"`main` also needs `{parameter.name}`")
    complete = False
    try:
        with failures_told(), room():
            evaluator.run(frame, arguments)
            checkpoint_files.finish()
            domain.place.finish()
        complete = True
    finally:
        try:
            output.close(complete)
        finally:
            if place is None:
                domain.place.close()
        if domain.specialiser.warnings:  # once, last, where it isn't lost among the output
            output.errors.write(render_all(domain.specialiser.warnings))
    return {program.function_of[function].name: done for function, done in domain.specialiser.specialisations.items()}


def start_program(
    program: TypedProgram,
    kinds: Mapping[tree.Function, Placement],
    seed: int = 0,
    path: str | Path = "program.ss",
    place: Place | None = None,
    launcher: Launcher | None = None,
) -> Evaluator:
    """The controller's evaluator, ready to call the functions of a program; its domain has the devices.

    Raises:
        ProgramError: a module of Python fails.
        Error: a device that isn't there, a dim without a value.
    """
    if place is None:
        found_devices(program.devices)  # before anything else is asked for
    folder = Path(path).resolve().parent
    import_all(program, folder)
    sizes = sizes_of(program, folder)

    def is_device(function: tree.Function) -> bool:
        return kinds[function].kind is Kind.DEVICE

    output = Output(Path(path).stem)
    return host_evaluator(
        HostDomain(
            program,
            sizes,
            is_device,
            output,
            HOST,
            seed=seed,
            place=place or place_of(program.devices, folder, launcher),
            folder=folder,
        )
    )


def import_all(program: TypedProgram, folder: Path) -> None:
    """Imports the modules of Python that a program names, before anything runs: a missing one costs no training."""
    for extern in program.externs.values():
        assert isinstance(extern.node, tree.Extern)
        target = extern.node.target
        span = program.source.span(target.start, target.end)
        module, _, name = target.value.rpartition(".")
        attribute(import_python(module, folder, span), name, span)
    for info in program.imports.values():
        if info.python:
            import_python(info.module, folder, program.source.span(info.node.start, info.node.end))
        elif info.program is not None:
            import_all(info.program, folder)


def sizes_of(program: TypedProgram, folder: Path) -> dict[str, int]:
    """The value of each dim that isn't defined by others, in this file and those it imports.

    Raises:
        ShapeError: a dim has no value, or Python gives something else than a size.
    """
    sizes = program.known_sizes()
    for info in program.dims.values():
        name = info.axis.name
        if not info.is_atom or name is None or name in sizes:
            continue
        sizes[name] = python_size(program, info, folder, sizes)
    for imported in program.imports.values():
        if imported.program is not None:
            sizes = {**sizes_of(imported.program, folder), **sizes}
    for info in program.dims.values():
        try:
            info.axis.size.evaluate(sizes)
        except SizeError as error:
            raise ShapeError(f"dim `{info.name}`: {error}") from None
    if program.devices is not None:
        check_divided(program, program.devices, sizes)
    return sizes


def check_divided(program: TypedProgram, devices: DevicesInfo, sizes: Mapping[str, int]) -> None:
    """E1903 for split dims whose values the checker couldn't know.

    Raises:
        ProgramError: the devices don't divide one.
    """
    for name, size in devices.dims.items():
        value = size.evaluate(sizes)
        if value % devices.mesh[-1]:
            message, help = not_divided(devices, name, value)
            node = program.dims[name].node
            raise problem("E1903", message, program.source.span(node.start, node.end), helps=(help,))


def python_size(program: TypedProgram, info: DimInfo, folder: Path, sizes: Mapping[str, int]) -> int:
    """A dim's value from Python."""
    if info.python is None:
        raise ShapeError(f"dim `{info.name}` has no value: give it one with `--dim {info.name}=128`")
    span = program.source.span(info.python.node.start, info.python.node.end)
    what = f"{info.python.module}.{info.python.attribute}"
    function = attribute(import_python(info.python.module, folder, span), info.python.attribute, span)
    given = [
        (name, value.evaluate(sizes) if isinstance(value, Size) else value) for name, value in info.python.arguments
    ]
    positional = [value for name, value in given if name is None]
    named = {name: value for name, value in given if name is not None}
    if not callable(function):
        raise ShapeError(f"dim `{info.name}`: `{what}` isn't a function")
    found = call_python(function, span, what, *positional, **named)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ShapeError(f"dim `{info.name}` is {found!r} by `{what}`; it should be a whole number of 1 or more")
    return found
