"""What a laid-out function sends and holds, as `plan` and the editor show it.

Takes a `LaidGraph` and the counts of a run; gives `Report`: a line for each communication with the program's line that
made it, totals by line and in all, and what each device holds. The figures are those that a transport counts as it
runs: the payload of a collective, the size of the whole value. What goes over each device's wire is worked out beside
it, for collectives that send no more than they must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shapescript.ir.graph import Node
from shapescript.layout.laid import Communication, LaidGraph
from shapescript.layout.mesh import parts
from shapescript.layout.words import Layout, Partial, show_layout
from shapescript.source import Span
from shapescript.types.axes import Axis, show_axes
from shapescript.types.element import Element
from shapescript.types.size import SizeError

BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1}
WIRE = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
"""How often (n - 1)/n of the payload goes over each device's wire; an exchange is n times less."""


def bytes_of(element: Element) -> int:
    """How many bytes one value takes."""
    return BYTES[element.name]


@dataclass(frozen=True)
class Sending:
    """One communication with its figures."""

    communication: Communication
    axes: str
    values: int
    bytes: int
    wire: float


@dataclass(frozen=True)
class Total:
    """What some communications come to: launches, values by element, bytes, and bytes over each device's wire."""

    launches: int
    values: Mapping[str, int]
    bytes: int
    wire: int


@dataclass(frozen=True)
class Place:
    """Where a value of the program lies: the line that makes it, what it is, and its layout."""

    span: Span | None
    axes: str
    element: Element
    layout: Layout


@dataclass(frozen=True)
class Memory:
    """Bytes on one device: what rests there between calls, by tag, and the most that is alive at once, all told."""

    resting: Mapping[str, int]
    peak: int


@dataclass(frozen=True)
class Report:
    """All of it; `pending` are results that stay partial until someone looks.

    `without_kernel` are operations that the devices' executor leaves to torch; `recorded` says what of a step becomes a
    CUDA graph. One device sends nothing, and all lies
    there.
    """

    sendings: list[Sending]
    total: Total
    by_line: Mapping[Span, Total]
    places: list[Place]
    memory: list[Memory]
    mesh: str
    pending: list[Node]
    without_kernel: Sequence[Node] = ()
    recorded: str = ""

    @property
    def alone(self) -> bool:
        """Whether there is one device."""
        return len(self.memory) == 1


def report(laid: LaidGraph, counts: Mapping[str, int]) -> Report:
    """The figures for these counts of batches."""
    known = {**laid.graph.sizes, **laid.counts_for(0, counts, counts)}
    alone = laid.mesh.count == 1
    sendings = [_sending(laid, each, known) for each in laid.communications if not alone]
    begins: dict[int, int] = {}
    for each in sendings:
        begins.setdefault(each.communication.launch, each.communication.node)
    sendings.sort(key=lambda each: (_begin(each, begins), each.communication.label))
    pending = [
        node
        for node, layout in zip(laid.graph.outputs, laid.outputs, strict=True)
        if not alone and any(isinstance(word, Partial) for word in layout)
    ]
    lines: dict[Span, list[Sending]] = {}
    for each in sendings:
        if each.communication.span is not None:
            lines.setdefault(each.communication.span, []).append(each)
    by_line = {span: total_of(some) for span, some in lines.items()}
    memory = [memory_of(laid, device, counts) for device in range(laid.mesh.count)]
    return Report(sendings, total_of(sendings), by_line, _places(laid), memory, show_mesh(laid, counts), pending)


def _begin(each: Sending, begins: Mapping[int, int]) -> int:
    """Where the launch of a communication begins: those of one stand together, by what they are called."""
    launch = each.communication.launch
    return begins[launch] if launch >= 0 else each.communication.node


def _sending(laid: LaidGraph, communication: Communication, known: Mapping[str, int]) -> Sending:
    n = laid.mesh.sizes[communication.mesh_axis]
    values = communication.values.evaluate(known)
    size = values * bytes_of(communication.element)
    share = WIRE.get(communication.kind, 1 / n)
    axes = axes_shown(laid.logical_of[communication.node].axes)
    return Sending(communication, axes, values, size, size * share * (n - 1) / n)


