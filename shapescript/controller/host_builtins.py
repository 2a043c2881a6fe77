"""Built-ins of the controller: making models, datasets, printing, files, Python.

Gives `HOST`, the table of `HostDomain`: the shared built-ins and the controller's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from shapescript.controller import checkpoint
from shapescript.controller.datasets import Batches, Dataset
from shapescript.controller.errors import Error
from shapescript.controller.from_python import HostDataset
from shapescript.controller.host_batches import HostBatches, place_of
from shapescript.controller.host_domain import HostDomain
from shapescript.controller.python_modules import call_python, python_error
from shapescript.devices.dtypes import dtype_of
from shapescript.devices.held import Held
from shapescript.devices.python_draws import epoch_key
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.specialise.builtins import SHARED
from shapescript.specialise.domain import Builtin, problem
from shapescript.specialise.evaluator import Evaluator
from shapescript.specialise.expressions import (
    arguments_of,
    evaluate,
    extern_arguments,
    model_info,
    python_value,
    shape_of_fields,
)
from shapescript.specialise.frame import TENSORS, Frame
from shapescript.specialise.initialise import initial
from shapescript.specialise.values import BatchValue, DeviceTensor, ModelValue, Value
from shapescript.syntax import tree
from shapescript.types.axes import Axis
from shapescript.types.kinds import ModelList, ModelOf, Tensor
from shapescript.types.uses import BuiltinUse, ExternUse, ModelUse, PythonUse


def _domain(ev: Evaluator) -> HostDomain:
    assert isinstance(ev.domain, HostDomain)
    return ev.domain


# --- models ----------------------------------------------------------------------------------------------------------


def _model(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    own = ev.program.uses[expr]
    assert isinstance(own, ModelUse)
    seed = 0 if own.seed is None else evaluate(ev, frame, own.seed)
    if not isinstance(seed, int):
        raise problem("E2111", f"a seed is a whole number, and this is `{type(seed).__name__}`", frame.span(expr))
    return make_model(ev, frame, frame.model(ModelOf(own.model, own.dims)), seed)


def make_model(ev: Evaluator, frame: Frame, of: ModelOf, seed: int, path: str = "") -> ModelValue:
    """A new model; `path` is where it stands within a larger one."""
    info = model_info(ev, of.declaration)
    fields: dict[str, object] = {}
    inner = frame if info.source is None else ev.frame(info.source)
    domain = _domain(ev)
    for name, kind in shape_of_fields(ev, of).items():
        place = f"{path}{name}"
        if isinstance(kind, ModelOf):
            fields[name] = make_model(ev, frame, kind, seed, f"{place}.")
        elif isinstance(kind, ModelList):
            count = _length(ev, kind.length, frame, info.fields[name].node)
            fields[name] = [make_model(ev, frame, kind.model, seed, f"{place}.{index}.") for index in range(count)]
        elif isinstance(kind, Tensor):
            shape = [_length(ev, axis, inner, info.fields[name].node) for axis in kind.axes]
            start = info.fields[name].initialiser
            if start is None:
                raise problem("E2111", f"`{name}` has no initialiser", inner.span(info.fields[name].node))
            numbers = {key: float(evaluate(ev, inner, value)) for key, value in start.arguments.items()}  # type: ignore[arg-type]
            if domain.device.type == "meta":  # nobody looks at the numbers: they aren't drawn
                data = torch.empty(shape, dtype=dtype_of(kind.element), device="meta")
            else:
                data = initial(start.name, numbers, shape, kind.element, seed, place).to(domain.device)
            fields[name] = DeviceTensor(data, kind.axes, kind.element, dict(domain.dims))
    return ModelValue(of, fields)


def _length(ev: Evaluator, axis: Axis, frame: Frame, node: tree.Node) -> int:
    length = ev.domain.size_of(axis)
    if length is None:
        raise problem("E2116", f"the size `{axis}` isn't known", frame.span(node))
    return length


# --- Python ----------------------------------------------------------------------------------------------------------


def to_python(value: Value) -> object:
    """A value as Python code gets it: whole torch tensors, a batch as a mapping of its fields."""
    match value:
        case DeviceTensor():
            return value.data
        case BatchValue():
            return {name: to_python(part) for name, part in value.fields.items()}
        case HostDataset():
            return value.examples
        case HostBatches():
            return value.batches
        case tuple():
            return tuple(to_python(part) for part in value)
    return value


def _python(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    arguments = dict(use.arguments)
    function = evaluate(ev, frame, arguments.pop("", arguments.pop("function", expr)))
    _domain(ev).output.waiting.finish()  # Python may print, and what was printed before comes before
    values = [to_python(evaluate(ev, frame, each)) for each in use.rest]
    named = {name: to_python(evaluate(ev, frame, each)) for name, each in arguments.items()}
    if not callable(function):
        raise problem("E2114", f"`{type(function).__name__}` can't be called", frame.span(expr))
    try:
        return call_python(function, frame.span(expr), _called(expr), *values, **named)
    except Error as error:
        raise problem("E2114", str(error), frame.span(expr)) from error


def _called(expr: tree.Expr) -> str:
    """The name by which Python is called."""
    at = expr.target if isinstance(expr, tree.Pipe) else expr
    at = at.function if isinstance(at, tree.Call) else at
    if isinstance(at, tree.Attribute) and isinstance(at.of, tree.Name):
        return f"{at.of.name}.{at.name}"
    return at.name if isinstance(at, (tree.Name, tree.Attribute)) else "Python"


def _extern(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    own = ev.program.uses[expr]
    assert isinstance(own, ExternUse)
    values = extern_arguments(ev, frame, own)
    module, _, name = own.function.target.value.rpartition(".")
    function = python_value(frame, PythonUse(module, name), expr)
    assert callable(function)
    _domain(ev).output.waiting.finish()
    result = call_python(function, frame.span(expr), own.function.target.value, *map(to_python, values))
    return ev.domain.from_python(frame, result, own.result, frame.span(expr))


# --- datasets --------------------------------------------------------------------------------------------------------


DatasetChange = Callable[[Dataset | Batches, HostDomain, str, dict[str, Value]], object]


def _on_dataset(change: DatasetChange) -> Builtin:
    """A built-in over datasets, which is handed the place of the call; its result is of the same data."""

    def changed(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
        given = arguments_of(ev, frame, use.arguments)
        span = frame.span(expr)
        numbers = {
            name: ev.domain.number(value, span) if isinstance(value, TENSORS) else value
            for name, value in given.items()
        }
        data = numbers.pop("data")
        domain = _domain(ev)
        assert isinstance(data, (HostDataset, HostBatches))
        held = data.batches if isinstance(data, HostBatches) else data.on(domain.place.gather)
        try:
            result = change(held, domain, place_of(span), numbers)
        except Error as error:
            message, *notes = map(str.strip, str(error).splitlines())
            raise problem("E2111", message, span, notes) from error
        except ProgramError:
            raise
        except Exception as error:
            raise python_error(error, span, f"`{use.name}`") from error
        if isinstance(result, tuple):
            return tuple(data.like(each, domain.loops, span) for each in result)
        return data.like(result, domain.loops, span)

    return changed


def _by_method(name: str) -> DatasetChange:
    def change(held: Dataset | Batches, domain: HostDomain, place: str, given: dict[str, Value]) -> object:
        return getattr(held, name)(**given)

    return change


def _shuffle(held: Dataset | Batches, domain: HostDomain, place: str, given: dict[str, Value]) -> object:
    """Without a seed, another order each time that the program comes by, which depends on the run's seed."""
    assert isinstance(held, Dataset)
    seed = given.get("seed")
    if seed is None:
        seed = epoch_key(domain.seed, domain.passes.next(place))
        held = replace(held, places=(*held.places, place))
    assert isinstance(seed, int)
    return held.shuffle(seed)


