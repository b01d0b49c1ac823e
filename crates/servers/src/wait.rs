//! Waiting with a deadline, so that no test sleeps for a guessed time.

use crate::Result;
use anyhow::bail;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks: short beside what a server takes to start (about 10 ms).
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Longest wait for what a test needs. No test claims anything by it: it ends one that would wait for ever, also where
/// the machine does a fifth of what it does alone.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// A wait of so long is told of, so that who makes tests faster knows where to look.
const LONG: Duration = Duration::from_secs(2);

/// Looks at `condition` every 2 ms until it holds. A wait of over 2 s is told of on standard error, since
/// standard output may be somebody's JSON.
///
/// # Errors
/// When it does not hold by `deadline` (from now): the text is `what`, which should say what was waited for.
pub fn wait_for(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= deadline {
            bail!("waited {:.1} s in vain for: {what}", deadline.as_secs_f64());
        }
        thread::sleep(POLL_INTERVAL);
    }
    if start.elapsed() > LONG {
        eprintln!("waited {:.1} s for: {what}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_once_the_condition_holds() {
        let mut looks = 0;
        let waited = wait_for(Duration::from_secs(5), "three looks", || {
            looks += 1;
            looks == 3
        });
        assert!(waited.is_ok());
        assert_eq!(looks, 3);
    }

    #[test]
    fn says_what_it_waited_for() {
        let error = wait_for(Duration::from_millis(5), "the impossible", || false).unwrap_err();
        assert!(error.to_string().contains("the impossible"), "{error}");
    }
}
