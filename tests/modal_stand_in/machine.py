"""A rented machine as a folder of its own, and the commands that run on it as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modal_proto import api_pb2

if TYPE_CHECKING:
    from modal_stand_in.world import World

STATUSES = api_pb2.GenericResult.GenericStatus


class Machine:
    """A machine: absolute paths whose first folder it has are meant in its folder."""

    def __init__(self, name: str, app: str, definition: Any, world: World) -> None:
        self.name, self.app, self.definition, self.world = name, app, definition, world
        self.folder = world.folder / name
        self.result: Any = None
        self.lost = False
        self.ended = asyncio.Event()
        self.commands: dict[str, Command] = {}
        self.began = time.monotonic()
        self.lasted = 0.0
        self.tops = {"root", "mnt"}
        for top in self.tops:
            (self.folder / top).mkdir(parents=True)
        for mount in definition.mount_ids:
            for file in world.mounts[mount]:
                world.lay(file, Path(self.path(file.filename)))
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(definition.timeout_secs, self.finish, STATUSES.GENERIC_STATUS_TIMEOUT)
        self.entrypoint = asyncio.create_task(self.run_entrypoint())

    def path(self, word: str) -> str:
        """A word of a command, with a path of the machine's as it is here."""
        parts = Path(word).parts
        inside = len(parts) > 1 and parts[0] == "/" and parts[1] in self.tops
        return str(self.folder.joinpath(*parts[1:])) if inside else word

    def environment(self, request: Any = None) -> dict[str, str]:
        """The variables of a command."""
        found = {
            "PATH": f"{self.world.programs}:{os.environ['PATH']}",
            "HOME": str(self.folder / "root"),
            "LANG": "C.UTF-8",
            "MODAL_SANDBOX_ID": self.name,
        }
        source = self.world.images[self.definition.image_id].source
        if source is not None:
            found["PYTHONPATH"] = str(source)
        for secret in self.definition.secret_ids:
            found |= self.world.secrets[secret]
        for secret in getattr(request, "secret_sources", ()):
            named = secret.WhichOneof("source") == "secret_id"
            found |= self.world.secrets[secret.secret_id] if named else dict(secret.env.contents)
        return found

    async def run_entrypoint(self) -> None:
        """Runs what keeps the machine alive; when it ends, so does the machine."""
        process = await asyncio.create_subprocess_exec(
            *map(self.path, self.definition.entrypoint_args),
            env=self.environment(),
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        code = await process.wait()
        self.finish(STATUSES.GENERIC_STATUS_SUCCESS, code)

    def lose(self) -> None:
        """The machine is taken away."""
        self.lost = True
        self.finish(STATUSES.GENERIC_STATUS_INTERNAL_FAILURE)

    def finish(self, status: Any, code: int = 0) -> None:
        """Ends the machine with every process on it, those that left their group too."""
        if self.result is not None:
            return
        self.result = api_pb2.GenericResult(status=status, exitcode=code)
        self.lasted = time.monotonic() - self.began
        self.timer.cancel()
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.ended.set()

    def processes(self) -> list[int]:
        """The processes that run on it: each has its name among the variables that it was started with."""
        mark = f"MODAL_SANDBOX_ID={self.name}\0".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes() + b"\0":
                    found.append(int(process.name))
            except OSError:  # it ended, or is another user's
                continue
        return found

    def report(self) -> dict[str, Any]:
        """What is known of it."""
        gpu = self.definition.resources.gpu_config
        return {
            "gpu": f"{gpu.gpu_type}:{gpu.count}",
            "timeout": self.definition.timeout_secs,
            "ended": STATUSES.Name(self.result.status) if self.result is not None else "",
            "lasted": self.lasted,
            "processes": len(self.processes()),
            "steps": self.world.images[self.definition.image_id].steps,
        }


class Command:
    """One command: its output is kept, so that a reader can begin again where it was cut off."""

    def __init__(self, machine: Machine, request: Any) -> None:
        self.machine, self.request = machine, request
        self.output = {1: bytearray(), 2: bytearray()}
        self.complete = {1: False, 2: False}
        self.code: int | None = None
        self.changed = asyncio.Condition()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Starts the process."""
        machine = self.machine
        self.process = await asyncio.create_subprocess_exec(
            *map(machine.path, self.request.command_args),
            cwd=machine.folder / "root",
            env=machine.environment(self.request),
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.tasks = [
            asyncio.create_task(self.keep(1, self.process.stdout)),
            asyncio.create_task(self.keep(2, self.process.stderr)),
            asyncio.create_task(self.wait()),
        ]

    async def keep(self, number: int, stream: asyncio.StreamReader | None) -> None:
        """Keeps one stream's bytes as they come."""
        assert stream is not None
        while data := await stream.read(1 << 16):
            async with self.changed:
                self.output[number] += data
                self.changed.notify_all()
        async with self.changed:
            self.complete[number] = True
            self.changed.notify_all()

    async def wait(self) -> None:
        """Notes the end."""
        code = await self.process.wait()
        async with self.changed:
            self.code = code
            self.changed.notify_all()
