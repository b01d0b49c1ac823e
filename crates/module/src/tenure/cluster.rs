//! A node of a cluster: which slots it serves, what part of the tenants' limits is its own, and what a primary teaches its replicas.
//! Ties `cluster` to the tick and to messages.

use std::time::Instant;

use tenure_core::key_table::{BUCKET_BYTES, ENTRY_BYTES, Entry, tick};

use super::Tenure;
use crate::cluster::lessons::Lessons;
use crate::cluster::shares::{self, KeysByTenant, Shares};
use crate::cluster::view::{NodeId, View};
use crate::cluster::wire::{Reader, Writer};
use crate::ffi::bus::{self, Topic};
use crate::ffi::callbacks::now_us;
use crate::ffi::server::Server;
use crate::observe::partitions::Partitions;
use crate::worker::Taught;

/// How often the server is asked for its view of the cluster: every second, or as often as that takes 1/200 of the main thread (a
/// reply grows with the cluster's nodes), though every 30 s at the least.
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
    /// The cluster as it was last seen.
    pub view: Option<View>,
    look_at_us: u64,
    shares: Shares,
    told_at_us: u64,
    /// What was published last when the replicas were taught, and who they were.
    taught: (u64, Vec<NodeId>),
    next_bucket: usize,
    /// Lessons that its primary has taught this node.
    pub lessons_heard: u64,
}

impl Tenure {
    /// Ten times a second, on a node of a cluster.
    pub(super) fn cluster_tick(&mut self, server: &Server, now_us: u64) {
        let Some(mut cluster) = self.cluster.take() else { return };
        if now_us >= cluster.look_at_us {
            self.look_at_cluster(server, &mut cluster, now_us);
        }
        if let Some(view) = cluster.view.take() {
            self.split_limits(server, &mut cluster, &view, now_us);
            if view.primary.is_none() && self.settings.teach_replicas {
                self.teach(server, &mut cluster, &view, now_us);
            }
            cluster.view = Some(view);
        }
        self.cluster = Some(cluster);
    }

    /// The server's role may have changed: the next tick looks.
    pub fn cluster_may_have_changed(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.look_at_us = 0;
        }
    }

    fn look_at_cluster(&mut self, server: &Server, cluster: &mut Clustered, began_us: u64) {
        let reply = server.call(c"CLUSTER", &[b"NODES"]);
        let view = reply.as_ref().and_then(|reply| View::parse(reply.text()?));
        // What a replica is sent is of its primary's slots, and it answers for them where clients ask it to.
        self.observer.slots = view.as_ref().filter(|view| view.primary.is_none()).map(|view| view.slots.clone());
        cluster.view = view;
        let spent_us = now_us().saturating_sub(began_us);
        cluster.look_at_us = began_us + (LOOK_SHARE * spent_us).clamp(LOOK_US_MIN, LOOK_US_MAX);
    }

    /// Tells the others how many keys there are, and takes this node's part of each tenant's limits.
    fn split_limits(&mut self, server: &Server, cluster: &mut Clustered, view: &View, now_us: u64) {
        let tenants = self.observer.partitions.tenants();
        if !self.settings.limits_of_cluster || !tenants.are_limited() {
            return self.observer.partitions.split_limits(None);
        }
        let own = self.keys_by_tenant();
        if view.primary.is_none() && now_us >= cluster.told_at_us + TELL_US {
            cluster.told_at_us = now_us;
            bus::send(server, None, Topic::Keys, &shares::encode(&own));
        }
        let shares = cluster.shares.of(tenants.names(), &own, view, now_us);
        self.observer.partitions.split_limits(Some(&shares));
    }

    /// Keys of each tenant that this node is asked for: see `cluster/shares.rs`.
    fn keys_by_tenant(&self) -> KeysByTenant {
        let partitions = &self.observer.partitions;
        let views = self.current().map_or(&[][..], |published| &published.partitions);
        let mut by_tenant = KeysByTenant::new();
        for (i, (tenant, _)) in partitions.of_what().iter().enumerate() {
            let asked_for = views.get(i).map_or(0.0, |view| view.sampled_keys as f64 / self.observer.rate.rate());
            let name = &partitions.tenants().names()[tenant.0 as usize];
            *by_tenant.entry(name.clone()).or_default() += asked_for.max(self.usage.keys()[i]) as u64;
        }
        by_tenant
    }

    /// Sends the replicas each plan with what it was made of, and the table of keys piece by piece.
    fn teach(&mut self, server: &Server, cluster: &mut Clustered, view: &View, now_us: u64) {
        if view.replicas.is_empty() {
            return;
        }
        let is_news = cluster.taught.0 != self.published_version || cluster.taught.1 != view.replicas;
        if let Some(published) = self.current().filter(|_| is_news) {
            cluster.taught = (self.published_version, view.replicas.clone());
            let partitions = &self.observer.partitions;
            let of_what = partitions.of_what().iter().map(|&(tenant, class)| {
                (partitions.tenants().names()[tenant.0 as usize].clone(), partitions.classes.name(class))
            });
            let lessons = Lessons::of(published, &partitions.binning, of_what).encode();
            view.replicas.iter().for_each(|id| _ = bus::send(server, Some(id), Topic::Lessons, &lessons));
        }
        if let Some(piece) = self.piece_of_key_table(&mut cluster.next_bucket, tick(now_us)) {
            view.replicas.iter().for_each(|id| _ = bus::send(server, Some(id), Topic::Classes, &piece));
        }
    }

    /// The next buckets of the table of keys, as a message; `None` where there is no table or nothing in them.
    fn piece_of_key_table(&self, next_bucket: &mut usize, now: u32) -> Option<Vec<u8>> {
        let partitions = &self.observer.partitions;
        let keys = partitions.keys.shared().filter(|keys| !keys.is_empty())?;
        let n = (keys.n_buckets() / PASS_TICKS).clamp(PASS_BUCKETS_MIN, PASS_BUCKETS_MAX);
        let mut bucket = if *next_bucket >= keys.n_buckets() { 0 } else { *next_bucket };
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
        *next_bucket = bucket;
        (writer.0.len() > head).then_some(writer.0)
    }

    /// A message of another node's Tenure.
    pub fn on_message(&mut self, sender: &NodeId, topic: Topic, body: &[u8]) {
        let Some(cluster) = &mut self.cluster else { return };
        let is_from_primary = cluster.view.as_ref().is_some_and(|view| view.primary == Some(*sender));
        match topic {
            Topic::Keys => cluster.shares.hear(*sender, body, now_us()),
            Topic::Lessons if is_from_primary => {
                if let Some(lessons) = Lessons::decode(body) {
                    cluster.lessons_heard += 1;
                    self.take_lessons(lessons);
                }
            }
            Topic::Classes if is_from_primary => _ = self.take_piece(body),
            Topic::Lessons | Topic::Classes => {}
        }
    }

    fn take_lessons(&mut self, lessons: Lessons) {
        let partitions = &mut self.observer.partitions;
        let known = lessons.partitions.into_iter().filter_map(|lesson| {
            let id = partitions.of_names(&lesson.tenant, &lesson.class)?;
            Some((id, lesson))
        });
        let partitions = known.collect();
        let (epoch, sample_size) = (self.observer.epoch(), lessons.sample_size);
        self.worker.shared.teach(Taught { epoch, partitions, sample_size, heard: Instant::now() });
    }

    /// What [`Tenure::piece_of_key_table`] made. `None` where it can't be read, or this table is of another size.
    fn take_piece(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let Partitions { classes, keys, .. } = &mut self.observer.partitions;
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
}
