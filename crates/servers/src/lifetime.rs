//! An end for servers that hang: who waits for a reply gets an error then, and the test that does fails.
//!
//! Reads with a timeout would do the same, but Linux ends those also where the machine or the process was stopped and
//! goes on (signal(7), "Interruption of system calls").

use std::process::Child;
use std::sync::{Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Processes, and when each is to end.
static BOUNDED: Mutex<Vec<(Instant, Weak<Mutex<Child>>)>> = Mutex::new(Vec::new());

/// Kills the process once it has run for so long. Where its server lets go of it before, nothing happens.
pub fn bound(process: Weak<Mutex<Child>>, lifetime: Duration) {
    static LOOKS: Once = Once::new();
    BOUNDED.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now() + lifetime, process));
    LOOKS.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(LOOK_EVERY);
                end_some();
            }
        });
    });
}

fn end_some() {
    let now = Instant::now();
    BOUNDED.lock().unwrap_or_else(PoisonError::into_inner).retain(|(end, process)| {
        let Some(process) = process.upgrade() else { return false };
        if *end <= now {
            // It fails only for a process that is gone already.
            let _ = process.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
        *end > now
    });
}
