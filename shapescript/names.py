"""What a file declares, by name.

Takes the parsed items of one file; gives `Names`: each kind of declaration in a table, in the order of the text, and
the diagnostics about the names themselves: declared twice (E0202), capital or small (E0203), the `devices` line
missing, repeated or late (E1001 to E1003). Doesn't look into sizes, types or bodies: `types/` does.

Dims, models, datas, functions, externs, constants and imports share one space of names. What is declared first stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeGuard

from shapescript.diagnostics.diagnostic import Diagnostic, Label
from shapescript.diagnostics.fixes import put_in
from shapescript.source import Source, Span
from shapescript.syntax import tree

Named = (
    tree.Dim | tree.Constant | tree.Model | tree.Data | tree.Function | tree.Extern | tree.Import | tree.LostDeclaration
)
"""A declaration that has a name."""

RESERVED_TYPES: Final = frozenset(
    ["Index", "NonNeg", "Prob", "Dataset", "SGD", "Adam", "AdamW", "Lion", "Grads", "BatchNorm"]
)
"""Built-in names with a capital: a dim, a model or a data may hide them."""


@dataclass
class Names:
    """The declarations of one file."""

    source: Source
    devices: tree.Devices | None = None
    dims: dict[str, tree.Dim] = field(default_factory=dict)
    constants: dict[str, tree.Constant] = field(default_factory=dict)
    models: dict[str, tree.Model] = field(default_factory=dict)
    datas: dict[str, tree.Data] = field(default_factory=dict)
    functions: dict[str, tree.Function] = field(default_factory=dict)
    externs: dict[str, tree.Extern] = field(default_factory=dict)
    imports: dict[str, tree.Import] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    declared: dict[str, Named] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def capitals(self) -> list[str]:
        """The names that a size or a type may mean."""
        return [*self.dims, *self.models, *self.datas]

    def smalls(self) -> list[str]:
        """The names that a value or a function may mean."""
        return [*self.functions, *self.externs, *self.constants, *self.imports]


def name_span(source: Source, node: Named | tree.Field | tree.Parameter | tree.Attribute) -> Span:
    """Where the name of a declaration, a field, a parameter or an attribute stands."""
    if isinstance(node, tree.LostDeclaration):
        return source.span(node.start, node.end)
    return source.span(node.name_start, node.name_start + len(node.name))


def describe(node: Named) -> str:
    """What kind of thing it declares, in words."""
    match node:
        case tree.Dim():
            return "a dim"
        case tree.Constant():
            return "a constant"
        case tree.Model():
            return "a model"
        case tree.Data():
            return "a data"
        case tree.Function():
            return "a function"
        case tree.Extern():
            return "an extern function"
        case tree.Import():
            return "a module"
    return "a declaration"


def collect_names(source: Source, items: Sequence[tree.Declaration], *, module: bool = False) -> Names:
    """The declarations of a file by name; `module` says that another file imports it."""
    names = Names(source)
    for position, item in enumerate(items):
        if isinstance(item, tree.Devices):
            _take_devices(names, item, first=position == 0, module=module)
        elif _is_named(item):
            _take(names, item)
    if names.devices is None and not module and not _any_lost_devices(items):
        names.diagnostics.append(_no_devices(source, items))
    return names


def _is_named(item: tree.Declaration) -> TypeGuard[Named]:
    return isinstance(item, Named)


def _any_lost_devices(items: Sequence[tree.Declaration]) -> bool:
    return any(isinstance(item, tree.LostDeclaration) and item.name is None for item in items)


def _take(names: Names, item: Named) -> None:
    name = item.name
    if name is None:
        return
    if isinstance(item, tree.LostDeclaration):
        names.lost.add(name)
        return
    earlier = names.declared.get(name)
    if earlier is not None:
        names.diagnostics.append(declared_twice(names.source, name, item, earlier))
        return
    _check_case(names, item)
    names.declared[name] = item
    match item:
        case tree.Dim():
            names.dims[name] = item
        case tree.Constant():
            names.constants[name] = item
        case tree.Model():
            names.models[name] = item
        case tree.Data():
            names.datas[name] = item
        case tree.Function():
            names.functions[name] = item
        case tree.Extern():
            names.externs[name] = item
        case tree.Import():
            names.imports[name] = item


def declared_twice(
    source: Source,
    name: str,
    item: Named | tree.Field | tree.Parameter,
    earlier: Named | tree.Field | tree.Parameter,
    what: str = "",
) -> Diagnostic:
    """E0202, for declarations, fields and parameters alike."""
    return Diagnostic(
        "E0202",
        f"`{name}` is declared twice{what}",
        Label(name_span(source, item), "here again"),
        (Label(name_span(source, earlier), "first declared here"),),
        helps=("give one of them another name",),
    )


def case_problem(
    source: Source, node: Named | tree.Field | tree.Parameter, what: str, wants: Literal["capital", "small"]
) -> Diagnostic | None:
    """E0203 where a name begins with the wrong kind of letter."""
    name = node.name or ""
    first = name.lstrip("_")[:1]
    capital = first.isupper()
    if not first or capital == (wants == "capital"):
        return None
    other = name[:1].upper() + name[1:] if wants == "capital" else name[:1].lower() + name[1:]
    letter = "a capital" if wants == "capital" else "a small"
    return Diagnostic(
        "E0203",
        f"the name of {what} begins with {letter} letter, and `{name}` doesn't",
        Label(name_span(source, node)),
        notes=(
            "names of dims, models and data begin with a capital letter; those of functions, values, fields and axis "
            "variables with a small one",
        ),
        helps=(f"call it `{other}`",),
    )


def _check_case(names: Names, item: Named) -> None:
    wants: Literal["capital", "small"] = "small"
    if isinstance(item, (tree.Dim, tree.Model, tree.Data)):
        wants = "capital"
    elif isinstance(item, tree.Import):
        return
    problem = case_problem(names.source, item, describe(item), wants)
    if problem is not None:
        names.diagnostics.append(problem)


def _take_devices(names: Names, item: tree.Devices, *, first: bool, module: bool) -> None:
    span = names.source.span(item.start, item.spec.end)
    if module:
        names.diagnostics.append(
            Diagnostic(
                "E1003",
                "an imported file has no `devices` line",
                Label(span, "the program that imports this file says where it runs"),
                helps=("take the line out, or run this file by itself",),
            )
        )
        return
    if names.devices is not None:
        earlier = names.source.span(names.devices.start, names.devices.spec.end)
        names.diagnostics.append(
            Diagnostic(
                "E1002",
                "a program has one `devices` line, and this is the second",
                Label(span),
                (Label(earlier, "the first one"),),
                helps=("keep one of them: `devices cpu[0 1 2]` names several devices at once",),
            )
        )
        return
    names.devices = item
    if not first:
        names.diagnostics.append(
            Diagnostic(
                "E1003",
                "the `devices` line comes first in a program",
                Label(span, "move this line to the top"),
            )
        )


def _no_devices(source: Source, items: Sequence[tree.Declaration]) -> Diagnostic:
    start = items[0].start if items else 0
    end = source.text.find("\n", start)
    end = len(source.text) if end < 0 else end
    if items:
        end = min(end, items[0].end)
    return Diagnostic(
        "E1001",
        "this program doesn't say on which devices it runs",
        Label(source.span(start, max(end, start)), "the `devices` line goes before this"),
        notes=("there is no default: where a program runs is its first line",),
        helps=("write `devices cpu` at the top, or `devices cuda[0]` for a GPU",),
        fixes=(put_in(source, 1 if source.text.startswith("\ufeff") else 0, "devices cpu\n\n"),),
    )
