//! A node of a cluster: which slots it serves, and what part of the tenants' limits is its own.
//!
//! Every primary decides for its own share of the keys by itself: slots are a hash, so each share is a sample of the
//! whole, and its curve the whole's at its part of the memory. What can't be known by one node alone is what part of
//! a limit that holds for the whole cluster is its own. `ffi/bus.rs` carries the messages.

pub mod shares;
pub mod view;

use self::shares::{KeysByTenant, Shares};
use self::view::View;
use crate::feature::{Event, Feature, Report, Topic, Turn, Wants};
use crate::ffi::bus;
use crate::ffi::clock::now_us;
use crate::ffi::info::Value;
use crate::ffi::messages::NodeId;
use crate::tenure::Tenure;

/// How often the server is asked for its view of the cluster: every second, or as often as that takes 1/200 of the
/// main thread (a reply grows with the cluster's nodes), though every 30 s at the least.
const LOOK_US_MIN: u64 = 1_000_000;
const LOOK_US_MAX: u64 = 30_000_000;
const LOOK_SHARE: u64 = 200;
/// How often the others are told how many keys there are.
const TELL_US: u64 = 1_000_000;

/// What a node of a cluster keeps.
#[derive(Default)]
pub struct Clustered {
    is_node: bool,
    /// The cluster as it was last seen.
    view: Option<View>,
    look_at_us: u64,
    shares: Shares,
    told_at_us: u64,
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
        observer.served.leaving = view.as_ref().map(|view| view.leaving.clone()).unwrap_or_default();
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

    /// A message of another node's Tenure.
    fn hear(&mut self, turn: &mut Turn, sender: &NodeId, topic: Topic, body: &[u8]) {
        match topic {
            Topic::Keys => self.shares.hear(*sender, body, turn.now_us),
        }
    }
}

/// Keys of each tenant that this node is asked for: see `cluster/shares.rs`.
fn keys_by_tenant(tenure: &Tenure) -> KeysByTenant {
    let partitions = &tenure.observer.partitions;
    let views = tenure.current().map_or(&[][..], |published| &published.partitions);
    let rate = tenure.worker.shared.rate().rate();
    let mut by_tenant = KeysByTenant::new();
    for (i, (tenant, _)) in partitions.of_what().iter().enumerate() {
        let asked_for = views.get(i).map_or(0.0, |view| view.sampled_keys as f64 / rate);
        let name = &partitions.tenants().names()[tenant.0 as usize];
        *by_tenant.entry(name.clone()).or_default() += asked_for.max(tenure.usage.keys()[i]) as u64;
    }
    by_tenant
}
