"""Whether laid-out steps are right: the type rule of layouts, apart from any choice.

Takes `Steps`; `faults` gives a line for each thing that is wrong, and `verify` raises them. The table is its own and
weaker than the layouter's rules: an op may be split along any leaf that it doesn't need whole, work on whole values,
or be partial in one linear group. Runs between the passes under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shapescript.ir.graph import Node
from shapescript.layout.masks import IDENTITIES, WHOLE_IDENTITIES, padded_leaves, whole_masked
from shapescript.layout.policy import rest_of
from shapescript.layout.roles import EXTREMES, PARTIAL_KINDS, REDUCED_SHARDS, is_elementwise, leaf_roles, linear_groups
from shapescript.layout.steps import KINDS, Step, Steps
from shapescript.layout.words import (
    SHARDED,
    SUMMED,
    WHOLE_WORD,
    Partial,
    Sharded,
    Split,
    Whole,
    Word,
    leaves_of,
)
from shapescript.ops.registry import INDEX, NEW, OWN, WHOLE
from shapescript.types.axes import same_axes


class WrongLayout(Exception):
    """Steps that aren't right: a mistake of the layouter, never of the program."""


def legal(node: Node, operands: Sequence[Word], result: Word) -> bool:
    """Whether these words go together on one mesh axis."""
    if isinstance(result, Whole) and all(isinstance(word, Whole) for word in operands):
        return True
    return any(rule(node, operands, result) for rule in RULES)


def _along_a_leaf(node: Node, operands: Sequence[Word], result: Word) -> bool:
    atoms = {word.atom for word in (*operands, result) if isinstance(word, Split)}
    atom = atoms.pop() if len(atoms) == 1 else None
    if atom is None:
        return False
    for role in leaf_roles(node):
        if role.word in (INDEX, OWN) or node.name == "iota":
            place = role.operands[0] if role.word == INDEX else role.result
            if place is None or place[1] != 0:
                continue
        wanted = [WHOLE_WORD if place is None else Split(atom, *place) for place in role.operands]
        kind = PARTIAL_KINDS.get(role.word)
        end: Word | None = Partial(kind) if kind is not None else None
        if role.result is not None:
            end = Split(atom, *role.result)
        if list(operands) == wanted and result == end:
            return True
    return False


def _in_a_linear_group(node: Node, operands: Sequence[Word], result: Word) -> bool:
    return result == SUMMED and any(
        group and all(word == (SUMMED if i in group else WHOLE_WORD) for i, word in enumerate(operands))
        for group in linear_groups(node)
    )


def _on_shards(node: Node, operands: Sequence[Word], result: Word) -> bool:
    if node.name in REDUCED_SHARDS and not node.axes:
        return list(operands) == [SHARDED] and result == REDUCED_SHARDS[node.name]
    if result != SHARDED or not node.axes:
        return False
    if node.name == "broadcast":
        return not node.operands[0].axes and list(operands) == [WHOLE_WORD]
    return is_elementwise(node) and all(
        word == (SHARDED if same_axes(operand.axes, node.axes) else WHOLE_WORD)
        and (word == SHARDED or not operand.axes)
        for operand, word in zip(node.operands, operands, strict=True)
    )


def _filled(node: Node, operands: Sequence[Word], result: Word) -> bool:
    """One number everywhere can be made in any part."""
    if node.name != "broadcast" or node.operands[0].axes or not isinstance(result, Split):
        return False
    return list(operands) == [WHOLE_WORD]


def _masked(node: Node, operands: Sequence[Word], result: Word) -> bool:
    if node.name != "mask" or list(operands) != [result]:
        return False
    return isinstance(result, (Whole, Split)) or (result == SUMMED and node.attributes["value"] == 0)


def _of_extremes(node: Node, operands: Sequence[Word], result: Word) -> bool:
    """A whole value is a partial greatest one too, the same on each device."""
    return result == EXTREMES.get(node.name) and all(word == result or isinstance(word, Whole) for word in operands)


RULES: tuple[Callable[[Node, Sequence[Word], Word], bool], ...] = (
    _along_a_leaf,
    _in_a_linear_group,
    _on_shards,
    _filled,
    _masked,
    _of_extremes,
)


# --- the checks of a step ------------------------------------------------------------------------------------------


def _order(laid: Steps, number: int, step: Step) -> Iterator[str]:
    if any(operand >= number for operand in step.operands):
        yield "an operand doesn't stand before it"


def _operation(laid: Steps, number: int, step: Step) -> Iterator[str]:
    if step.conversion is not None or step.value.op is None:
        return
    values = [laid.steps[operand].value for operand in step.operands]
    if len(values) != len(step.value.operands) or any(
        a is not b for a, b in zip(values, step.value.operands, strict=True)
    ):
        yield "its operands are other values than its op's"
        return
    for mesh_axis, result in enumerate(step.layout):
        words = [laid.steps[operand].layout[mesh_axis] for operand in step.operands]
        if not legal(step.value, words, result):
            yield f"{', '.join(map(str, words))} can't give {result} on mesh axis {mesh_axis}"


