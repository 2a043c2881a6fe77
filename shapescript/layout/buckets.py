"""Which all-reduces go as one launch.

A collective can start once its operand is there, and must have ended before its first reader. At the first reader of
one that waits, all that wait of its kind and mesh axis go together: nothing before that reader can depend on them, so
they are independent. The steps are put in that order, the all-reduces of a launch side by side. Linear in the steps.
"""

from __future__ import annotations

from collections import defaultdict

from shapescript.layout.steps import Steps, reordered

Group = tuple[str, int]


def launch_together(laid: Steps) -> None:
    """Numbers the launches and puts the steps in their new order."""
    waiting: dict[Group, list[int]] = defaultdict(list)
    group_of: dict[int, Group] = {}
    ready: dict[int, list[int]] = defaultdict(list)
    for number, step in enumerate(laid.steps):
        conversion = step.conversion
        if conversion is not None and conversion.kind == "all_reduce":
            kind = getattr(conversion.before, "kind", "sum")
            group_of[number] = kind, conversion.mesh_axis
            ready[step.operands[0]].append(number)
    order: list[int] = []
    placed: set[int] = set()
    launches = 0

    def put(number: int) -> None:
        order.append(number)
        placed.add(number)
        for next_number in ready.get(number, ()):
            waiting[group_of[next_number]].append(next_number)

    def launch(group: Group) -> None:
        nonlocal launches
        together, waiting[group] = waiting[group], []
        for number in together:
            laid.steps[number].launch = launches
        launches += 1
        for number in together:
            put(number)

    def need(number: int) -> None:
        if number in group_of and number not in placed:
            need(laid.steps[number].operands[0])  # reduced along one mesh axis after another
            launch(group_of[number])

    for number, step in enumerate(laid.steps):
        if number in group_of:
            continue
        for operand in step.operands:
            need(operand)
        put(number)
    while any(waiting.values()):
        launch(next(group for group, together in waiting.items() if together))
    reordered(laid, order)
