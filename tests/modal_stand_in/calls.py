"""The calls that the stand-in answers, each named as in Modal's protocol."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_grpc, api_pb2, task_command_router_grpc, task_command_router_pb2

from modal_stand_in.machine import STATUSES, Command, Machine
from modal_stand_in.world import App, World

STREAMS = {
    task_command_router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT: 1,
    task_command_router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR: 2,
}


def service(base: Any, answers: object, world: World) -> Any:
    """A service of grpclib's: a method of `answers` for each call; one that isn't there is noted and refused."""

    def answering(name: str) -> Any:
        method = getattr(answers, name, None)

        async def handle(_: object, stream: Any) -> None:
            if world.silent:
                await asyncio.Event().wait()
            world.calls[name] = world.calls.get(name, 0) + 1
            request = await stream.recv_message()
            if world.settings.refuses_token:
                raise GRPCError(Status.UNAUTHENTICATED, "Token ID is malformed")
            if method is None:
                world.unknown.append(name)
                raise GRPCError(Status.UNIMPLEMENTED, f"the stand-in has no {name}")
            answer = method(request)
            if hasattr(answer, "__aiter__"):
                async for part in answer:
                    await stream.send_message(part)
            else:
                await stream.send_message(await answer)

        return handle

    methods = {name: answering(name) for name in base.__abstractmethods__}
    return type("StandIn", (base,), methods)()


def services(world: World) -> list[Any]:
    """Both services: Modal's own, and that of the machines."""
    return [
        service(api_grpc.ModalClientBase, Api(world), world),
        service(task_command_router_grpc.TaskCommandRouterBase, Router(world), world),
    ]


class Api:
    """Modal's own."""

    def __init__(self, world: World) -> None:
        self.world = world

    # --- clients and apps --------------------------------------------------------------------------------------------

    async def ClientHello(self, request: Any) -> Any:
        return api_pb2.ClientHelloResponse()

    async def EnvironmentGetOrCreate(self, request: Any) -> Any:
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06")
        metadata = api_pb2.EnvironmentMetadata(name="main", settings=settings)
        return api_pb2.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=metadata)

    async def AppCreate(self, request: Any) -> Any:
        name = self.world.name("ap")
        self.world.apps[name] = App(request.app_state == api_pb2.APP_STATE_EPHEMERAL, time.monotonic())
        return api_pb2.AppCreateResponse(app_id=name, app_page_url=f"https://modal.invalid/{name}")

    async def AppPublish(self, request: Any) -> Any:
        return api_pb2.AppPublishResponse()

    async def AppHeartbeat(self, request: Any) -> Any:
        if request.app_id in self.world.apps:
            self.world.apps[request.app_id].heard = time.monotonic()
        return Empty()

    async def AppClientDisconnect(self, request: Any) -> Any:
        self.world.end_app(request.app_id, api_pb2.AppDisconnectReason.Name(request.reason))
        return Empty()

    async def AppGetLogs(self, request: Any) -> AsyncIterator[Any]:
        while not self.world.apps[request.app_id].ended:
            await asyncio.sleep(0.1)
        yield api_pb2.TaskLogsBatch(app_done=True)

    # --- images and files --------------------------------------------------------------------------------------------

    async def ImageGetOrCreate(self, request: Any) -> Any:
        name, there = self.world.image(request.image)
        done = STATUSES.GENERIC_STATUS_SUCCESS if there else STATUSES.GENERIC_STATUS_UNSPECIFIED
        return api_pb2.ImageGetOrCreateResponse(image_id=name, result=api_pb2.GenericResult(status=done))

    async def ImageJoinStreaming(self, request: Any) -> AsyncIterator[Any]:
        steps = self.world.images[request.image_id].steps
        log = api_pb2.TaskLogs(data=f"{steps[-1]}\n", file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT)
        yield api_pb2.ImageJoinStreamingResponse(task_logs=[log], entry_id="1")
        await asyncio.sleep(self.world.settings.build_takes)
        result = api_pb2.GenericResult(status=STATUSES.GENERIC_STATUS_SUCCESS)
        if self.world.settings.build_fails:
            self.world.built = {key: name for key, name in self.world.built.items() if name != request.image_id}
            failure = "ERROR: No matching distribution found\n"
            log = api_pb2.TaskLogs(data=failure, file_descriptor=api_pb2.FILE_DESCRIPTOR_STDERR)
            yield api_pb2.ImageJoinStreamingResponse(task_logs=[log], entry_id="2")
            result = api_pb2.GenericResult(status=STATUSES.GENERIC_STATUS_FAILURE, exception="exit code 1")
        yield api_pb2.ImageJoinStreamingResponse(result=result, eof=True, entry_id="3")

    async def MountBatchedCheckExistence(self, request: Any) -> Any:
        missing = [name for name in request.sha256_hex_hashes if not (self.world.blobs / name).exists()]
        return api_pb2.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)

    async def MountPutFile(self, request: Any) -> Any:
        place = self.world.blobs / request.sha256_hex
        if request.WhichOneof("data_oneof") is None:  # only asks
            return api_pb2.MountPutFileResponse(exists=place.exists())
        data = (self.world.blobs / request.data_blob_id).read_bytes() if request.data_blob_id else request.data
        if hashlib.sha256(data).hexdigest() != request.sha256_hex:
            raise GRPCError(Status.INVALID_ARGUMENT, "the data isn't what its hash says")
        place.write_bytes(data)
        self.world.put.append(request.sha256_hex)
        return api_pb2.MountPutFileResponse(exists=True)

    async def MountGetOrCreate(self, request: Any) -> Any:
        key = hashlib.sha256(b"".join(sorted(file.SerializeToString() for file in request.files))).hexdigest()
        name = f"mo-{key[:22]}"  # the same files are the same mount, so that an image with them is built once
        self.world.mounts[name] = list(request.files)
        return api_pb2.MountGetOrCreateResponse(mount_id=name)

    async def BlobCreate(self, request: Any) -> Any:
        name = self.world.name("bl")
        url = f"{self.world.files}/blob/{name}"
        urls = api_pb2.UploadUrlList(items=[url])
        return api_pb2.BlobCreateResponse(blob_id=name, upload_url=url, blob_ids=[name], upload_urls=urls)

    async def SecretGetOrCreate(self, request: Any) -> Any:
        kept = self.world.settings.secrets
        if request.deployment_name and request.deployment_name not in kept:
            raise GRPCError(Status.NOT_FOUND, f"Secret '{request.deployment_name}' not found in environment 'main'")
        name = self.world.name("st")
        self.world.secrets[name] = kept[request.deployment_name] if request.deployment_name else dict(request.env_dict)
        metadata = api_pb2.SecretMetadata(name=request.deployment_name)
        return api_pb2.SecretGetOrCreateResponse(secret_id=name, metadata=metadata)

    # --- machines ----------------------------------------------------------------------------------------------------

    async def SandboxCreate(self, request: Any) -> Any:
        if self.world.settings.no_room:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "the workspace's limit of GPUs is reached")
        name = self.world.name("sb")
        self.world.machines[name] = Machine(name, request.app_id, request.definition, self.world)
        return api_pb2.SandboxCreateResponse(sandbox_id=name)

    async def SandboxGetTaskId(self, request: Any) -> Any:
        await asyncio.sleep(self.world.settings.machine_after)
        machine = self.world.machines[request.sandbox_id]
        return api_pb2.SandboxGetTaskIdResponse(task_id="ta-" + machine.name[3:])

    async def SandboxWait(self, request: Any) -> Any:
        machine = self.world.machines[request.sandbox_id]
        try:
            await asyncio.wait_for(machine.ended.wait(), request.timeout or 0.001)
        except TimeoutError:
            return api_pb2.SandboxWaitResponse()
        return api_pb2.SandboxWaitResponse(result=machine.result)

    async def SandboxTerminate(self, request: Any) -> Any:
        machine = self.world.machines[request.sandbox_id]
        before = machine.result
        machine.finish(STATUSES.GENERIC_STATUS_TERMINATED)
        return api_pb2.SandboxTerminateResponse(existing_result=before)

    async def TaskGetCommandRouterAccess(self, request: Any) -> Any:
        def part(words: dict[str, Any]) -> str:
            return base64.urlsafe_b64encode(json.dumps(words).encode()).decode().rstrip("=")

        token = f"{part({'alg': 'none'})}.{part({'exp': time.time() + 3600})}.x"
        return api_pb2.TaskGetCommandRouterAccessResponse(jwt=token, url=self.world.server)


