"""The state that the checks of one file share; models and data.

Takes the `Names` of a file; fills a `TypedProgram`. Gives `Declarations`, which reports, and answers what a name, a
type or a field means. An imported file's dims are named `module.D`. Initialisers' arguments are kept as expressions,
which `checker.py` types once everything is declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shapescript.diagnostics.diagnostic import Diagnostic, Fix, Label
from shapescript.diagnostics.fixes import suggested
from shapescript.diagnostics.suggest import nearest
from shapescript.names import Names, case_problem, declared_twice, describe, name_span
from shapescript.source import Span
from shapescript.syntax import tree
from shapescript.types import check_types
from shapescript.types.axes import Axis
from shapescript.types.kinds import Batch, ModelList, ModelOf, Tensor, Type, Wrong
from shapescript.types.size import Size, SizeError
from shapescript.types.typed import (
    DataInfo,
    DimInfo,
    FieldInfo,
    Initialiser,
    ModelInfo,
    TypedProgram,
)
from shapescript.types.unify import substitute_type

INITIALISERS: Mapping[str, tuple[str, ...]] = {
    "zeros": (),
    "ones": (),
    "constant": ("value",),
    "normal": ("std", "mean"),
    "uniform": ("low", "high"),
    "xavier": ("gain",),
    "kaiming": (),
    "orthogonal": ("gain",),
}
NEEDED = {"constant": 1, "normal": 1, "uniform": 2}
MOST_SUGGESTIONS = 50
"""How many unknown names of a file get a suggestion: each costs a look at every name."""


class Declarations:
    """One file being checked; a `check_types.Scope` for what stands at the left margin."""

    def __init__(self, names: Names, program: TypedProgram, prefix: str = "") -> None:
        self.names = names
        self.program = program
        self.prefix = prefix
        self.source = names.source
        self.diagnostics: list[Diagnostic] = list(names.diagnostics)
        self.model_dims_here: frozenset[str] = frozenset()
        self.declaring: tree.Model | None = None
        self.wrong_dims: set[str] = set()
        self.suggestions_left = MOST_SUGGESTIONS
        self.sizes: dict[str, int] = {}

    # --- reporting

    def span(self, node: tree.Node) -> Span:
        return self.source.span(node.start, node.end)

    def report(
        self,
        code: str,
        message: str,
        node: tree.Node | Span,
        words: str = "",
        secondary: Sequence[Label] = (),
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
        fixes: Sequence[Fix] = (),
    ) -> None:
        span = node if isinstance(node, Span) else self.span(node)
        found = tuple(fixes) or suggested(span, message, helps)
        self.diagnostics.append(
            Diagnostic(code, message, Label(span, words), tuple(secondary), tuple(notes), tuple(helps), found)
        )

    def similar(self, name: str, candidates: Sequence[str]) -> str | None:
        """The name that was probably meant."""
        self.suggestions_left -= 1
        return nearest(name, candidates) if self.suggestions_left >= 0 else None

    def unsound(self, size: Size) -> str | None:
        """Why a size can't be for the dims' values; None where it can, or where they aren't all known."""
        if len(size.terms) < 2 and not size.owes:
            return None
        known = self.program.known_sizes()
        if not size.atoms <= known.keys():
            return None
        try:
            size.evaluate(known)
        except SizeError as error:
            return str(error)
        return None

    # --- what names mean (check_types.Scope)

    def axis_named(self, name: str) -> Axis | None:
        if name in self.model_dims_here:
            return Axis.named(name)
        info = self.program.dims.get(name)
        return info.axis if info is not None else None

    def new_axis(self, name: str) -> Axis | None:
        return None

    def any_axes(self) -> bool:
        return False

    def imported(self, module: str) -> TypedProgram | None:
        """The program of an imported `.ss` file."""
        info = self.program.imports.get(module)
        return info.program if info is not None else None

    def model_named(self, module: str | None, name: str) -> tree.Model | None:
        if module is None:
            return self.names.models.get(name)
        program = self.imported(module)
        info = program.models.get(name) if program is not None else None
        return info.node if info is not None else None

    def data_named(self, module: str | None, name: str) -> tree.Data | None:
        if module is None:
            return self.names.datas.get(name)
        program = self.imported(module)
        info = program.datas.get(name) if program is not None else None
        return info.node if info is not None else None

    def model_dims(self, model: tree.Model) -> int:
        return len(model.dims)

    def module_dim(self, module: str, name: str) -> DimInfo | None:
        program = self.imported(module)
        return program.dims.get(name) if program is not None else None

    def known_capitals(self) -> Sequence[str]:
        return self.names.capitals()

    def known_axes(self) -> Sequence[str]:
        return [*self.names.dims, *self.model_dims_here]

    def is_lost(self, name: str) -> bool:
        return name in self.names.lost or name in self.wrong_dims

    def lose(self, name: str) -> None:
        self.names.lost.add(name)


