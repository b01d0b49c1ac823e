//! What a server says of itself, and the kernel of it: evictions, memory, time on a core. And what the kernel says of
//! the machine: time that its host took.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, anyhow};
use serde::Serialize;
use tenure_servers::Server;

/// Counters that only grow, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Keys evicted by the server.
    pub n_evicted_by_server: u64,
    /// Keys evicted by the module.
    pub n_evicted_by_module: u64,
    /// Keys that the module put to sleep, out of memory.
    pub n_slept: u64,
    /// Keys that it brought back.
    pub n_woken: u64,
    /// Reads that found their key asleep.
    pub n_sleeping_reads: u64,
    /// Commands that ran.
    pub n_commands: u64,
    /// Commands that a node of a cluster answered with the address of another.
    pub n_redirects: u64,
    /// Windows whose miss ratio the module predicted, and the sum of the absolute errors.
    pub n_predicted_windows: u64,
    /// See above; miss ratios.
    pub prediction_error_sum: f64,
    /// Time of the main thread on a core, in s.
    pub cpu_main_s: f64,
    /// Time of all threads on a core, in s.
    pub cpu_s: f64,
}

impl Counters {
    /// Reads them.
    ///
    /// # Errors
    /// When the server has ended.
    pub fn read(server: &Server) -> anyhow::Result<Counters> {
        let (stats, tenure, errors) = (server.info("stats")?, server.info("tenure")?, server.info("errorstats")?);
        let number = |info: &BTreeMap<String, String>, field: &str| -> Option<u64> { info.get(field)?.parse().ok() };
        // A server without the module, or a module without the feature, has done nothing of the kind.
        let of_module = |field: &str| number(&tenure, field).unwrap_or(0);
        let error_count = |name: &str| errors.get(name).and_then(|text| text.strip_prefix("count=")?.parse().ok());
        let n_redirects = ["errorstat_MOVED", "errorstat_ASK"].map(|name| error_count(name).unwrap_or(0));
        let (cpu_main_s, cpu_s) = cpu_s(server.pid())?;
        Ok(Counters {
            n_evicted_by_server: number(&stats, "evicted_keys").context("INFO has no evicted_keys")?,
            n_evicted_by_module: of_module("tenure_evictions"),
            n_slept: of_module("tenure_slept_keys"),
            n_woken: of_module("tenure_woken_keys"),
            n_sleeping_reads: of_module("tenure_sleeping_reads"),
            n_commands: number(&stats, "total_commands_processed").context("INFO has no total_commands_processed")?,
            n_redirects: n_redirects.iter().sum(),
            n_predicted_windows: of_module("tenure_predicted_windows"),
            prediction_error_sum: predicted_error_sum(&tenure),
            cpu_main_s,
            cpu_s,
        })
    }

    /// Of several servers together.
    ///
    /// # Errors
    /// As [`Counters::read`].
    pub fn read_all(servers: &[Server]) -> anyhow::Result<Counters> {
        servers.iter().try_fold(Counters::default(), |sum, server| Ok(sum.plus(Counters::read(server)?)))
    }

    /// What two servers, or one before and after a restart, did together.
    pub fn plus(self, other: Counters) -> Counters {
        Counters {
            n_evicted_by_server: self.n_evicted_by_server + other.n_evicted_by_server,
            n_evicted_by_module: self.n_evicted_by_module + other.n_evicted_by_module,
            n_slept: self.n_slept + other.n_slept,
            n_woken: self.n_woken + other.n_woken,
            n_sleeping_reads: self.n_sleeping_reads + other.n_sleeping_reads,
            n_commands: self.n_commands + other.n_commands,
            n_redirects: self.n_redirects + other.n_redirects,
            n_predicted_windows: self.n_predicted_windows + other.n_predicted_windows,
            prediction_error_sum: self.prediction_error_sum + other.prediction_error_sum,
            cpu_main_s: self.cpu_main_s + other.cpu_main_s,
            cpu_s: self.cpu_s + other.cpu_s,
        }
    }

