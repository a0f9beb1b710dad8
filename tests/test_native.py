"""The native core from Python: a panic is an exception, and the probe tells the truth about this machine."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cepheid
from cepheid import _native
from cepheid._native import NativeError


def test_the_build_says_what_it_is() -> None:
    info = _native.build_info()
    assert info["version"] == cepheid.__version__
    assert info["rustc"].startswith("rustc 1.")
    assert info["profile"] == "release"
    assert "linux" in info["target"]


def test_a_panic_is_an_exception_with_its_place() -> None:
    with pytest.raises(NativeError, match=r"^panic in the native core: it broke \(at src/python\.rs:\d+\)$"):
        _native.panic_for_test("it broke")
    assert _native.build_info()["version"], "the core works on after a panic"


def test_a_panic_is_what_a_user_would_catch() -> None:
    with pytest.raises(RuntimeError, match="it broke"):
        _native.panic_for_test("it broke")
    assert NativeError.__module__ == "cepheid._native"


@pytest.mark.parametrize("message", ["", "a {brace} and 100%", "μικρό κουτί ⚡", "two\nlines", "x" * 100_000])
def test_any_message_arrives_whole(message: str) -> None:
    with pytest.raises(NativeError) as caught:
        _native.panic_for_test(message)
    assert f": {message} (at " in str(caught.value)


def test_a_panic_in_another_thread_stays_there() -> None:
    def panic(number: int) -> str:
        with pytest.raises(NativeError) as caught:
            _native.panic_for_test(f"thread {number}")
        return str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        messages = list(pool.map(panic, range(200)))
    assert all(f"thread {number} (at" in message for number, message in enumerate(messages))


def test_guards_nest() -> None:
    def inner() -> None:
        with pytest.raises(NativeError, match="inner"):
            _native.panic_for_test("inner")

    with pytest.raises(NativeError, match="outer"):
        _native.panic_for_test("outer", inner)


def test_an_inner_panic_that_nobody_catches_arrives_once() -> None:
    with pytest.raises(NativeError, match=r"core: inner \(at"):
        _native.panic_for_test("outer", lambda: _native.panic_for_test("inner"))


def test_an_exception_of_a_callback_passes_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        _native.panic_for_test("outer", lambda: 1 // 0)


def test_the_process_lives_and_stderr_stays_clean() -> None:
    code = """
import threading
from cepheid import _native

def panic():
    try:
        _native.panic_for_test("quiet")
    except _native.NativeError:
        print("caught")

panic()
thread = threading.Thread(target=panic)
thread.start()
thread.join()
print("alive")
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == ["caught", "caught", "alive"]
    assert answer.stderr == ""


def test_the_probe_is_sane() -> None:
    machine = _native.probe()
    assert 1 <= machine["cores_allowed"] <= machine["cores_online"]
    assert machine["cores_allowed"] == len(os.sched_getaffinity(0))
    assert machine["memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine["memory_limit_bytes"] is None or machine["memory_limit_bytes"] > 0
    assert machine["kernel_release"] == os.uname().release
    assert machine["can_sched_rr"] == (machine["sched_rr_error"] is None) == (machine["max_rr_priority"] is not None)
    assert machine["max_rr_priority"] is None or 1 <= machine["max_rr_priority"] <= 99
    assert machine["preemption"] in {None, "none", "voluntary", "lazy", "full", "rt", "dynamic"}
    throttle = Path("/proc/sys/kernel/sched_rt_runtime_us")
    assert machine["rt_runtime_us"] == (int(throttle.read_text()) if throttle.exists() else None)


def test_the_probe_follows_the_affinity_of_its_caller() -> None:
    answers: list[int] = []

    def on_one_core() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # 0 is the calling thread
        answers.append(_native.probe()["cores_allowed"])

    thread = threading.Thread(target=on_one_core)
    thread.start()
    thread.join()
    assert answers == [1]


def test_the_probe_leaves_its_caller_alone() -> None:
    slack = Path("/proc/self/timerslack_ns")
    before = (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, slack.read_text())
    _native.probe()
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, slack.read_text()) == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give the privilege up")
def test_without_the_privilege_the_probe_says_why() -> None:
    code = """
import os
os.setgid(65534), os.setuid(65534)
from cepheid import _native
machine = _native.probe()
assert machine["can_sched_rr"] is False, machine
assert machine["max_rr_priority"] is None
print(machine["sched_rr_error"])
"""
    environ = dict(os.environ, PYTHONPATH="")
    prepared = "from cepheid import _native\n"  # while root: the folder of .venv may be closed to others
    answer = subprocess.run(
        [sys.executable, "-c", prepared + code], capture_output=True, text=True, check=True, timeout=60, env=environ
    )
    assert "Operation not permitted" in answer.stdout
