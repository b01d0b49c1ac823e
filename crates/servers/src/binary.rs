//! Which servers this machine has: the one on the PATH, and those unpacked by `scripts/servers`.
//!
//! An unpacked server brings the C library it was built for, so it is started through the dynamic loader of its own
//! folder: a server of a newer distribution runs on an older one, and nothing is installed.

use crate::Result;
use anyhow::{Context, anyhow, bail};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// Valkey, 7.2 or newer.
    Valkey,
    /// Redis, 7.0 or newer.
    Redis,
}

impl Product {
    /// Name in lower case, as in package names.
    pub fn name(self) -> &'static str {
        match self {
            Product::Valkey => "valkey",
            Product::Redis => "redis",
        }
    }

    /// Name of the server's program.
    pub fn program(self) -> &'static str {
        match self {
            Product::Valkey => "valkey-server",
            Product::Redis => "redis-server",
        }
    }

    /// Oldest version that has what the module needs.
    pub fn version_min(self) -> (u32, u32, u32) {
        match self {
            Product::Valkey => (7, 2, 0),
            Product::Redis => (7, 0, 0),
        }
    }
}

/// The dynamic loader of an unpacked server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// Absolute path of `ld-linux-*.so.*`.
    pub ld_so: PathBuf,
    /// Folders with the server's libraries, absolute, separated by colons.
    pub library_path: String,
}

/// A server program that was found and can tell its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerBinary {
    /// Whose server it is.
    pub product: Product,
    /// Major, minor, patch.
    pub version: (u32, u32, u32),
    /// For tables and messages, such as `valkey-8.0.1`.
    pub label: String,
    /// Absolute path of the program.
    pub program: PathBuf,
    /// How to start it when it needs its own C library.
    pub loader: Option<Loader>,
}

impl fmt::Display for ServerBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.label, self.program.display())
    }
}

impl ServerBinary {
    /// The server to use when nothing else is said: `TENURE_SERVER` when set, else `valkey-server`, else
    /// `redis-server` on the PATH.
    ///
    /// # Errors
    /// When there is none, or only older ones than Valkey 7.2 and Redis 7.0. The text names what was found.
    pub fn installed() -> Result<ServerBinary> {
        if let Some(given) = env::var_os("TENURE_SERVER") {
            let program = PathBuf::from(given);
            return ServerBinary::at(&program).with_context(|| format!("TENURE_SERVER is {}", program.display()));
        }
        let mut refused = Vec::new();
        for product in [Product::Valkey, Product::Redis] {
            match find_on_path(product.program()).map(|program| ServerBinary::at(&program)) {
                Some(Ok(server)) => return Ok(server),
                Some(Err(error)) => refused.push(format!("{error:#}")),
                None => refused.push(format!("no {} on the PATH", product.program())),
            }
        }
        bail!("no usable server (Valkey 7.2 or newer, Redis 7.0 or newer): {}", refused.join("; "))
    }

    /// Every server of this machine, oldest version first: the installed one, and those unpacked under
    /// `TENURE_SERVERS_DIR`, by default `.servers` of this workspace. Of two with the same version the installed one
    /// stays.
    ///
    /// # Errors
    /// When there is none at all, or an unpacked one does not run (delete its folder then).
    pub fn all() -> Result<Vec<ServerBinary>> {
        let installed = ServerBinary::installed();
        let mut servers = ServerBinary::unpacked(&servers_folder())?;
        match installed {
            Ok(server) => servers.insert(0, server),
            Err(error) if servers.is_empty() => return Err(error),
            Err(_) => {}
        }
        servers.sort_by_key(|server| (server.version, server.product));
        servers.dedup_by_key(|server| (server.version, server.product));
        Ok(servers)
    }

    /// A server that was built here with the allocator that comes with its source, which the distribution's aren't:
    /// `None` where none could be.
    ///
    /// # Errors
    /// When it does not run.
    pub fn with_own_allocator() -> Result<Option<ServerBinary>> {
        Ok(ServerBinary::unpacked(&servers_folder().join("built"))?.pop())
    }