def substitute_field(of: Type, bound: Mapping[str, Axis]) -> Type:
    """A field's type with the model's dims replaced."""
    return substitute_type(of, bound) if bound else of


def dotted(expr: tree.Expr) -> str | None:
    """`a.b.c` as text; None if it is something else."""
    parts: list[str] = []
    while isinstance(expr, tree.Attribute):
        parts.append(expr.name)
        expr = expr.of
    if not isinstance(expr, tree.Name):
        return None
    return ".".join([expr.name, *reversed(parts)])


# --- models and data -------------------------------------------------------------------------------------------------


def check_models(here: Declarations) -> None:
    """The fields of each model, and that none contains itself."""
    for name, node in here.names.models.items():
        dims = _own_dims(here, node)
        here.model_dims_here, here.declaring = frozenset(dims), node
        fields = {
            member.name: _model_field(here, member, node) for member in _members(here, node.members, f" in `{name}`")
        }
        here.model_dims_here, here.declaring = frozenset(), None
        info = ModelInfo(name, tuple(dim.name for dim in node.dims), fields, node, here.source)
        here.program.models[name] = info
        here.program.model_of[node] = info
    _check_containment(here)


def _own_dims(here: Declarations, node: tree.Model) -> list[str]:
    names: list[str] = []
    for dim in node.dims:
        if dim.name in names:
            here.report("E0202", f"`{dim.name}` is declared twice in `{node.name}`", dim)
        elif not dim.name[:1].isupper():
            here.report(
                "E0203",
                f"the name of a model's dim begins with a capital letter, and `{dim.name}` doesn't",
                dim,
                helps=(f"call it `{dim.name[:1].upper()}{dim.name[1:]}`",),
            )
        names.append(dim.name)
    return names


def _members(here: Declarations, members: Sequence[tree.Field], where: str) -> list[tree.Field]:
    seen: dict[str, tree.Field] = {}
    for member in members:
        if member.name in seen:
            here.diagnostics.append(declared_twice(here.source, member.name, member, seen[member.name], where))
            continue
        seen[member.name] = member
        problem = case_problem(here.source, member, "a field", "small")
        if problem is not None:
            here.diagnostics.append(problem)
    return list(seen.values())


def _model_field(here: Declarations, member: tree.Field, model: tree.Model) -> FieldInfo:
    of = check_types.type_of_tree(here, member.type)
    if member.word is None:
        if not isinstance(of, (ModelOf, ModelList, Wrong)):
            here.report(
                "E0701",
                f"`{member.name}` doesn't say whether it is trained",
                name_span(here.source, member),
                helps=(f"write `param {member.name}` if it is trained, or `state {member.name}` if it is only kept",),
            )
        elif member.value is not None:
            here.report("E0703", "a field that is a model has no initialiser: its own fields do", member.value)
        return FieldInfo(member.name, None, of, None, member)
    if not isinstance(of, (Tensor, Wrong)):
        here.report("E0701", f"a `{member.word}` is a tensor, and `{member.name}` is {of}", member.type)
        return FieldInfo(member.name, member.word, Wrong(), None, member)
    if member.word == "param" and isinstance(of, Tensor) and not of.element.is_float:
        here.report(
            "E0704",
            f"`{member.name}` is trained, so it holds floats, and this is {of.element}",
            member.type,
            helps=(f"write `state {member.name}` for what isn't trained",),
        )
    return FieldInfo(member.name, member.word, of, _initialiser(here, member), member)


