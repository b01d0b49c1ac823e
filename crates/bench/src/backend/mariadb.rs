//! A MariaDB server of the tool's own as the backend: private data folder, private socket, a port on 127.0.0.1, gone
//! afterwards.
//!
//! Starts in 1 to 5 s; one million rows of 1 KB take another 10 to 20 s through a sequence table. Fetches are prepared
//! SELECTs by primary key. The buffer pool holds the whole table, so that a fetch costs the same whatever came before.

use std::env;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Statement};
use tempfile::TempDir;

use super::{Backend, fit, row_of};
use tenure_servers::wait_for;

/// A start takes up to 5 s on a slow disk; this is the point where waiting longer makes no sense.
const START_DEADLINE: Duration = Duration::from_secs(60);

const DATABASE: &str = "tenure";
const USER: &str = "tenure";
const SELECT: &str = "SELECT payload FROM record WHERE id = ?";

/// Where Debian and Ubuntu put the server, which is not on every user's PATH.
const MORE_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// A running MariaDB with a table of records. Dropping it kills the server and deletes its data.
#[derive(Debug)]
pub struct MariaDb {
    folder: TempDir,
    address: SocketAddr,
    child: Child,
    n_rows: u64,
}

impl MariaDb {
    /// True when the server's programs are installed.
    pub fn is_installed() -> bool {
        program("mariadbd").is_ok() && program("mariadb-install-db").is_ok()
    }

