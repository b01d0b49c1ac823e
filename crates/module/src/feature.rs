//! What an optional part of Tenure may hear and do. The runtime calls features through this trait and knows none by
//! name.
//!
//! A feature says by [`Wants`] what it has to hear; what nobody wants costs one test of a bit mask for all of them.
//! It never runs beside another: each call has the whole state of the [`Turn`] to itself, in the order in which
//! `features::all` lists them.

use std::any::Any;
use std::ops::BitOr;

use crate::ffi::awaits::Blocked;
use crate::ffi::filter::FilterCall;
use crate::ffi::info::Value;
use crate::ffi::messages::NodeId;
use crate::ffi::migration::Migration;
use crate::ffi::module::{Awaited, DataChange};
use crate::ffi::reply::Answer;
use crate::ffi::server::Server;
use crate::observe::command_table::Entry;
use crate::tenure::Tenure;

/// What a feature has to hear, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants(u16);

impl Wants {
    /// Nothing but settings, ticks and rare events.
    pub const NOTHING: Wants = Wants(0);
    /// Commands before they run, but for those that only read.
    pub const COMMANDS: Wants = Wants(1);
    /// Commands that only read, too.
    pub const READS: Wants = Wants(1 << 1);
    /// The end of each turn.
    pub const TURNS: Wants = Wants(1 << 2);
    /// Slices of time, at the end of each turn and while the event loop is idle.
    pub const SLICES: Wants = Wants(1 << 3);
    /// That the observer sees every command.
    pub const OBSERVED: Wants = Wants(1 << 4);
    /// That it sees all but reads, and its clock goes.
    pub const WRITES_OBSERVED: Wants = Wants(1 << 5);

    /// Commands before they run, as far as the observer sees them.
    pub const SEEN_COMMANDS: Wants = Wants(1 << 6);
    /// Keys that come into being.
    pub const NEW_KEYS: Wants = Wants(1 << 7);
    /// That the observer keeps the keys that a turn has sampled, for the slice that follows.
    pub const SAMPLES: Wants = Wants(1 << 8);
    /// To block clients whose commands read.
    pub const TO_BLOCK: Wants = Wants(1 << 9);
    /// That it sees who sends what may write.
    pub const WRITERS: Wants = Wants(1 << 10);
    /// Anything of commands.
    pub const HEARS_COMMANDS: Wants = Wants(Wants::COMMANDS.0 | Wants::READS.0 | Wants::SEEN_COMMANDS.0);

    /// True where anything of `other` is wanted.
    #[inline]
    pub fn has(self, other: Wants) -> bool {
        self.0 & other.0 != 0
    }

    /// True where all of `others` is wanted.
    pub fn has_all(self, others: Wants) -> bool {
        self.0 & others.0 == others.0
    }

    /// These where `condition` holds, else nothing.
    pub fn when(self, condition: bool) -> Wants {
        if condition { self } else { Wants::NOTHING }
    }
}

impl BitOr for Wants {
    type Output = Wants;

    fn bitor(self, other: Wants) -> Wants {
        Wants(self.0 | other.0)
    }
}

/// When a slice of work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the end of a turn: the replies wait.
    BeforeReplies,
    /// While the event loop waits for requests: those that come meanwhile wait.
    Idle,
}

/// What the main thread has while the server has called it.
pub struct Turn<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// The time, in µs.
    pub now_us: u64,
    /// Everything but the features.
    pub tenure: &'a mut Tenure,
}

/// What a message between nodes is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// How many keys of each tenant the sender has.
    Keys,
}

impl Topic {
    /// All, in the order of their numbers.
    pub const ALL: [Topic; 1] = [Topic::Keys];

    /// The one of that number.
    pub fn of(number: u8) -> Option<Topic> {
        Topic::ALL.get(usize::from(number)).copied()
    }