def _initialiser(here: Declarations, member: tree.Field) -> Initialiser | None:
    value = member.value
    if value is None:
        here.report(
            "E0703",
            f"`{member.name}` has no initialiser",
            name_span(here.source, member),
            helps=("write how it begins: `= zeros`, `= normal(std=0.02)`, `= xavier`",),
        )
        return None
    name = value.function if isinstance(value, tree.Call) else value
    given = value.arguments if isinstance(value, tree.Call) else []
    if not isinstance(name, tree.Name) or name.name not in INITIALISERS:
        similar = nearest(name.name, list(INITIALISERS)) if isinstance(name, tree.Name) else None
        if isinstance(name, tree.Number):
            similar = f"constant({here.span(name).text})"
        here.report(
            "E0703",
            "this isn't an initialiser",
            value,
            notes=("the initialisers are " + ", ".join(f"`{known}`" for known in INITIALISERS),),
            helps=(f"did you mean `{similar}`?",) if similar else (),
        )
        return None
    wanted = INITIALISERS[name.name]
    arguments: dict[str, tree.Expr] = {}
    for place, argument in enumerate(given):
        key = argument.name or (wanted[place] if place < len(wanted) else None)
        if key is None or key not in wanted or key in arguments or argument.mut:
            takes = ", ".join(f"`{each}`" for each in wanted) or "nothing"
            here.report("E0703", f"`{name.name}` takes {takes}", argument)
            return None
        arguments[key] = argument.value
    if len(arguments) < NEEDED.get(name.name, 0):
        missing = [each for each in wanted[: NEEDED[name.name]] if each not in arguments]
        shown = ", ".join(f"{each}=0.02" for each in missing)
        here.report("E0703", f"`{name.name}` needs `{missing[0]}`", value, helps=(f"write `{name.name}({shown})`",))
    return Initialiser(name.name, arguments)


def _check_containment(here: Declarations) -> None:
    """E0705: a model that contains itself."""
    inner: dict[tree.Model, list[tree.Model]] = {}
    for info in here.program.models.values():
        kinds = [field.type for field in info.fields.values()]
        models = [kind.model if isinstance(kind, ModelList) else kind for kind in kinds]
        inner[info.node] = [kind.declaration for kind in models if isinstance(kind, ModelOf)]
    done: set[tree.Model] = set()
    for start in inner:
        path: list[tuple[tree.Model, int]] = [(start, 0)]
        open_models = {start}
        while path:
            model, place = path.pop()
            below = inner.get(model, [])
            if model in done or place >= len(below):
                done.add(model)
                open_models.discard(model)
                continue
            path.append((model, place + 1))
            if below[place] in open_models:
                here.report(
                    "E0705",
                    f"`{model.name}` contains itself, by its field of `{below[place].name}`",
                    name_span(here.source, model),
                )
                done.add(model)
                continue
            if below[place] not in done:
                open_models.add(below[place])
                path.append((below[place], 0))


def check_datas(here: Declarations) -> None:
    """The fields of each data: tensors of one example."""
    for name, node in here.names.datas.items():
        fields: dict[str, FieldInfo] = {}
        for member in _members(here, node.members, f" in `{name}`"):
            of = check_types.type_of_tree(here, member.type)
            if not isinstance(of, (Tensor, Wrong)):
                what = "a batch" if isinstance(of, Batch) else str(of)
                here.report("E0803", f"a field of a data is a tensor, and `{member.name}` is {what}", member.type)
                of = Wrong()
            if member.word is not None or member.value is not None:
                here.report("E0803", "a field of a data is a name and a type", member)
            fields[member.name] = FieldInfo(member.name, None, of, None, member)
        info = DataInfo(name, fields, node, here.source)
        here.program.datas[name] = info
        here.program.data_of[node] = info


def what_is(here: Declarations, name: str) -> str | None:
    """What a declared name is, in words."""
    node = here.names.declared.get(name)
    return describe(node) if node is not None else None
