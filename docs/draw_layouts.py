"""Draws layouts.svg beside this file: how a parameter `[D H]` and a value `[b H]` lie on devices, by option."""

from __future__ import annotations

from pathlib import Path

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")
WIDE, HIGH = 78, 60
Part = tuple[float, float, float, float]
"""Left, top, width and height, of 1: what one device has of a value."""


def along(n: int, rows: bool) -> list[Part]:
    """n parts, one under another or side by side."""
    return [(0, k / n, 1, 1 / n) if rows else (k / n, 0, 1 / n, 1) for k in range(n)]


WHOLE: list[Part] = [(0, 0, 1, 1)]
GRID: list[Part] = [(column / 2, row / 3, 1 / 2, 1 / 3) for row in range(3) for column in range(2)]
PICTURES: list[tuple[str, list[Part], list[Part]]] = [
    ("no option", WHOLE, along(3, True)),
    ("shard params", along(3, True), along(3, True)),
    ("split H", along(3, False), along(3, False)),
    ("split H by 2", along(2, False), GRID),
    ("both, by 2", GRID, GRID),
]


def square(left: float, top: float, parts: list[Part], title: str) -> list[str]:
    """One value; a part has the number of the device that holds it."""
    made = [f'<text x="{left + WIDE / 2}" y="{top - 6}">{title}</text>']
    for number, (x, y, width, height) in enumerate(parts):
        alone = len(parts) == 1
        fill, shown = ("#bbbbbb", "all") if alone else (COLOURS[number], str(number))
        if title == "[D H]" and len(parts) == 2:
            shown = " ".join(str(device) for device in range(number, 6, 2))
        place = f'x="{left + x * WIDE:.1f}" y="{top + y * HIGH:.1f}"'
        size = f'width="{width * WIDE:.1f}" height="{height * HIGH:.1f}"'
        made.append(f'<rect {place} {size} fill="{fill}" stroke="white"/>')
        middle = f'x="{left + (x + width / 2) * WIDE:.1f}" y="{top + (y + height / 2) * HIGH + 4:.1f}"'
        made.append(f'<text {middle} fill="white">{shown}</text>')
    return made


def main() -> None:
    """Writes the file."""
    lines: list[str] = []
    for number, (name, parameter, value) in enumerate(PICTURES):
        left = 12 + number * (WIDE + 34)
        lines.append(f'<text x="{left + WIDE / 2}" y="16" font-weight="bold">{name}</text>')
        lines += square(left, 42, parameter, "[D H]")
        lines += square(left, 130, value, "[b H]")
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="570" height="200" font-family="sans-serif" font-size="11" '
    text = (
        head
        + 'text-anchor="middle">\n<rect width="570" height="200" fill="white"/>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )
    Path(__file__).with_name("layouts.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
