"""JAX: the whole step jitted, on one device or on several of one process.

Run by the bench: `python -m bench.peers.jax_process --program mlp --batch 64 --devices 3`, with XLA's flags set before
the start. Nothing of PyTorch is loaded.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from bench import workloads
from bench.peers.jax_models import LOSSES
from bench.peers.serve import serve
from bench.wire import LEARNING_RATE

BETA1, BETA2, EPSILON, WEIGHT_DECAY = 0.9, 0.999, 1e-8, 0.01

State = tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]


class Jitted:
    """One jitted call a step: rows gathered, forward, backward and AdamW, fused by XLA.

    The state is donated, so that it is updated where it lies. On several devices the batch is split along its rows by
    `shard_map` and the gradients are summed over the devices; where the rows can't be cut evenly, rows of weight 0 fill
    the last part, since XLA wants equal ones.
    """

    def __init__(self, program: str, batch: int, devices: int) -> None:
        names, losses = LOSSES[program]
        self.batch = batch
        self.filled = -(-batch // devices) * devices
        self.row_weights = np.where(np.arange(self.filled) < batch, 1 / batch, 0).astype(np.float32)
        weights = {name: jnp.asarray(value) for name, value in load_file(workloads.weights_file()).items()}
        columns = [jnp.asarray(workloads.column(name)) for name in names]
        self.rate = jnp.float32(LEARNING_RATE)
        several = devices > 1

        def loss_of(given: dict[str, Any], rows: list[Any], row_weights: Any) -> Any:
            return jnp.dot(losses(given, *rows), row_weights)

        def step(state: State, data: list[Any], index: Any, row_weights: Any, rate: Any) -> tuple[State, Any]:
            weights, first, second, count = state
            rows = [column[index] for column in data]
            loss, gradients = jax.value_and_grad(loss_of)(weights, rows, row_weights)
            if several:
                loss, gradients = jax.lax.psum((loss, gradients), "devices")
            count = count + 1
            size, correction = rate / (1 - BETA1**count), jnp.sqrt(1 - BETA2**count)
            first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradients)
            second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradients)
            weights = jax.tree.map(
                lambda w, m, v: w * (1 - rate * WEIGHT_DECAY) - size * m / (jnp.sqrt(v) / correction + EPSILON),
                weights,
                first,
                second,
            )
            return (weights, first, second, count), loss

        zeros = jax.tree.map(jnp.zeros_like, weights)
        self.state: State = (weights, zeros, jax.tree.map(jnp.zeros_like, weights), jnp.float32(0))
        self.data = columns
        self.place: Any = None
        if several:
            mesh = jax.make_mesh((devices,), ("devices",))
            spec = jax.sharding.PartitionSpec
            whole = jax.sharding.NamedSharding(mesh, spec())
            self.place = jax.sharding.NamedSharding(mesh, spec("devices"))
            step = jax.shard_map(
                step,
                mesh=mesh,
                in_specs=(spec(), spec(), spec("devices"), spec("devices"), spec()),
                out_specs=spec(),
                check_vma=False,
            )
            self.state, self.data, self.rate = jax.device_put((self.state, self.data, self.rate), whole)
        self.split_weights = jax.device_put(self.row_weights, self.place)
        self.jitted = jax.jit(step, donate_argnums=0)

    def step(self, index: Any) -> Any:
        """One step; the call returns before it is done."""
        if self.filled != self.batch:
            index = np.concatenate([index, np.repeat(index[:1], self.filled - self.batch)])
        if self.place is not None:
            index = jax.device_put(index, self.place)
        self.state, loss = self.jitted(self.state, self.data, index, self.split_weights, self.rate)
        if self.place is not None:
            # without a wait, the devices' threads of many steps in flight take the cores from one another
            loss.block_until_ready()
        return loss

    def look(self, loss: Any) -> float:
        """Waits for the whole step."""
        jax.block_until_ready((self.state, loss))
        return float(loss)

    def set_rate(self, rate: float) -> None:
        """An argument of the jitted step: nothing is compiled anew."""
        self.rate = jax.device_put(np.float32(rate), self.rate.sharding)


def main() -> None:
    """Trains as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", choices=LOSSES, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--devices", type=int, default=1)
    given = parser.parse_args()
    # numbers of 32 bits are what XLA gathers by without converting
    orders = workloads.orders().astype(np.int32)
    serve(Jitted(given.program, given.batch, given.devices), orders, given.batch)


if __name__ == "__main__":
    main()
