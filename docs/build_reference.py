"""The reference's pages, one for each built-in, made from the declarations.

Takes the registry of operations, the editor's words and reference_examples.ss; gives pages as Markdown by their paths
below docs/. `pages()` is what the site's build asks for; `python docs/build_reference.py FOLDER` writes them. What the
checker says of an example's type is asked of it, never written down.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shapescript.editor.vocabulary import TYPES, describe
from shapescript.ops.registry import REGISTRY
from shapescript.source import Source
from shapescript.syntax import tree
from shapescript.syntax.parse import parse
from shapescript.types.check_expressions import BUILTIN_NAMES
from shapescript.types.checker import check_program

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE / "reference_examples.ss"
LIBRARY = HERE.parent / "shapescript" / "library" / "nn.ss"
INITIALISERS = ("constant", "xavier", "kaiming", "orthogonal")

# The registry's operations that a program writes with signs or by its place, and not by their names.
OPERATORS = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negate"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "not"),
    *("cast", "refine", "gather", "slice", "size"),
)


@dataclass(frozen=True)
class Example:
    """A program that shows a built-in: what a page shows, and the whole that checks."""

    shown: str
    whole: str


def names() -> list[str]:
    """The built-ins that have a page: what the checker knows by name, and the initialisers."""
    return sorted({*BUILTIN_NAMES, *INITIALISERS})


def written_examples() -> tuple[str, dict[str, str]]:
    """What reference_examples.ss begins with, and its examples by their built-ins."""
    head, *rest = re.split(r"^# --- (\w+)\n", EXAMPLES.read_text(encoding="utf-8"), flags=re.M)
    return head, {name: text.strip() + "\n" for name, text in zip(rest[::2], rest[1::2], strict=True)}


def registered_example(name: str) -> Example:
    """An operation's own example, in a function."""
    shown = f"fn example(x: [n m k C]):\n    y = {REGISTRY[name].example}\n"
    return Example(shown, f"devices cpu\n\ndim C = 4\n\n{shown}")


def example(name: str) -> Example:
    """The example of a built-in.

    Raises:
        LookupError: there is none.
    """
    head, written = written_examples()
    if name in written:
        return Example(written[name], f"{head}\n{written[name]}")
    if name in REGISTRY:
        return registered_example(name)
    raise LookupError(f"`{name}` has no example in {EXAMPLES.name}")


def type_of_example(name: str) -> str:
    """The type that the checker finds for an operation's example."""
    source = Source("example.ss", registered_example(name).whole)
    typed = check_program(source, parse(source), lambda module: None)
    [function] = typed.functions.values()
    [statement] = function.node.body
    assert isinstance(statement, tree.Assign)
    return str(typed.types[statement.value])


def page(name: str) -> str:
    """The page of a built-in."""
    word = describe(name)
    if word is None:
        raise LookupError(f"`{name}` is a built-in that nothing describes")
    signatures = "\n".join(word.signature.split("  or  "))
    parts = [f"# {name}", f"```\n{signatures}\n```", word.doc, "## Example"]
    _, written = written_examples()
    if name in written:
        parts.append(f"```shapescript\n{written[name]}```")
        parts.append("The names it uses stand in [what the examples share](examples.md).")
    else:
        parts.append(f"```shapescript\n{example(name).shown}```")
        parts.append(f"`n`, `m` and `k` are axes of any length, `C` is a dim. `y` is `{type_of_example(name)}`.")
    return "\n\n".join(parts) + "\n"


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table."""
    return "\n".join([row(*head), row(*("---" for _ in head)), *(row(*cells) for cells in rows)]) + "\n"


def index() -> str:
    """The page that lists them all."""
    rows = []
    for name in names():
        word = describe(name)
        assert word is not None
        rows.append((f"[`{name}`]({name}.md)", word.doc))
    types = [(f"`{name}`", doc) for name, doc in TYPES.items()]
    return (
        "# Built-ins\n\nWhat a program can call without an import, from the declarations in the compiler. "
        "[Operators](operators.md) have a page of their own, and so has [the library `nn`](nn.md).\n\n"
        + table(("built-in", "what it does"), rows)
        + "\n## Types\n\n"
        + table(("type", "what it is"), types)
    )


def operators() -> str:
    """The page of what is written with signs."""
    rows = []
    for name in OPERATORS:
        op = REGISTRY[name]
        rows.append((f"`{op.signature}`", " ".join(op.doc.split()), f"`{op.example}`", f"`{type_of_example(name)}`"))
    return "# Operators\n\n" + table(("written", "what it is", "example", "its type"), rows)


def pages() -> Mapping[str, str]:
    """All pages, by their paths below docs/."""
    head, _ = written_examples()
    shared = head[head.index("devices") :].strip()
    library = LIBRARY.read_text(encoding="utf-8")
    return {
        "reference/index.md": index(),
        "reference/operators.md": operators(),
        "reference/examples.md": f"# What the examples share\n\n```shapescript\n{shared}\n```\n",
        "reference/nn.md": f"# The library `nn`\n\n`import nn` gives these layers.\n\n```shapescript\n{library}```\n",
        **{f"reference/{name}.md": page(name) for name in names()},
    }


def main() -> int:
    """Writes the pages below a folder."""
    if len(sys.argv) != 2:
        print("usage: python docs/build_reference.py FOLDER", file=sys.stderr)
        return 2
    for path, text in pages().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
