"""A loader process: reads the batches that it is asked for, until its pipe closes.

Its first message is the reader, the others are keys of epochs and numbers of examples. It answers the first with
nothing, once it has its copy; what it gives then are numpy arrays by field. In place of either comes the exception that
was raised, with a note of where. The dataset's own output goes to the standard error, for the standard output is the
pipe.
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

    def tell(answer: object) -> None:
        write_message(answers, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))

    try:
        reader: Any = pickle.loads(asked.get())
    except Exception as error:
        error.add_note("while the dataset was copied to a loader process; with `workers=0` it is read in the program's")
        tell(portable(error))
        return
    tell(None)
    while True:
        numbers = pickle.loads(asked.get())
        if isinstance(numbers, int):
            reader = replace(reader, key=numbers)
            continue
        try:
            tell({name: packed(tensor) for name, tensor in reader.rows(numbers).items()})
        except Exception as error:
            tell(portable(error))


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
