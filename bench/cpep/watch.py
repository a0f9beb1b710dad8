"""What /proc says of processes: CPU, memory, context switches and migrations of all their threads."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Seen:
    """Of one process, since it began: CPU seconds, switches and migrations; memory now, in MB."""

    cpu: float = 0.0
    switches: int = 0
    migrations: int = 0
    vm_size: float = 0.0
    vm_rss: float = 0.0
    threads: int = 0


def look(pid: int, *, threads: bool = False) -> Seen:
    """What is known of a process; with `threads` also what its threads did, which takes longer to read."""
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    status = (folder / "status").read_text()

    def megabytes(name: str) -> float:
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0

    seen = Seen(
        (int(fields[11]) + int(fields[12])) / _TICK,
        vm_size=megabytes("VmSize"),
        vm_rss=megabytes("VmRSS"),
        threads=int(fields[17]),
    )
    if threads:
        for task in (folder / "task").iterdir():
            said = (task / "status").read_text()
            seen.switches += sum(int(n) for n in re.findall(r"voluntary_ctxt_switches:\s+(\d+)", said))
            moved = re.search(r"nr_migrations\s*:\s*(\d+)", (task / "sched").read_text())
            seen.migrations += int(moved[1]) if moved else 0
    return seen


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


@dataclass
class Host:
    """The whole machine, since it began: seconds that its cores had nothing to do, or were another's; context switches.

    What they had to do is not to be read: the kernel finds that by looking at every tick, and a load with a period of a
    few ticks is in step with it. Idle time is by the clock.
    """

    idle: float = field(default=0.0)
    stolen: float = field(default=0.0)
    switches: int = field(default=0)


def look_at_host() -> Host:
    """What the machine has done."""
    host = Host()
    for line in Path("/proc/stat").read_text().splitlines():
        word, *numbers = line.split()
        if word == "cpu":
            _user, _nice, _system, idle, wait, _interrupts, _soft, stolen = (int(n) for n in numbers[:8])
            host.idle, host.stolen = (idle + wait) / _TICK, stolen / _TICK
        elif word == "ctxt":
            host.switches = int(numbers[0])
    return host
