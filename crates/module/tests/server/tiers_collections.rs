//! Two memory tiers: small collections move between them where nobody would notice, and stay where somebody would.

use redis::Connection;
use tempfile::TempDir;
use tenure_servers::{Server, ServerBinary};

use crate::harness::{
    Random, command, config_set, info, oldest_and_newest_of, send, servers, start, that_know_clients, used_memory,
    wait_for, with_fine_clock,
};
use crate::sleep::put_to_sleep;
use crate::tiers::{move_to, text, tier_of, value, wait_until_at_rest, wait_until_ready, with_tiers};

const MB: u64 = 1 << 20;

/// Servers that tell whether anybody watches keys: those whose filters know who sends a command.
fn that_tell_of_watchers() -> Vec<ServerBinary> {
    that_know_clients(servers())
}

/// A collection of each kind that is compact, of some 2 KB; `version` makes its elements others.
fn fill_one(connection: &mut Connection, kind: &str, key: &str, version: u64) {
    let mut pipeline = redis::pipe();
    for i in 0..100 {
        let (field, value) = (format!("f{i}"), format!("{key} {version} element {i}"));
        match kind {
            "hash" => pipeline.cmd("HSET").arg(key).arg(field).arg(value),
            "list" => pipeline.cmd("RPUSH").arg(key).arg(value),
            "set" => pipeline.cmd("SADD").arg(key).arg(value),
            "numbers" => pipeline.cmd("SADD").arg(key).arg((1_u64 << 40) + version * 1000 + i),
            _ => pipeline.cmd("ZADD").arg(key).arg(i).arg(value),
        };
        pipeline.ignore();
    }
    pipeline.exec(connection).unwrap();
}

const KINDS: [&str; 5] = ["hash", "list", "set", "numbers", "zset"];

#[test]
fn a_moved_collection_is_the_same() {
    for binary in that_tell_of_watchers() {
        println!("on {}", binary.label);
        let server = start(&binary, &with_tiers("anon"));
        wait_until_ready(&server);
        let mut connection = server.connection().unwrap();
        for kind in KINDS {
            fill_one(&mut connection, kind, kind, 1);
            send::<()>(&mut connection, &format!("EXPIRE {kind} 10000"));
        }
        let encoding =
            |connection: &mut Connection, key: &str| -> String { send(connection, &format!("OBJECT ENCODING {key}")) };
        let dump = |connection: &mut Connection, key: &str| -> Vec<u8> { send(connection, &format!("DUMP {key}")) };
        let before: Vec<_> =
            KINDS.iter().map(|key| (encoding(&mut connection, key), dump(&mut connection, key))).collect();
        assert!(before.iter().all(|(encoding, _)| encoding != "hashtable" && encoding != "skiplist"), "{before:?}");
        for tier in ["slow", "fast", "slow"] {
            for key in KINDS {
                assert_eq!(move_to(&mut connection, key, tier), "moved", "{key} to {tier}");
                assert_eq!(move_to(&mut connection, key, tier), "not moved", "{key} is {tier} already");
                assert_eq!(tier_of(&mut connection, key), tier, "{key}");
                assert!(send::<i64>(&mut connection, &format!("TTL {key}")) > 9000, "{key}");
            }
            for (key, before) in KINDS.iter().zip(&before) {
                let now = (encoding(&mut connection, key), dump(&mut connection, key));
                assert_eq!(&now, before, "{key} in the {tier} tier");
            }
        }
        // Each is one allocation, or the parts of one list; the small parts around it stay in fast memory.
        assert_eq!(info(&server, "tier_slow_collections"), 5.0);
        assert_eq!(info(&server, "tier_slow_values"), 5.0);
        assert_eq!(info(&server, "tier_strays"), 0.0);
        assert!(text(&server, "partition_db0").starts_with("keys=5,"), "the account sees no key come or go");
        // Another database is emptied: those here are still known.
        send::<()>(&mut connection, "SELECT 3");
        fill_one(&mut connection, "hash", "other", 1);
        assert_eq!(move_to(&mut connection, "other", "slow"), "moved");
        send::<()>(&mut connection, "FLUSHDB");
        assert_eq!(info(&server, "tier_slow_collections"), 5.0);
        send::<()>(&mut connection, "SELECT 0");
        send::<()>(&mut connection, "FLUSHALL");
        wait_for("slow memory to be free", || info(&server, "tier_slow_bytes") == 0.0);
        assert_eq!(info(&server, "tier_slow_collections"), 0.0);
    }
}

