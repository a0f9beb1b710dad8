"""`cepheid doctor`: what this machine can and cannot do, and how to mend it."""

from __future__ import annotations

import gzip
import json
import platform
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from cepheid._native import build_info, probe
from cepheid.spark.jars import DELTA, DELTA_VERSION, jars_folder
from cepheid.spark.java import JavaMissing, find_java

if TYPE_CHECKING:
    from cepheid._native import Machine

#: The pyspark that the pinned jars fit.
SPARK_VERSION: Final = "4.2"
_GIB: Final = 2**30
_KERNEL_CONFIG: Final = Path("/proc/config.gz")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `ok`, `limited` (works, but not at its best) or `missing` (something cannot run)."""

    subject: str
    state: Literal["ok", "limited", "missing"]
    fact: str
    mend: str | None = None


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def command(ctx: click.Context, form: str) -> None:
    """Say what this machine can and cannot do, and how to mend it. Exit 1 if something necessary is missing.

    \b
    Example:
      cepheid doctor
    """
    findings = list(examine(probe()))
    if form == "json":
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        color = sys.stdout.isatty()
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            click.echo(_line(finding, width, color))
    ctx.exit(1 if any(finding.state == "missing" for finding in findings) else 0)


def _line(finding: Finding, width: int, color: bool) -> str:
    tone = {"ok": "green", "limited": "yellow", "missing": "red"}[finding.state]
    state = click.style(finding.state.ljust(7), fg=tone) if color else finding.state.ljust(7)
    lines = [f"{state}  {finding.subject.ljust(width)}  {finding.fact}"]
    if finding.mend:
        indent = " " * (width + 11)
        lines += [
            f"{indent}{'mend: ' if i == 0 else '      '}{part}" for i, part in enumerate(finding.mend.splitlines())
        ]
    return "\n".join(lines)


def examine(machine: Machine) -> Iterator[Finding]:
    """Everything there is to say about a machine."""
    yield Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")
    built = build_info()
    yield Finding("native core", "ok", f"{built['version']}, {built['profile']}, {built['rustc'].split(' (')[0]}")
    for look in (_java, _spark, _jars):
        yield look()
    for weigh in (_cores, _memory, _real_time, _throttling, _timers, _memory_lock, _kernel):
        yield weigh(machine)


def _java() -> Finding:
    try:
        java = find_java()
    except JavaMissing as missing:
        first, *rest = str(missing).splitlines()
        return Finding("Java", "missing", first, "\n".join(line.strip() for line in rest))
    return Finding("Java", "ok", f"{java.version} at {java.path}")


def _spark() -> Finding:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Finding("Spark", "missing", "pyspark is not installed", "pip install cepheid")
    if not version.startswith(SPARK_VERSION + "."):
        fact = f"pyspark {version}; Delta {DELTA_VERSION} fits {SPARK_VERSION} only"
        return Finding("Spark", "missing", fact, f"pip install 'pyspark=={SPARK_VERSION}.*'")
    return Finding("Spark", "ok", f"pyspark {version}")


def _jars() -> Finding:
    folder = jars_folder()
    absent = [jar.file_name for jar in DELTA if not (folder / jar.file_name).is_file()]
    if absent:
        fact = f"Delta {DELTA_VERSION} is not in {folder} yet; the first start of Spark fetches it"
        return Finding("Spark jars", "limited", fact, "fetch it now: python -m cepheid.spark.jars")
    return Finding("Spark jars", "ok", f"Delta {DELTA_VERSION} in {folder}")


def _cores(machine: Machine) -> Finding:
    allowed, online = machine["cores_allowed"], machine["cores_online"]
    fact = f"{allowed}" + (f" of {online}" if allowed < online else "")
    if allowed < 2:
        return Finding(
            "cores", "limited", f"{fact}: intake, service and Spark share it", "use a machine with 2 or more"
        )
    return Finding("cores", "ok", fact)


def _memory(machine: Machine) -> Finding:
    total = min(machine["memory_total_bytes"], machine["memory_limit_bytes"] or machine["memory_total_bytes"])
    fact = f"{total / _GIB:.1f} GiB" + (" (limit of this group)" if machine["memory_limit_bytes"] else "")
    if total < 2 * _GIB:
        return Finding(
            "memory", "limited", f"{fact}; Spark wants 2 GiB or more", "use a machine with more, or a cluster"
        )
    return Finding("memory", "ok", fact)


def _real_time(machine: Machine) -> Finding:
    if machine["can_sched_rr"]:
        return Finding("real-time levels", "ok", f"SCHED_RR up to {machine['max_rr_priority']}")
    fact = f"no SCHED_RR ({machine['sched_rr_error']}): levels of the service are nice levels, not preemption"
    return Finding(
        "real-time levels", "limited", fact, "run as root, or: sudo setcap cap_sys_nice+ep PYTHON, or set ulimit -r 99"
    )


def _throttling(machine: Machine) -> Finding:
    runtime, period = machine["rt_runtime_us"], machine["rt_period_us"]
    if runtime is None or period is None:
        return Finding("real-time throttling", "ok", "the kernel does not say")
    if runtime < 0 or runtime >= period:
        return Finding("real-time throttling", "ok", "off")
    stopped = (period - runtime) / 1000
    fact = (
        f"real-time threads may run {runtime / period:.0%} of the time; one that never rests is stopped "
        f"{stopped:.0f} ms every {period / 1e6:g} s"
    )
    mend = (
        "needed only where real-time levels can fill every core: sudo sysctl -w kernel.sched_rt_runtime_us=-1\n"
        "(a runaway thread then takes the machine with it)"
    )
    return Finding("real-time throttling", "limited", fact, mend)


def _timers(machine: Machine) -> Finding:
    if machine["can_set_timer_slack"]:
        return Finding("timers", "ok", f"slack can be set to 1 ns; clock {machine['clock_source'] or 'unknown'}")
    return Finding("timers", "limited", "timer slack cannot be set: wake-ups may come 50 us late")


def _memory_lock(machine: Machine) -> Finding:
    limit = machine["memlock_limit_bytes"]
    if limit is None or limit >= 64 * 2**20:
        return Finding("locked memory", "ok", "no limit" if limit is None else f"up to {limit / 2**20:.0f} MiB")
    return Finding(
        "locked memory",
        "limited",
        f"up to {limit / 2**20:.0f} MiB: event rings beyond that may be paged out",
        "ulimit -l unlimited, or memlock in /etc/security/limits.conf",
    )


def _kernel(machine: Machine) -> Finding:
    preemption = machine["preemption"]
    if preemption == "dynamic":
        preemption = _built_in(_KERNEL_CONFIG) or preemption
    fact = f"{machine['kernel_release']}, preemption {preemption or 'unknown'}"
    if machine["can_sched_rr"] and preemption in ("none", "voluntary"):
        waits = "a real-time level may wait milliseconds for a system call of another program"
        mend = "start it with preempt=full on its command line, if `uname -v` says PREEMPT_DYNAMIC"
        return Finding("kernel", "limited", f"{fact}: {waits}", mend)
    return Finding("kernel", "ok", fact)


def _built_in(config: Path) -> str | None:
    """What a kernel that can choose its preemption was built to choose, if it shows how it was built."""
    try:
        lines = gzip.decompress(config.read_bytes()).decode().splitlines()
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    names = {"CONFIG_PREEMPT": "full"} | {
        f"CONFIG_PREEMPT_{name.upper()}": name for name in ("none", "voluntary", "lazy")
    }
    return next((name for option, name in names.items() if f"{option}=y" in lines), None)
