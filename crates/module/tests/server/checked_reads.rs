//! Reads are checked beside all that Tenure does to values: none returns what was not written.

use std::time::Duration;

use redis::IntoConnectionInfo;
use tempfile::tempdir;
use tenure_servers::Server;
use tenure_torture::disturb::Disturbance;
use tenure_torture::{Outcome, Progress, Torture};

use crate::harness::{info, oldest_and_newest, start, wait_for, with_module};

/// Some seconds of `tenure torture` with such a seed; it ends sooner where a reply is wrong.
fn torture(server: &Server, seed: u64, disturbances: &[Disturbance]) -> Outcome {
    let torture = Torture {
        server: format!("redis://127.0.0.1:{}", server.port()).into_connection_info().unwrap(),
        n_clients: 4,
        n_keys: 2000,
        value_bytes_max: 16_384,
        seed,
        duration: Duration::from_secs(6),
        disturbances: disturbances.to_vec(),
    };
    torture.run(&Progress::default()).unwrap()
}

/// A full cache that evicts, whose partitions sleep and wake, whose policy changes, which is turned off and on, and
/// saves.
#[test]
fn no_read_returns_what_was_not_written() {
    let seed = std::env::var("TENURE_TORTURE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for binary in oldest_and_newest() {
        let folder = tempdir().unwrap();
        let options = with_module()
            .set("maxmemory", "16mb")
            .set("maxmemory-policy", "allkeys-lru")
            .set("tenure.spill-dir", folder.path().display());
        let server = start(&binary, &options);
        let all = [Disturbance::Sleep, Disturbance::Policy, Disturbance::Enabled, Disturbance::Save];
        let outcome = torture(&server, seed, &all);
        assert!(outcome.n_wrong == 0, "{binary:?}, seed {seed}: {}", outcome.wrong.join("\n"));
        assert!(outcome.n_disturbances > 0, "{outcome:?}");
        wait_for("the keys to be gone", || {
            info(&server, "sleeping_keys") == 0.0 && server.info("keyspace").unwrap().is_empty()
        });
    }
}

/// The checker sees a wrong value: one that somebody else has put there.
#[test]
fn a_value_of_somebody_else_is_wrong() {
    let server = start(oldest_and_newest().last().unwrap(), &with_module());
    let mut connection = server.connection().unwrap();
    let progress = Progress::default();
    let outcome = std::thread::scope(|scope| {
        let torture = scope.spawn(|| {
            let torture = Torture {
                server: format!("redis://127.0.0.1:{}", server.port()).into_connection_info().unwrap(),
                n_clients: 1,
                n_keys: 64,
                value_bytes_max: 100,
                seed: 1,
                duration: Duration::from_secs(600),
                disturbances: Vec::new(),
            };
            torture.run(&progress).unwrap()
        });
        wait_for("a wrong value to be seen", || {
            let keys: Vec<String> = redis::cmd("KEYS").arg("torture:*0").query(&mut connection).unwrap();
            for key in keys {
                let _: redis::RedisResult<()> = redis::cmd("SET").arg(key).arg("not theirs").query(&mut connection);
            }
            progress.n_wrong() > 0
        });
        progress.stop();
        torture.join().unwrap()
    });
    assert!(outcome.wrong[0].contains("not theirs") || outcome.wrong[0].contains("where it could be"), "{outcome:?}");
}
