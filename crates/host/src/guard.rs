//! What keeps a fault inside a module from reaching the server: the guard around every callback, and the cell that
//! holds the module's state.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::MainThread;

static PANICS: AtomicU64 = AtomicU64::new(0);
static OFF: AtomicBool = AtomicBool::new(false);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Runs one callback. Does nothing (and returns `None`) once a callback has panicked: state that a panic left half
/// done is not used again until [`turn_on`].
#[inline]
pub fn guarded<R>(callback: &'static str, body: impl FnOnce() -> R) -> Option<R> {
    if OFF.load(Ordering::Relaxed) {
        return None;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(_) => {
            OFF.store(true, Ordering::Relaxed);
            note_panic(callback);
            None
        }
    }
}

/// As [`guarded`], for what runs on after a fault too: a panic is counted and nothing is turned off.
pub fn counted<R>(callback: &'static str, body: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|_| note_panic(callback)).ok()
}

#[cold]
fn note_panic(callback: &'static str) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut last) = LAST_PANIC.lock() {
        *last = format!("in {callback}: {last}");
    }
}

/// Keeps a panic's message and place for INFO and the log, in place of printing it to the server's standard error.
pub fn catch_panic_messages() {
    std::panic::set_hook(Box::new(|info| {
        let text = in_one_line(text_of(info.payload()));
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = format!("{text}{place}");
        }
    }));
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// What breaks a line would break INFO, and one of the log into two: an assertion says what was left and right so.
fn in_one_line(text: &str) -> String {
    text.split(|c: char| c.is_control()).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Lets go of the hook, whose code is about to be unloaded.
pub fn release_panic_messages() {
    drop(std::panic::take_hook());
}

/// Panics caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Counts a panic that was caught elsewhere (the worker's): callbacks go on.
pub fn count_panic(place: &'static str) {
    note_panic(place);
}

/// The last panic's callback, message and place; empty where there was none.
pub fn last_panic() -> String {
    LAST_PANIC.lock().map(|text| text.clone()).unwrap_or_default()
}

/// True after a callback panicked: every callback returns at once.
#[inline]
pub fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

/// Forgets what happened before: the library may stay in memory between an unload and the next load.
pub fn start_over() {
    turn_on();
    PANICS.store(0, Ordering::Relaxed);
    if let Ok(mut last) = LAST_PANIC.lock() {
        last.clear();
    }
}

/// Lets callbacks run again, after the state they work on was made anew.
pub fn turn_on() {
    OFF.store(false, Ordering::Relaxed);
}

/// State that only the main thread touches.
pub struct MainCell<T>(RefCell<Option<T>>);

// SAFETY: `with` and `set` ask for a `MainThread` proof, which exists on one thread only.
unsafe impl<T> Sync for MainCell<T> {}

impl<T> MainCell<T> {
    /// A cell without a value.
    pub const fn empty() -> Self {
        MainCell(RefCell::new(None))
    }

    /// Works on the value. `None` where there is none, and where it is at work already: the server calls back into a
    /// module that changes keys, and such a nested callback has nothing to add.
    #[inline]
    pub fn with<R>(&self, _proof: &impl MainThread, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok()?.as_mut().map(body)
    }

    /// Replaces the value and returns the one before. Where the value is at work, nothing changes and the new one is
    /// dropped.
    pub fn set(&self, _proof: &impl MainThread, value: Option<T>) -> Option<T> {
        match self.0.try_borrow_mut() {
            Ok(mut held) => std::mem::replace(&mut *held, value),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Proof;
    // SAFETY: each test has a cell of its own.
    unsafe impl MainThread for Proof {}

    #[test]
    fn a_panic_is_counted_and_turns_callbacks_off_until_they_are_turned_on() {
        let before = panics();
        assert_eq!(guarded("test", || panic!("on purpose")), None::<()>);
        assert_eq!((panics(), is_off()), (before + 1, true));
        assert_eq!(guarded("test", || 1), None);
        turn_on();
        assert_eq!(guarded("test", || 1), Some(1));
        assert!(last_panic().starts_with("in test: "), "{}", last_panic());
        // What runs on after a fault counts its panics and turns nothing off.
        assert_eq!(counted("test", || panic!("on purpose")), None::<()>);
        assert_eq!((panics(), is_off()), (before + 2, false));
    }

    #[test]
    fn a_message_of_several_lines_is_one() {
        let text = "assertion `left == right` failed: why\n  left: 1\r\n right: 2\n";
        assert_eq!(in_one_line(text), "assertion `left == right` failed: why left: 1 right: 2");
        assert_eq!(in_one_line("plain"), "plain");
    }

    #[test]
    fn a_nested_callback_finds_the_cell_taken() {
        let cell = MainCell::empty();
        cell.set(&Proof, Some(1));
        let nested = cell.with(&Proof, |_| cell.with(&Proof, |n| *n));
        assert_eq!(nested, Some(None));
        assert_eq!(cell.with(&Proof, |n| *n), Some(1));
    }
}
