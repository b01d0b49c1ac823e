//! Messages between nodes, as a module declares them.

/// A node's id, as the server writes it.
pub type NodeId = [u8; 40];

/// How a module's messages are told from others'.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// Their types are counted from here: other modules rarely count high, and the server has room to 254.
    pub first_type: u8,
    /// How many kinds there are, numbered from 0.
    pub kinds: u8,
    /// What every message begins with; its last byte may be the version of all formats.
    pub word: &'static [u8],
}
