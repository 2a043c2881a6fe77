"""What the tests of rented runs share: the stand-in as a process, and the command line as a user starts it.

The newest `modal` is tested with the others. The oldest lies in an environment of its own, which a .pth file lets see
this one's packages: `SHAPESCRIPT_TEST_MODAL_PYTHON=oldest/bin/python pytest tests/test_rent_runs.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PYTHON = os.environ.get("SHAPESCRIPT_TEST_MODAL_PYTHON", sys.executable)
"""The Python that has the `modal` to test: CI has the newest, one with the oldest is named by hand."""
PACE = {"files": 1, "watch": 0.5, "silence": 4, "grace": 3}


def environment(**more: str) -> dict[str, str]:
    """The variables of a client: a token that is none, and nothing of this machine's own settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MODAL_") and not name.lower().endswith("_proxy")
    }
    return {
        **kept,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}",
        "MODAL_CONFIG_PATH": os.devnull,
        "MODAL_TOKEN_ID": "ak-stand-in",
        "MODAL_TOKEN_SECRET": "as-stand-in",
        "MODAL_HEARTBEAT_INTERVAL": "0.5",
        "NO_COLOR": "1",
        **more,
    }


@dataclass
class Done:
    """A client that has ended."""

    status: int
    output: str
    words: str
    seconds: float


class StandIn:
    """The stand-in, for as long as the tests of a session last."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-m", "modal_stand_in"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the stand-in didn't start"
        self.addresses: dict[str, str] = json.loads(line)

    def ask(self, path: str, settings: dict[str, Any] | None = None) -> Any:
        """Talks to its control."""
        data = None if settings is None else json.dumps(settings).encode()
        request = urllib.request.Request(f"{self.addresses['control']}/{path}", data)
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def reset(self, **settings: Any) -> None:
        """How it behaves from now on."""
        self.ask("reset", settings)

    def report(self) -> dict[str, Any]:
        """What happened since."""
        report: dict[str, Any] = self.ask("report")
        return report

    def start(
        self,
        folder: Path,
        *words: str,
        pace: dict[str, float] | None = None,
        server: str | None = None,
        **variables: str,
    ) -> subprocess.Popen[bytes]:
        """Starts `shapescript run WORDS` in a folder."""
        return subprocess.Popen(
            [PYTHON, str(TESTS / "modal_stand_in" / "client.py"), json.dumps({**PACE, **(pace or {})}), "run", *words],
            cwd=folder,
            env=environment(MODAL_SERVER_URL=server or self.addresses["server"], **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self, folder: Path, *words: str, pace: dict[str, float] | None = None, variables: dict[str, str] | None = None
    ) -> Done:
        """Runs `shapescript run WORDS` in a folder to its end."""
        return ended(self.start(folder, *words, pace=pace, **(variables or {})))

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def ended(client: subprocess.Popen[bytes]) -> Done:
    """Waits for a client."""
    since = time.monotonic()
    output, words = client.communicate(timeout=120)
    return Done(client.returncode, output.decode(), words.decode(), time.monotonic() - since)


def wait_for(path: Path, seconds: float = 60, but: str | None = None) -> None:
    """Waits until a file is there, with another text than `but`."""
    until = time.monotonic() + seconds
    while not path.exists() or path.read_text() == but:
        assert time.monotonic() < until, f"no {path.name} within {seconds} s"
        time.sleep(0.05)


def interrupt(client: subprocess.Popen[bytes], number: int = signal.SIGINT) -> None:
    """Sends a client a signal."""
    client.send_signal(number)