def _input(laid: Steps, number: int, step: Step) -> Iterator[str]:
    if step.conversion is not None or step.value.op is not None:
        return
    place = laid.logical.inputs.index(step.value)
    wanted = rest_of(step.value, laid.resting.inputs[place], laid.policy, laid.logical.sizes)
    if step.layout != wanted:
        yield "an input doesn't lie as it rests"


def _conversion(laid: Steps, number: int, step: Step) -> Iterator[str]:
    conversion = step.conversion
    if conversion is None:
        return
    source = laid.steps[step.operands[0]]
    if source.value is not step.value:
        yield "a conversion of another value"
    for mesh_axis, (before, after) in enumerate(zip(source.layout, step.layout, strict=True)):
        if mesh_axis != conversion.mesh_axis:
            if before != after:
                yield "it changes another mesh axis"
            elif isinstance(before, Sharded):
                yield "it changes what is split while another mesh axis has it flat"
        elif (before, after) != (conversion.before, conversion.after):
            yield f"it says {conversion.before} to {conversion.after}, and is {before} to {after}"
        elif KINDS.get((type(before), type(after))) != conversion.kind:
            yield f"`{conversion.kind}` doesn't make {after} of {before}"
        elif conversion.kind in ("reduce_scatter", "keep_first") and SUMMED not in (before, after):
            yield f"`{conversion.kind}` is for sums"


def _words(laid: Steps, number: int, step: Step) -> Iterator[str]:
    splits = [word for word in step.layout if isinstance(word, Split)]
    for word in splits:
        axes = step.value.axes
        held = leaves_of(axes[word.dim]) if 0 <= word.dim < len(axes) else ()
        if not 0 <= word.leaf < len(held) or laid.policy.atom_of(held[word.leaf]) != word.atom:
            yield f"it is split along `{word.atom}`, which it lacks there"
    if len({word.atom for word in splits}) < len(splits):
        yield "one atom is split on two mesh axes"
    if SHARDED in step.layout and (not step.value.axes or _has_batch(laid, step.value)):
        yield "a batch's value or a scalar is sharded"


def _has_batch(laid: Steps, node: Node) -> bool:
    return any(not axis.size.atoms.isdisjoint(laid.batches) for axis in node.axes)


def _selected(laid: Steps, number: int, step: Step) -> Iterator[str]:
    """Where the graph is padded: what is reduced or used as an index is directly a mask."""
    node = step.value
    if not laid.padded or step.conversion is not None or node.op is None or node.op.roles is None:
        return
    everywhere = whole_masked(node)
    needed: list[tuple[int, int, int, float]] = []
    for place, operand in enumerate(node.operands):
        for dim, leaf in padded_leaves(operand.axes, laid.batches):
            if place in everywhere:
                needed.append((place, dim, leaf, everywhere[place]))
    for role in node.op.roles(node):
        value = WHOLE_IDENTITIES.get(node.name) if role.word == WHOLE else IDENTITIES.get(role.word)
        if value is None or role.word == NEW:
            continue
        for place, at in enumerate(role.operands):
            if at is not None and place not in everywhere:
                for dim, leaf in padded_leaves(node.operands[place].axes, laid.batches):
                    if dim == at:
                        needed.append((place, dim, leaf, value))
    for place, dim, leaf, value in needed:
        source = laid.steps[step.operands[place]]
        found = False
        while source.conversion is None and source.value.name == "mask":
            attributes = source.value.attributes
            found = found or (attributes["dim"], attributes["leaf"], attributes["value"]) == (dim, leaf, value)
            source = laid.steps[source.operands[0]]
        if not found:
            yield f"it takes rows that aren't real: operand {place}, axis {dim}"


CHECKS: tuple[Callable[[Steps, int, Step], Iterator[str]], ...] = (
    _order,
    _operation,
    _input,
    _conversion,
    _words,
    _selected,
)


def _outputs(laid: Steps) -> Iterator[str]:
    for place, number in enumerate(laid.outputs):
        step = laid.steps[number]
        if step.value is not laid.logical.outputs[place]:
            yield f"output {place} is another value"
        source = laid.resting.written.get(place)
        if source is not None:
            tag = laid.resting.inputs[source]
            if step.layout != rest_of(laid.logical.inputs[source], tag, laid.policy, laid.logical.sizes):
                yield f"output {place} doesn't rest as the input that it is written back to"
        for word in step.layout:
            if isinstance(word, Partial) and (step.value.axes or word != SUMMED):
                yield f"output {place} leaves as a {word}"
            if isinstance(word, Sharded) and source is None:
                yield f"output {place} leaves sharded"


def faults(laid: Steps, only: Sequence[int] | None = None) -> list[str]:
    """Everything that is wrong, a line each; `only`: with these steps and the outputs."""
    found = [
        f"step {number}, {laid.steps[number].value!r}: {fault}"
        for number in (range(len(laid.steps)) if only is None else only)
        for check in CHECKS
        for fault in check(laid, number, laid.steps[number])
    ]
    return found + list(_outputs(laid))


def verify(laid: Steps) -> Steps:
    """The steps, if they are right.

    Raises:
        WrongLayout: they aren't; the text has a line for each fault.
    """
    found = faults(laid)
    if found:
        raise WrongLayout("\n".join(found))
    return laid
