//! A node of a cluster: which slots it serves, what part of the tenants' limits is its own, and what a primary
//! teaches its replicas.
//!
//! Every primary decides for its own share of the keys by itself: slots are a hash, so each share is a sample of the
//! whole, and its curve the whole's at its part of the memory. Two things can't be known by one node alone: what part
//! of a limit that holds for the whole cluster is its own, and, on a replica, what its primary has learned from
//! reads. `ffi/bus.rs` carries the messages.

pub mod lessons;
pub mod shares;
pub mod view;
pub mod wire;

use std::time::Instant;

use tenure_core::key_table::{BUCKET_BYTES, ENTRY_BYTES, Entry, tick};

use self::lessons::Lessons;
use self::shares::{KeysByTenant, Shares};
use self::view::View;
use self::wire::{Reader, Writer};
use crate::feature::{Event, Feature, Report, Topic, Turn, Wants};
use crate::ffi::bus::{self, NodeId};
use crate::ffi::clock::now_us;
use crate::ffi::info::Value;
use crate::observe::partitions::Partitions;
use crate::tenure::Tenure;
use crate::worker::Taught;

/// How often the server is asked for its view of the cluster: every second, or as often as that takes 1/200 of the
/// main thread (a reply grows with the cluster's nodes), though every 30 s at the least.
const LOOK_US_MIN: u64 = 1_000_000;
const LOOK_US_MAX: u64 = 30_000_000;
const LOOK_SHARE: u64 = 200;
/// How often the others are told how many keys there are.
const TELL_US: u64 = 1_000_000;
/// A pass that hands the table of keys to the replicas takes a minute, where its limits per tick let it.
const PASS_TICKS: usize = 600;
const PASS_BUCKETS_MIN: usize = 64;
const PASS_BUCKETS_MAX: usize = 1024;
/// Buckets that a tick looks at where they are nearly empty: 512 KiB of memory.
const LOOKED_AT_MAX: usize = 8192;

/// What a node of a cluster keeps.
#[derive(Default)]
pub struct Clustered {
    is_node: bool,
    /// The cluster as it was last seen.
    view: Option<View>,
    look_at_us: u64,
    shares: Shares,
    told_at_us: u64,
    /// What was published last when the replicas were taught, and who they were.
    taught: (u64, Vec<NodeId>),
    next_bucket: usize,
    /// Lessons that its primary has taught this node.
    lessons_heard: u64,
}

impl Feature for Clustered {
    fn wants(&self) -> Wants {
        Wants::NOTHING
    }

    fn tick(&mut self, turn: &mut Turn) {
        if !self.is_node {
            return;
        }
        if turn.now_us >= self.look_at_us {
            self.look_at_cluster(turn);
        }
        if let Some(view) = self.view.take() {
            self.split_limits(turn, &view);
            if view.primary.is_none() && turn.tenure.settings().teach_replicas {
                self.teach(turn, &view);
            }
            self.view = Some(view);
        }
    }

    fn event(&mut self, turn: &mut Turn, event: &Event) {
        match event {
            // The server's role may have changed: the next tick looks.
            Event::DataSet(_) => self.look_at_us = 0,
            Event::Message { sender, topic, body } => self.hear(turn, sender, *topic, body),
            _ => {}
        }
    }

    fn report(&self, _: &Tenure, report: &mut Report) {
        report.status.push(("cluster", Value::Text(self.part())));
        report.info.push(("lessons_heard".to_owned(), Value::Total(self.lessons_heard)));
    }
}

impl Clustered {
    /// For a server that is, or isn't, a node of a cluster.
    pub fn new(is_node: bool) -> Clustered {
        Clustered { is_node, ..Clustered::default() }
    }

    /// Which part in the cluster the node has, for people.
    fn part(&self) -> String {
        match &self.view {
            _ if !self.is_node => "no".to_owned(),
            None => "not known yet".to_owned(),
            Some(view) if view.primary.is_some() => "replica".to_owned(),
            Some(view) => format!("primary of {} slots with {} replicas", view.n_own, view.replicas.len()),
        }
    }

    fn look_at_cluster(&mut self, turn: &mut Turn) {
        let reply = turn.server.call(c"CLUSTER", &[b"NODES"]);
        let view = reply.as_ref().and_then(|reply| View::parse(reply.text()?));
        let observer = &mut turn.tenure.observer;
        observer.served.own = view.as_ref().map(|view| view.slots.clone());
        observer.follow(view.as_ref().is_some_and(|view| view.primary.is_some()));
        self.view = view;
        let spent_us = now_us().saturating_sub(turn.now_us);
        self.look_at_us = turn.now_us + (LOOK_SHARE * spent_us).clamp(LOOK_US_MIN, LOOK_US_MAX);
    }

    fn split_limits(&mut self, turn: &mut Turn, view: &View) {
        let tenure = &mut *turn.tenure;
        let tenants = tenure.observer.partitions.tenants();
        if !tenure.settings().limits_of_cluster || !tenants.are_limited() {
            return tenure.observer.partitions.split_limits(None);
        }
        let own = keys_by_tenant(tenure);
        if view.primary.is_none() && turn.now_us >= self.told_at_us + TELL_US {
            self.told_at_us = turn.now_us;
            bus::send(turn.server, None, Topic::Keys.number(), &shares::encode(&own));
        }
        let shares = self.shares.of(tenants.names(), &own, view, turn.now_us);
        tenure.observer.partitions.split_limits(Some(&shares));
    }

