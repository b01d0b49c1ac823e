//! Two memory tiers in a server that was built with its own jemalloc, as most in use are, and that defragments its
//! memory meanwhile.

use redis::Connection;
use tenure_servers::{ServerBinary, ServerOptions};

use crate::harness::{Random, config_set, error_of, info, send, start, used_memory, wait_for, with_module};
use crate::tiers::{text, value, wait_until_ready, with_tiers};

const KEYS: u64 = 20_000;

/// The server that `scripts/servers` has built; where there is none the test says that it is skipped.
fn built() -> Option<ServerBinary> {
    let built = ServerBinary::with_own_allocator().unwrap();
    if built.is_none() {
        println!("SKIPPED: scripts/servers could build no server with its own allocator");
    }
    built
}

/// Strings of 300 to 2,000 bytes and hashes; `version` makes their bytes others.
fn write(connection: &mut Connection, keys: impl Iterator<Item = u64>, version: u64) {
    let mut pipeline = redis::pipe();
    for key in keys {
        match key % 10 {
            0 => {
                for field in 0..30 {
                    let element = format!("{key} {version} element {field}");
                    pipeline.cmd("HSET").arg(format!("k{key}")).arg(format!("f{field}")).arg(element).ignore();
                }
            }
            _ => {
                let length = 300 + (key * 7919 + version * 104_729) % 1700;
                pipeline.cmd("SET").arg(format!("k{key}")).arg(value(key ^ (version << 32), length as usize)).ignore();
            }
        }
    }
    pipeline.exec(connection).unwrap();
}

#[test]
fn values_are_right_while_the_server_defragments_its_memory() {
    let Some(binary) = built() else { return };
    let server = start(&binary, &with_tiers("anon").set("tenure.window-requests", "2000"));
    let stock = start(&binary, &ServerOptions::default());
    wait_until_ready(&server);
    let mut both = [server.connection().unwrap(), stock.connection().unwrap()];
    for connection in &mut both {
        (0..KEYS / 500).for_each(|chunk| write(connection, chunk * 500..(chunk + 1) * 500, 0));
    }
    let [connection, _] = &mut both;
    for (name, value) in [
        ("active-defrag-ignore-bytes", "1"),
        ("active-defrag-threshold-lower", "0"),
        ("active-defrag-cycle-min", "20"),
        ("activedefrag", "yes"),
    ] {
        config_set(connection, name, value);
    }
    let limit = used_memory(&server) - (8 << 20);
    config_set(connection, "tenure.tier-fast-bytes", limit);
    wait_for("the fast tier to keep its limit", || info(&server, "tier_fast_bytes") < 0.99 * limit as f64);
    let defragmented = || server.info("stats").unwrap()["active_defrag_hits"].parse::<u64>().unwrap();
    let mut random = Random::new(5);
    let mut version = 0;
    wait_for("moves and defragmentation side by side", || {
        version += 1;
        let keys: Vec<u64> = (0..200).map(|_| random.below(KEYS)).collect();
        for connection in &mut both {
            write(connection, keys.iter().copied(), version);
        }
        let moved = info(&server, "tier_demotions") > 12_000.0 && info(&server, "tier_slow_collections") > 100.0;
        moved && defragmented() > 5000
    });
    let digests = both.each_mut().map(|connection| send::<String>(connection, "DEBUG DIGEST"));
    assert_eq!(digests[0], digests[1]);
    assert_eq!(info(&server, "tier_strays"), 0.0);
    config_set(&mut both[0], "tenure.tier-slow", "");
    wait_for("everything to be fast", || text(&server, "tiers").starts_with("off"));
    assert_eq!(send::<String>(&mut both[0], "DEBUG DIGEST"), digests[1]);
}

/// The environment's name is another where jemalloc is the server's own copy.
#[test]
fn what_to_set_is_what_that_build_takes() {
    let Some(binary) = built() else { return };
    let server = start(&binary, &with_module());
    let mut connection = server.connection().unwrap();
    let error = error_of(&mut connection, "CONFIG SET tenure.tier-slow anon");
    assert!(error.contains(" JE_MALLOC_CONF=tcache_max:256 "), "{error}");
}
