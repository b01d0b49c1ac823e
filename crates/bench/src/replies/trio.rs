//! A primary and two replicas, as in the paper.

use std::time::Duration;

use anyhow::ensure;
use tenure_servers::{Server, ServerOptions, module_path, wait_for};

use super::Way;
use crate::client::{Connection, Reply};
use crate::system::Setup;

const DEADLINE: Duration = Duration::from_secs(60);

/// Three servers. The replicas are stock, on the clients' core.
pub struct Trio {
    /// Takes the writes.
    pub primary: Server,
    /// Get them.
    pub replicas: [Server; 2],
}

impl Trio {
    /// Starts three servers and waits until the replicas follow. Replies wait for one replica, however long it takes.
    ///
    /// # Errors
    /// When one does not start or does not follow, or the module refuses a setting.
    pub fn start(setup: &Setup, way: Way) -> anyhow::Result<Trio> {
        let on = |cpu: Option<usize>| {
            let options = ServerOptions { cpu, ..ServerOptions::default() };
            // Never so far behind that the link is given up.
            options.set("client-output-buffer-limit", "replica 0 0 0").set("repl-backlog-size", "64mb")
        };
        let mut options = on(setup.placement.server);
        if let Some(mode) = way.setting() {
            options = options.with_module(module_path()?).set("tenure.replies-timeout-ms", 3_600_000);
            for (name, value) in &setup.settings {
                options = options.set(name, value);
            }
            options = options.set("tenure.replies", mode);
        }
        let primary = Server::start(&setup.binary, &options)?;
        let replica = || Server::start(&setup.binary, &on(setup.placement.clients));
        let trio = Trio { primary, replicas: [replica()?, replica()?] };
        for replica in &trio.replicas {
            replica.replica_of(&trio.primary)?;
        }
        trio.wait_until_followed()?;
        Ok(trio)
    }

    /// Both replicas have a write: a stream begins up to a second after its replica has the data set.
    fn wait_until_followed(&self) -> anyhow::Result<()> {
        // On one connection: WAIT is for the writes of its own.
        let mut connection = Connection::open(self.primary.port())?;
        connection.call(&[b"SET", b"first", b"write"])?;
        let waited = connection.call(&[b"WAIT", b"2", DEADLINE.as_millis().to_string().as_bytes()])?;
        ensure!(waited == Reply::Integer(2), "2 replicas should follow; WAIT says {waited:?}");
        Ok(())
    }

    /// Lets the replicas' processes stand still, or go on.
    ///
    /// # Errors
    /// When a signal can't be sent.
    pub fn halt(&self, halts: bool) -> anyhow::Result<()> {
        for replica in self.replicas.iter().filter(|replica| replica.is_alive()) {
            if halts { replica.halt()? } else { replica.resume()? }
        }
        Ok(())
    }

    /// Kills the primary, and waits until the replicas that live have read all that it had sent.
    ///
    /// # Errors
    /// When a replica doesn't notice.
    pub fn kill_primary(&mut self) -> anyhow::Result<()> {
        self.primary.kill();
        self.halt(false)?;
        for replica in self.replicas.iter().filter(|replica| replica.is_alive()) {
            // The link is taken for down when its end was read, and with it all that came before.
            let is_down = || {
                replica
                    .info("replication")
                    .is_ok_and(|info| info.get("master_link_status").is_some_and(|l| l == "down"))
            };
            wait_for(DEADLINE, "a replica to see that its primary is gone", is_down)?;
        }
        Ok(())
    }

    /// The settings in force say that replies wait as they should.
    ///
    /// # Errors
    /// When they don't.
    pub fn check_standing(&self, way: Way) -> anyhow::Result<()> {
        if !matches!(way, Way::Sent | Way::Acked) {
            return Ok(());
        }
        let fields = self.primary.info("tenure")?;
        let standing = fields.get("tenure_replies").map_or("missing", String::as_str);
        ensure!(standing == format!("holding: {way}"), "tenure.replies is {way} and its state is '{standing}'");
        Ok(())
    }
}