    /// Sends the replicas each plan with what it was made of, and the table of keys piece by piece.
    fn teach(&mut self, turn: &mut Turn, view: &View) {
        if view.replicas.is_empty() {
            return;
        }
        let Turn { server, tenure, .. } = turn;
        let tenure = &**tenure;
        let is_news = self.taught.0 != tenure.published_version() || self.taught.1 != view.replicas;
        if let Some(published) = tenure.current().filter(|_| is_news) {
            self.taught = (tenure.published_version(), view.replicas.clone());
            let partitions = &tenure.observer.partitions;
            // What is known of who had a number before concerns nobody.
            let of_what = partitions.of_what().iter().enumerate().map(|(i, &(tenant, class))| {
                let name = tenure.view(i).map(|_| partitions.tenants().names()[tenant.0 as usize].clone());
                (name.unwrap_or_default(), partitions.classes.name(class))
            });
            let lessons = Lessons::of(published, &partitions.binning, of_what).encode();
            view.replicas.iter().for_each(|id| _ = bus::send(server, Some(id), Topic::Lessons.number(), &lessons));
        }
        if let Some(piece) = self.piece_of_key_table(&tenure.observer.partitions, tick(turn.now_us)) {
            view.replicas.iter().for_each(|id| _ = bus::send(server, Some(id), Topic::Classes.number(), &piece));
        }
    }

    /// The next buckets of the table of keys, as a message; `None` where there is no table or nothing in them.
    fn piece_of_key_table(&mut self, partitions: &Partitions, now: u32) -> Option<Vec<u8>> {
        let keys = partitions.keys.shared().filter(|keys| !keys.is_empty())?;
        let n = (keys.n_buckets() / PASS_TICKS).clamp(PASS_BUCKETS_MIN, PASS_BUCKETS_MAX);
        let mut bucket = if self.next_bucket >= keys.n_buckets() { 0 } else { self.next_bucket };
        let last = (bucket + LOOKED_AT_MAX).min(keys.n_buckets());
        let names = partitions.classes.names();
        let mut writer = Writer::default();
        writer.u64(names.len() as u64);
        names.iter().for_each(|name| _ = writer.text(name));
        writer.u64(keys.n_buckets() as u64);
        let head = writer.0.len();
        let most = head + n * (BUCKET_BYTES as usize);
        while bucket < last && writer.0.len() < most {
            for entry in keys.bucket(bucket) {
                writer.u64(bucket as u64);
                writer.0.extend_from_slice(&entry.to_bytes(now));
            }
            bucket += 1;
        }
        self.next_bucket = bucket;
        (writer.0.len() > head).then_some(writer.0)
    }

    /// A message of another node's Tenure.
    fn hear(&mut self, turn: &mut Turn, sender: &NodeId, topic: Topic, body: &[u8]) {
        let is_from_primary = self.view.as_ref().is_some_and(|view| view.primary == Some(*sender));
        match topic {
            Topic::Keys => self.shares.hear(*sender, body, turn.now_us),
            Topic::Lessons if is_from_primary => {
                if let Some(lessons) = Lessons::decode(body) {
                    self.lessons_heard += 1;
                    take_lessons(turn.tenure, lessons);
                }
            }
            Topic::Classes if is_from_primary => _ = take_piece(turn.tenure, body),
            Topic::Lessons | Topic::Classes => {}
        }
    }
}

/// Keys of each tenant that this node is asked for: see `cluster/shares.rs`.
fn keys_by_tenant(tenure: &Tenure) -> KeysByTenant {
    let partitions = &tenure.observer.partitions;
    let views = tenure.current().map_or(&[][..], |published| &published.partitions);
    let mut by_tenant = KeysByTenant::new();
    for (i, (tenant, _)) in partitions.of_what().iter().enumerate() {
        let asked_for = views.get(i).map_or(0.0, |view| view.sampled_keys as f64 / tenure.observer.sampler.rate.rate());
        let name = &partitions.tenants().names()[tenant.0 as usize];
        *by_tenant.entry(name.clone()).or_default() += asked_for.max(tenure.usage.keys()[i]) as u64;
    }
    by_tenant
}

fn take_lessons(tenure: &mut Tenure, lessons: Lessons) {
    tenure.follow_tenants(lessons.partitions.iter().map(|lesson| lesson.tenant.as_str()));
    let partitions = &mut tenure.observer.partitions;
    let known = lessons.partitions.into_iter().filter_map(|lesson| {
        let id = partitions.of_names(&lesson.tenant, &lesson.class)?;
        Some((id, lesson))
    });
    let partitions = known.collect();
    let (epoch, sample_size) = (tenure.observer.epoch(), lessons.sample_size);
    tenure.worker.shared.teach(Taught { epoch, partitions, sample_size, heard: Instant::now() });
}

/// What [`Clustered::piece_of_key_table`] made. `None` where it can't be read, or this table is of another size.
fn take_piece(tenure: &mut Tenure, body: &[u8]) -> Option<()> {
    let mut reader = Reader(body);
    let Partitions { classes, keys, .. } = &mut tenure.observer.partitions;
    let n = reader.count(2)?;
    let names = (0..n).map(|_| reader.text()).collect::<Option<Vec<&str>>>()?;
    let n_buckets = keys.shared()?.n_buckets();
    if reader.u64()? != n_buckets as u64 {
        return None;
    }
    // Hinted classes have numbers in the order in which they came, which differs from node to node.
    let own: Vec<u8> = names.iter().map(|name| classes.numbered(name).unwrap_or(0)).collect();
    let now = tick(now_us());
    while let Some(bucket) = reader.u64() {
        let bytes: &[u8; ENTRY_BYTES] = reader.bytes(ENTRY_BYTES)?.try_into().ok()?;
        let entry = Entry::from_bytes(bytes, now);
        let class = own.get(usize::from(entry.class)).copied().unwrap_or(0);
        keys.take_over(bucket as usize, entry.of_class(class), now);
    }
    Some(())
}
