//! Replies that wait for replicas, as a feature: ties what is held to commands and turns.

use super::Replies;
use super::mode::Mode;
use crate::config::Settings;
use crate::feature::{Event, Feature, Report, Turn, Wants};
use crate::ffi::filter::FilterCall;
use crate::ffi::holding;
use crate::ffi::info::Value;
use crate::ffi::reply::Answer;
use crate::ffi::server::Server;
use crate::observe::command_table::{Entry, Marks};
use crate::tenure::Tenure;

/// Its settings that are more than a number.
impl Settings {
    /// Takes another mode for `tenure.replies`.
    ///
    /// # Errors
    /// Where this server's replies can't be held; nothing changes then.
    pub fn set_replies(&mut self, mode: Mode) -> Result<(), String> {
        if mode != Mode::Async {
            holding::holding()?;
        }
        self.replies = mode;
        Ok(())
    }
}

impl Feature for Replies {
    /// The filter stays while replies are held: a write that passes unheard would be answered at once. Tenants that
    /// state a mode of their own are told by where keys are and who writes them.
    fn wants(&self) -> Wants {
        let is_on = self.is_on();
        (Wants::COMMANDS | Wants::READS).when(is_on)
            | Wants::TURNS.when(is_on || self.is_stale)
            | Wants::WRITERS.when(self.needs_keys())
    }

    /// Whoever writes is noted, but for the source of slots that move here: it waits for no reply.
    fn command(&mut self, tenure: &mut Tenure, call: &mut FilterCall, command: Option<Entry>) {
        if tenure.observer.comes_from_source(call, command) {
            return;
        }
        let marks = command.map_or_else(Marks::unknown, |command| command.marks);
        let mode = if self.needs_keys() && marks.has(Marks::WRITES) {
            strictest_of_keys(self, tenure, call, command)
        } else {
            self.mode_strictest()
        };
        // A client whose value is read from disk blocks, and is answered in a later turn.
        let may_block = tenure.features_want(Wants::TO_BLOCK);
        self.on_command(call, marks, mode, may_block);
    }

    fn run(&mut self, turn: &mut Turn, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        let is_asked = name == "tenure.held" && arguments.is_empty();
        is_asked.then(|| Answer::Text(self.list_held(turn.server, turn.now_us)))
    }

    fn end_turn(&mut self, turn: &mut Turn) {
        self.end_of_turn(turn.server, turn.now_us);
    }

    fn event(&mut self, turn: &mut Turn, event: &Event) {
        match event {
            Event::Configured => {
                let settings = turn.tenure.settings();
                self.take_settings(settings, &settings.tenants.replies());
            }
            Event::DataSet(_) => self.is_stale = true,
            Event::StatsReset => self.forget_longest_wait(),
            Event::ClientGone(client_id) => self.forget_connection(*client_id),
            Event::Message { .. } | Event::Migration(_) | Event::Stopping => {}
        }
    }

    fn report(&self, _: &Tenure, report: &mut Report) {
        use Value::{Count, Text, Total};
        let (held_now, counts) = (self.n_held() as u64, self.counts());
        report.status.extend([("replies", Text(self.describe())), ("replies_held_now", Count(held_now))]);
        let fields = [
            ("replies", Text(self.describe())),
            ("replies_replicas", Count(self.n_replicas() as u64)),
            ("replies_held_now", Count(held_now)),
            ("replies_held", Total(counts.held)),
            ("replies_wait_us", Total(counts.wait_us)),
            ("replies_wait_us_max", Count(counts.wait_us_max)),
            ("replies_degraded", Total(counts.opened)),
            ("replies_unconfirmed", Total(counts.unconfirmed)),
            ("replies_closed", Total(counts.closed)),
        ];
        report.info.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }

    fn release(&mut self, server: &mut Server) {
        self.stop(server, false);
    }
}

/// The strictest mode of the tenants whose keys the command names; of all there are, where they can't be told.
fn strictest_of_keys(replies: &Replies, tenure: &mut Tenure, call: &FilterCall, command: Option<Entry>) -> Mode {
    let mut mode = Mode::Async;
    let is_known = command.is_some_and(|command| {
        tenure.observer.for_each_tenant(call, command, |tenant| mode = mode.max(replies.mode_of(tenant)))
    });
    if is_known { mode } else { replies.mode_strictest() }
}
