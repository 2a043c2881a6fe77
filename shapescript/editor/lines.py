"""What a line costs when the program runs on several devices: the layouts of its values and the bytes it sends."""

from __future__ import annotations

from shapescript.editor.analysis import Analysis


def line_facts(analysis: Analysis, line: int) -> list[str]:
    """Paragraphs of Markdown about a line, from 1; none where nothing is known."""
    return []
