//! What clients are told of that is done to the server, so that they know what is left of their keys.
//!
//! Clients take a command's time in the course one by one ([`Course::enter`]); who changes the server as a whole waits
//! for them to be outside ([`Course::pause`]). So what is told is true of every command before it and of none after.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use redis::ConnectionInfo;

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The server has saved, so that it may go back to what it has now.
    Saved,
    /// A command that deletes all keys was sent at that time, and was answered.
    Flushed(Instant),
    /// The server was started anew, or another has taken its place.
    Restarted(Left),
    /// It is there from now on.
    Moved(Box<ConnectionInfo>),
    /// Slots of a cluster begin to move, at this time.
    SlotsMove(Instant),
    /// They have moved, within this time.
    SlotsMoved(Duration),
}

/// What is left of the data at the most; less may be, since it is a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All that was there.
    All,
    /// All that was there when the last write was answered.
    Answered,
    /// What was saved last.
    Saved,
    /// Nothing.
    Nothing,
}

/// The events so far.
#[derive(Debug, Default)]
pub struct Course {
    gate: RwLock<()>,
    events: Mutex<Vec<Event>>,
    n_events: AtomicUsize,
}

impl Course {
    /// A client's turn: nobody pauses the course before the value is dropped.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// No client has a command under way, until the value is dropped.
    pub fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all clients, each before its next command.
    pub fn tell(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        self.n_events.store(events.len(), Ordering::Release);
    }

    /// What has happened since `n_seen` events.
    pub fn since(&self, n_seen: usize) -> Vec<Event> {
        if self.n_events.load(Ordering::Acquire) == n_seen {
            return Vec::new();
        }
        self.events.lock().unwrap_or_else(PoisonError::into_inner)[n_seen..].to_vec()
    }
}
