"""A loader process: reads the batches that it is asked for, until its pipe closes.

Its first message is the reader, the others are keys of epochs and numbers of examples. What it gives are numpy arrays
by field, or the exception that reading raised, with a note of where. The dataset's own output goes to the standard
error, for the standard output is the pipe.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from shapescript.controller.loaders import packed, read_message, write_message


def main() -> None:
    """Serves until nothing more comes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    asked: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=listen, args=(asked,), daemon=True).start()
    reader: Any = None
    failed: BaseException | None = None
    try:
        reader = pickle.loads(asked.get())
    except Exception as error:
        error.add_note(
            "while the dataset was copied to a loader process; without `workers` it is read in the program's"
        )
        failed = error
    while True:
        numbers = pickle.loads(asked.get())
        if isinstance(numbers, int):
            reader = reader and replace(reader, key=numbers)
            continue
        answer: object = failed
        if failed is None:
            try:
                answer = {name: packed(tensor) for name, tensor in reader.rows(numbers).items()}
            except Exception as error:
                answer = error
        if isinstance(answer, BaseException):
            answer = portable(answer)
        write_message(answers, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


def listen(asked: SimpleQueue[bytes]) -> None:
    """Takes the messages in; when the other end has gone, this process ends, whatever it is doing."""
    while (message := read_message(sys.stdin.buffer)) is not None:
        asked.put(message)
    os._exit(0)


def portable(error: BaseException) -> BaseException:
    """An exception that the other process can have, with a note of the lines that raised it."""
    package = Path(__file__).resolve().parent.parent
    for frame in traceback.extract_tb(error.__traceback__)[-4:]:
        if package not in Path(frame.filename).resolve().parents:
            error.add_note(f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}")
    error.__traceback__ = None
    error.__cause__ = None
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", []):
            plain.add_note(note)
        return plain


if __name__ == "__main__":
    main()