    /// The servers unpacked under `folder`, each in a folder of its own; none when `folder` is absent.
    fn unpacked(folder: &Path) -> Result<Vec<ServerBinary>> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
        let mut servers = Vec::new();
        for entry in entries {
            let root = entry.with_context(|| format!("{} cannot be read", folder.display()))?.path();
            // A name with a leading dot is a folder that `scripts/servers` has not finished.
            if entry_is_hidden(&root) {
                continue;
            }
            for product in [Product::Valkey, Product::Redis] {
                let program = root.join("usr/bin").join(product.program());
                if program.is_file() {
                    servers.push(ServerBinary::at(&program)?);
                }
            }
        }
        Ok(servers)
    }

    /// The server at `program`, started through a dynamic loader when the same tree of folders has one (`usr/bin`
    /// beside `lib` or `usr/lib`, as unpacked packages have, other than the machine's own).
    ///
    /// # Errors
    /// When it does not run, is neither Valkey nor Redis, or is too old.
    pub fn at(program: &Path) -> Result<ServerBinary> {
        let program = std::path::absolute(program).with_context(|| format!("{} is no path", program.display()))?;
        let loader = unpacked_root(&program).and_then(find_loader);
        let words = command_line(&program, loader.as_ref());
        let output = Command::new(&words[0])
            .args(&words[1..])
            .arg("--version")
            .output()
            .with_context(|| format!("{} does not start", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (product, version) = parse_version(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            anyhow!("{} --version says neither Valkey nor Redis: {}{}", program.display(), text.trim(), errors.trim())
        })?;
        check_version(product, version).with_context(|| program.display().to_string())?;
        let (major, minor, patch) = version;
        let label = format!("{}-{major}.{minor}.{patch}", product.name());
        Ok(ServerBinary { product, version, label, program, loader })
    }

    /// The words that run the server, to be followed by its own arguments.
    pub fn command_line(&self) -> Vec<OsString> {
        command_line(&self.program, self.loader.as_ref())
    }
}

fn command_line(program: &Path, loader: Option<&Loader>) -> Vec<OsString> {
    let mut words = Vec::new();
    if let Some(loader) = loader {
        words.extend([loader.ld_so.clone().into(), "--library-path".into(), loader.library_path.clone().into()]);
    }
    words.push(program.into());
    words
}

fn check_version(product: Product, version: (u32, u32, u32)) -> Result<()> {
    if version < product.version_min() {
        let (major, minor, patch) = version;
        let (major_min, minor_min, _) = product.version_min();
        bail!("{} {major}.{minor}.{patch} is too old; needed is {major_min}.{minor_min} or newer", product.name());
    }
    Ok(())
}

fn entry_is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn servers_folder() -> PathBuf {
    match env::var_os("TENURE_SERVERS_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.servers"),
    }
}

fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// The folder that stands for `/` around `program`, when that is not `/` itself.
fn unpacked_root(program: &Path) -> Option<&Path> {
    let bin = program.parent().filter(|bin| bin.ends_with("usr/bin"))?;
    bin.parent()?.parent().filter(|root| root.parent().is_some())
}

/// The dynamic loader under `root`, with every library folder there.
fn find_loader(root: &Path) -> Option<Loader> {
    let library_folders: Vec<PathBuf> = ["lib", "usr/lib"]
        .iter()
        .filter_map(|lib| fs::read_dir(root.join(lib)).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.is_dir() && path.to_string_lossy().ends_with("-linux-gnu"))
        .collect();
    let ld_so = library_folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux-")))?;
    let library_path = library_folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
    Some(Loader { ld_so, library_path })
}

/// Product and version from the answer to `--version`, such as `Valkey server v=8.0.1 sha=...`.
fn parse_version(text: &str) -> Option<(Product, (u32, u32, u32))> {
    let product = match text.split_whitespace().next()? {
        "Valkey" => Product::Valkey,
        "Redis" => Product::Redis,
        _ => return None,
    };
    let numbers = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let mut parts = numbers.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().flatten();
    Some((product, (next()?, next()?, next().unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_products_are_read() {
        let check = |text: &str, expected| assert_eq!(parse_version(text), expected, "{text}");
        check("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", Some((Product::Redis, (7, 0, 15))));
        check("Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0", Some((Product::Valkey, (8, 0, 1))));
        check("Valkey server v=9.0.0-rc1 sha=0", Some((Product::Valkey, (9, 0, 0))));
        check("memcached 1.6", None);
        check("", None);
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_with_what_is_needed() {
        let error = check_version(Product::Redis, (6, 2, 1)).unwrap_err().to_string();
        assert!(error.contains("6.2.1") && error.contains("7.0 or newer"), "{error}");
        assert!(check_version(Product::Valkey, (7, 0, 9)).is_err());
        assert!(check_version(Product::Redis, (7, 0, 0)).is_ok());
    }

    #[test]
    fn the_machines_own_programs_need_no_loader() {
        assert_eq!(unpacked_root(Path::new("/usr/bin/redis-server")), None);
        assert_eq!(unpacked_root(Path::new("/usr/local/bin/redis-server")), None);
        assert_eq!(unpacked_root(Path::new("/s/x/usr/bin/redis-server")), Some(Path::new("/s/x")));
    }

    #[test]
    fn an_unpacked_tree_has_its_loader_and_library_folders() {
        let root = tempfile::tempdir().unwrap();
        let libraries = root.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&libraries).unwrap();
        fs::create_dir_all(root.path().join("usr/lib/valkey")).unwrap();
        fs::write(libraries.join("ld-linux-x86-64.so.2"), "").unwrap();
        let loader = find_loader(root.path()).unwrap();
        assert_eq!(loader.ld_so, libraries.join("ld-linux-x86-64.so.2"));
        assert_eq!(loader.library_path, libraries.display().to_string());
    }
}
