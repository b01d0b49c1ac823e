//! What is known of one key.
//!
//! A key's state is a list of values that are possible, each with the time until which it may live at the latest. A
//! command is applied to each of them and to nothing, since the key may have been evicted a moment before; those
//! remain whose reply would be the one that came. If none remains the reply is wrong. Beside them stand values that a
//! replica may have that takes over: what was there when the last write was answered, and what came to be without an
//! answer. Cost: as many applications as values are possible, seldom more than two.

use std::time::{Duration, Instant};

use crate::model::{Living, Op, Reply};

/// How much longer than told a value may be there: the server's clock is as of its turn, and stands in milliseconds.
const SLACK: Duration = Duration::from_millis(50);

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Values that are possible, beside none at all.
    possible: Vec<Living>,
    /// Values beside these that a replica may have, since it need not have heard what took their place.
    elsewhere: Vec<Living>,
    /// When it was last heard of, or what was sent to it last was given up.
    heard: Option<Instant>,
}

/// What a command answers, what is there afterwards, and whether it has changed anything.
struct Outcome {
    reply: Reply,
    after: Option<Living>,
    is_change: bool,
}

impl Known {
    /// Takes a reply into account. `sent` is when the command went off, `now` when the reply came.
    ///
    /// # Errors
    /// When the reply can't be right: what would have been, in words. The key is taken for lost then, so that one
    /// fault is told once.
    pub fn answered(&mut self, op: &Op, reply: &Reply, sent: Instant, now: Instant) -> Result<(), String> {
        self.heard = Some(now);
        let (right, others): (Vec<Outcome>, Vec<Outcome>) =
            self.outcomes(op, sent, now).into_iter().partition(|outcome| outcome.reply == *reply);
        if right.is_empty() {
            self.lost();
            let foreseen: Vec<String> = others.iter().map(|outcome| shown(&outcome.reply)).collect();
            return Err(format!("answered {}, where it could be {}", shown(reply), foreseen.join(" or ")));
        }
        // A write that is answered has reached whoever may take over, and all before it has.
        let is_write = right.iter().all(|outcome| outcome.is_change);
        let before = std::mem::take(&mut self.possible);
        self.possible = kinds(right.into_iter().filter_map(|outcome| outcome.after));
        if is_write {
            self.elsewhere.clear();
        } else {
            let gone = before.into_iter().filter(|living| !self.possible.contains(living));
            self.elsewhere = kinds(self.elsewhere.drain(..).chain(gone));
        }
        Ok(())
    }

    /// A command was sent, and no reply came: it may have been carried out, or not.
    pub fn unanswered(&mut self, op: &Op, sent: Instant, now: Instant) {
        self.heard = Some(now);
        let after = self.outcomes(op, sent, now).into_iter().filter_map(|outcome| outcome.after);
        self.possible = kinds(after.chain(self.possible.iter().cloned()));
    }

    /// Nothing is known to be there any more: the server was started anew without its data, or the key was deleted.
    pub fn lost(&mut self) {
        self.possible.clear();
        self.elsewhere.clear();
    }

    /// All data was deleted by a command that was sent at that time and has been answered. What was heard of since
    /// may have come before or after.
    pub fn flushed(&mut self, sent: Instant) {
        if self.heard.is_none_or(|heard| heard < sent) {
            self.lost();
        }
    }

    /// A replica that has all answered writes has taken over.
    pub fn taken_over(&mut self) {
        self.possible = kinds(self.possible.drain(..).chain(self.elsewhere.drain(..)));
    }

    /// What expires may be there for so much longer: it was on its way to another server, and is told there how long it
    /// has still to live.
    pub fn lives_longer(&mut self, by: Duration) {
        let all = self.possible.iter_mut().chain(&mut self.elsewhere);
        all.filter_map(|living| living.until.as_mut()).for_each(|until| *until += by);
    }

    /// It isn't known whether this key and that of another database have changed places.
    pub fn perhaps_swapped(&mut self, other: &mut Known) {
        for (mine, its) in [(&mut self.possible, &mut other.possible), (&mut self.elsewhere, &mut other.elsewhere)] {
            *mine = kinds(mine.drain(..).chain(its.iter().cloned()));
            its.clone_from(mine);
        }
    }

    /// How many values are possible, beside none.
    pub fn n_possible(&self) -> usize {
        self.possible.len()
    }

    fn outcomes(&self, op: &Op, sent: Instant, now: Instant) -> Vec<Outcome> {
        let alive = self.possible.iter().filter(|living| living.until.is_none_or(|until| sent < until + SLACK));
        let befores = alive.map(Some).chain([None]);
        let outcome = |before: Option<&Living>| {
            let (reply, after) = op.apply(before, now);
            let is_change = !op.leaves_all() && before != after.as_ref();
            Outcome { reply, after, is_change }
        };
        befores.map(outcome).collect()
    }
}

/// Each value once.
fn kinds(some: impl Iterator<Item = Living>) -> Vec<Living> {
    let mut kinds: Vec<Living> = Vec::new();
    for living in some {
        if !kinds.contains(&living) {
            kinds.push(living);
        }
    }
    kinds
}

