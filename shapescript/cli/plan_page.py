"""`plan --html FILE`: the plan as a page, and `plan --facts`: what an editor shows of it beside each line.

Takes the reports of the device functions; gives one HTML file that needs nothing else: for each line of a function the
values that it makes, as boxes coloured by how they lie, and what it sends, as arrows with their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from shapescript.layout.report import Place, Report, Sending, show_calls, show_place, show_sending
from shapescript.layout.words import Layout, Partial, Sharded, Split, all_whole
from shapescript.source import Source

COLOURS = {"whole": "#dfe6ee", "split": "#bfe3c5", "partial": "#f9d9a6", "sharded": "#cfd0f7"}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; } code, .box { font-family: ui-monospace,
monospace; font-size: .86em; } table { border-collapse: collapse; width: 100%; } td { padding: .35rem .6rem;
border-top: 1px solid #e3e8ee; vertical-align: top; } td.line { color: #8a96a3; text-align: right; width: 3rem; }
.box { display: inline-block; border-radius: .35rem; padding: .05rem .5rem; margin: .1rem .25rem .1rem 0; }
tr.head td { border-top: 1px solid #b9c3ce; padding-top: .8rem; color: #5b6875; } tr.head + tr td { border-top: 0; }
.sends { display: block; color: #9a3412; } .sends svg { vertical-align: -.2em; margin-right: .3rem; }
.sum { background: #f6f8fa; border-radius: .4rem; padding: .5rem .8rem; margin-top: .6rem; }
.key span { margin-right: .6rem; }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #d8dee6; } .box { color: #14181d; }
.sum { background: #1d232b; } td { border-color: #2b333d; } .sends { color: #fdba74; } }
"""
ARROW = (
    '<svg width="26" height="12" viewBox="0 0 26 12"><path d="M1 6h20M16 1l6 5-6 5" fill="none" '
    'stroke="currentColor" stroke-width="2"/></svg>'
)


@dataclass
class Line:
    """A line of the program: the values that it makes and what it sends."""

    source: Source
    number: int
    places: list[Place]
    sendings: list[Sending]

    @property
    def bytes(self) -> int:
        """How much it sends per step."""
        return sum(each.bytes for each in self.sendings)


def lines_of(report: Report) -> list[Line]:
    """The lines of a function, in the order of the text."""
    found: dict[tuple[str, int], Line] = {}

    def line(source: Source, number: int) -> Line:
        return found.setdefault((source.name, number), Line(source, number, [], []))

    for place in report.places:
        if place.span is not None and not (place.axes == "[]" and all_whole(place.layout)):
            line(place.span.source, place.span.line).places.append(place)
    for each in report.sendings:
        span = each.communication.span
        if span is not None:
            line(span.source, span.line).sendings.append(each)
    return [found[key] for key in sorted(found)]


def kind_of(layout: Layout) -> str:
    """The word by which a layout is coloured: the most particular of its words."""
    for kind, name in ((Partial, "partial"), (Sharded, "sharded"), (Split, "split")):
        if any(isinstance(word, kind) for word in layout):
            return name
    return "whole"


# --- the page --------------------------------------------------------------------------------------------------------


def page(title: str, devices: str, functions: Mapping[str, tuple[str, Report | str]]) -> str:
    """The whole page; each function comes with the words that say where it runs."""
    body = "".join(function(name, words, found) for name, (words, found) in functions.items())
    key = "".join(f'<span class="box" style="background:{colour}">{name}</span>' for name, colour in COLOURS.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}: plan</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p><code>devices {escape(devices)}</code></p>"
        f'<p class="key">{key}</p><p>A box is a value, coloured by how it lies on the devices; an arrow is what '
        "goes between them at each step.</p>"
        f"{body}</body></html>\n"
    )


def function(name: str, words: str, found: Report | str) -> str:
    """One function's part of the page."""
    head = f"<h2><code>fn {escape(name)}</code></h2><p>{escape(words)}</p>"
    if isinstance(found, str):
        return f"{head}<p>What it is compiled to isn't known before it runs: {escape(found)}</p>"
    rows = "".join(rows_of(lines_of(found)))
    launches = "1 launch" if found.total.launches == 1 else f"{found.total.launches} launches"
    total = "" if found.alone else f"in all {found.total.bytes:,} bytes per step in {launches}"
    if found.without_kernel:
        total += f"<br>run by torch, without a native kernel: {escape(show_calls(found.without_kernel))}"
    if found.recorded:
        total += f"<br>on the GPU: {escape(found.recorded)}"
    memory = "".join(
        ("<br>" if found.alone else f"<br>device {number}: ")
        + escape(", ".join(f"{tag} {size:,} B" for tag, size in each.resting.items()))
        + f"; at most {each.peak:,} B at once"
        for number, each in enumerate(found.memory)
    )
    sums = (total + memory).removeprefix("<br>")
    return f'{head}<p>{escape(found.mesh)}</p><table>{rows}</table><p class="sum">{sums}</p>'


def rows_of(lines: Sequence[Line]) -> Iterator[str]:
    """The lines, each function's under its first one: a function that another calls is compiled as a part of it."""
    shown: tuple[str, int] | None = None
    for line in lines:
        head = head_of(line.source, line.number)
        if head is not None and head != line.number and (line.source.name, head) != shown:
            text = escape(line.source.line(head).strip())
            yield f'<tr class="head"><td class="line">{head}</td><td><code>{text}</code></td></tr>'
            shown = line.source.name, head
        yield row(line)


def head_of(source: Source, number: int) -> int | None:
    """The line at which the function of a line begins."""
    return next((above for above in range(number, 0, -1) if source.line(above).startswith("fn ")), None)


def row(line: Line) -> str:
    """One line of a function."""
    boxes = "".join(
        f'<span class="box" style="background:{colour}">{escape(text)}</span>' for text, colour in boxes_of(line)
    )
    sends = "".join(
        f'<span class="sends">{ARROW}{escape(" ".join(show_sending(each).split()))}</span>' for each in line.sendings
    )
    text = escape(line.source.line(line.number).strip())
    return f'<tr><td class="line">{line.number}</td><td><code>{text}</code><br>{boxes}{sends}</td></tr>'


def boxes_of(line: Line) -> Iterator[tuple[str, str]]:
    """The values of a line, each way once, with their colours."""
    shown = {" ".join(show_place(place).split()): COLOURS[kind_of(place.layout)] for place in line.places}
    yield from shown.items()


# --- an editor's facts -----------------------------------------------------------------------------------------------


def facts(reports: Mapping[str, Report | str], name: str) -> str:
    """What an editor shows of the lines of the file `name`: a JSON object by line."""
    found: dict[str, dict[str, object]] = {}
    for report in reports.values():
        if isinstance(report, str):
            continue
        for line in lines_of(report):
            if line.source.name != name:
                continue
            at = found.setdefault(str(line.number), {"places": [], "sends": [], "bytes": 0})
            places = [" ".join(show_place(place).split()) for place in line.places]
            at["places"] = list(dict.fromkeys([*as_list(at["places"]), *places]))
            at["sends"] = [*as_list(at["sends"]), *(" ".join(show_sending(each).split()) for each in line.sendings)]
            at["bytes"] = int(str(at["bytes"])) + line.bytes
    return json.dumps(found)


def as_list(value: object) -> list[str]:
    """A list of words."""
    return [str(each) for each in value] if isinstance(value, list) else []