    /// Its number in messages.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// What happens seldom, and is told to every feature.
pub enum Event<'a> {
    /// The server's configuration, or Tenure's, may be another.
    Configured,
    /// The data set as a whole changes.
    DataSet(DataChange),
    /// Slots of a cluster move as a whole.
    Migration(&'a Migration),
    /// `CONFIG RESETSTAT`: longest times are measured anew; counts go on.
    StatsReset,
    /// A connection has ended.
    ClientGone(u64),
    /// The server stops in good order.
    Stopping,
    /// Another node's Tenure has sent a message.
    Message {
        /// Who.
        sender: &'a NodeId,
        /// What about.
        topic: Topic,
        /// In the words of that topic.
        body: &'a [u8],
    },
}

/// What a client has waited for, as the feature that made it wait knows it.
pub type Outcome = Box<dyn Any + Send>;

/// Blocks the client whose command is running, where it can wait.
pub type Block = fn(&Server) -> Option<Blocked<Outcome>>;

/// What a feature says of each partition.
pub struct Column {
    /// Under which name.
    pub name: &'static str,
    /// By partition.
    pub of_partition: Vec<Value>,
}

impl Column {
    /// The count of one partition; `None` where it is none.
    pub fn count_of(&self, partition: usize) -> Option<u64> {
        match self.of_partition.get(partition) {
            Some(Value::Count(n)) => Some(*n),
            _ => None,
        }
    }
}

/// What features say of themselves, by name. Units are in the names.
#[derive(Default)]
pub struct Report {
    /// For `TENURE.STATUS`.
    pub status: Vec<(&'static str, Value)>,
    /// For `INFO tenure`.
    pub info: Vec<(String, Value)>,
    /// For `TENURE.PARTITIONS`; counts also for `TENURE.TENANTS`, as sums, and `INFO tenure`.
    pub partitions: Vec<Column>,
}

/// See the file's opening. Whoever implements it keeps each call short: the server waits.
pub trait Feature {
    /// What it has to hear from now on. Asked again after each of the calls below that has a turn.
    fn wants(&self) -> Wants;

    /// A command is about to run, and not yet noted by the observer. Called where [`Wants::COMMANDS`] and its like
    /// say so.
    fn command(&mut self, tenure: &mut Tenure, call: &mut FilterCall, command: Option<Entry>) {
        let _ = (tenure, call, command);
    }

    /// The same command, once the observer has noted it. It may be changed.
    fn command_noted(&mut self, tenure: &mut Tenure, call: &mut FilterCall) {
        let _ = (tenure, call);
    }

    /// A key came into being, by somebody else. Called where [`Wants::NEW_KEYS`] says so.
    fn new_key(&mut self, db: u16, name: &[u8]) {
        let _ = (db, name);
    }

    /// The turn's commands have run and none of its replies has left. Comes before Tenure's own work, so that others
    /// (replicas) work meanwhile.
    fn end_turn(&mut self, turn: &mut Turn) {
        let _ = turn;
    }

    /// Some of what there is to do, bounded. Comes before Tenure frees memory, which this may take or bring.
    fn slice(&mut self, turn: &mut Turn, when: When) {
        let _ = (turn, when);
    }

    /// Before commands run that a pause has held back: what had to wait for the end of the pause. Called where
    /// [`Wants::TURNS`] says so.
    fn settle(&mut self, server: &mut Server) {
        let _ = server;
    }

    /// Ten times a second.
    fn tick(&mut self, turn: &mut Turn) {
        let _ = turn;
    }

    /// See [`Event`].
    fn event(&mut self, turn: &mut Turn, event: &Event) {
        let _ = (turn, event);
    }

    /// Runs a `TENURE.*` command, by its name in lower case; `None` where it is none of its own.
    fn run(&mut self, turn: &mut Turn, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        let _ = (turn, name, arguments);
        None
    }

    /// A command stands behind the word that lets its client wait, as this feature has put it; `None` where it is
    /// none of its own.
    fn awaits(&mut self, turn: &mut Turn, words: &[&[u8]], block: Block) -> Option<Awaited> {
        let _ = (turn, words, block);
        None
    }

    /// That wait is over. Without an outcome it took too long, or whoever was to give one has died. Whoever knows it
    /// takes it.
    fn awaited(&mut self, turn: &mut Turn, words: &[&[u8]], outcome: &mut Option<Outcome>) {
        let _ = (turn, words, outcome);
    }

    /// What it is up to.
    fn report(&self, tenure: &Tenure, report: &mut Report);

    /// Gives back whatever was taken of the server: the state is about to go.
    fn release(&mut self, server: &mut Server) {
        let _ = server;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_adds_up() {
        let both = Wants::COMMANDS | Wants::TURNS;
        assert!(both.has(Wants::TURNS) && !both.has(Wants::READS) && !Wants::NOTHING.has(both));
        assert_eq!(Wants::READS.when(false) | Wants::TURNS.when(true), Wants::TURNS);
    }
}
