"""`plan`: where each function runs, how the values of each line lie on the devices, and what each line sends.

Takes the command's words; prints. What a function is compiled to is foreseen from its signature; a function that other
device functions call is part of them, and is shown with them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from shapescript.cli.commands import session_of
from shapescript.cli.usage import UsageError
from shapescript.diagnostics.formats import show
from shapescript.diagnostics.render import wants_colour
from shapescript.diagnostics.suggest import nearest
from shapescript.layout.report import Place, Report, called, show_calls, show_place, show_sending, show_total
from shapescript.layout.words import all_whole
from shapescript.placement.compiled import compiled_for
from shapescript.placement.entries import all_functions, entry_functions
from shapescript.placement.kinds import Kind
from shapescript.session import Session
from shapescript.source import Span, source_of
from shapescript.types.axes import show_axes


def plan(arguments: argparse.Namespace) -> int:
    """Shows where each function runs, with the line that made it so, and what it costs."""
    session = text_from_editor(arguments.file) if arguments.facts else session_of(arguments.file, arguments)
    if session.diagnostics:
        sys.stderr.write(show(session.diagnostics, arguments.format, wants_colour(sys.stderr, arguments.color)))
    if session.errors:
        return 1
    names = list(all_functions(session.typed))
    if arguments.function is not None and arguments.function not in names:
        close = nearest(arguments.function, names)
        hint = f"; did you mean `{close}`?" if close else ""
        raise UsageError(f"`{arguments.file}` has no function `{arguments.function}`{hint}")
    wanted = list(session.typed.functions) if arguments.function is None else [arguments.function]
    if arguments.html is not None or arguments.facts:
        return as_page(session, wanted, arguments.html)
    print(f"devices {session.typed.devices}")
    for line in placements(session, wanted):
        print(line)
    shown = entry_functions(session.typed, session.placed.kinds) if arguments.function is None else wanted
    return show_costs(session, shown)


def placements(session: Session, wanted: list[str]) -> Iterator[str]:
    """A line or two for each function: where it runs, and what it is compiled anew for."""
    width = max(map(len, wanted), default=0)
    kinds = session.placed.kinds
    for name in wanted:
        info = all_functions(session.typed)[name]
        placement = next((kind for node, kind in kinds.items() if node is info.node), None)
        if placement is None:
            continue
        because = (
            f"{placement.words}, line {placement.span.line}" if placement.span is not None else "host values alone"
        )
        yield f"  fn {name:<{width}}  {placement.kind.value:<10}  {because}"
        if placement.kind is Kind.DEVICE:
            yield f"     {'':<{width}}  {'':<10}  {compiled_for(info)}"


def where_it_runs(session: Session, name: str) -> str:
    """`a device function: a model, line 28`."""
    words = next(iter(placements(session, [name])), "").split()
    return f"a {words[2]} function: {' '.join(words[3:])}" if len(words) > 3 else ""


def text_from_editor(file: str) -> Session:
    """The session of a file whose text an editor hands in, as it may not be saved."""
    session = Session(Path(file), file)
    session.source = source_of(sys.stdin.buffer.read(), file)
    return session


def as_page(session: Session, wanted: list[str], page: str | None) -> int:
    """Writes the plan as a page; without one, prints what an editor shows of it."""
    from shapescript.cli import plan_page
    from shapescript.controller.costs import costs
    from shapescript.controller.errors import Error

    entries = entry_functions(session.typed, session.placed.kinds)
    own = [name for name in entries if name in wanted]
    if page is None or own or wanted != list(session.typed.functions):
        entries = own or wanted  # else they are all in the files that this one imports
    try:
        found = costs(session.typed, session.placed.kinds, session.path, entries)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if page is None:
        print(plan_page.facts(found, session.source.name))
        return 0
    said = {name: where_it_runs(session, name) for name in found}
    functions = {name: (said[name], each) for name, each in found.items()}
    text = plan_page.page(session.name, str(session.typed.devices), functions)
    try:
        Path(page).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"`{page}` can't be written: {error.strerror}") from None
    print(f"{page} is written")
    return 0


def show_costs(session: Session, wanted: list[str]) -> int:
    """What functions send and hold; the status is 1 where a dim can't be had."""
    from shapescript.controller.costs import costs
    from shapescript.controller.errors import Error

    try:
        found = costs(session.typed, session.placed.kinds, session.path, wanted)
    except Error as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, each in found.items():
        print()
        if isinstance(each, str):
            print(f"fn {name}: what it is compiled to isn't known before it runs: {each}")
            continue
        for line in cost_lines(name, each):
            print(line)
    return 0


def cost_lines(name: str, found: Report) -> Iterator[str]:
    """One function: for each line of the program what it makes and what it sends, then the sums."""
    yield f"fn {name}    {found.mesh}".rstrip()
    spans = {place.span for place in found.places if place.span is not None}
    lines: dict[tuple[str, int], list[Span]] = {}
    for span in sorted(spans, key=lambda each: (each.source.name, each.start)):
        lines.setdefault((span.source.name, span.line), []).append(span)
    for (source, number), here in lines.items():
        yield f"  {source}:{number}  {here[0].source.line(number).strip()}"
        places = [place for place in found.places if place.span in here and not is_known_scalar(place)]
        shown = dict.fromkeys(map(show_place, places))
        yield from (f"      {place}" for place in shown)
        for each in found.sendings:
            if each.communication.span in here:
                yield f"      sends {show_sending(each)}"
        for node in found.pending:
            if node.span in here:
                yield f"      {show_axes(node.axes)} is a partial sum, added when it is looked at"
    for each in found.sendings:
        if each.communication.span is None:
            yield f"  sends {show_sending(each)}, which belongs to no line"
    for span, total in sorted(found.by_line.items(), key=lambda item: item[0].start):
        yield f"  {called(span)}: {show_total(total)}"
    if not found.alone:
        launches = f"{found.total.launches} launch{'es' if found.total.launches != 1 else ''}"
        yield f"  in all: {show_total(found.total)}, {launches}"
    if found.without_kernel:
        yield f"  run by torch, without a native kernel: {show_calls(found.without_kernel)}"
    if found.recorded:
        yield f"  on the GPU: {found.recorded}"
    for device, memory in enumerate(found.memory):
        rests = ", ".join(f"{tag} {size:,} B" for tag, size in memory.resting.items())
        where = "" if found.alone else f"device {device}: "
        yield f"  {where}{rests}; at most {memory.peak:,} B at once"


def is_known_scalar(place: Place) -> bool:
    """Whether a value is one number that each device has: a constant, a count."""
    return place.axes == "[]" and all_whole(place.layout)
