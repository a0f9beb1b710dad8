//! What this machine lets a real-time program do: cores, memory, SCHED_RR, timers. Linux only; asks, never changes.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::{fs, io, mem, thread};

/// The answers of one probe. `None` means that the kernel does not say (or, for limits, that there is none).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Cores the kernel has online.
    pub cores_online: usize,
    /// Cores this process may run on (its affinity mask).
    pub cores_allowed: usize,
    /// Memory of the machine.
    pub memory_total_bytes: u64,
    /// The tightest cgroup v2 limit above this process.
    pub memory_limit_bytes: Option<u64>,
    /// How long real-time threads may run in each `rt_period_us`; -1 is without limit.
    pub rt_runtime_us: Option<i64>,
    /// The period of the real-time throttle.
    pub rt_period_us: Option<i64>,
    /// Whether a thread of this process could become SCHED_RR: the highest priority it got, or why not.
    pub sched_rr: Result<i32, String>,
    /// Whether a thread could set its timer slack to 1 ns.
    pub can_set_timer_slack: bool,
    /// How much memory may be locked; `None` is without limit.
    pub memlock_limit_bytes: Option<u64>,
    /// As `uname -r` says it.
    pub kernel_release: String,
    /// none, voluntary, lazy, full or rt; dynamic when the kernel can choose but does not show what it chose.
    pub preemption: Option<String>,
    /// What the kernel reads time from: tsc is fast, hpet and acpi_pm cost a microsecond a look.
    pub clock_source: Option<String>,
}