MADE = re.compile(r"(.+?)((?:\.\d+)+)")
"""A name that the compiler made of one of the program's, `n.2`, or of a place in its text, `kept0.12.34`."""


def axes_shown(axes: Sequence[Axis]) -> str:
    """`[b n D]`, without names that the program doesn't have."""
    shown = []
    for axis in axes:
        made = MADE.fullmatch(axis.name) if axis.name else None
        if made is not None:
            own = made[1] if made[2].count(".") == 1 else None
            axis = replace(axis, name=own)
        shown.append(axis)
    return show_axes(shown)


def total_of(sendings: list[Sending]) -> Total:
    """The sum of some communications; those of one launch count as one."""
    together = {each.communication.launch for each in sendings if each.communication.launch >= 0}
    alone = sum(each.communication.launch < 0 for each in sendings)
    values: dict[str, int] = {}
    for each in sendings:
        name = each.communication.element.name
        values[name] = values.get(name, 0) + each.values
    return Total(
        len(together) + alone, values, sum(each.bytes for each in sendings), round(sum(each.wire for each in sendings))
    )


def _places(laid: LaidGraph) -> list[Place]:
    """Where the values of each line lie, each way once, in program order."""
    found: dict[tuple[Span | None, str, str, Layout], Place] = {}
    for node, layout in zip(laid.graph.nodes, laid.layouts, strict=True):
        axes = axes_shown(laid.logical_of[node.number].axes)
        layout = () if laid.mesh.count == 1 else layout
        place = Place(node.span, axes, node.element, layout)
        found.setdefault((node.span, axes, node.element.name, layout), place)
    return list(found.values())


def show_mesh(laid: LaidGraph, counts: Mapping[str, int]) -> str:
    """`mesh d=3, b split 22/21/21`, or `b = 64` on one device."""
    if laid.mesh.count == 1:
        sizes = {part.atom: part.size.evaluate({**laid.graph.sizes, **counts}) for part in laid.parts}
        return ", ".join(f"{atom} = {size}" for atom, size in sizes.items() if not atom.startswith("flat"))
    mesh = " x ".join(map(str, laid.mesh.sizes))
    said = [f"mesh d={mesh}"]
    for part in laid.parts:
        if not part.atom.startswith("flat"):
            n = laid.mesh.sizes[part.mesh_axis]
            count = part.size.evaluate({**laid.graph.sizes, **counts})
            said.append(f"{part.atom} split {'/'.join(map(str, parts(count, n)))}")
    return ", ".join(said)


# --- memory --------------------------------------------------------------------------------------------------------

VIEWS = {"again", "relabel", "refine", "stop_gradient", "whole", "broadcast", "require_finite", "slice", "take_part"}
"""Ops whose result lies in the operand's memory."""


def memory_of(laid: LaidGraph, device: int, counts: Mapping[str, int]) -> Memory:
    """What one device holds: sizes of values by the graph's own order, each let go after its last use."""
    known = {**laid.graph.sizes, **laid.counts_for(device, counts, counts)}
    resting: dict[str, int] = {}
    for tag, node in zip(laid.resting.inputs, laid.graph.inputs, strict=True):
        resting[tag] = resting.get(tag, 0) + _size(node, known)
    owner: dict[int, int] = {}
    last: dict[int, int] = {}
    for node in laid.graph.nodes:
        is_view = node.name in VIEWS and node.operands
        owner[node.number] = owner[node.operands[0].number] if is_view else node.number
        for used in (*node.operands, node):
            last[owner[used.number]] = node.number
    for node in (*laid.graph.inputs, *laid.graph.outputs):
        last[owner[node.number]] = len(laid.graph.nodes)
    dying: dict[int, list[Node]] = {}
    for number, end in last.items():
        dying.setdefault(end, []).append(laid.graph.nodes[number])
    alive = sum(resting.values())
    peak = alive
    for node in laid.graph.nodes:
        if owner[node.number] == node.number and node.op is not None:
            alive += _size(node, known)
            peak = max(peak, alive)
        alive -= sum(_size(dead, known) for dead in dying.get(node.number, ()))
    return Memory(resting, peak)