/// A reply in words, long ones cut.
fn shown(reply: &Reply) -> String {
    let text = match reply {
        Reply::Bytes(bytes) => format!("{} bytes \"{}\"", bytes.len(), bytes.escape_ascii()),
        other => format!("{other:?}"),
    };
    if text.len() > 120 { format!("{}…", text.chars().take(120).collect::<String>()) } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn what_was_written_may_be_read_or_gone() {
        let (mut key, now) = (Known::default(), Instant::now());
        key.answered(&Op::Set(text("a"), None), &Reply::Fine, now, now).unwrap();
        key.clone().answered(&Op::Get, &Reply::Bytes(text("a")), now, now).unwrap();
        key.clone().answered(&Op::Get, &Reply::Nothing, now, now).unwrap();
        let error = key.answered(&Op::Get, &Reply::Bytes(text("b")), now, now).unwrap_err();
        assert_eq!(error, "answered 1 bytes \"b\", where it could be 1 bytes \"a\" or Nothing");
    }

    #[test]
    fn an_older_value_is_wrong() {
        let (mut key, now) = (Known::default(), Instant::now());
        for value in ["old", "new"] {
            key.answered(&Op::Set(text(value), None), &Reply::Fine, now, now).unwrap();
        }
        key.answered(&Op::Get, &Reply::Bytes(text("old")), now, now).unwrap_err();
    }

    #[test]
    fn a_length_tells_whether_it_was_evicted_before() {
        let (mut key, now) = (Known::default(), Instant::now());
        key.answered(&Op::Set(text("long"), None), &Reply::Fine, now, now).unwrap();
        key.answered(&Op::Append(text("er")), &Reply::Number(2), now, now).unwrap();
        key.answered(&Op::Get, &Reply::Bytes(text("longer")), now, now).unwrap_err();
    }

    #[test]
    fn a_write_without_an_answer_may_have_been_or_not() {
        let (mut key, now) = (Known::default(), Instant::now());
        key.answered(&Op::Set(text("a"), None), &Reply::Fine, now, now).unwrap();
        key.unanswered(&Op::Set(text("b"), None), now, now);
        assert_eq!(key.n_possible(), 2);
        for value in ["a", "b"] {
            key.clone().answered(&Op::Get, &Reply::Bytes(text(value)), now, now).unwrap();
        }
        key.answered(&Op::Get, &Reply::Bytes(text("c")), now, now).unwrap_err();
    }

    #[test]
    fn what_has_expired_is_gone() {
        let (mut key, now) = (Known::default(), Instant::now());
        key.answered(&Op::Set(text("a"), Some(Duration::from_millis(10))), &Reply::Fine, now, now).unwrap();
        let later = now + Duration::from_millis(10) + SLACK;
        key.clone().answered(&Op::Get, &Reply::Nothing, later, later).unwrap();
        key.answered(&Op::Get, &Reply::Bytes(text("a")), later, later).unwrap_err();
    }

    #[test]
    fn what_was_on_its_way_expires_later() {
        let (mut key, now) = (Known::default(), Instant::now());
        key.answered(&Op::Set(text("a"), Some(Duration::from_millis(10))), &Reply::Fine, now, now).unwrap();
        key.lives_longer(Duration::from_secs(1));
        let [still, no_more] = [500, 1100].map(|ms| now + Duration::from_millis(ms));
        key.clone().answered(&Op::Get, &Reply::Bytes(text("a")), still, still).unwrap();
        key.answered(&Op::Get, &Reply::Bytes(text("a")), no_more, no_more).unwrap_err();
    }

    #[test]
    fn a_replica_may_have_what_was_evicted_but_nothing_older_than_an_answered_write() {
        let (mut key, now) = (Known::default(), Instant::now());
        for value in ["old", "new"] {
            key.answered(&Op::Set(text(value), None), &Reply::Fine, now, now).unwrap();
        }
        key.answered(&Op::Get, &Reply::Nothing, now, now).unwrap();
        key.clone().answered(&Op::Get, &Reply::Bytes(text("new")), now, now).unwrap_err();
        key.taken_over();
        key.clone().answered(&Op::Get, &Reply::Bytes(text("new")), now, now).unwrap();
        key.answered(&Op::Get, &Reply::Bytes(text("old")), now, now).unwrap_err();
    }

    #[test]
    fn a_replica_may_lack_what_was_read_before_it_was_answered() {
        let (mut key, now) = (Known::default(), Instant::now());
        key.answered(&Op::Set(text("a"), None), &Reply::Fine, now, now).unwrap();
        key.unanswered(&Op::Set(text("b"), None), now, now);
        key.answered(&Op::Get, &Reply::Bytes(text("b")), now, now).unwrap();
        key.taken_over();
        assert_eq!(key.n_possible(), 2);
    }

    #[test]
    fn a_flush_takes_what_was_written_before_it_and_perhaps_what_was_written_meanwhile() {
        let (mut key, now) = (Known::default(), Instant::now());
        let later = now + Duration::from_millis(1);
        key.answered(&Op::Set(text("a"), None), &Reply::Fine, now, later).unwrap();
        key.flushed(now);
        assert_eq!(key.n_possible(), 1);
        key.flushed(later + Duration::from_millis(1));
        assert_eq!(key.n_possible(), 0);
    }

    proptest! {
        /// A cache that loses keys at any moment is never taken for a wrong one.
        #[test]
        fn a_forgetful_cache_is_right(steps in prop::collection::vec((0_u8..7, any::<bool>()), 1..60)) {
            let (mut key, mut held, now) = (Known::default(), None::<Living>, Instant::now());
            for (which, is_lost) in steps {
                if is_lost {
                    held = None;
                }
                let op = match which {
                    0 => Op::Get,
                    1 => Op::Set(text("value"), None),
                    2 => Op::Append(text("+")),
                    3 => Op::SetRange(2, text("xy")),
                    4 => Op::Delete,
                    5 => Op::Length,
                    _ => Op::SetIfAbsent(text("first")),
                };
                let (reply, after) = op.apply(held.as_ref(), now);
                held = after;
                prop_assert!(key.answered(&op, &reply, now, now).is_ok());
            }
        }
    }
}
