"""Type stubs: what an editor and a type checker know of a loaded program.

Takes a checked program; gives the text of `net.pyi`, which stands beside `net.ss`, so that `import net` completes:
each model with its fields, each data, each function with its parameters. Runs nothing and loads no torch.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from pathlib import Path

from shapescript.session import Session
from shapescript.types.kinds import (
    Batch,
    Batches,
    Dataset,
    Gradients,
    Host,
    ModelList,
    ModelOf,
    Nothing,
    Optimizer,
    Tensor,
    TupleOf,
    Type,
)
from shapescript.types.typed import FunctionInfo, ModelInfo, TypedProgram

HEAD = '''"""Made from {name} by `shapescript stubs`; don't edit it."""

from typing import Any

import numpy.typing
import torch
from shapescript.python.handles import Gradients, MadeBatch, Optimizer
from shapescript.python.models import Model
'''


def stub_path(path: str | Path) -> Path:
    """Where the stub of a program stands."""
    return Path(path).with_suffix(".pyi")


def write_stub(session: Session) -> Path:
    """Writes the stub of a program that checks, beside it.

    Raises:
        CheckError: it doesn't check.
    """
    session.require()
    path = stub_path(session.path)
    path.write_text(stub_of(session.typed, session.path.name), encoding="utf-8")
    return path


def stub_of(program: TypedProgram, name: str) -> str:
    """The text of a stub."""
    lines = [HEAD.format(name=name)]
    for imported in program.imports.values():
        if imported.program is not None:
            lines += ["", f"class {imported.name}:"]
            body = list(declarations(imported.program, imported.name + "."))
            lines += [f"    {line}" if line else "" for line in body] or ["    pass"]
    lines += declarations(program, "")
    lines += ["", "def close() -> None: ..."]
    return "\n".join(lines) + "\n"


def declarations(program: TypedProgram, prefix: str) -> Iterator[str]:
    """What a file declares; within a class, for an imported file."""
    inside = "static" if prefix else ""
    for dim in program.dims.values():
        yield f"{dim.name}: int"
    for constant in program.constants.values():
        yield f"{constant.name}: {type(constant.value).__name__}"
    for model in program.models.values():
        yield from model_lines(program, model)
    for data in program.datas.values():
        yield ""
        yield f"class {data.name}(MadeBatch):"
        for field in data.fields.values():
            yield f"    {field.name}: torch.Tensor  # [b] of {field.type}"
        fields = "".join(f", {field.name}: {tensor_given()}" for field in data.fields.values())
        yield f"    def __init__(self, *{fields}) -> None: ..."
    for function in program.functions.values():
        yield ""
        if inside:
            yield "@staticmethod"
        yield from function_lines(program, function)


def model_lines(program: TypedProgram, model: ModelInfo) -> Iterator[str]:
    """The class of a model."""
    yield ""
    yield f"class {model.name}(Model):"
    for field in model.fields.values():
        kind = "torch.Tensor" if isinstance(field.type, Tensor) else written(program, field.type, given=False)
        yield f"    {field.name}: {kind}  # {field.type}"
    if model.dims:
        yield f'    def __class_getitem__(cls, dims: Any) -> type["{model.name}"]: ...'
    yield "    def __init__(self, seed: int = 0) -> None: ..."


def function_lines(program: TypedProgram, function: FunctionInfo) -> Iterator[str]:
    """A function, its own words as its documentation."""
    parameters = []
    optional = False
    for parameter in function.parameters:
        optional = optional or parameter.default is not None
        name = parameter.name + "_" * keyword.iskeyword(parameter.name)
        default = " = ..." if optional else ""  # one without a default may follow one with it
        parameters.append(f"{name}: {written(program, parameter.type, given=True)}{default}")
    result = written(program, function.result, given=False)
    text = ", ".join(f"{'mut ' * each.mut}{each.name}: {each.type}" for each in function.parameters)
    arrow = "" if isinstance(function.result, Nothing) else f" -> {function.result}"
    yield f"def {function.name}({', '.join(parameters)}) -> {result}:"
    yield f'    """fn {function.name}({text}){arrow}"""'


def tensor_given() -> str:
    """What may be handed over for a tensor."""
    return "torch.Tensor | numpy.typing.ArrayLike"


def written(program: TypedProgram, of: Type, given: bool) -> str:
    """A type as Python's checkers read it; `given`: an argument, not a result."""
    match of:
        case Tensor():
            return tensor_given() if given else "torch.Tensor"
        case Host():
            return of.name
        case ModelOf():
            owner = next((f"{i.name}." for i in program.imports.values() if declares(i.program, of)), "")
            own = any(info.node is of.declaration for info in program.models.values())
            return f'"{owner if not own else ""}{of.declaration.name}"' if own or owner else "Model"
        case ModelList():
            return f"tuple[{written(program, of.model, given)}, ...]"
        case Batch():
            own_data = of.data.name in program.datas
            name = f'"{of.data.name}"' if own_data else "MadeBatch"
            return f"{name} | dict[str, Any]" if given else name
        case Optimizer():
            return "Optimizer"
        case Gradients():
            return "Gradients"
        case TupleOf():
            return f"tuple[{', '.join(written(program, item, given) for item in of.items)}]"
        case Nothing():
            return "None"
        case Dataset() | Batches():
            return "Any"
    return "Any"


def declares(program: TypedProgram | None, of: ModelOf) -> bool:
    """Whether a file declares a model."""
    return program is not None and any(info.node is of.declaration for info in program.models.values())
