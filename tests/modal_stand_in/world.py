"""What the stand-in knows: its settings, files, images, apps and machines."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from modal_proto import api_pb2

from modal_stand_in.machine import Machine

LAST_STEP = "/opt/shapescript"


@dataclass
class Settings:
    """How it behaves; seconds, and 0 for never."""

    machine_after: float = 0
    build_takes: float = 0
    build_fails: bool = False
    heartbeat_grace: float = 60
    refuses_token: bool = False
    no_room: bool = False
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class App:
    """One app of a client's: an ephemeral one ends when its client is silent."""

    ephemeral: bool
    heard: float
    ended: str = ""


@dataclass
class Image:
    """One layer: its own steps with those below, and the files that were copied into it."""

    steps: list[str]
    files: list[Any]
    source: Path | None = None


class World:
    """All of it; `folder` goes when it ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="modal-stand-in-"))
        self.blobs = self.folder / "blobs"
        self.blobs.mkdir()
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in ("python", "python3"):
            (self.programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            (self.programs / name).chmod(0o755)
        self.server = self.files = ""
        self.number = 0
        self.mounts: dict[str, list[Any]] = {}
        self.images: dict[str, Image] = {}
        self.built: dict[str, str] = {}
        self.sources: dict[str, Path] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.apps: dict[str, App] = {}
        self.machines: dict[str, Machine] = {}
        self.reset({})

    def reset(self, settings: dict[str, Any]) -> None:
        """Forgets what was recorded, ends what runs, and behaves anew. Built images and files stay, as at Modal."""
        for machine in self.machines.values():
            machine.finish(api_pb2.GenericResult.GENERIC_STATUS_TERMINATED)
        self.settings = Settings(**settings)
        self.silent = False
        self.apps.clear()
        self.machines.clear()
        self.calls: dict[str, int] = {}
        self.unknown: list[str] = []
        self.put: list[str] = []
        self.builds = 0

    def report(self) -> dict[str, Any]:
        """What happened since the last `reset`."""
        return {
            "calls": self.calls,
            "unknown": self.unknown,
            "builds": self.builds,
            "put": self.put,
            "apps": [asdict(app) for app in self.apps.values()],
            "machines": [machine.report() for machine in self.machines.values()],
        }

    def name(self, kind: str) -> str:
        """A new identifier, of the length that the client looks for."""
        self.number += 1
        return f"{kind}-{self.number:022d}"

    def image(self, definition: Any) -> tuple[str, bool]:
        """The image of a definition, and whether it was there already."""
        key = hashlib.sha256(definition.SerializeToString(deterministic=True)).hexdigest()
        if key in self.built:
            return self.built[key], True
        below = [self.images[base.image_id] for base in definition.base_images]
        steps = [step for image in below for step in image.steps] + list(definition.dockerfile_commands)
        files = [file for image in below for file in image.files]
        if definition.context_mount_id:
            files += self.mounts[definition.context_mount_id]
        name = self.name("im")
        source = next((image.source for image in below if image.source is not None), None)
        if any(step.endswith(LAST_STEP) for step in definition.dockerfile_commands):
            source = self.source(files)
        self.images[name] = Image(steps, files, source)
        self.built[key] = name
        self.builds += 1
        return name, False

    def source(self, files: list[Any]) -> Path:
        """ShapeScript from the uploaded source, made ready to run as its installation does."""
        inside = [file for file in files if file.filename.startswith(LAST_STEP + "/")]
        key = hashlib.sha256("".join(sorted(f.filename + f.sha256_hex for f in inside)).encode()).hexdigest()
        if key not in self.sources:
            folder = self.folder / "sources" / key
            for file in inside:
                self.lay(file, folder / file.filename.removeprefix(LAST_STEP + "/"))
            subprocess.run(
                [sys.executable, "-m", "shapescript.syntax.build_tables"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(folder)},
                check=True,
            )
            self.sources[key] = folder
        return self.sources[key]

    def lay(self, file: Any, place: Path) -> None:
        """Puts an uploaded file somewhere."""
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.blobs / file.sha256_hex, place)
        place.chmod(file.mode or 0o644)

    def end_app(self, name: str, why: str) -> None:
        """Ends an app and its machines."""
        app = self.apps.get(name)
        if app is None or app.ended:
            return
        app.ended = why
        for machine in self.machines.values():
            if machine.app == name:
                machine.finish(api_pb2.GenericResult.GENERIC_STATUS_TERMINATED)

    def close(self) -> None:
        """Ends all."""
        self.reset({})
        shutil.rmtree(self.folder, ignore_errors=True)
