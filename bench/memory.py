"""Memory of a process and of all that it started, at its peak.

`Memory.sample(pid)` is called now and then; `total` and `largest_worker` are the peaks so far. What counts is what the
processes took: anonymous pages, and shared ones, which the processes that share them divide between them. Files that
they map (libraries, and the bench's data where a contestant maps it) don't count.
"""

from __future__ import annotations

from pathlib import Path

FIELDS = ("Pss_Anon:", "Pss_Shmem:")


class Memory:
    """The peaks, in bytes."""

    def __init__(self) -> None:
        self.total = 0
        self.each: dict[int, int] = {}

    def sample(self, root: int) -> None:
        """Looks at a process and its descendants."""
        import psutil

        try:
            process = psutil.Process(root)
            tree = [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        total = 0
        for member in tree:
            taken = taken_by(member)
            total += taken
            self.each[member.pid] = max(self.each.get(member.pid, 0), taken)
        self.total = max(self.total, total)

    def largest_worker(self, controller: int | None) -> int:
        """The most that one process took, the controller aside."""
        return max((taken for pid, taken in self.each.items() if pid != controller), default=0)


def taken_by(process: object) -> int:
    """The bytes of one process; 0 when it has just ended."""
    import psutil

    assert isinstance(process, psutil.Process)
    try:
        return rollup(Path(f"/proc/{process.pid}/smaps_rollup").read_text())
    except FileNotFoundError:  # not Linux, or it ended
        try:
            return int(process.memory_full_info().uss)
        except psutil.NoSuchProcess:
            return 0
    except ProcessLookupError:
        return 0


def rollup(text: str) -> int:
    """The bytes that the kernel's summary of a process says."""
    lines = (line.split() for line in text.splitlines())
    return 1024 * sum(int(words[1]) for words in lines if words and words[0] in FIELDS)
