//! What a key may hold, and what commands make of it.
//!
//! A key's state is a list of values that are possible, each with the time until which it may live at the latest. A
//! command is applied to each of them and to nothing, since the key may have been evicted a moment before; those
//! remain whose reply would be the one that came. If none remains the reply is wrong. Cost: as many applications as
//! values are possible, seldom more than two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How much longer than told a value may be there: the server's clock is as of its turn, and stands in milliseconds.
const SLACK: Duration = Duration::from_millis(50);

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(Vec<u8>),
    /// Fields and their values.
    Hash(BTreeMap<u8, Vec<u8>>),
    /// From left to right.
    List(VecDeque<Vec<u8>>),
    /// Members.
    Set(BTreeSet<u8>),
}

/// A value and the time of its end at the latest; `None`: it has no time to live.
#[derive(Clone, Debug, PartialEq)]
pub struct Living {
    /// The value.
    pub value: Value,
    /// When it is gone at the latest, by this machine's clock.
    pub until: Option<Instant>,
}

/// What is sent, of one key.
#[derive(Clone, Debug)]
pub enum Op {
    /// `GET`.
    Get,
    /// `GETRANGE key from to`, both from the left, the second inclusive.
    GetRange(usize, usize),
    /// `STRLEN`.
    Length,
    /// `SET`, with `PX` where a time is given.
    Set(Vec<u8>, Option<Duration>),
    /// `SET … NX`.
    SetIfAbsent(Vec<u8>),
    /// `APPEND`.
    Append(Vec<u8>),
    /// `SETRANGE key at`.
    SetRange(usize, Vec<u8>),
    /// `GETDEL`.
    GetDelete,
    /// `DEL` or `UNLINK`.
    Delete,
    /// `PEXPIRE`.
    Expire(Duration),
    /// `PERSIST`.
    Persist,
    /// `HSET` of one field.
    SetField(u8, Vec<u8>),
    /// `HGETALL`.
    Fields,
    /// `RPUSH` of one.
    Push(Vec<u8>),
    /// `LPOP`.
    Pop,
    /// `LRANGE 0 -1`.
    Items,
    /// `SADD` of one.
    Add(u8),
    /// `SMEMBERS`.
    Members,
    /// `EXISTS`.
    Exists,
}

/// A reply, as far as it can be foreseen.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Null.
    Nothing,
    /// `OK`.
    Fine,
    /// An integer.
    Number(i64),
    /// A string.
    Bytes(Vec<u8>),
    /// Fields and values.
    Pairs(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A list in order.
    List(Vec<Vec<u8>>),
    /// Members in any order.
    Members(BTreeSet<Vec<u8>>),
}

impl Op {
    /// Whether the reply tells what the key holds.
    pub fn is_read(&self) -> bool {
        use Op::{Exists, Fields, Get, GetDelete, GetRange, Items, Length, Members, Pop};
        matches!(self, Get | GetRange(..) | Length | GetDelete | Fields | Pop | Items | Members | Exists)
    }

