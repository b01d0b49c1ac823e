//! What commands answer, and make of what a key holds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

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

    /// Whether it changes no value, not even where it takes the last of one away.
    pub fn leaves_all(&self) -> bool {
        self.is_read() && !matches!(self, Op::GetDelete | Op::Pop)
    }

    /// What it answers on such a key, and what the key holds afterwards. `now` is when the reply came: what is told
    /// to live for a time ends no later than that time after it.
    pub fn apply(&self, before: Option<&Living>, now: Instant) -> (Reply, Option<Living>) {
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
            (Op::Pop, Some(Value::List(items))) => popped(items.clone(), until),
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

fn popped(mut items: VecDeque<Vec<u8>>, until: Option<Instant>) -> (Reply, Option<Living>) {
    let first = items.pop_front().unwrap_or_default();
    let left = (!items.is_empty()).then_some(Living { value: Value::List(items), until });
    (Reply::Bytes(first), left)
}

fn overwritten(text: &[u8], at: usize, piece: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    text.resize(text.len().max(at + piece.len()), 0);
    text[at..at + piece.len()].copy_from_slice(piece);
    text
}