#[test]
fn a_moved_collection_is_as_old_and_as_often_used_as_before() {
    for binary in oldest_and_newest_of(that_tell_of_watchers()) {
        println!("on {}", binary.label);
        let server = start(&binary, &with_fine_clock(with_tiers("anon")));
        wait_until_ready(&server);
        let mut connection = server.connection().unwrap();
        fill_one(&mut connection, "hash", "h", 1);
        let idle = |connection: &mut Connection| send::<i64>(connection, "OBJECT IDLETIME h");
        wait_for("the hash to grow old", || idle(&mut connection) >= 30);
        assert_eq!(move_to(&mut connection, "h", "slow"), "moved");
        assert!(idle(&mut connection) >= 30);
        config_set(&mut connection, "maxmemory-policy", "allkeys-lfu");
        config_set(&mut connection, "lfu-decay-time", 0);
        (0..200).for_each(|_| drop(send::<String>(&mut connection, "HGET h f1")));
        let frequency = send::<i64>(&mut connection, "OBJECT FREQ h");
        assert_eq!(move_to(&mut connection, "h", "fast"), "moved");
        assert!(frequency > 5 && send::<i64>(&mut connection, "OBJECT FREQ h") == frequency);
    }
}

/// What an operator reads where a collection stays, and that it stays.
fn expect_refusal(server: &Server, connection: &mut Connection, why: &str) {
    assert_eq!(move_to(connection, "h", "slow"), "not moved", "{why}");
    wait_for("the reason to be told", || text(server, "tier_collections").contains(why));
}

#[test]
fn nobody_notices_for_where_somebody_would_they_stay() {
    for binary in oldest_and_newest_of(that_tell_of_watchers()) {
        println!("on {}", binary.label);
        let server = start(&binary, &with_tiers("anon"));
        wait_until_ready(&server);
        let mut connection = server.connection().unwrap();
        let mut other = server.connection().unwrap();
        fill_one(&mut connection, "hash", "h", 1);
        send::<()>(&mut other, "WATCH h");
        expect_refusal(&server, &mut connection, "keys are watched");
        let ran: Option<Vec<String>> = redis::pipe().atomic().cmd("PING").query(&mut other).unwrap();
        assert_eq!(ran, Some(vec!["PONG".to_owned()]));
        let id: i64 = send(&mut connection, "CLIENT ID");
        send::<()>(&mut other, &format!("CLIENT TRACKING ON BCAST REDIRECT {id}"));
        expect_refusal(&server, &mut connection, "clients track keys");
        send::<()>(&mut other, "CLIENT TRACKING OFF");
        config_set(&mut connection, "notify-keyspace-events", "Kgx");
        expect_refusal(&server, &mut connection, "notify-keyspace-events");
        config_set(&mut connection, "notify-keyspace-events", "Ehl");
        assert_eq!(move_to(&mut connection, "h", "slow"), "moved");
        wait_for("the reason to be gone", || text(&server, "tier_collections") == "move");
        // A large hash is a table of small parts.
        (0..3000).for_each(|i| send::<()>(&mut connection, &format!("HSET large f{i} {i}")));
        assert_eq!(move_to(&mut connection, "large", "slow"), "not moved");
        assert_eq!(send::<String>(&mut connection, "OBJECT ENCODING large"), "hashtable");
    }
}

#[test]
fn on_a_server_that_cannot_tell_of_watchers_they_stay() {
    for binary in servers().into_iter().filter(|binary| binary.label.starts_with("redis-7.0")) {
        let server = start(&binary, &with_tiers("anon"));
        wait_until_ready(&server);
        let mut connection = server.connection().unwrap();
        fill_one(&mut connection, "hash", "h", 1);
        expect_refusal(&server, &mut connection, "doesn't say whether keys are watched");
    }
}

const COLLECTIONS: usize = 3500;

#[test]
fn cold_collections_move_down_hot_ones_up_and_all_when_the_tier_is_given_up() {
    for binary in oldest_and_newest_of(that_tell_of_watchers()) {
        println!("on {}", binary.label);
        let server = start(&binary, &with_tiers("anon").set("tenure.window-requests", "2000"));
        wait_until_ready(&server);
        let mut connection = server.connection().unwrap();
        for i in 0..COLLECTIONS {
            fill_one(&mut connection, KINDS[i % 5], &format!("k{i}"), i as u64);
        }
        let digest: String = send(&mut connection, "DEBUG DIGEST");
        // What Tenure itself takes is fast, and may grow by some megabytes.
        let limit = used_memory(&server) - 3 * MB;
        config_set(&mut connection, "tenure.tier-fast-bytes", limit);
        wait_for("the fast tier to keep its limit", || info(&server, "tier_fast_bytes") < 0.99 * limit as f64);
        wait_until_at_rest(&server);
        assert!(info(&server, "tier_slow_collections") > 750.0);
        assert_eq!(info(&server, "tier_slow_collections"), info(&server, "tier_slow_values"));
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest);
        let hot: Vec<String> = (0..40).map(|i| format!("k{}", i * 85 + 1)).collect();
        wait_for("hot collections to be fast", || {
            let mut pipeline = redis::pipe();
            for key in hot.iter().cycle().take(20 * hot.len()) {
                pipeline.cmd("LRANGE").arg(key).arg(1).arg(2).ignore();
            }
            pipeline.exec(&mut connection).unwrap();
            hot.iter().filter(|key| tier_of(&mut connection, key) == "fast").count() > 35
        });
        // One is renamed, so that nothing remembers where it lies.
        let slow =
            (0..COLLECTIONS).map(|i| format!("k{i}")).find(|key| tier_of(&mut connection, key) == "slow").unwrap();
        send::<()>(&mut connection, &format!("RENAME {slow} renamed"));
        let digest: String = send(&mut connection, "DEBUG DIGEST");
        config_set(&mut connection, "tenure.tier-slow", "");
        wait_for("everything to be fast", || text(&server, "tiers").starts_with("off"));
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest);
    }
}

