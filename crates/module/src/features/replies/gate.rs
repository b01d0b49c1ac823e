//! Who waits under one mode, since when and for what, and whether anybody has to: the gate is open while replicas are
//! too slow or too few.
//!
//! Connections wait in groups, one for each turn of the event loop that had writes; a group goes when the stream as
//! it was at the end of its turn has gone where it should. No server is needed to decide this, so nothing here calls
//! one.

use std::collections::VecDeque;

use super::mode::Mode;

/// The connections whose writes of one turn wait.
#[derive(Debug)]
struct Group {
    ticket: u64,
    target: u64,
    since_us: u64,
    clients: Vec<u64>,
}

/// Why nobody waits at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// When the gate was opened.
    pub at_us: u64,
    /// Why, as a sentence.
    pub why: String,
}

/// What has waited so far, under one mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections that were held back, each once a turn.
    pub held: u64,
    /// How long those waited that were let go as they should, in µs, together.
    pub wait_us: u64,
    /// The longest such wait, in µs.
    pub wait_us_max: u64,
    /// Let go though their writes have not gone where they should.
    pub unconfirmed: u64,
    /// Closed for the same reason, where writes are to be refused rather.
    pub closed: u64,
    /// How often the gate was opened.
    pub opened: u64,
}

/// One mode's gate. See the file's opening.
#[derive(Debug)]
pub struct Gate {
    /// Whose.
    pub mode: Mode,
    /// So far.
    pub counts: Counts,
    groups: VecDeque<Group>,
    open: Option<Opened>,
    /// Since when there are fewer replicas than needed.
    short_since_us: Option<u64>,
    /// How far replicas have to come, while the gate is open, and when they were asked.
    probe: Option<(u64, u64)>,
    next_ticket: u64,
}

impl Gate {
    /// A closed gate at which nobody waits.
    pub fn new(mode: Mode) -> Gate {
        Gate {
            mode,
            counts: Counts::default(),
            groups: VecDeque::new(),
            open: None,
            short_since_us: None,
            probe: None,
            next_ticket: 1,
        }
    }