def _size(node: Node, known: Mapping[str, int]) -> int:
    size = bytes_of(node.element)
    try:
        for axis in node.axes:
            size *= axis.size.evaluate(known)
    except SizeError:
        return 0  # a size that can't be, which running tells
    return size


# --- as text -------------------------------------------------------------------------------------------------------


def show_report(found: Report, name: str, at: str) -> str:
    """The communications of one function as lines, and the totals of each line of the program that sends."""
    rows = [f"{name:<6}{at:<20}{found.mesh}"]
    table = [_cells(each) for each in found.sendings]
    widths = [max((len(row[column]) for row in table), default=0) for column in range(6)]
    rows.extend(f"{_line(node.span)} {'result':<8}{show_axes(node.axes)}  {PENDING}" for node in found.pending)
    for number, row in enumerate(table):
        line, label, axes, lies, how, figures = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        rows.append(f"{line} {label}  {axes}  {lies}  {how}  {figures}{_bracket(found.sendings, number)}".rstrip())
    for span, total in sorted(found.by_line.items(), key=lambda item: item[0].start):
        rows.append(f"    {called(span)}: {show_total(total)}")
    return "\n".join(rows) + "\n"


PENDING = "partial sum, added when looked at      0 B"


def _line(span: Span | None) -> str:
    return f"{span.line:>3}" if span is not None else "  -"


def _cells(each: Sending) -> tuple[str, ...]:
    said = each.communication
    figures = f"{each.values:>10,} {said.element.name} {each.bytes:>12,} B"
    return (
        _line(said.span),
        said.label,
        each.axes,
        f"{said.before} -> {said.after}",
        said.kind.replace("_", "-"),
        figures,
    )


def _bracket(sendings: list[Sending], number: int) -> str:
    """What joins the lines of one launch."""
    launch = sendings[number].communication.launch
    before = number > 0 and sendings[number - 1].communication.launch == launch
    after = number + 1 < len(sendings) and sendings[number + 1].communication.launch == launch
    if launch < 0 or not (before or after):
        return ""
    return " │" if before and after else " ┐" if after else " ┘ 1 launch"


def show_sending(each: Sending) -> str:
    """One communication in a line, without its place."""
    note = f"  ({each.communication.note})" if each.communication.note else ""
    return "  ".join(cell.strip() for cell in _cells(each)[1:]) + note


def called(span: Span) -> str:
    """The name of the call that a span shows, or its text in short."""
    text = span.text.partition("(")[0].strip()
    return text if text.isidentifier() else f"line {span.line}"


def show_total(total: Total) -> str:
    """`203,264 f32 values, 813,056 bytes per step (wire 1,084,075 B per device)`."""
    values = ", ".join(f"{count:,} {name} values" for name, count in total.values.items())
    return f"{values or 'nothing'}, {total.bytes:,} bytes per step (wire {total.wire:,} B per device)"


def show_place(place: Place) -> str:
    """`[b Hd] f32  b split`."""
    return f"{place.axes} {place.element}  {show_layout(place.layout)}".rstrip()


def show_calls(nodes: Sequence[Node]) -> str:
    """`conv (train.ss:12), sort (train.ss:14, 20)`: the operations and the lines that they stand on."""
    lines: dict[str, dict[str, list[int]]] = {}
    for node in nodes:
        files = lines.setdefault(node.name, {})
        if node.span is not None:
            here = files.setdefault(node.span.source.name, [])
            here.extend([node.span.line] if node.span.line not in here else [])
    told = []
    for name, files in sorted(lines.items()):
        places = ", ".join(f"{file}:{', '.join(map(str, sorted(here)))}" for file, here in files.items())
        told.append(f"{name} ({places})" if places else name)
    return ", ".join(told)