    /// What it answers on such a key, and what the key holds afterwards. `now` is when the reply came: what is told
    /// to live for a time ends no later than that time after it.
    fn apply(&self, before: Option<&Living>, now: Instant) -> (Reply, Option<Living>) {
        let value = before.map(|living| &living.value);
        let until = before.and_then(|living| living.until);
        let kept = |reply: Reply| (reply, before.cloned());
        let forever = |value: Value| Some(Living { value, until: None });
        match (self, value) {
            (Op::Exists, _) => kept(Reply::Number(i64::from(value.is_some()))),
            (Op::Delete, _) => (Reply::Number(i64::from(value.is_some())), None),
            (Op::Expire(time), Some(value)) => {
                (Reply::Number(1), Some(Living { value: value.clone(), until: Some(now + *time) }))
            }
            (Op::Persist, Some(value)) => (Reply::Number(i64::from(until.is_some())), forever(value.clone())),
            (Op::Expire(_) | Op::Persist, None) => (Reply::Number(0), None),
            (Op::Set(new, time), _) => {
                (Reply::Fine, Some(Living { value: Value::Text(new.clone()), until: time.map(|time| now + time) }))
            }
            (Op::SetIfAbsent(_), Some(_)) => kept(Reply::Nothing),
            (Op::SetIfAbsent(new), None) => (Reply::Fine, forever(Value::Text(new.clone()))),
            (Op::Get, Some(Value::Text(text))) => kept(Reply::Bytes(text.clone())),
            (Op::Get | Op::GetDelete | Op::Pop, None) => (Reply::Nothing, None),
            (Op::GetDelete, Some(Value::Text(text))) => (Reply::Bytes(text.clone()), None),
            (Op::GetRange(from, to), Some(Value::Text(text))) => {
                let to = text.len().min(to + 1);
                kept(Reply::Bytes(text.get(*from..to).unwrap_or_default().to_vec()))
            }
            (Op::GetRange(..), None) => (Reply::Bytes(Vec::new()), None),
            (Op::Length, Some(Value::Text(text))) => kept(Reply::Number(text.len() as i64)),
            (Op::Length, None) => (Reply::Number(0), None),
            (Op::Append(more), Some(Value::Text(text))) => grown(&[text.as_slice(), more].concat(), until),
            (Op::Append(more), None) => grown(more, None),
            (Op::SetRange(at, piece), Some(Value::Text(text))) => grown(&overwritten(text, *at, piece), until),
            (Op::SetRange(at, piece), None) => grown(&overwritten(&[], *at, piece), None),
            (Op::SetField(field, new), Some(Value::Hash(fields))) => {
                let mut fields = fields.clone();
                let is_new = fields.insert(*field, new.clone()).is_none();
                (Reply::Number(i64::from(is_new)), Some(Living { value: Value::Hash(fields), until }))
            }
            (Op::SetField(field, new), None) => {
                (Reply::Number(1), forever(Value::Hash(BTreeMap::from([(*field, new.clone())]))))
            }
            (Op::Fields, Some(Value::Hash(fields))) => {
                kept(Reply::Pairs(fields.iter().map(|(field, value)| (name(*field), value.clone())).collect()))
            }
            (Op::Fields, None) => (Reply::Pairs(BTreeMap::new()), None),
            (Op::Push(new), Some(Value::List(items))) => {
                let mut items = items.clone();
                items.push_back(new.clone());
                (Reply::Number(items.len() as i64), Some(Living { value: Value::List(items), until }))
            }
            (Op::Push(new), None) => (Reply::Number(1), forever(Value::List(VecDeque::from([new.clone()])))),
            (Op::Pop, Some(Value::List(items))) => {
                let mut items = items.clone();
                let first = items.pop_front().unwrap_or_default();
                let left = (!items.is_empty()).then_some(Living { value: Value::List(items), until });
                (Reply::Bytes(first), left)
            }
            (Op::Items, Some(Value::List(items))) => kept(Reply::List(items.iter().cloned().collect())),
            (Op::Items, None) => (Reply::List(Vec::new()), None),
            (Op::Add(member), Some(Value::Set(members))) => {
                let mut members = members.clone();
                let is_new = members.insert(*member);
                (Reply::Number(i64::from(is_new)), Some(Living { value: Value::Set(members), until }))
            }
            (Op::Add(member), None) => (Reply::Number(1), forever(Value::Set(BTreeSet::from([*member])))),
            (Op::Members, Some(Value::Set(members))) => {
                kept(Reply::Members(members.iter().map(|member| name(*member)).collect()))
            }
            (Op::Members, None) => (Reply::Members(BTreeSet::new()), None),
            (op, Some(value)) => unreachable!("{op:?} isn't sent to a key that holds {value:?}"),
        }
    }
}

/// How a field or a member is written.
pub fn name(number: u8) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

fn grown(text: &[u8], until: Option<Instant>) -> (Reply, Option<Living>) {
    (Reply::Number(text.len() as i64), Some(Living { value: Value::Text(text.to_vec()), until }))
}

fn overwritten(text: &[u8], at: usize, piece: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    text.resize(text.len().max(at + piece.len()), 0);
    text[at..at + piece.len()].copy_from_slice(piece);
    text
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Values that are possible, beside none at all.
    possible: Vec<Living>,
}

impl Known {
    /// Takes a reply into account. `sent` is when the command went off, `now` when the reply came.
    ///
    /// # Errors
    /// When the reply can't be right: what would have been, in words. The key is taken for lost then, so that one
    /// fault is told once.
    pub fn answered(&mut self, op: &Op, reply: &Reply, sent: Instant, now: Instant) -> Result<(), String> {
        let outcomes = self.outcomes(op, sent, now);
        let right: Vec<Option<Living>> =
            outcomes.iter().filter(|(foreseen, _)| foreseen == reply).map(|(_, after)| after.clone()).collect();
        if right.is_empty() {
            self.possible.clear();
            let foreseen: Vec<String> = outcomes.iter().map(|(reply, _)| shown(reply)).collect();
            return Err(format!("answered {}, where it could be {}", shown(reply), foreseen.join(" or ")));
        }
        self.keep(right);
        Ok(())
    }

    /// A command was sent, and no reply came: it may have been carried out, or not.
    pub fn unanswered(&mut self, op: &Op, sent: Instant, now: Instant) {
        let mut after: Vec<Option<Living>> = self.outcomes(op, sent, now).into_iter().map(|(_, after)| after).collect();
        after.extend(self.possible.iter().cloned().map(Some));
        self.keep(after);
    }

    /// Nothing is known to be there any more: the server was started anew, or its data was flushed.
    pub fn lost(&mut self) {
        self.possible.clear();
    }

    /// How many values are possible, beside none.
    pub fn n_possible(&self) -> usize {
        self.possible.len()
    }

    fn outcomes(&self, op: &Op, sent: Instant, now: Instant) -> Vec<(Reply, Option<Living>)> {
        let alive = self.possible.iter().filter(|living| living.until.is_none_or(|until| sent < until + SLACK));
        let mut outcomes: Vec<(Reply, Option<Living>)> = alive.map(|living| op.apply(Some(living), now)).collect();
        outcomes.push(op.apply(None, now));
        outcomes
    }

    fn keep(&mut self, after: Vec<Option<Living>>) {
        self.possible.clear();
        for living in after.into_iter().flatten() {
            if !self.possible.contains(&living) {
                self.possible.push(living);
            }
        }
    }
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
