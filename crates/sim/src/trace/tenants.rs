//! Who an access belongs to: a column of the trace, its client, a prefix of the key, or a hash of it, numbered as
//! they appear.

use std::fmt;
use std::str::FromStr;

use tenure_core::model::key_map::KeyMap;
use tenure_core::units::{KeyHash, TenantId};

use super::row::{Row, shown};
use crate::costs::stir;

/// Where an access's tenant comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantSource {
    /// The format's own column: the tenant of Tenure's CSV, the client of Twitter's, the disk of MSR's, the database of
    /// MONITOR's.
    #[default]
    Column,
    /// The column's number, or its hash where it is none, modulo this: client ids in 15 groups are `column:15`.
    ColumnModulo(u16),
    /// The client where the format tells one beside its column (MONITOR's address without the port), else the column.
    Client,
    /// What stands in the key before the first of this character; keys without it belong to the tenant named "".
    Prefix(u8),
    /// The key's hash modulo this.
    Hash(u16),
    /// One tenant.
    None,
}

impl FromStr for TenantSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |n: &str| n.parse::<u16>().ok().filter(|&n| n > 0);
        let parsed = match text.split_once(':') {
            None if text == "column" => Some(TenantSource::Column),
            None if text == "client" => Some(TenantSource::Client),
            None if text == "none" => Some(TenantSource::None),
            Some(("column", n)) => number(n).map(TenantSource::ColumnModulo),
            Some(("hash", n)) => number(n).map(TenantSource::Hash),
            Some(("prefix", separator)) if separator.len() == 1 => Some(TenantSource::Prefix(separator.as_bytes()[0])),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("tenants '{text}' are none of column, column:N, client, prefix:CHARACTER, hash:N, none")
        })
    }
}

impl fmt::Display for TenantSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TenantSource::Column => write!(f, "column"),
            TenantSource::Client => write!(f, "client"),
            TenantSource::ColumnModulo(n) => write!(f, "column:{n}"),
            TenantSource::Prefix(separator) => write!(f, "prefix:{}", *separator as char),
            TenantSource::Hash(n) => write!(f, "hash:{n}"),
            TenantSource::None => write!(f, "none"),
        }
    }
}

/// Numbers tenants as they appear.
#[derive(Debug)]
pub(super) struct Tenants {
    source: TenantSource,
    /// By the hash of the name.
    ids: KeyMap<TenantId>,
    names: Vec<String>,
    /// The tenant of the access before: most often also that of the next.
    last: Option<(Vec<u8>, TenantId)>,
}

impl Tenants {
    pub fn new(source: TenantSource) -> Self {
        let names = match source {
            TenantSource::Hash(n) | TenantSource::ColumnModulo(n) => (0..n).map(|i| i.to_string()).collect(),
            TenantSource::None => vec![String::new()],
            TenantSource::Column | TenantSource::Client | TenantSource::Prefix(_) => Vec::new(),
        };
        Tenants { source, ids: KeyMap::default(), names, last: None }
    }

    /// The tenant of a row whose key hashes to `key`.
    #[inline]
    pub fn of(&mut self, row: &Row, key: KeyHash) -> Result<TenantId, String> {
        match self.source {
            TenantSource::None => Ok(TenantId(0)),
            TenantSource::Hash(n) => Ok(TenantId((stir(key.0, 3) % u64::from(n)) as u16)),
            TenantSource::Column => self.named(&row.tenant),
            TenantSource::Client if row.client.is_empty() => self.named(&row.tenant),
            TenantSource::Client => self.named(&row.client),
            TenantSource::ColumnModulo(n) => {
                let number = super::row::parse_u64(&row.tenant).unwrap_or_else(|| KeyHash::of(&row.tenant).0);
                Ok(TenantId((number % u64::from(n)) as u16))
            }
            TenantSource::Prefix(separator) => {
                let end = memchr::memchr(separator, &row.key).unwrap_or(0);
                self.named(&row.key[..end])
            }
        }
    }

    #[inline]
    fn named(&mut self, name: &[u8]) -> Result<TenantId, String> {
        // Where a trace names no tenants, comparing nothing with nothing took half of the reading: some processors'
        // vector loads are very slow on the dangling pointer of an empty slice.
        match &self.last {
            Some((last, id)) if last.len() == name.len() && (name.is_empty() || last == name) => Ok(*id),
            _ => self.look_up(name),
        }
    }

    fn look_up(&mut self, name: &[u8]) -> Result<TenantId, String> {
        let hash = KeyHash::of(name);
        let id = match self.ids.get(&hash) {
            Some(&id) => id,
            None => {
                let id = u16::try_from(self.names.len())
                    .map_err(|_| format!("tenant {} is one too many: at most 65536 are told apart", shown(name)))?;
                self.names.push(String::from_utf8_lossy(name).into_owned());
                self.ids.insert(hash, TenantId(id));
                TenantId(id)
            }
        };
        let last = self.last.get_or_insert_default();
        last.0.clear();
        last.0.extend_from_slice(name);
        last.1 = id;
        Ok(id)
    }

    /// Names by tenant number, so far.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
