//! Reads are checked beside all that Tenure does to values: none returns what was not written.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo};
use tempfile::tempdir;
use tenure_servers::{Server, ServerBinary, ServerOptions, environment_for_tiers, module_path};
use tenure_torture::disturb::Disturbance;
use tenure_torture::ordeal::Ordeal;
use tenure_torture::wire::library;
use tenure_torture::{Outcome, Progress, Torture};

use crate::harness::{info, oldest_and_newest, servers, start, wait_for, with_module};
use crate::replies::{able_oldest_and_newest, make_certificate};

/// A torture of some seconds; `TENURE_TORTURE_SEED` and `TENURE_TORTURE_SECONDS` have it try other draws, and longer.
fn torture(seconds: u64, disturbances: &[Disturbance]) -> Torture {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    Torture {
        n_clients: 4,
        n_keys: 2000,
        value_bytes_max: 16_384,
        seed: given("TENURE_TORTURE_SEED").unwrap_or(1),
        duration: Duration::from_secs(given("TENURE_TORTURE_SECONDS").unwrap_or(seconds)),
        disturbances: disturbances.to_vec(),
        calls_functions: false,
    }
}

fn address(server: &Server) -> ConnectionInfo {
    format!("redis://127.0.0.1:{}", server.port()).into_connection_info().unwrap()
}

#[track_caller]
fn assert_right(binary: &ServerBinary, torture: &Torture, outcome: &Outcome) {
    assert!(outcome.n_wrong == 0, "{}, seed {}: {}", binary.label, torture.seed, outcome.wrong.join("\n"));
    assert!(outcome.n_disturbances > 0 && outcome.n_reads > outcome.n_absent, "{outcome:?}");
    println!("{}, seed {}: {outcome:?}", binary.label, torture.seed);
}

/// A full cache that evicts, whose partitions sleep and wake, whose policy changes, which is turned off and on, and
/// saves, moves values between tiers, and loses all keys now and then.
#[test]
fn no_read_returns_what_was_not_written() {
    for binary in oldest_and_newest() {
        check_reads(&binary, &with_module(), &torture(6, &Disturbance::ALL), address);
    }
}

/// The same where threads of the server read requests and write replies, for a user whose rights end at its keys, in
/// the newer protocol, with functions too: each of these has its own way to a command's end.
#[test]
fn nor_with_io_threads_rights_resp3_and_functions() {
    let has_io_threads =
        |binary: &ServerBinary| ["valkey-8.0", "valkey-9", "redis-8"].iter().any(|of| binary.label.starts_with(of));
    let mut products: Vec<ServerBinary> = servers().into_iter().filter(has_io_threads).collect();
    // Both of one version behave alike here.
    products.dedup_by_key(|binary| (binary.product, binary.version.0, binary.version.1));
    for (i, binary) in products.iter().enumerate() {
        let torture = Torture { calls_functions: true, ..torture(3, &Disturbance::ALL) };
        check_reads(binary, &with_module().set("io-threads", 2 + i % 3), &torture, |server| {
            server.call::<()>(&["FUNCTION", "LOAD", &library()]).unwrap();
            server.call::<()>(&["ACL", "SETUSER", "torturer", "on", ">secret", "~torture:*", "+@all"]).unwrap();
            let url = format!("redis://torturer:secret@127.0.0.1:{}/?protocol=resp3", server.port());
            url.into_connection_info().unwrap()
        });
    }
}

/// The same by TLS, where the server reads and writes by way of another library.
#[test]
fn nor_by_tls() {
    // Of the two that the library of TLS may take its arithmetic from; where another test was first, it stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempdir().unwrap();
    let [key, certificate] = make_certificate(folder.path());
    for binary in oldest_and_newest() {
        let stock = start(&binary, &ServerOptions::default());
        if stock.call::<()>(&["CONFIG", "SET", "tls-auth-clients", "no"]).is_err() {
            println!("{} was built without TLS", binary.label);
            continue;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let options = with_module()
            .set("tls-port", port)
            .set("tls-auth-clients", "no")
            .set("tls-key-file", key.display())
            .set("tls-cert-file", certificate.display())
            .set("tls-ca-cert-file", certificate.display());
        check_reads(&binary, &options, &torture(3, &Disturbance::ALL), |_| {
            format!("rediss://127.0.0.1:{port}/#insecure").into_connection_info().unwrap()
        });
    }
}

/// Tortures a small server that has all that Tenure does to values; `address` is how clients come to it.
fn check_reads(
    binary: &ServerBinary,
    options: &ServerOptions,
    torture: &Torture,
    address: impl Fn(&Server) -> ConnectionInfo,
) {
    let folder = tempdir().unwrap();
    let mut options = options.clone();
    options.environment.extend(environment_for_tiers());
    let options = options
        .set("maxmemory", "16mb")
        .set("maxmemory-policy", "allkeys-lru")
        .set("tenure.spill-dir", folder.path().display());
    let server = start(binary, &options);
    assert_right(binary, torture, &torture.run(&address(&server), &Progress::default()).unwrap());
    wait_for("the keys to be gone", || {
        info(&server, "sleeping_keys") == 0.0 && server.info("keyspace").unwrap().is_empty()
    });
    let fields = server.info("tenure").unwrap();
    assert_eq!(fields["tenure_panics"], "0", "{}: {}\n{}", binary.label, fields["tenure_last_panic"], server.log());
}

/// Servers of these are put through it beside all that it bears, and each read is checked.
fn survive(ordeal: Ordeal, binaries: Vec<ServerBinary>) {
    for binary in binaries {
        let torture = torture(6, &Disturbance::ALL);
        let outcome = ordeal.run(&torture, &binary, &module_path().unwrap(), &Progress::default()).unwrap();
        assert_right(&binary, &torture, &outcome);
        assert!(outcome.n_faults > 0, "{outcome:?}");
    }
}

#[test]
fn after_a_kill_the_append_only_file_has_all_that_was_answered() {
    survive(Ordeal::Aof, oldest_and_newest());
}

#[test]
fn after_a_kill_the_snapshot_has_what_it_had() {
    survive(Ordeal::Rdb, oldest_and_newest());
}

#[test]
fn after_a_kill_nothing_is_left_and_after_a_stop_what_was_there() {
    survive(Ordeal::Warm, oldest_and_newest());
}

#[test]
fn a_replica_that_takes_over_has_all_writes_that_were_answered() {
    survive(Ordeal::Failover, able_oldest_and_newest());
}

#[test]
fn keys_of_slots_that_move_are_what_was_written_or_gone() {
    survive(Ordeal::Reshard, oldest_and_newest());
}

/// Children are made while the worker and the disk's threads are at their busiest: whatever lock one of them holds
/// then, no child waits for it.
#[test]
fn every_child_ends() {
    survive(Ordeal::Forks, oldest_and_newest());
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
                n_clients: 1,
                n_keys: 64,
                value_bytes_max: 100,
                seed: 1,
                duration: Duration::from_secs(600),
                disturbances: Vec::new(),
                calls_functions: false,
            };
            torture.run(&address(&server), &progress).unwrap()
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
    // Which one is seen first, and on a key of which type, is the server's and the clients' to say.
    assert!(outcome.wrong[0].contains("answered"), "{outcome:?}");
}