/// The same commands to a server without Tenure, and the replica of the one whose collections move: all three hold
/// the same.
#[test]
fn collections_that_move_while_clients_change_them_are_right() {
    for binary in oldest_and_newest_of(that_tell_of_watchers()) {
        println!("on {}", binary.label);
        let server = start(&binary, &with_tiers("anon").set("tenure.window-requests", "1000"));
        let replica = start(&binary, &with_tiers("anon"));
        replica.replica_of(&server).unwrap();
        let stock = start(&binary, &tenure_servers::ServerOptions::default());
        wait_until_ready(&server);
        let mut both = [server.connection().unwrap(), stock.connection().unwrap()];
        for connection in &mut both {
            (0..400).for_each(|i| fill_one(connection, KINDS[i % 5], &format!("k{i}"), i as u64));
        }
        let mut random = Random::new(3);
        let mut moved = 0;
        while moved < 3000 {
            let i = random.below(400);
            let (key, at) = (format!("k{i}"), random.below(120));
            let line = match (random.below(8), i % 5) {
                (0, _) if at < 20 => format!("DEL {key}"),
                (0, _) => format!("EXPIRE {key} 10000"),
                (1, _) => format!("COPY {key} k{} REPLACE", (i + 5 + 5 * random.below(79)) % 400),
                (_, 0) => format!("HSET {key} f{at} {at}{at}"),
                (2, 1) => format!("LPOP {key}"),
                (_, 1) => format!("RPUSH {key} {at}-{at}"),
                (_, 2) => format!("SADD {key} m{at}"),
                (_, 3) => format!("SADD {key} {at}"),
                _ => format!("ZADD {key} {at} m{at}"),
            };
            for connection in &mut both {
                command(&line).exec(connection).unwrap();
            }
            let tier = if random.below(2) == 0 { "slow" } else { "fast" };
            moved += u64::from(move_to(&mut both[0], &format!("k{}", random.below(400)), tier) == "moved");
        }
        let digest: String = send(&mut both[1], "DEBUG DIGEST");
        assert_eq!(send::<String>(&mut both[0], "DEBUG DIGEST"), digest);
        let offset = |server: &Server| server.info("replication").unwrap()["master_repl_offset"].clone();
        wait_for("the replica to follow", || offset(&server) == offset(&replica));
        let mut its = replica.connection().unwrap();
        config_set(&mut its, "tenure.tier-fast-bytes", used_memory(&replica) - MB / 2);
        wait_for("the replica to place its own", || info(&replica, "tier_demotions") > 100.0);
        assert_eq!(send::<String>(&mut its, "DEBUG DIGEST"), digest);
        assert_eq!(info(&server, "tier_strays"), 0.0);
    }
}

/// The disk is the third tier: what sleeps leaves slow memory, and what wakes is fast until it is cold again.
#[test]
fn slow_values_fall_asleep_and_wake() {
    for binary in oldest_and_newest_of(that_tell_of_watchers()) {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let options = with_tiers("anon").set("tenure.spill-dir", folder.path().display());
        let server = start(&binary, &options.set("maxmemory-policy", "allkeys-lru"));
        wait_until_ready(&server);
        let mut connection = server.connection().unwrap();
        for i in 0..500 {
            fill_one(&mut connection, KINDS[i % 5], &format!("k{i}"), i as u64);
            redis::cmd("SET").arg(format!("s{i}")).arg(value(i as u64, 1000 + i)).exec(&mut connection).unwrap();
        }
        let digest: String = send(&mut connection, "DEBUG DIGEST");
        config_set(&mut connection, "tenure.tier-fast-bytes", used_memory(&server) - MB);
        wait_for("values to move down", || {
            info(&server, "tier_slow_bytes") > MB as f64 && info(&server, "tier_slow_collections") > 50.0
        });
        put_to_sleep(&server);
        wait_for("slow memory to be free", || info(&server, "tier_slow_bytes") == 0.0);
        assert_eq!(info(&server, "tier_slow_collections"), 0.0);
        send::<()>(&mut connection, "TENURE.WAKE db0");
        wait_for("all to be awake", || send::<u64>(&mut connection, "DBSIZE") == 1000);
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest);
        config_set(&mut connection, "tenure.tier-fast-bytes", used_memory(&server) - MB);
        wait_for("cold values to move down again", || info(&server, "tier_slow_bytes") > MB as f64);
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest);
        assert_eq!(info(&server, "tier_strays"), 0.0);
    }
}