/// Asks the kernel. The trials of SCHED_RR and timer slack run on a thread of their own, which then ends.
pub fn probe() -> Machine {
    let (sched_rr, can_set_timer_slack) = try_real_time();
    let (kernel_release, kernel_version) = uname();
    Machine {
        cores_online: cores_online(),
        cores_allowed: cores_allowed(),
        memory_total_bytes: sysconf(libc::_SC_PHYS_PAGES) * sysconf(libc::_SC_PAGESIZE),
        memory_limit_bytes: memory_limit(
            Path::new("/sys/fs/cgroup"),
            &read("/proc/self/cgroup").unwrap_or_default(),
        ),
        rt_runtime_us: number("/proc/sys/kernel/sched_rt_runtime_us"),
        rt_period_us: number("/proc/sys/kernel/sched_rt_period_us"),
        sched_rr,
        can_set_timer_slack,
        memlock_limit_bytes: memlock_limit(),
        preemption: preemption(
            read("/sys/kernel/realtime").as_deref(),
            read("/sys/kernel/debug/sched/preempt").as_deref(),
            read("/proc/cmdline").as_deref(),
            &kernel_version,
            read(format!("/boot/config-{kernel_release}")).as_deref(),
        ),
        kernel_release,
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &str) -> Option<i64> {
    read(path)?.parse().ok()
}

/// Only for names that Linux always knows; 0 is what an unknown one would give.
fn sysconf(name: libc::c_int) -> u64 {
    // SAFETY: sysconf takes any number and touches no memory of ours.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

fn cores_online() -> usize {
    usize::try_from(sysconf(libc::_SC_NPROCESSORS_ONLN)).unwrap_or(1).max(1)
}

fn cores_allowed() -> usize {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most the size given into the set that we own; 0 is the calling thread.
    let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if status != 0 {
        return cores_online(); // more than 1,024 cores do not fit into the set
    }
    // SAFETY: only reads the set.
    usize::try_from(unsafe { libc::CPU_COUNT(&set) }).unwrap_or(1)
}

fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit fills the struct that we own.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Release and version, as `uname -r` and `uname -v` say them.
fn uname() -> (String, String) {
    // SAFETY: an all-zero utsname holds empty strings.
    let mut names: libc::utsname = unsafe { mem::zeroed() };
    // SAFETY: uname fills the struct that we own.
    unsafe { libc::uname(&raw mut names) };
    // SAFETY: the fields end with a zero byte, both when uname filled them and when it did not.
    let text = |field: &[libc::c_char]| unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned();
    (text(&names.release), text(&names.version))
}

/// The smallest memory.max on the way from this process's cgroup to the root.
fn memory_limit(root: &Path, membership: &str) -> Option<u64> {
    // A line `0::/some/path` is the unified (v2) hierarchy; others belong to v1.
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut folder: PathBuf = root.join(path);
    let mut smallest: Option<u64> = None;
    while folder.starts_with(root) {
        // "max" does not parse, and is no limit
        let limit = read(folder.join("memory.max")).and_then(|text| text.parse().ok());
        smallest = [smallest, limit].into_iter().flatten().min();
        folder.pop();
    }
    smallest
}

/// The kernel's preemption model, from the most to the least certain source.
fn preemption(
    realtime: Option<&str>,
    debug: Option<&str>,
    started: Option<&str>,
    version: &str,
    config: Option<&str>,
) -> Option<String> {
    let words: Vec<&str> = version.split_whitespace().collect();
    if realtime == Some("1") || words.contains(&"PREEMPT_RT") {
        return Some("rt".to_owned());
    }
    // debugfs says for example "none voluntary (full)"
    if let Some(chosen) = debug.and_then(|text| text.split_once('(')?.1.split_once(')')) {
        return Some(chosen.0.to_owned());
    }
    if words.contains(&"PREEMPT") {
        return Some("full".to_owned());
    }
    let is_dynamic = words.contains(&"PREEMPT_DYNAMIC");
    if is_dynamic
        && let Some(chosen) = started.and_then(|text| {
            let options = text.split_whitespace();
            options.filter_map(|option| option.strip_prefix("preempt=")).next_back()
        })
        && ["none", "voluntary", "lazy", "full"].contains(&chosen)
    {
        return Some(chosen.to_owned());
    }
    let built = config.and_then(|config| {
        [
            ("CONFIG_PREEMPT_NONE=y", "none"),
            ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
            ("CONFIG_PREEMPT_LAZY=y", "lazy"),
            ("CONFIG_PREEMPT=y", "full"),
        ]
        .into_iter()
        .find(|(option, _)| config.lines().any(|line| line == *option))
    });
    built
        .map(|(_, name)| name.to_owned())
        .or(is_dynamic.then(|| "dynamic".to_owned()))
}

/// Tries timer slack and SCHED_RR for real, as only that accounts for capabilities, limits and cgroups together.
fn try_real_time() -> (Result<i32, String>, bool) {
    let trial = thread::Builder::new().name("cepheid-probe".into()).spawn(|| {
        // Slack first: the kernel ignores it once the thread is real-time.
        let slack = try_timer_slack();
        (try_sched_rr(), slack)
    });
    match trial.map(thread::JoinHandle::join) {
        Ok(Ok(answers)) => answers,
        Ok(Err(_)) => (Err("the probe's thread panicked".to_owned()), false),
        Err(error) => (Err(format!("cannot start a thread: {error}")), false),
    }
}

fn try_timer_slack() -> bool {
    // SAFETY: both calls take and return numbers and concern the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) == 0 && libc::prctl(libc::PR_GET_TIMERSLACK) == 1 }
}

/// The highest priority that the calling thread can have under SCHED_RR. Leaves the thread at it.
fn try_sched_rr() -> Result<i32, String> {
    // SAFETY: both calls take and return numbers.
    let (lowest, highest) = unsafe {
        (
            libc::sched_get_priority_min(libc::SCHED_RR),
            libc::sched_get_priority_max(libc::SCHED_RR),
        )
    };
    let mut error = libc::EINVAL;
    // RLIMIT_RTPRIO may allow low priorities only, so go down.
    for priority in (lowest..=highest).rev() {
        let parameters = libc::sched_param {
            sched_priority: priority,
        };
        // SAFETY: pthread_self is always a live thread, and the parameters outlive the call.
        error = unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_RR, &raw const parameters) };
        if error == 0 {
            return Ok(priority);
        }
    }
    Err(io::Error::from_raw_os_error(error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of the calling thread.
    fn policy() -> i32 {
        // SAFETY: takes and returns numbers; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn the_answers_are_sane() {
        let machine = probe();
        assert!(machine.cores_online >= 1);
        assert!(
            (1..=machine.cores_online).contains(&machine.cores_allowed),
            "{machine:?}"
        );
        assert!(machine.memory_total_bytes > 1 << 20);
        assert!(!machine.kernel_release.is_empty());
        match machine.sched_rr {
            Ok(priority) => assert!((1..=99).contains(&priority)),
            Err(reason) => assert!(!reason.is_empty()),
        }
    }

    #[test]
    fn the_caller_keeps_its_policy_and_slack() {
        // SAFETY: returns a number.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        let before = (policy(), slack());
        probe();
        assert_eq!((policy(), slack()), before);
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let root = std::env::temp_dir().join(format!("cepheid-cgroup-{}", std::process::id()));
        let inner = root.join("pod/container");
        fs::create_dir_all(&inner).unwrap();
        assert_eq!(memory_limit(&root, "0::/pod/container"), None);
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(memory_limit(&root, "0::/pod/container"), None);
        fs::write(root.join("pod/memory.max"), "4096\n").unwrap();
        assert_eq!(
            memory_limit(&root, "4:memory:/elsewhere\n0::/pod/container\n"),
            Some(4096)
        );
        fs::write(inner.join("memory.max"), "1024\n").unwrap();
        assert_eq!(memory_limit(&root, "0::/pod/container"), Some(1024));
        assert_eq!(memory_limit(&root, "0::/"), None);
        assert_eq!(memory_limit(&root, "4:memory:/v1/only"), None);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn preemption_is_read_from_the_most_certain_source() {
        let asked = |realtime, debug, started, version, config| preemption(realtime, debug, started, version, config);
        let model = |realtime, debug, version, config| asked(realtime, debug, None, version, config);
        assert_eq!(model(Some("1"), Some("(none)"), "#1 SMP", None).as_deref(), Some("rt"));
        assert_eq!(model(None, None, "#1 SMP PREEMPT_RT Mon", None).as_deref(), Some("rt"));
        let dynamic = "#1 SMP PREEMPT_DYNAMIC";
        assert_eq!(
            model(None, Some("none voluntary (full)"), dynamic, None).as_deref(),
            Some("full")
        );
        let started = |options| asked(None, None, Some(options), dynamic, Some("CONFIG_PREEMPT_NONE=y"));
        assert_eq!(started("quiet preempt=full").as_deref(), Some("full"));
        assert_eq!(started("preempt=full preempt=voluntary").as_deref(), Some("voluntary"));
        assert_eq!(started("preempt=maybe").as_deref(), Some("none"));
        assert_eq!(model(None, None, dynamic, None).as_deref(), Some("dynamic"));
        assert_eq!(model(None, None, "#1 SMP PREEMPT Mon", None).as_deref(), Some("full"));
        assert_eq!(
            model(None, None, dynamic, Some("CONFIG_PREEMPT=y")).as_deref(),
            Some("full")
        );
        assert_eq!(
            model(None, None, "#1 SMP", Some("A=y\nCONFIG_PREEMPT_NONE=y")).as_deref(),
            Some("none")
        );
        assert_eq!(model(None, None, "#1 SMP", None), None);
    }
}
