//! Both modes' gates, and which group each held connection waits in.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::gate::{Counts, Gate};
use super::mode::Mode;

/// By client id: a gate's group. Ids are counted by the server, so they need little mixing.
type Tickets = HashMap<u64, (Mode, u64), BuildHasherDefault<IdHasher>>;

/// Mixes one number by a multiplication.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// The gates of `sent` and of `acked`, and who waits at them.
#[derive(Debug)]
pub struct Gates {
    sent: Gate,
    acked: Gate,
    /// What each held connection waits for. Only the last one counts.
    tickets: Tickets,
}

impl Gates {
    /// Closed gates at which nobody waits.
    pub fn new() -> Gates {
        Gates { sent: Gate::new(Mode::Sent), acked: Gate::new(Mode::Acked), tickets: HashMap::default() }
    }

    /// The gate of one mode.
    pub fn of(&self, mode: Mode) -> &Gate {
        if mode == Mode::Acked { &self.acked } else { &self.sent }
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, mode: Mode) -> &mut Gate {
        if mode == Mode::Acked { &mut self.acked } else { &mut self.sent }
    }

    /// True while one is open.
    pub fn is_any_open(&self) -> bool {
        self.sent.opened().is_some() || self.acked.opened().is_some()
    }

    /// The mode under which a connection waits for an earlier write; `None` where it doesn't.
    pub fn waits(&self, client_id: u64) -> Option<Mode> {
        if self.tickets.is_empty() {
            return None;
        }
        self.tickets.get(&client_id).map(|(mode, _)| *mode)
    }

    /// These connections wait under `mode` from now on, for the stream to come to `target`.
    pub fn wait(&mut self, clients: Vec<u64>, mode: Mode, target: u64, now_us: u64) {
        let ticket = (mode, self.of(mode).next_ticket());
        self.tickets.extend(clients.iter().map(|client_id| (*client_id, ticket)));
        self.of_mut(mode).wait(clients, target, now_us);
    }

    /// The groups under `mode` whose targets `is_there` says have been reached go; `go` is told each connection that
    /// waits for no later write.
    pub fn pass(&mut self, mode: Mode, now_us: u64, is_there: impl Fn(u64) -> bool, mut go: impl FnMut(u64)) {
        let Gates { sent, acked, tickets } = self;
        let gate = if mode == Mode::Acked { acked } else { sent };
        gate.pass(now_us, is_there, |client_id, ticket| {
            if tickets.get(&client_id) == Some(&(mode, ticket)) {
                tickets.remove(&client_id);
                go(client_id);
            }
        });
    }

    /// All who wait under `mode`, taken out.
    pub fn take_all(&mut self, mode: Mode) -> Vec<u64> {
        let mut waited = self.of_mut(mode).take_all();
        waited.retain(|(client_id, ticket)| {
            self.tickets.get(client_id) == Some(&(mode, *ticket)) && self.tickets.remove(client_id).is_some()
        });
        waited.into_iter().map(|(client_id, _)| client_id).collect()
    }

    /// A connection has gone.
    pub fn forget_connection(&mut self, client_id: u64) {
        self.tickets.remove(&client_id);
    }

    /// Nobody waits any more, and whoever writes has to again.
    pub fn reset(&mut self) {
        self.tickets.clear();
        self.sent.close();
        self.acked.close();
    }

    /// Connections held now.
    pub fn n_held(&self) -> usize {
        self.tickets.len()
    }

    /// Each held connection, since when (as of `now_us` where that isn't known), and under which mode; the longest
    /// first.
    pub fn held(&self, now_us: u64) -> Vec<(u64, u64, Mode)> {
        let since = |(&client_id, &(mode, ticket)): (&u64, &(Mode, u64))| {
            (self.of(mode).since_us(ticket).unwrap_or(now_us), client_id, mode)
        };
        let mut held: Vec<(u64, u64, Mode)> = self.tickets.iter().map(since).collect();
        held.sort_unstable_by_key(|&(since_us, client_id, _)| (since_us, client_id));
        held
    }

    /// The longest wait is measured anew.
    pub fn forget_longest_wait(&mut self) {
        (self.sent.counts.wait_us_max, self.acked.counts.wait_us_max) = (0, 0);
    }

    /// What has waited so far, under both modes together.
    pub fn counts(&self) -> Counts {
        let (sent, acked) = (&self.sent.counts, &self.acked.counts);
        Counts {
            held: sent.held + acked.held,
            wait_us: sent.wait_us + acked.wait_us,
            wait_us_max: sent.wait_us_max.max(acked.wait_us_max),
            unconfirmed: sent.unconfirmed + acked.unconfirmed,
            closed: sent.closed + acked.closed,
            opened: sent.opened + acked.opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_later_write_too_does_not_go_with_the_first() {
        let mut gates = Gates::new();
        gates.wait(vec![1, 2], Mode::Sent, 10, 0);
        gates.wait(vec![2], Mode::Acked, 20, 0);
        let passed = |gates: &mut Gates, mode| {
            let mut gone = Vec::new();
            gates.pass(mode, 5, |_| true, |client_id| gone.push(client_id));
            gone
        };
        assert_eq!((gates.n_held(), gates.waits(2)), (2, Some(Mode::Acked)));
        assert_eq!(passed(&mut gates, Mode::Sent), [1]);
        assert_eq!(gates.held(7), [(0, 2, Mode::Acked)]);
        assert_eq!(gates.take_all(Mode::Acked), [2]);
        assert_eq!((gates.n_held(), gates.waits(2)), (0, None));
    }
}
