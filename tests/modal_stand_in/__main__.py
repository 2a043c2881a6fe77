"""Starts the stand-in; prints one line of JSON with its addresses; ends when its standard input does.

`POST /reset` takes settings, `GET /report` says what happened since; `POST /lose` takes the machines away, and after
`POST /silence` no call is answered any more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time

import aiohttp.web
import grpclib.server

from modal_stand_in.calls import services
from modal_stand_in.world import World


async def serve_files(world: World) -> aiohttp.web.AppRunner:
    """Large files come by HTTP, and so do the tests' questions."""

    async def put(request: aiohttp.web.Request) -> aiohttp.web.Response:
        digest = hashlib.md5()
        with open(world.blobs / request.match_info["name"], "wb") as file:
            async for piece in request.content.iter_chunked(1 << 20):
                digest.update(piece)
                file.write(piece)
        return aiohttp.web.Response(headers={"ETag": f'"{digest.hexdigest()}"'})

    async def reset(request: aiohttp.web.Request) -> aiohttp.web.Response:
        world.reset(await request.json())
        return aiohttp.web.Response()

    async def report(request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.json_response(world.report())

    async def lose(request: aiohttp.web.Request) -> aiohttp.web.Response:
        for machine in world.machines.values():
            machine.lose()
        return aiohttp.web.Response()

    async def silence(request: aiohttp.web.Request) -> aiohttp.web.Response:
        world.silent = True
        return aiohttp.web.Response()

    app = aiohttp.web.Application(client_max_size=1 << 40)
    app.router.add_put("/blob/{name}", put)
    app.router.add_post("/reset", reset)
    app.router.add_get("/report", report)
    app.router.add_post("/lose", lose)
    app.router.add_post("/silence", silence)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    world.files = f"http://{host}:{port}"
    return runner


async def end_silent_apps(world: World) -> None:
    """Ends the apps whose clients have gone, as Modal does when heartbeats stop."""
    while True:
        await asyncio.sleep(0.2)
        for name, app in list(world.apps.items()):
            if app.ephemeral and time.monotonic() - app.heard > world.settings.heartbeat_grace:
                world.end_app(name, "no heartbeat")


async def main() -> None:
    world = World()
    runner = await serve_files(world)
    server = grpclib.server.Server(services(world))
    await server.start("127.0.0.1", 0)
    assert server._server is not None and server._server.sockets
    world.server = f"http://127.0.0.1:{server._server.sockets[0].getsockname()[1]}"
    watching = asyncio.create_task(end_silent_apps(world))
    print(json.dumps({"server": world.server, "control": world.files}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    watching.cancel()
    world.close()
    await runner.cleanup()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
