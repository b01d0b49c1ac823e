//! Limits that hold for the whole cluster: each node's part is its share of the tenant's keys.
//!
//! Every second each primary tells the others how many keys of each tenant it is asked for. Counted are keys asked
//! for of late, in the cache or not (as the models know them), where those are more than it holds: a node that is
//! held short has fewer keys in memory, and would be held shorter still. Where a primary that serves slots has told
//! nothing for ten seconds (it has the setting otherwise, or no module), and of tenants that nobody has keys of, the
//! share is that of the slots.

use std::collections::HashMap;

use super::view::View;
use crate::ffi::messages::NodeId;
use crate::wire::{Reader, Writer};

/// What was told so long ago counts no more.
const TOLD_US_MAX: u64 = 10_000_000;

/// How many keys of each tenant, by its name.
pub type KeysByTenant = HashMap<String, u64>;

/// What the others have told.
#[derive(Debug, Default)]
pub struct Shares {
    told: HashMap<NodeId, (u64, KeysByTenant)>,
}

/// A message's body, of what this node has.
pub fn encode(keys: &KeysByTenant) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(keys.len() as u64);
    for (name, &n) in keys {
        writer.text(name).u64(n);
    }
    writer.0
}

fn decode(body: &[u8]) -> Option<KeysByTenant> {
    let mut reader = Reader(body);
    let n = reader.count(10)?;
    (0..n).map(|_| Some((reader.text()?.to_owned(), reader.u64()?))).collect()
}

impl Shares {
    /// Another node has told what it has.
    pub fn hear(&mut self, from: NodeId, body: &[u8], now_us: u64) {
        if let Some(keys) = decode(body) {
            self.told.insert(from, (now_us, keys));
        }
    }

    /// This node's share of each of `tenants`, 0 to 1, of which it has `own` keys.
    pub fn of(&mut self, tenants: &[String], own: &KeysByTenant, view: &View, now_us: u64) -> Vec<f64> {
        self.told.retain(|id, (told_us, _)| now_us < *told_us + TOLD_US_MAX && view.others.contains(id));
        let all_have_told = view.others.iter().all(|id| self.told.contains_key(id));
        let share = |name: &String| {
            let count = |keys: &KeysByTenant| keys.get(name).copied().unwrap_or(0) as f64;
            let (own, others) = (count(own), self.told.values().map(|(_, keys)| count(keys)).sum::<f64>());
            if all_have_told && own + others > 0.0 { own / (own + others) } else { view.slots_share() }
        };
        tenants.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::slots::Slots;

    const OTHERS: [NodeId; 2] = [[b'b'; 40], [b'c'; 40]];

    fn view() -> View {
        let (slots, others) = (Slots::default(), OTHERS.to_vec());
        View {
            own: [b'a'; 40],
            primary: None,
            replicas: Vec::new(),
            others,
            slots,
            leaving: Slots::default(),
            n_own: 4,
            n_served: 16,
        }
    }

    fn keys(counts: &[(&str, u64)]) -> KeysByTenant {
        counts.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
    }

    fn shares_of(shares: &mut Shares, now_us: u64) -> Vec<f64> {
        let names = ["a", "b", "new"].map(str::to_owned);
        shares.of(&names, &keys(&[("a", 10), ("b", 0)]), &view(), now_us)
    }

    #[test]
    fn a_share_is_of_keys_once_all_have_told_and_of_slots_else() {
        let mut shares = Shares::default();
        assert_eq!(shares_of(&mut shares, 0), [0.25; 3]);
        shares.hear(OTHERS[0], &encode(&keys(&[("a", 20), ("b", 5)])), 0);
        assert_eq!(shares_of(&mut shares, 0), [0.25; 3], "one has told nothing");
        shares.hear(OTHERS[1], &encode(&keys(&[("a", 10)])), 5_000_000);
        assert_eq!(shares_of(&mut shares, 5_000_000), [0.25, 0.0, 0.25], "nobody has the third");
        shares.hear(OTHERS[0], &encode(&keys(&[("a", 30)])), 6_000_000);
        assert_eq!(shares_of(&mut shares, 9_000_000)[0], 0.2, "the last word counts");
        shares.hear([b'x'; 40], &encode(&keys(&[("a", 1000)])), 9_000_000);
        assert_eq!(shares_of(&mut shares, 9_000_000)[0], 0.2, "who serves no slot doesn't");
        assert_eq!(shares_of(&mut shares, 15_500_000)[0], 0.25, "one has gone silent");
    }

    #[test]
    fn a_message_that_is_none_is_dropped() {
        let mut shares = Shares::default();
        for body in [&b""[..], b"\xff\xff\xff\xff\xff\xff\xff\xff", &encode(&keys(&[("a", 1)]))[..11]] {
            shares.hear(OTHERS[0], body, 0);
        }
        assert!(shares.told.is_empty());
        assert_eq!(decode(&encode(&keys(&[("a", 1), ("other", 7)]))), Some(keys(&[("a", 1), ("other", 7)])));
    }
}