    /// By how much the module's predictions of the miss ratio were off in the mean; `None` where it made none.
    pub fn prediction_error_mean(&self) -> Option<f64> {
        (self.n_predicted_windows > 0).then(|| self.prediction_error_sum / self.n_predicted_windows as f64)
    }

    /// What was added since `before`.
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            n_evicted_by_server: self.n_evicted_by_server.saturating_sub(before.n_evicted_by_server),
            n_evicted_by_module: self.n_evicted_by_module.saturating_sub(before.n_evicted_by_module),
            n_slept: self.n_slept.saturating_sub(before.n_slept),
            n_woken: self.n_woken.saturating_sub(before.n_woken),
            n_sleeping_reads: self.n_sleeping_reads.saturating_sub(before.n_sleeping_reads),
            n_commands: self.n_commands.saturating_sub(before.n_commands),
            n_redirects: self.n_redirects.saturating_sub(before.n_redirects),
            n_predicted_windows: self.n_predicted_windows.saturating_sub(before.n_predicted_windows),
            prediction_error_sum: self.prediction_error_sum - before.prediction_error_sum,
            cpu_main_s: self.cpu_main_s - before.cpu_main_s,
            cpu_s: self.cpu_s - before.cpu_s,
        }
    }
}

fn predicted_error_sum(tenure: &BTreeMap<String, String>) -> f64 {
    let number = |field: &str| tenure.get(field).and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
    number("tenure_predicted_windows") * number("tenure_miss_ratio_error_mean")
}

/// A server's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// What the server's allocator has handed out.
    pub used_bytes: u64,
    /// The largest value that had since the start.
    pub used_bytes_peak: u64,
    /// What the process occupies.
    pub resident_bytes: u64,
    /// What of the server's limit holds no keys because of the module: what it allocates itself, and what it keeps
    /// free.
    pub module_bytes: u64,
}

impl Memory {
    /// Reads it.
    ///
    /// # Errors
    /// When the server has ended.
    pub fn read(server: &Server) -> anyhow::Result<Memory> {
        let (info, tenure) = (server.info("memory")?, server.info("tenure")?);
        let of_module = |name: &str| tenure.get(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let field = |name: &str| -> anyhow::Result<u64> {
            info.get(name).and_then(|value| value.parse().ok()).ok_or_else(|| anyhow!("INFO has no {name}"))
        };
        Ok(Memory {
            used_bytes: field("used_memory")?,
            used_bytes_peak: field("used_memory_peak")?,
            resident_bytes: field("used_memory_rss")?,
            module_bytes: of_module("tenure_memory_bytes") + of_module("tenure_headroom_bytes"),
        })
    }
}

impl Memory {
    /// Of several servers together.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_all(servers: &[Server]) -> anyhow::Result<Memory> {
        servers.iter().try_fold(Memory::default(), |sum, server| {
            let memory = Memory::read(server)?;
            Ok(Memory {
                used_bytes: sum.used_bytes + memory.used_bytes,
                used_bytes_peak: sum.used_bytes_peak + memory.used_bytes_peak,
                resident_bytes: sum.resident_bytes + memory.resident_bytes,
                module_bytes: sum.module_bytes + memory.module_bytes,
            })
        })
    }
}

/// Time of all cores of this machine, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTime {
    all: u64,
    taken: u64,
}

