"""A loaded program while Python uses it: its controller, and calls of its functions.

Takes a session; gives `Runtime`, whose `call` takes Python's arguments and gives Python's result. One call runs at a
time (a lock, which the thread that holds it may take again: Python called by the program may call the program). What
goes wrong at a line of the program comes out as `RunError`, whose text is the checker's words for the place.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from shapescript.controller import checkpoint_files, loaders
from shapescript.controller.errors import CheckpointError, DataError, DeviceError, Error, RunError, ShapeError
from shapescript.controller.failures import failures_told
from shapescript.controller.host_domain import HostDomain
from shapescript.controller.run import start_program
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.diagnostics.render import render_all
from shapescript.python.arguments import Arguments, bind
from shapescript.python.live import LiveParameters
from shapescript.python.models import Model, model_class
from shapescript.python.no_gradient import refusing, requiring
from shapescript.python.results import Results, changed_in_place
from shapescript.room import room
from shapescript.specialise.expressions import evaluate
from shapescript.specialise.values import ModelValue
from shapescript.syntax import tree
from shapescript.types.axes import ANY_AXES, Axis
from shapescript.types.kinds import Gradients, ModelOf, Tensor, TupleOf
from shapescript.types.size import Size
from shapescript.types.typed import BATCH_NORM, FunctionInfo, ParameterInfo, TypedProgram

if TYPE_CHECKING:
    from shapescript.session import Session
    from shapescript.specialise.evaluator import Evaluator
    from shapescript.specialise.frame import Frame
    from shapescript.specialise.values import Value


class Runtime:
    """The controller of one loaded program. `closed` after `close`, and then no call runs."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.program: TypedProgram = session.typed
        self.lock = threading.RLock()
        self.closed = False
        with errors_of_python():
            self.evaluator: Evaluator = start_program(
                session.typed, session.placed.kinds, session.seed, session.path.resolve()
            )
        domain = self.evaluator.domain
        assert isinstance(domain, HostDomain)
        self.domain: HostDomain = domain
        self.results = Results(self)
        self.live = LiveParameters()
        self.depth = 0
        self.model_classes: dict[tree.Model, type[Model]] = {}
        self.warned = 0
        self._end = weakref.finalize(self, _end, domain)

    @property
    def device(self) -> torch.device:
        """Where a tensor that is handed in must be."""
        return self.domain.device

    @property
    def name(self) -> str:
        """What the program is called in messages."""
        return self.session.path.stem

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the program does something: no other thread does, and mistakes come out as errors of Python."""
        with self.lock:
            if self.closed:
                raise Error(f"`{self.name}` was closed; load it again to go on")
            with errors_of_python(), room():
                if not self.depth:
                    self.live.put_into_models()
                self.depth += 1
                try:
                    yield
                except KeyboardInterrupt:  # the updates that were finished stay, for PyTorch's optimizers too
                    if self.depth == 1:
                        self.live.take_from_models()
                    raise
                finally:
                    self.depth -= 1
                if not self.depth:
                    self.live.take_from_models()

    def call(self, info: FunctionInfo, positional: Sequence[object], named: Mapping[str, object]) -> object:
        """Calls a function of the program.

        Raises:
            Error: an argument isn't what its parameter asks for, or a line of the program went wrong.
        """
        bound = bind(info, positional, named)
        with self.running():
            values = Arguments(self, info.axes).values(info, bound)
            frame = self.evaluator.frame(info.source, info)
            given = [
                values[parameter.name] if parameter.name in values else self._default(frame, parameter)
                for parameter in info.parameters
            ]
            for parameter, value in zip(info.parameters, given, strict=True):
                if parameter.name in info.axes and isinstance(value, int):
                    axis = Axis(parameter.name, Size.of(value))
                    frame.axes[parameter.name] = self.domain.local_axis(axis)
                if isinstance(parameter.type, ModelOf) and isinstance(value, ModelValue):
                    for wanted, axis in zip(parameter.type.arguments, value.type.arguments, strict=True):
                        if wanted.name is not None and wanted.name in info.axes:
                            frame.axes.setdefault(wanted.name, axis)
            _spread(frame, info, given)
            result = self.evaluator.run(frame, given)
            for parameter, value in zip(info.parameters, given, strict=True):
                now = frame.locals.get(parameter.name, value)
                if parameter.mut and now is not value and parameter.name in bound:
                    changed_in_place(bound[parameter.name], now, parameter.name, info.name)
            self.domain.output.waiting.settle()
            self._warn()
            return refusing(self.results.of(result), info.name, self._sources(info, bound, values))

    def _sources(
        self, info: FunctionInfo, bound: Mapping[str, object], values: Mapping[str, Value]
    ) -> list[torch.Tensor]:
        """What Python may ask gradients of a call's results for: tensors and live parameters, if none is changed."""
        parts = info.result.items if isinstance(info.result, TupleOf) else (info.result,)
        if any(parameter.mut for parameter in info.parameters) or any(isinstance(part, Gradients) for part in parts):
            return []
        found = [tensor for given in bound.values() for tensor in requiring(given)]
        for value in values.values():
            if isinstance(value, ModelValue):
                found += self.live.requiring(value)
        return found

    def _default(self, frame: Frame, parameter: ParameterInfo) -> Value:
        assert parameter.default is not None
        return evaluate(self.evaluator, frame, parameter.default)

    def _warn(self) -> None:
        """The specialiser's warnings, each once."""
        found = self.domain.specialiser.warnings
        if len(found) > self.warned:
            self.domain.output.errors.write(render_all(found[self.warned :]))
            self.warned = len(found)

    def model_class(self, declaration: tree.Model) -> type[Model]:
        """The class of Python for a model of the program or of a file that it imports."""
        found = self.model_classes.get(declaration)
        if found is None:
            info = BATCH_NORM if declaration is BATCH_NORM.node else self.program.model_of[declaration]
            found = self.model_classes[declaration] = model_class(self, info)
        return found

    def close(self) -> None:
        """Ends what runs for the program: its workers, its logs. It may be called twice."""
        with self.lock:
            self.closed = True
            with errors_of_python():
                self._end()

    def __reduce__(self) -> Any:
        raise TypeError(f"`{self.name}` is a running program and can't be pickled; load it in the other process")


def _end(domain: HostDomain) -> None:
    try:
        checkpoint_files.finish()
    finally:
        try:
            loaders.end_idle()
            domain.output.close()
        finally:
            domain.place.close()


def _spread(frame: Frame, info: FunctionInfo, given: Sequence[Value]) -> None:
    """What `..` stands for in a controller function, by the first argument that has it."""
    for parameter, value in zip(info.parameters, given, strict=True):
        of = parameter.type
        if isinstance(of, Tensor) and ANY_AXES in of.axes:
            count = len(value.shape) - len(of.axes) + 1  # type: ignore[attr-defined]
            frame.spread = tuple(frame.domain.local_axis(Axis.named(f"axis{place}")) for place in range(count))
            return


@contextmanager
def errors_of_python() -> Iterator[None]:
    """A mistake at a line of the program as an error that Python code catches.

    What has a class of its own (`DataError`, `CheckpointError`) keeps it; the text shows the line in any case.
    """
    try:
        with failures_told():
            yield
    except ProgramError as error:
        text = "\n" + render_all([error.diagnostic])
        cause = error.__cause__
        if isinstance(cause, (DataError, ShapeError, DeviceError, CheckpointError)):
            raise type(cause)(text) from None
        raise RunError(text, error.diagnostic) from cause
