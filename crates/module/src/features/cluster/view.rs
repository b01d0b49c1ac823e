//! The cluster as this node sees it: what it serves, whom it follows, who follows it. Read from `CLUSTER NODES`.

use crate::ffi::messages::NodeId;
use crate::observe::slots::Slots;

/// What one look tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// This node.
    pub own: NodeId,
    /// Whom it follows; `None` on a primary.
    pub primary: Option<NodeId>,
    /// Who follows it and has not failed.
    pub replicas: Vec<NodeId>,
    /// Other primaries that serve slots; of a replica, other than its own.
    pub others: Vec<NodeId>,
    /// What it serves, or its primary, with slots on their way there: their keys are asked for here.
    pub slots: Slots,
    /// Slots that it serves, or its primary, on their way to another node.
    pub leaving: Slots,
    /// How many slots it serves, or its primary, without those on their way to it.
    pub n_own: usize,
    /// How many slots all primaries serve.
    pub n_served: usize,
}

impl View {
    /// Reads the reply of `CLUSTER NODES`; `None` where it isn't one. O(its length).
    pub fn parse(text: &str) -> Option<View> {
        let nodes: Vec<Node> = text.lines().filter_map(Node::parse).collect();
        let own = nodes.iter().find(|node| node.is("myself"))?;
        let is_primary = |node: &&Node| node.is("master");
        let follows = |node: &&Node| node.primary == Some(own.id) && !node.is("fail");
        let served = |node: &Node| node.ranges().map(|(first, last)| usize::from(last - first) + 1).sum::<usize>();
        let server_id = own.primary.unwrap_or(own.id);
        let (mut slots, mut leaving) = (Slots::default(), Slots::default());
        for node in nodes.iter().filter(|node| node.id == server_id) {
            node.ranges().for_each(|(first, last)| (first..=last).for_each(|slot| slots.add(slot)));
            node.on_their_way("-<-").for_each(|slot| slots.add(slot));
            node.on_their_way("->-").for_each(|slot| leaving.add(slot));
        }
        let is_other = |node: &&Node| node.id != server_id && served(node) > 0;
        Some(View {
            own: own.id,
            primary: own.primary,
            replicas: nodes.iter().filter(follows).map(|node| node.id).collect(),
            others: nodes.iter().filter(is_primary).filter(is_other).map(|node| node.id).collect(),
            slots,
            leaving,
            n_own: nodes.iter().filter(|node| node.id == server_id).map(served).sum(),
            n_served: nodes.iter().filter(is_primary).map(served).sum(),
        })
    }

    /// The share of the slots that this node or its primary serves, 0 to 1; 1 where none is served at all.
    pub fn slots_share(&self) -> f64 {
        if self.n_served == 0 { 1.0 } else { self.n_own as f64 / self.n_served as f64 }
    }
}

/// One line: id, address, flags, primary, ping, pong, epoch, link state, slots.
struct Node<'a> {
    id: NodeId,
    flags: &'a str,
    primary: Option<NodeId>,
    slots: Vec<&'a str>,
}

impl<'a> Node<'a> {
    fn parse(line: &'a str) -> Option<Node<'a>> {
        let mut words = line.split_ascii_whitespace();
        let id = words.next()?.as_bytes().try_into().ok()?;
        let flags = words.nth(1)?;
        let primary = words.next()?.as_bytes().try_into().ok();
        Some(Node { id, flags, primary, slots: words.skip(4).collect() })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.split(',').any(|held| held == flag)
    }

    /// First and last of each range that it serves.
    fn ranges(&self) -> impl Iterator<Item = (u16, u16)> {
        self.slots.iter().filter_map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last)| first <= last)
        })
    }

    /// Slots on their way to it, `[77-<-id]`, or to others, `[77->-id]`.
    fn on_their_way(&self, arrow: &str) -> impl Iterator<Item = u16> {
        self.slots.iter().filter_map(move |word| word.strip_prefix('[')?.split_once(arrow)?.0.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: char) -> String {
        letter.to_string().repeat(40)
    }

    fn nodes(own: char) -> String {
        let line = |letter: char, rest: &str| {
            let myself = if letter == own { "myself," } else { "" };
            let rest = rest.replace('P', &id('a'));
            format!("{} 127.0.0.1:7000@17000,host {myself}{rest}\n", id(letter))
        };
        [
            line('a', "master - 0 0 1 connected 0-99 200 [300->-bbb] [400-<-bbb]"),
            line('b', "master - 0 0 2 connected 100-199 201-16383"),
            line('c', "slave P 0 0 1 connected"),
            line('d', "slave,fail P 0 0 1 disconnected"),
            line('e', "master - 0 0 3 connected"),
        ]
        .concat()
    }

    #[test]
    fn a_primary_knows_its_slots_and_its_replicas() {
        let view = View::parse(&nodes('a')).unwrap();
        assert_eq!((view.own[0], view.primary), (b'a', None));
        assert_eq!(view.replicas.iter().map(|id| id[0]).collect::<Vec<u8>>(), b"c");
        assert_eq!(view.others.iter().map(|id| id[0]).collect::<Vec<u8>>(), b"b");
        let mut expected = Slots::default();
        (0..100).chain([200, 400]).for_each(|slot| expected.add(slot));
        assert_eq!((&view.slots, view.n_own, view.n_served), (&expected, 101, 16_384));
        assert_eq!(view.leaving, Slots::of_ranges(&[(300, 300)]));
        assert!((view.slots_share() - 101.0 / 16_384.0).abs() < 1e-9);
    }

    #[test]
    fn a_replica_knows_its_primary() {
        let view = View::parse(&nodes('c')).unwrap();
        assert_eq!((view.primary.map(|id| id[0]), view.n_own), (Some(b'a'), 101));
        assert_eq!(view.others.iter().map(|id| id[0]).collect::<Vec<u8>>(), b"b");
        assert!(view.slots == View::parse(&nodes('a')).unwrap().slots && view.replicas.is_empty());
    }

    #[test]
    fn what_is_no_reply_is_none() {
        for text in ["", "x", "\n\n", "aaaa 127.0.0.1:1 myself,master"] {
            assert_eq!(View::parse(text), None, "{text:?}");
        }
        let lone = format!("{} :0@0 myself,master - 0 0 0 connected", id('a'));
        assert_eq!(View::parse(&lone).unwrap().slots_share(), 1.0);
    }
}
