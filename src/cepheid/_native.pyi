"""The native core (native/src/python.rs)."""

from collections.abc import Callable
from typing import TypedDict, type_check_only

class NativeError(RuntimeError):
    """A bug in the native core: the message of its panic, and the place in the Rust source."""

@type_check_only
class BuildInfo(TypedDict):
    version: str
    rustc: str
    profile: str
    target: str

@type_check_only
class Machine(TypedDict):
    """What this machine lets a real-time program do. None means that the kernel does not say."""

    cores_online: int
    cores_allowed: int
    memory_total_bytes: int
    memory_limit_bytes: int | None  # the cgroup's; None: no limit
    rt_runtime_us: int | None  # of each rt_period_us; -1: no limit
    rt_period_us: int | None
    can_sched_rr: bool
    sched_rr_error: str | None  # why not
    max_rr_priority: int | None
    can_set_timer_slack: bool
    memlock_limit_bytes: int | None  # None: no limit
    kernel_release: str
    preemption: str | None  # none, voluntary, lazy, full, rt, dynamic
    clock_source: str | None

def build_info() -> BuildInfo:
    """What built this module."""

def probe() -> Machine:
    """Asks the kernel. SCHED_RR and timer slack are tried on a thread of their own; the caller's stays as it is."""

def panic_for_test(message: str, callback: Callable[[], object] | None = None) -> None:
    """Panics in Rust, to prove that the caller gets a NativeError; after `callback`, to prove that guards nest."""