    /// True while any connection waits.
    pub fn is_waiting(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Since when the group of that ticket waits.
    pub fn since_us(&self, ticket: u64) -> Option<u64> {
        self.groups.iter().find(|group| group.ticket == ticket).map(|group| group.since_us)
    }

    /// Why nobody has to wait; `None` while the gate is closed.
    pub fn opened(&self) -> Option<&Opened> {
        self.open.as_ref()
    }

    /// The ticket of the group that begins to wait next.
    pub fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// These connections begin to wait for the stream to come to `target`.
    pub fn wait(&mut self, clients: Vec<u64>, target: u64, now_us: u64) {
        self.groups.push_back(Group { ticket: self.next_ticket, target, since_us: now_us, clients });
        self.next_ticket += 1;
    }

    /// The groups whose targets `is_there` says have been reached go, the oldest first; `go` is told each connection
    /// and its ticket.
    pub fn pass(&mut self, now_us: u64, is_there: impl Fn(u64) -> bool, mut go: impl FnMut(u64, u64)) {
        while self.groups.front().is_some_and(|group| is_there(group.target)) {
            let Some(group) = self.groups.pop_front() else { return };
            let waited_us = now_us.saturating_sub(group.since_us);
            self.counts.held += group.clients.len() as u64;
            self.counts.wait_us += waited_us * group.clients.len() as u64;
            self.counts.wait_us_max = self.counts.wait_us_max.max(waited_us);
            group.clients.iter().for_each(|client| go(*client, group.ticket));
        }
    }

    /// All who wait, taken out, with their tickets.
    pub fn take_all(&mut self) -> Vec<(u64, u64)> {
        let groups = std::mem::take(&mut self.groups);
        groups.iter().flat_map(|group| group.clients.iter().map(|client| (*client, group.ticket))).collect()
    }

    /// True where somebody has waited longer than `timeout_us`, or there have been too few replicas for so long.
    pub fn is_overdue(&self, now_us: u64, timeout_us: u64) -> bool {
        let is_over = |since_us: u64| now_us >= since_us + timeout_us;
        self.open.is_none()
            && (self.groups.front().is_some_and(|group| is_over(group.since_us))
                || self.short_since_us.is_some_and(is_over))
    }

    /// Ten times a second: whether there are too few replicas.
    pub fn note_shortage(&mut self, is_short: bool, now_us: u64) {
        self.short_since_us = if is_short { self.short_since_us.or(Some(now_us)) } else { None };
    }

    /// Nobody has to wait from now on.
    pub fn open(&mut self, why: String, now_us: u64) {
        self.counts.opened += 1;
        self.open = Some(Opened { at_us: now_us, why });
        self.probe = None;
    }

    /// Writes wait again.
    pub fn close(&mut self) {
        self.open = None;
        self.probe = None;
        self.short_since_us = None;
    }

    /// True where the gate is open since `then_us` or longer.
    pub fn was_opened_before(&self, then_us: u64) -> bool {
        self.open.as_ref().is_some_and(|opened| opened.at_us <= then_us)
    }

    /// While the gate is open, with the stream of the length `own`: whether replicas have come in time to where they
    /// were asked to, so that it may be closed, and whether they are to be asked anew.
    pub fn probe(
        &mut self,
        own: impl FnOnce() -> u64,
        is_there: impl Fn(u64) -> bool,
        now_us: u64,
        timeout_us: u64,
    ) -> (bool, bool) {
        let (is_there, is_in_time) = match self.probe {
            Some((target, at_us)) => (is_there(target), now_us <= at_us + timeout_us),
            None => (false, false),
        };
        if is_there && is_in_time && self.was_opened_before(now_us.saturating_sub(timeout_us)) {
            return (true, false);
        }
        let asks = is_there || !is_in_time;
        if asks {
            self.probe = Some((own(), now_us));
        }
        (false, asks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(gate: &mut Gate, now_us: u64, reached: u64) -> Vec<u64> {
        let mut clients = Vec::new();
        gate.pass(now_us, |target| target <= reached, |client, _| clients.push(client));
        clients
    }

    #[test]
    fn groups_go_in_their_order_as_their_targets_are_reached() {
        let mut gate = Gate::new(Mode::Acked);
        for (target, clients) in [(10, &[1, 2][..]), (20, &[3]), (20, &[4])] {
            gate.wait(clients.to_vec(), target, target);
        }
        assert!(gate.is_waiting());
        assert_eq!(passed(&mut gate, 25, 9), []);
        assert_eq!(passed(&mut gate, 25, 19), [1, 2]);
        assert_eq!(passed(&mut gate, 26, 30), [3, 4]);
        assert!(!gate.is_waiting());
        assert_eq!((gate.counts.held, gate.counts.wait_us, gate.counts.wait_us_max), (4, 15 + 15 + 6 + 6, 15));
    }

    #[test]
    fn it_is_overdue_by_a_wait_or_by_a_lack_of_replicas() {
        let mut gate = Gate::new(Mode::Sent);
        assert!(!gate.is_overdue(1_000_000, 100));
        gate.wait(vec![7], 1, 500);
        assert!(!gate.is_overdue(599, 100));
        assert!(gate.is_overdue(600, 100));
        assert_eq!(gate.take_all(), [(7, 1)]);
        gate.note_shortage(true, 700);
        gate.note_shortage(true, 790);
        assert!(gate.is_overdue(800, 100));
        gate.note_shortage(false, 801);
        assert!(!gate.is_overdue(900, 100));
        gate.note_shortage(true, 900);
        gate.open("none".to_owned(), 1000);
        assert!(!gate.is_overdue(5000, 100), "an open gate is not opened again");
    }

    #[test]
    fn an_open_gate_closes_when_a_probe_is_answered_in_time() {
        let mut gate = Gate::new(Mode::Acked);
        gate.open("slow".to_owned(), 0);
        let probe = |gate: &mut Gate, own, reached, now_us| gate.probe(|| own, |target| target <= reached, now_us, 100);
        assert_eq!(probe(&mut gate, 50, 0, 10), (false, true));
        assert_eq!(probe(&mut gate, 60, 0, 20), (false, false), "one is under way");
        assert_eq!(probe(&mut gate, 70, 49, 111), (false, true), "too late: asked anew");
        assert_eq!(probe(&mut gate, 80, 70, 150), (true, false));
        gate.close();
        gate.open("slow".to_owned(), 1000);
        assert_eq!(probe(&mut gate, 90, 80, 1010), (false, true));
        assert_eq!(probe(&mut gate, 90, 90, 1020), (false, true), "no sooner than a timeout after it was opened");
    }
}
