//! libCacheSim's csv: any columns, told by the parameters of its `-t` option.
//!
//! Source: libCacheSim's command line: `time-col=2, obj-id-col=5, obj-size-col=4, op-col=…, ttl-col=…, tenant-col=…`,
//! counted from 1, with `delimiter=,` and `has-header=true`. `obj-id-is-num` and `feature-cols` change nothing here.
//! Times are in seconds. Differs: a header is recognised by itself (the first line has no number where the size or
//! time should be), and where no parameters are given it must be one whose names are known.

use super::delimited::{Columns, Role};
use super::row::{Row, parse_seconds_us};

/// The format. See the file's opening.
#[derive(Debug)]
pub(super) struct LibCacheSimCsv {
    columns: Columns,
    has_header: Option<bool>,
    first: bool,
}

impl LibCacheSimCsv {
    /// A reader for these parameters; blank ones leave the columns to the header.
    pub fn new(parameters: &str) -> Result<Self, String> {
        let mut format =
            LibCacheSimCsv { columns: Columns { roles: Vec::new(), delimiter: b',' }, has_header: None, first: true };
        // The delimiter may itself be a comma, which stands between parameters as well.
        let text = parameters.replace("delimiter=,,", "delimiter=comma,");
        let text = if text.trim_end().ends_with("delimiter=,") {
            text.replace("delimiter=,", "delimiter=comma")
        } else {
            text
        };
        for parameter in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or_else(|| not_understood(parameter))?;
            format.take_parameter(name.trim(), value).ok_or_else(|| not_understood(parameter))?;
        }
        if !format.columns.roles.is_empty() && !format.columns.has_key() {
            return Err("the parameters name no obj-id-col".to_owned());
        }
        Ok(format)
    }

    fn take_parameter(&mut self, name: &str, value: &str) -> Option<()> {
        let role = match name {
            "time-col" => Role::TimeSeconds,
            "obj-id-col" => Role::Key,
            "obj-size-col" => Role::Size,
            "op-col" => Role::Op,
            "ttl-col" => Role::TtlSeconds,
            "tenant-col" => Role::Tenant,
            "cost-col" => Role::PenaltyUs,
            "delimiter" => {
                self.columns.delimiter = match value {
                    "comma" => b',',
                    "\\t" | "tab" => b'\t',
                    _ => *value.as_bytes().first()?,
                };
                return Some(());
            }
            "has-header" => {
                self.has_header = Some(matches!(value.trim(), "1" | "true"));
                return Some(());
            }
            "obj-id-is-num" | "feature-cols" => return Some(()),
            _ => return None,
        };
        let column = value.trim().parse::<usize>().ok().filter(|&c| (1..=1000).contains(&c))?;
        let roles = &mut self.columns.roles;
        roles.resize(roles.len().max(column), Role::Ignored);
        roles[column - 1] = role;
        Some(())
    }

    /// Reads one line; false where it is the header.
    pub fn parse(&mut self, line: &[u8], row: &mut Row) -> Result<bool, String> {
        if std::mem::take(&mut self.first) && self.take_header(line)? {
            return Ok(false);
        }
        self.columns.parse(line, row)?;
        Ok(true)
    }

    fn take_header(&mut self, line: &[u8]) -> Result<bool, String> {
        if self.columns.has_key() {
            return Ok(self.has_header.unwrap_or_else(|| !self.numbers_are_numbers(line)));
        }
        let roles: Vec<Role> = line.split(|&b| b == self.columns.delimiter).map(role_of).collect();
        if !roles.contains(&Role::Key) {
            return Err("the first line names no column of keys: say which columns hold what, \
                 as in -t \"time-col=1, obj-id-col=2, obj-size-col=3\""
                .to_owned());
        }
        self.columns.roles = roles;
        Ok(true)
    }

    fn numbers_are_numbers(&self, line: &[u8]) -> bool {
        let fields = line.split(|&b| b == self.columns.delimiter);
        fields.zip(&self.columns.roles).all(|(field, role)| match role {
            Role::TimeSeconds | Role::Size => field.is_empty() || parse_seconds_us(field.trim_ascii()).is_some(),
            _ => true,
        })
    }
}

fn not_understood(parameter: &str) -> String {
    let known = "time-col, obj-id-col, obj-size-col, op-col, ttl-col, tenant-col, cost-col (a number from 1), \
                 delimiter, has-header, obj-id-is-num, feature-cols";
    format!("trace parameter '{parameter}' is not understood; allowed are {known}")
}

/// The names that headers of published traces use.
pub(super) fn role_of(name: &[u8]) -> Role {
    match name.trim_ascii().to_ascii_lowercase().as_slice() {
        b"time" | b"timestamp" | b"ts" | b"clock_time" => Role::TimeSeconds,
        b"obj_id" | b"obj-id" | b"id" | b"object" | b"key" | b"lbn" => Role::Key,
        b"obj_size" | b"obj-size" | b"size" => Role::Size,
        b"op" => Role::Op,
        b"ttl" => Role::TtlSeconds,
        b"tenant" | b"ns" => Role::Tenant,
        _ => Role::Ignored,
    }
}
