"""What a line costs when the program runs on several devices: the layouts of its values and the bytes it sends.

Found out by another process, because the stages that know it load torch; the server goes on answering meanwhile. What
was found is about one text, and is dropped with it. A program with a size that Python gives is left alone: to know it
would run that Python.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from shapescript.editor.analysis import Analysis
from shapescript.types.axes import show_axes
from shapescript.types.kinds import Tensor, Type

SECONDS = 60.0
"""How long the other process may take."""


@dataclass(frozen=True)
class LineFacts:
    """A line's values, each with how it lies, what it sends, and how many bytes that is at each step."""

    places: tuple[str, ...]
    sends: tuple[str, ...]
    bytes: int


def worth_asking(analysis: Analysis) -> bool:
    """Is there something to find out: several devices, and a program that checks?"""
    devices = analysis.typed.devices
    if devices is None or devices.count < 2 or analysis.placed is None or analysis.placed.diagnostics:
        return False
    return all(dim.python is None for dim in analysis.typed.dims.values())


async def find_out(analysis: Analysis) -> bool:
    """Asks the other process about the text as it stands; whether the answer is there and still about the text."""
    text = analysis.text
    command = [sys.executable, "-m", "shapescript", "plan", "--facts", str(analysis.path)]
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=nothing)
    try:
        out, _ = await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), SECONDS)
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 or analysis.text != text:
        return False
    analysis.facts = read(out)
    return True


def read(out: bytes) -> Mapping[int, LineFacts]:
    """The answer of the other process, by line."""
    return {
        int(line): LineFacts(tuple(found["places"]), tuple(found["sends"]), int(found["bytes"]))
        for line, found in json.loads(out).items()
    }


def line_facts(analysis: Analysis, line: int) -> list[str]:
    """Paragraphs of Markdown about a line, from 1; none where nothing is known."""
    found = analysis.facts.get(line)
    if found is None:
        return []
    parts = []
    if found.sends:
        total = f"sends {found.bytes:,} bytes per step between the devices:"
        parts.append(total + "\n" + "\n".join(f"- `{each}`" for each in found.sends))
    if found.places:
        parts.append("on each device:\n" + "\n".join(f"- `{place}`" for place in found.places))
    return parts


def layout_of(analysis: Analysis, line: int, of: Type | None) -> str:
    """How a tensor of this type that a line makes lies, in a word or two; empty where it isn't known."""
    found = analysis.facts.get(line)
    if found is None or not isinstance(of, Tensor):
        return ""
    head = f"{show_axes(of.axes)} "
    words = [place[len(head) :].partition(" ")[2] for place in found.places if place.startswith(head)]
    return words[-1] if words else ""