# --- output and files ------------------------------------------------------------------------------------------------


def shown(value: Value) -> object:
    """A value as `print` gets it: a tensor isn't waited for here."""
    match value:
        case DeviceTensor():
            return value.held
        case tuple():
            return tuple(map(shown, value))
        case BatchValue():
            return {name: shown(part) for name, part in value.fields.items()}
    return to_python(value)


def _print(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    _domain(ev).output.print(*(shown(evaluate(ev, frame, each)) for each in use.rest))
    return None


def _log(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    given = arguments_of(ev, frame, use.arguments, step=None)
    step = given["step"]
    if isinstance(step, DeviceTensor):
        step = int(step.data.item())
    value = shown(given["value"])
    assert isinstance(value, (int, float, torch.Tensor, Held)) and (step is None or isinstance(step, int))
    _domain(ev).output.log(str(given["name"]), value, step)
    return None


def _show(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    given = arguments_of(ev, frame, use.arguments)
    _domain(ev).output.show(str(given["name"]), shown(given["x"]))
    return None


def _file(run: Callable[[Evaluator, Frame, BuiltinUse], None]) -> Builtin:
    def done(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
        try:
            run(ev, frame, use)
        except Error as error:
            message, *notes = map(str.strip, str(error).splitlines())
            raise problem("E2111", message, frame.span(expr), notes) from error
        return None

    return done


def _save(ev: Evaluator, frame: Frame, use: BuiltinUse) -> None:
    given = arguments_of(ev, frame, use.arguments)
    checkpoint.save(given["thing"], str(given["path"]))


def _load(ev: Evaluator, frame: Frame, use: BuiltinUse) -> None:
    given = arguments_of(ev, frame, use.arguments)
    checkpoint.load(given["thing"], str(given["path"]))


def _save_checkpoint(ev: Evaluator, frame: Frame, use: BuiltinUse) -> None:
    given = arguments_of(ev, frame, use.arguments)
    path, keep = given.pop("path"), given.pop("keep", None)
    assert keep is None or isinstance(keep, int)
    checkpoint.save_checkpoint(str(path), given, _domain(ev).draws, keep)


def _load_checkpoint(ev: Evaluator, frame: Frame, use: BuiltinUse) -> None:
    given = arguments_of(ev, frame, use.arguments)
    path = given.pop("path")
    found, draws = checkpoint.load_checkpoint(str(path), given)
    _domain(ev).go_on(draws)
    for name, value in found.items():
        if value is not given[name]:
            ev.assign(frame, use.arguments[name], value)


def _time(ev: Evaluator, frame: Frame, use: BuiltinUse, expr: tree.Expr) -> Value:
    return time.time()


HOST: Mapping[str, Builtin] = {
    **SHARED,
    "model": _model,
    "python": _python,
    "extern": _extern,
    "shuffle": _on_dataset(_shuffle),
    **{name: _on_dataset(_by_method(name)) for name in ("batches", "take", "skip", "split", "map", "filter")},
    "print": _print,
    "log": _log,
    "show": _show,
    "save": _file(_save),
    "load": _file(_load),
    "save_checkpoint": _file(_save_checkpoint),
    "load_checkpoint": _file(_load_checkpoint),
    "time": _time,
}