impl CoreTime {
    /// Since the machine was started.
    ///
    /// # Errors
    /// When the kernel does not keep these figures.
    pub fn read() -> anyhow::Result<CoreTime> {
        CoreTime::parse(&fs::read_to_string("/proc/stat").context("/proc/stat")?)
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq and steal. What follows is counted in these.
    fn parse(text: &str) -> anyhow::Result<CoreTime> {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Option<Vec<u64>> = line.split_whitespace().skip(1).take(8).map(|ticks| ticks.parse().ok()).collect();
        match ticks.as_deref() {
            Some(&[.., taken]) if line.starts_with("cpu ") => Ok(CoreTime { all: ticks.iter().flatten().sum(), taken }),
            _ => Err(anyhow!("/proc/stat begins with '{line}'")),
        }
    }

    /// What has passed since `before`.
    pub fn since(self, before: CoreTime) -> CoreTime {
        CoreTime { all: self.all.saturating_sub(before.all), taken: self.taken.saturating_sub(before.taken) }
    }

    /// What has passed in two parts of a run.
    pub fn plus(self, other: CoreTime) -> CoreTime {
        CoreTime { all: self.all + other.all, taken: self.taken + other.taken }
    }

    /// The share, 0 to 1, that a virtual machine's host gave to others while something was to be done. Latencies of
    /// such a time are the host's.
    pub fn share_taken(self) -> f64 {
        self.taken as f64 / self.all.max(1) as f64
    }
}

/// Seconds that the main thread, and all threads, of process `pid` have spent on a core.
///
/// From `schedstat`, which counts ns; `stat` counts in ticks of 10 ms, too coarse for runs of a few seconds.
///
/// # Errors
/// When there is no such process, or the kernel does not keep these figures.
pub fn cpu_s(pid: u32) -> anyhow::Result<(f64, f64)> {
    let folder = format!("/proc/{pid}/task");
    let (mut main_s, mut all_s) = (0.0, 0.0);
    for thread in fs::read_dir(&folder).with_context(|| format!("{folder}: no such process"))? {
        let thread = thread?.path();
        // A thread may end between the listing and here.
        let Ok(text) = fs::read_to_string(thread.join("schedstat")) else { continue };
        let thread_s = parse_schedstat(&text)?;
        all_s += thread_s;
        if thread.ends_with(pid.to_string()) {
            main_s = thread_s;
        }
    }
    anyhow::ensure!(all_s > 0.0, "{folder}: this kernel keeps no schedstat");
    Ok((main_s, all_s))
}

/// Seconds that the calling thread has spent on a core.
///
/// # Errors
/// When the kernel does not keep this figure.
pub fn this_thread_s() -> anyhow::Result<f64> {
    parse_schedstat(&fs::read_to_string("/proc/thread-self/schedstat").context("this kernel keeps no schedstat")?)
}

/// Time on a core, in s: the first number, in ns.
fn parse_schedstat(text: &str) -> anyhow::Result<f64> {
    let ns: Option<f64> = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map(|ns| ns / 1e9).with_context(|| format!("schedstat says '{}'", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_host_takes_is_a_share_of_the_cores_time() {
        let at = |text: &str| CoreTime::parse(text).unwrap();
        let first = at("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n");
        let later = at("cpu  110 5 105 850 5 5 5 15 10 0\n");
        assert_eq!(later.since(first).share_taken(), 0.15);
        assert_eq!(later.since(first).plus(CoreTime { all: 50, taken: 15 }).share_taken(), 0.2);
        assert_eq!(first.since(first).share_taken(), 0.0);
        for text in ["", "cpu  1 2 x 4 5 6 7 8", "intr 1 2 3 4 5 6 7 8", "cpu"] {
            assert!(CoreTime::parse(text).unwrap_err().to_string().contains("begins with"), "{text}");
        }
        let (before, after) = (CoreTime::read().unwrap(), CoreTime::read().unwrap());
        assert!((0.0..=1.0).contains(&after.since(before).share_taken()));
    }

    /// Other tests' threads end meanwhile and take their time with them, so it is tried until none does.
    #[test]
    fn time_on_a_core_is_counted_finely() {
        let is_counted = || {
            let before = cpu_s(std::process::id()).unwrap();
            let worker = std::thread::spawn(|| {
                let end = Instant::now() + Duration::from_millis(30);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                (this_thread_s().unwrap(), cpu_s(std::process::id()).unwrap())
            });
            let (of_worker_s, after) = worker.join().unwrap();
            let (main_s, all_s) = (after.0 - before.0, after.1 - before.1);
            of_worker_s > 0.003 && all_s > 0.003 && main_s < all_s
        };
        tenure_servers::wait_for(Duration::from_secs(30), "30 ms of a thread to be counted", is_counted).unwrap();
        assert!(cpu_s(u32::MAX).is_err());
    }
}
