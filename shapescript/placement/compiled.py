"""What a device function is compiled anew for: the facts that are known when it is, and that a call may change.

Takes a function's signature; gives words for `plan`. How often that happened in a run, `run --plan` says.
"""

from __future__ import annotations

from shapescript.types.kinds import Batch, Host, Tensor, TupleOf, Type
from shapescript.types.typed import FunctionInfo


def compiled_for(info: FunctionInfo) -> str:
    """Words for how often a device function is compiled."""
    values = [each.name for each in info.parameters if isinstance(each.type, Host) and each.type.name != "float"]
    batches = {each.type.axis.name for each in info.parameters if isinstance(each.type, Batch)}
    open_sizes = {name for each in info.parameters for name in tensor_axes(each.type)} & set(info.axes)
    causes = []
    if values:
        causes.append("each value of " + " and ".join(f"`{name}`" for name in values))
    sizes = [name for name in info.axes if name in open_sizes and name not in batches and name not in values]
    if sizes:
        names = " and ".join(f"`{name}`" for name in sizes)
        causes.append(f"each size of {names} but a batch's")
    return "compiled once" if not causes else "compiled for " + ", ".join(causes)


def tensor_axes(of: Type) -> set[str]:
    """The names of the axes of the tensors in a type."""
    if isinstance(of, TupleOf):
        return set().union(*map(tensor_axes, of.items))
    return {axis.name for axis in of.axes if axis.name is not None} if isinstance(of, Tensor) else set()
