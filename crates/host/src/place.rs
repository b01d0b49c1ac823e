//! Where slow memory lies, as text says it.

use std::fmt;
use std::path::PathBuf;

/// Nodes that the kernel may know.
const NODES_MAX: u32 = 1024;

/// A place for slow memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Ordinary memory: to try the machinery.
    Anon,
    /// Memory of a NUMA node: of another socket, or one without processors, as CXL memory appears.
    Numa(u32),
    /// A file, or one in this folder, mapped into memory.
    File(PathBuf),
}

impl Place {
    /// Reads the setting; `None` where it is empty.
    ///
    /// # Errors
    /// What is wrong with it and what is allowed. Whether the place gives memory is seen when it is opened.
    pub fn parse(text: &str) -> Result<Option<Place>, String> {
        const ALLOWED: &str = "allowed are anon, numa:NODE, file:PATH, or nothing";
        let place = match text.split_once(':') {
            None if text.is_empty() => return Ok(None),
            None if text == "anon" => Place::Anon,
            Some(("numa", node)) => match node.parse() {
                Ok(node) if node < NODES_MAX => Place::Numa(node),
                _ => return Err(format!("'{node}' is no NUMA node; allowed are 0 to {}", NODES_MAX - 1)),
            },
            Some(("file", path)) if path.starts_with('/') => Place::File(path.into()),
            Some(("file", path)) => return Err(format!("file:{path} is not absolute; {ALLOWED}")),
            Some(("dax", _)) => return Err(DAX.to_owned()),
            _ => return Err(format!("the slow tier is '{text}'; {ALLOWED}")),
        };
        Ok(Some(place))
    }
}

/// Device DAX can be mapped shared alone.
const DAX: &str = "a DAX device can't be used as it is: it can only be mapped shared, so that a save would see what \
                   is written after it began. Make it a NUMA node (daxctl reconfigure-device --mode=system-ram) and \
                   use numa:NODE, or put a file system on it (mount -o dax) and use file:PATH";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Anon => f.write_str("anon"),
            Place::Numa(node) => write!(f, "numa:{node}"),
            Place::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written_alike() {
        for text in ["anon", "numa:3", "file:/mnt/slow"] {
            assert_eq!(Place::parse(text).unwrap().unwrap().to_string(), text);
        }
        assert_eq!(Place::parse(""), Ok(None));
    }

    #[test]
    fn what_is_none_is_refused_with_what_is_allowed() {
        for (text, part) in [
            ("cxl", "allowed are anon"),
            ("numa:x", "0 to 1023"),
            ("numa:1024", "0 to 1023"),
            ("file:slow", "not absolute"),
            ("dax:/dev/dax0.0", "numa:NODE"),
            ("anon:", "allowed are anon"),
        ] {
            assert!(Place::parse(text).is_err_and(|why| why.contains(part)), "{text}");
        }
    }
}