class Router:
    """The machines' own: commands and their output."""

    def __init__(self, world: World) -> None:
        self.world = world

    def machine(self, task: str) -> Machine:
        machine = self.world.machines.get("sb-" + task[3:])
        if machine is None:
            raise GRPCError(Status.NOT_FOUND, "there is no such task")
        return machine

    def command(self, request: Any) -> Command:
        command = self.machine(request.task_id).commands.get(request.exec_id)
        if command is None:
            raise GRPCError(Status.NOT_FOUND, "there is no such command")
        return command

    async def TaskExecStart(self, request: Any) -> Any:
        machine = self.machine(request.task_id)
        if machine.result is not None:
            raise GRPCError(Status.NOT_FOUND, "the task is not running")
        if request.exec_id not in machine.commands:  # asked again, it is the same command
            machine.commands[request.exec_id] = command = Command(machine, request)
            await command.start()
        return task_command_router_pb2.TaskExecStartResponse()

    async def TaskExecStdioRead(self, request: Any) -> AsyncIterator[Any]:
        command, number, at = self.command(request), STREAMS[request.file_descriptor], request.offset
        while True:
            async with command.changed:
                while len(command.output[number]) <= at and not command.complete[number]:
                    await command.changed.wait()
                data = bytes(command.output[number][at : at + (1 << 20)])
            if command.machine.lost:
                raise GRPCError(Status.NOT_FOUND, "the task is gone")
            if not data:
                return
            at += len(data)
            yield task_command_router_pb2.TaskExecStdioReadResponse(data=data)

    async def TaskExecWait(self, request: Any) -> Any:
        command = self.command(request)
        async with command.changed:
            await command.changed.wait_for(lambda: command.code is not None)
        if command.machine.lost:
            raise GRPCError(Status.NOT_FOUND, "the task is gone")
        return task_command_router_pb2.TaskExecWaitResponse(**status(command))

    async def TaskExecPoll(self, request: Any) -> Any:
        return task_command_router_pb2.TaskExecPollResponse(**status(self.command(request)))


def status(command: Command) -> dict[str, int]:
    """How a command ended, as the protocol says it."""
    if command.code is None:
        return {}
    return {"signal": -command.code} if command.code < 0 else {"code": command.code}
