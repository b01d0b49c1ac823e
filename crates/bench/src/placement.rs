//! Where threads run and how exactly they wake: cores, timer slack, priority.
//!
//! Waking a thread on another core costs tens of µs on a virtual machine, so a comparison pins both ends and says
//! where. The kernel's default timer slack (50 µs) would be added to every delay; here it is set to 1 ns.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

/// The last stretch before a deadline is not slept but spun: about what a wake-up comes late.
const SPIN: Duration = Duration::from_micros(12);

/// Which cores the two ends run on; `None` leaves it to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The server's core, with all its threads.
    pub server: Option<usize>,
    /// The core of the clients and of the backends.
    pub clients: Option<usize>,
}

impl Placement {
    /// Server on core 0 and clients on core 1; no pinning on a machine with one core.
    pub fn default_for_this_machine() -> Self {
        match thread::available_parallelism() {
            Ok(n) if n.get() > 1 => Placement { server: Some(0), clients: Some(1) },
            _ => Placement { server: None, clients: None },
        }
    }

    /// Pins this thread, and whatever it starts from now on, to the clients' core.
    ///
    /// # Errors
    /// When there is no such core, or this process may not use it.
    pub fn pin_this_thread(&self) -> anyhow::Result<()> {
        let Some(core) = self.clients else { return Ok(()) };
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores).with_context(|| format!("core {core} cannot be used"))
    }
}

impl FromStr for Placement {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "none" {
            return Ok(Placement { server: None, clients: None });
        }
        let cores = text.split_once(',').map(|(server, clients)| (server.trim().parse(), clients.trim().parse()));
        match cores {
            Some((Ok(server), Ok(clients))) if server < CpuSet::MAX_CPU && clients < CpuSet::MAX_CPU => {
                Ok(Placement { server: Some(server), clients: Some(clients) })
            }
            _ => bail!("'{text}' is neither SERVER,CLIENTS (two cores, as in 0,1) nor none"),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.server, self.clients) {
            (Some(server), Some(clients)) => {
                write!(f, "server on core {server}, clients and backends on core {clients}")
            }
            _ => f.write_str("not pinned"),
        }
    }
}

/// Lets timers of this thread, and of threads it starts, fire when they are due instead of up to 50 µs later.
pub fn wake_exactly() {
    // A kernel that refuses has coarser delays; the benchmark measures how exact they are.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Lets this thread run before others of its core, as far as this user may: for a probe that must not wait for the
/// load.
pub fn prefer_this_thread() {
    // Without the right to do so it competes like any other thread.
    let _ = setpriority_process(None, -20);
}

/// Waits until `deadline`: sleeps, then spins for the last 12 µs, letting others run meanwhile.
pub fn wait_until(deadline: Instant) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SPIN) {
            Some(sleep) if !sleep.is_zero() => thread::sleep(sleep),
            _ => thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_read_and_bad_ones_refused() {
        assert_eq!("2,3".parse::<Placement>().unwrap(), Placement { server: Some(2), clients: Some(3) });
        assert_eq!("none".parse::<Placement>().unwrap().to_string(), "not pinned");
        for text in ["0", "a,b", "0,-1", "0,99999", ""] {
            assert!(text.parse::<Placement>().unwrap_err().to_string().contains("SERVER,CLIENTS"), "{text}");
        }
    }

    #[test]
    fn waiting_is_never_too_short_and_exact_on_an_idle_core() {
        wake_exactly();
        for us in [1, 50, 400] {
            let wanted = Duration::from_micros(us);
            let waits = (0..101).map(|_| {
                let start = Instant::now();
                wait_until(start + wanted);
                start.elapsed()
            });
            // The shortest, since a busy machine delays most of them.
            let shortest = waits.min().unwrap();
            assert!(shortest >= wanted && shortest < wanted + Duration::from_micros(60), "{us} µs took {shortest:?}");
        }
    }
}