    /// Starts a server and fills its table with `n_rows` rows.
    ///
    /// # Errors
    /// When MariaDB is not installed (the text names the package) or does not start (the text has the end of its log).
    pub fn start(n_rows: u64) -> anyhow::Result<MariaDb> {
        let (server, install) = (program("mariadbd")?, program("mariadb-install-db")?);
        let folder = tempfile::Builder::new().prefix("tenure-mariadb-").tempdir()?;
        let data = folder.path().join("data");
        install_database(&install, &data)?;
        // Another process may take the port before the server does; then the start fails and says so.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(&server)
            .arg("--no-defaults")
            .args(as_this_user())
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket(folder.path()).display()))
            .args(["--bind-address=127.0.0.1".to_string(), format!("--port={}", address.port())])
            .arg(format!("--innodb-buffer-pool-size={}", buffer_pool_bytes(n_rows)))
            // Nobody needs this data after a crash.
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin"])
            .args(["--skip-name-resolve", "--skip-slave-start", "--max-connections=2000"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for the tool, which then ends the server in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} does not start", server.display()))?;
        let mut database = MariaDb { folder, address, child, n_rows };
        database.wait_until_it_answers()?;
        database.fill().context("MariaDB could not be filled")?;
        Ok(database)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait_until_it_answers(&mut self) -> anyhow::Result<()> {
        let mut has_ended = false;
        let waited = wait_for(START_DEADLINE, "MariaDB to answer", || {
            has_ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
            has_ended || self.connect_as_root().is_ok()
        });
        if waited.is_err() || has_ended {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            bail!("MariaDB did not start; the end of its log:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        Ok(())
    }

    fn connect_as_root(&self) -> anyhow::Result<Conn> {
        let path = socket(self.folder.path()).display().to_string();
        Ok(Conn::new(OptsBuilder::new().socket(Some(path)).user(Some("root")))?)
    }

    fn fill(&self) -> anyhow::Result<()> {
        let mut connection = self.connect_as_root()?;
        for statement in [
            format!("CREATE DATABASE {DATABASE}"),
            format!("CREATE USER '{USER}'@'127.0.0.1'"),
            format!("GRANT SELECT ON {DATABASE}.* TO '{USER}'@'127.0.0.1'"),
            format!("USE {DATABASE}"),
            "CREATE TABLE record (id BIGINT UNSIGNED PRIMARY KEY, payload VARBINARY(1000) NOT NULL)".to_string(),
            // Without these checks an empty table is filled in bulk, several times faster.
            "SET unique_checks = 0, foreign_key_checks = 0".to_string(),
            format!(
                "INSERT INTO record SELECT seq, LEFT(REPEAT(MD5(seq), 32), 1000) FROM seq_1_to_{n}",
                n = self.n_rows
            ),
        ] {
            connection.query_drop(&statement).with_context(|| statement.clone())?;
        }
        Ok(())
    }

    /// A connection over TCP to `address`: the server's own, or that of a proxy to it.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn connect(&self, address: SocketAddr) -> anyhow::Result<Box<dyn Backend>> {
        let options = OptsBuilder::new()
            .ip_or_hostname(Some(address.ip().to_string()))
            .tcp_port(address.port())
            .prefer_socket(false)
            .user(Some(USER))
            .db_name(Some(DATABASE));
        let mut connection = Conn::new(options).with_context(|| format!("MariaDB at {address} refuses"))?;
        let select = connection.prep(SELECT)?;
        Ok(Box::new(Table { connection, select, n_rows: self.n_rows }))
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // The data goes too, so there is nothing to write back. It fails only for a server that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Table {
    connection: Conn,
    select: Statement,
    n_rows: u64,
}

impl Backend for Table {
    fn fetch(&mut self, key: &[u8], value_bytes: usize, value: &mut Vec<u8>) -> anyhow::Result<()> {
        let id = row_of(key, self.n_rows);
        let row: Option<Vec<u8>> = self.connection.exec_first(&self.select, (id,)).context("MariaDB fails")?;
        fit(&row.ok_or_else(|| anyhow!("MariaDB has no row {id}"))?, value_bytes, value);
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// The table, its B-tree's slack, and what the server keeps for itself.
fn buffer_pool_bytes(n_rows: u64) -> u64 {
    n_rows * 1400 + (128 << 20)
}

fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file()).ok_or_else(|| {
        anyhow!("{name} is not installed: `apt-get install mariadb-server`, or take --backend sqlite or delay:US,US")
    })
}

/// MariaDB refuses to run as root unless told so by name.
fn as_this_user() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

fn install_database(install: &Path, data: &Path) -> anyhow::Result<()> {
    let output = Command::new(install)
        .arg("--no-defaults")
        .args(as_this_user())
        .arg(format!("--datadir={}", data.display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .output()
        .with_context(|| format!("{} does not start", install.display()))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{} failed:\n{}", install.display(), String::from_utf8_lossy(&text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{DelayProxy, REMOTE_ONE_WAY};
    use super::*;
    use std::time::Instant;

    /// The shortest of many fetches, in µs, since a busy machine delays most of them.
    fn shortest_us(backend: &mut dyn Backend) -> f64 {
        let mut value = Vec::new();
        let fetch = |i: u32| {
            let start = Instant::now();
            backend.fetch(format!("user{i}").as_bytes(), 1000, &mut value).unwrap();
            start.elapsed().as_secs_f64() * 1e6
        };
        (0..200).map(fetch).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn rows_are_served_locally_and_through_the_proxy() {
        if !MariaDb::is_installed() {
            println!("SKIPPED: rows_are_served_locally_and_through_the_proxy: mariadbd is not installed");
            return;
        }
        let server = MariaDb::start(500).unwrap();
        let proxy = DelayProxy::start(server.address(), REMOTE_ONE_WAY).unwrap();
        let mut local = server.connect(server.address()).unwrap();
        let mut remote = server.connect(proxy.address()).unwrap();
        let (mut here, mut there) = (Vec::new(), Vec::new());
        local.fetch(b"b0:user1", 1000, &mut here).unwrap();
        remote.fetch(b"b0:user1", 1000, &mut there).unwrap();
        assert_eq!(here, there);
        assert_eq!(here.len(), 1000);
        assert!(here.iter().all(u8::is_ascii_hexdigit));
        let (local_us, remote_us) = (shortest_us(local.as_mut()), shortest_us(remote.as_mut()));
        assert!(remote_us >= 900.0, "{remote_us}: both ways take 450 µs");
        assert!(local_us < remote_us - 500.0, "local {local_us}, remote {remote_us}");
    }
}
