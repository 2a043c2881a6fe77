"""Starts a pool's workers: its memory, its sockets, and how each process is begun.

Takes the devices; gives `Started`, all that the pool holds of them, and the one way to end it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shapescript.devices.profile import current_profile
from shapescript.devices.workers.channel import Channel, SharedChannel, SocketChannel
from shapescript.devices.workers.launching import Launcher, launcher_of, share_of_cores
from shapescript.devices.workers.native import native
from shapescript.devices.workers.scalars import Scalars
from shapescript.devices.workers.segments import Segment
from shapescript.devices.workers.shared_transport import exchange_bytes
from shapescript.devices.workers.staging import USUAL
from shapescript.devices.workers.supervisor import Supervisor
from shapescript.devices.workers.worker import ABSENT, Start
from shapescript.layout.mesh import Mesh


@dataclass
class Started:
    """The workers; `end` ends them, and everything that was opened for them."""

    channel: Channel
    supervisor: Supervisor
    sockets: list[socket.socket]
    scalars: Segment
    staging: Segment
    end: Callable[[], None]


def start_workers(
    devices: Sequence[str],
    mesh: Mesh,
    path: Sequence[str],
    deadline: float,
    transport: str,
    launcher: Launcher | None = None,
) -> Started:
    """Starts a process for each device; returns before they are ready.

    `transport` is `shared` (memory, where the module in C++ is there) or `gloo`; `launcher` is what may have been
    started before.
    """
    if transport not in ("shared", "gloo"):
        raise ValueError(f"a transport is `shared` or `gloo`, not `{transport}`")
    count = len(devices)
    cores, threads = share_of_cores(count)
    shared = native is not None and transport == "shared"
    segments: dict[str, Segment] = {
        "staging": Segment.make("staging", USUAL),
        "scalars": Segment.make("scalars", Scalars.size(count)),
    }
    if native is not None:
        segments["link"] = Segment.make("link", native.Link.size)
        native.Link.lay(segments["link"].fileno, count)
    if shared:
        segments["exchange"] = Segment.make("exchange", exchange_bytes(mesh))
    else:
        segments["meeting"] = Segment.make("meeting", 0)
    reports = [socket.socketpair() for _ in devices]
    commands: list[tuple[socket.socket, socket.socket]] = (
        [socket.socketpair() for _ in devices] if native is None else []
    )
    lifeline, held = os.pipe()

    starts = []
    for rank in range(count):
        numbers = {name: segments[name].fileno if name in segments else ABSENT for name in SHARED}
        starts.append(
            Start(
                rank=rank,
                devices=tuple(devices),
                mesh=mesh.sizes,
                parent=os.getpid(),
                socket=reports[rank][1].fileno(),
                lifeline=lifeline,
                commands=commands[rank][1].fileno() if commands else ABSENT,
                spin=count <= cores,
                threads=threads,
                profile=current_profile() is not None,
                **numbers,
            )
        )
    launcher = launcher or launcher_of(count, path)

    link = native.Link(segments["link"].fileno) if native is not None else None
    channel: Channel = SharedChannel(link) if link is not None else SocketChannel([own for own, _ in commands])
    ours = [pair[0] for pair in (*reports, *commands)]
    theirs = [pair[1] for pair in (*reports, *commands)]

    def started() -> None:
        for each in theirs:
            each.close()
        os.close(lifeline)

    sockets = [own for own, _ in reports]
    beats = link.beats if link is not None else None
    supervisor = Supervisor(launcher, starts, sockets, channel, beats, deadline, started)

    def end() -> None:
        supervisor.stop()
        for each in ours:
            each.close()
        os.close(held)
        for segment in segments.values():
            segment.close()

    return Started(channel, supervisor, sockets, segments["scalars"], segments["staging"], end)


SHARED = ("link", "exchange", "staging", "scalars", "meeting")
"""The files of `Start` that all workers have the same of."""
