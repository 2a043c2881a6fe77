"""Several devices, with a worker process each.

Takes their workers and the options of the `devices` line; gives `SeveralDevices`, which lays a graph out over them and
lets the workers run it. The columns of a dataset lie in memory that all workers read: a batch names its rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch

from shapescript.controller.dataset_items import Rows
from shapescript.controller.datasets import Order
from shapescript.devices.held import Somewhere
from shapescript.devices.profile import Recorded, current_profile
from shapescript.devices.runner import Border, Runner
from shapescript.devices.several import SeveralRunner
from shapescript.devices.workers.failure import PoolClosed, WorkerFailure
from shapescript.devices.workers.pool import WorkerPool
from shapescript.diagnostics.diagnostic import ProgramError
from shapescript.ir.graph import Graph
from shapescript.layout.laid import LaidGraph, Resting
from shapescript.layout.lay_out import lay_out
from shapescript.layout.masks import Unpadded
from shapescript.layout.mesh import Mesh
from shapescript.layout.policy import batch_atoms, policy_for
from shapescript.types.axes import Axis
from shapescript.types.size import Size

TAGS = {"model": "param", "optimizer": "state", "gradients": "gradient", "batch": "rows", "value": "whole"}
MOST_DATASETS = 8


class SeveralDevices:
    """The devices of a pool of workers; `splits` are the dims of `split` lines, `shard` is `shard params`.

    `dims` has the sizes of split dims that are made of others; `padded`: the workers record what they run.
    """

    def __init__(
        self,
        pool: WorkerPool,
        splits: Sequence[str] = (),
        shard: bool = False,
        dims: Mapping[str, Size] | None = None,
        padded: bool = False,
    ) -> None:
        self.device = torch.device("cpu")
        self.padded = padded
        self.pool = pool
        self.splits = tuple(splits)
        self.shard = shard
        self.dims = dict(dims or {})
        self._datasets: OrderedDict[int, tuple[Rows, int]] = OrderedDict()

    def runner(self, graph: Graph, border: Border) -> Runner:
        """The workers, which get the graph as it is for one of them."""
        how = self.pool.mesh, self.splits, self.shard, self.dims
        try:
            laid = laid_out(graph, border, *how, padded=self.padded)
        except Unpadded:  # each count is run at its exact widths
            laid = laid_out(graph, border, *how)
        return SeveralRunner(laid, self.pool)

    def gather(self, columns: Rows, order: Order, first: int, end: int) -> Mapping[str, Somewhere]:
        """Rows of columns; the columns go to where the workers see them when they are first asked for."""
        return self.pool.rows(self._dataset(columns), torch.from_numpy(order[first:end]))

    def _dataset(self, columns: Rows) -> int:
        """The workers' number of some columns, of which the last few are kept."""
        found = self._datasets.pop(id(columns), None)
        if found is None:
            number = self.pool.dataset(columns)
            columns.update(self.pool.columns(number))  # one copy: the controller reads the workers' too
            found = columns, number
        self._datasets[id(columns)] = found
        if len(self._datasets) > MOST_DATASETS:
            _, (_, oldest) = self._datasets.popitem(last=False)
            self.pool.drop_dataset(oldest)
        return found[1]

    def finish(self) -> None:
        """Waits for the workers."""
        self.pool.finish()

    def close(self) -> None:
        """Ends the workers; a profile that is being recorded takes in what they have, where none has failed."""
        profile = current_profile()
        try:
            if profile is not None:
                told = zip(self.pool.devices, self.pool.ask("profile"), strict=True)
                profile.include({device: each for device, each in told if isinstance(each, Recorded)})
        except (WorkerFailure, ProgramError, PoolClosed):
            pass  # the run has told of it
        finally:
            self.pool.close()


def laid_out(
    graph: Graph,
    border: Border,
    mesh: Mesh,
    splits: Sequence[str],
    shard: bool,
    dims: Mapping[str, Size] | None = None,
    padded: bool = False,
) -> LaidGraph:
    """A graph as one of a mesh's devices runs it; `padded`: with room for the largest batch, to be recorded.

    Raises:
        Unpadded: it has no padded form.
    """
    batches = batch_atoms(graph)

    def tag(owner: str, axes: Sequence[Axis]) -> str:
        """A value with a batch's axis lies as the batch does."""
        rows = owner == "value" and any(not axis.size.atoms.isdisjoint(batches) for axis in axes)
        return "rows" if rows else TAGS[owner]

    tags = tuple(tag(owner, node.axes) for owner, node in zip(border.owners, graph.inputs, strict=True))
    resting = Resting(tags, border.replaces, border.names)
    return lay_out(graph, mesh, policy_for(graph, mesh, splits, shard, dims), resting, padded)
