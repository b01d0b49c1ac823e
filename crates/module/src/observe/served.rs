//! Which keys of a cluster this node holds: those of its own slots, and those of slots that are on their way to it.
//!
//! Of other keys nothing is counted: their commands are answered with a redirect.

use super::arrivals::Arrivals;
use super::clients::Clients;
use super::command_table::Effect;
use super::slots::Slots;

/// The slots of this node.
#[derive(Default)]
pub struct ServedSlots {
    /// What it or its primary serves; `None` where there is no cluster.
    pub own: Option<Slots>,
    /// Those of them that are on their way to another node, key by key.
    pub leaving: Slots,
    /// Slots on their way to this node, whose keys are there already.
    pub arrivals: Arrivals,
    /// Keys of other nodes that were accessed here: those commands are answered with a redirect.
    pub redirected: u64,
}

impl ServedSlots {
    /// True where the key is accessed on another node: the client is sent there, or that node's accesses are repeated
    /// here.
    #[inline(never)]
    pub fn is_elsewhere(&mut self, clients: &Clients, key: &[u8], effect: Effect) -> bool {
        if self.arrivals.have(key) {
            return true;
        }
        let is_redirected = self.is_redirected(clients, key, effect);
        self.redirected += u64::from(is_redirected);
        is_redirected
    }

    /// True where a node of a cluster sends the client elsewhere.
    fn is_redirected(&self, clients: &Clients, key: &[u8], effect: Effect) -> bool {
        let is_others = || self.own.as_ref().is_some_and(|slots| !slots.have(key));
        if !clients.is_replica() {
            return is_others();
        }
        !clients.sender().is_served(effect) || (effect == Effect::Read && is_others())
    }
}
