//! Random histories of [`Gate`] beside a list of connections: nobody goes before the stream has come to where its
//! writes are, nobody is left behind, and all is counted.

use proptest::prelude::*;

use super::gate::Gate;
use super::mode::Mode;

const TIMEOUT_US: u64 = 50;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many connections write so many bytes in one turn.
    Write(u8, u64),
    /// Replicas come so much nearer.
    Confirm(u64),
    TimePasses(u64),
    TakeAll,
    Shortage(bool),
    Open,
    Probe,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..4_u8, 0..5_u64).prop_map(|(clients, bytes)| Step::Write(clients, bytes)),
        5 => (0..8_u64).prop_map(Step::Confirm),
        4 => (1..40_u64).prop_map(Step::TimePasses),
        1 => Just(Step::TakeAll),
        1 => any::<bool>().prop_map(Step::Shortage),
        1 => Just(Step::Open),
        2 => Just(Step::Probe),
    ];
    proptest::collection::vec(step, 1..200)
}

/// One connection that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waits {
    client: u64,
    target: u64,
    since_us: u64,
}

#[derive(Default)]
struct Model {
    waiting: Vec<Waits>,
    clients: u64,
    own: u64,
    confirmed: u64,
    now_us: u64,
    held: u64,
    wait_us: u64,
    short_since_us: Option<u64>,
    opened_at_us: Option<u64>,
}

impl Model {
    fn pass(&mut self, gate: &mut Gate) -> Result<(), TestCaseError> {
        let mut gone = Vec::new();
        gate.pass(self.now_us, |target| target <= self.confirmed, |client, _| gone.push(client));
        let (due, left): (Vec<Waits>, Vec<Waits>) =
            self.waiting.iter().copied().partition(|waits| waits.target <= self.confirmed);
        prop_assert_eq!(gone, due.iter().map(|waits| waits.client).collect::<Vec<_>>());
        self.held += due.len() as u64;
        self.wait_us += due.iter().map(|waits| self.now_us - waits.since_us).sum::<u64>();
        self.waiting = left;
        Ok(())
    }

    fn probe(&mut self, gate: &mut Gate) -> Result<(), TestCaseError> {
        let Some(opened_at_us) = self.opened_at_us else { return Ok(()) };
        let (own, confirmed) = (self.own, self.confirmed);
        let (may_close, asks) = gate.probe(|| own, |target| target <= confirmed, self.now_us, TIMEOUT_US);
        prop_assert!(!(may_close && asks));
        if may_close {
            prop_assert!(self.now_us >= opened_at_us + TIMEOUT_US, "no sooner than a timeout after it was opened");
            gate.close();
            (self.opened_at_us, self.short_since_us) = (None, None);
        }
        Ok(())
    }

    fn step(&mut self, gate: &mut Gate, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write(clients, bytes) => {
                self.own += bytes;
                let group: Vec<u64> = (self.clients..).take(clients.into()).collect();
                self.clients += u64::from(clients);
                let (target, since_us) = (self.own, self.now_us);
                self.waiting.extend(group.iter().map(|&client| Waits { client, target, since_us }));
                gate.wait(group, target, since_us);
            }
            Step::Confirm(bytes) => {
                self.confirmed = (self.confirmed + bytes).min(self.own);
                self.pass(gate)?;
            }
            Step::TimePasses(us) => self.now_us += us,
            Step::TakeAll => {
                let taken: Vec<u64> = gate.take_all().into_iter().map(|(client, _)| client).collect();
                prop_assert_eq!(taken, self.waiting.drain(..).map(|waits| waits.client).collect::<Vec<_>>());
            }
            Step::Shortage(is_short) => {
                gate.note_shortage(is_short, self.now_us);
                self.short_since_us = is_short.then(|| self.short_since_us.unwrap_or(self.now_us));
            }
            Step::Open => {
                gate.open("a test".to_owned(), self.now_us);
                self.opened_at_us = Some(self.now_us);
            }
            Step::Probe => self.probe(gate)?,
        }
        Ok(())
    }

    fn check(&self, gate: &Gate) -> Result<(), TestCaseError> {
        prop_assert_eq!(gate.is_waiting(), !self.waiting.is_empty());
        prop_assert_eq!((gate.counts.held, gate.counts.wait_us), (self.held, self.wait_us));
        prop_assert_eq!(gate.opened().map(|opened| opened.at_us), self.opened_at_us);
        let sinces = self.waiting.iter().map(|waits| waits.since_us).chain(self.short_since_us);
        let is_late = sinces.min().is_some_and(|since_us| self.now_us >= since_us + TIMEOUT_US);
        prop_assert_eq!(gate.is_overdue(self.now_us, TIMEOUT_US), is_late && self.opened_at_us.is_none());
        Ok(())
    }
}

proptest! {
    #[test]
    fn who_waits_goes_when_the_stream_has_come_there(steps in steps()) {
        let mut gate = Gate::new(Mode::Acked);
        let mut model = Model { now_us: 1_000, ..Model::default() };
        for step in steps {
            model.step(&mut gate, step)?;
            model.check(&gate)?;
        }
    }
}
