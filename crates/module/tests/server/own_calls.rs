//! What the server's own tools show of Tenure: `SLOWLOG`, `MONITOR` and `INFO commandstats` are the users', but for
//! what only a command can ask for.

use std::collections::BTreeSet;
use std::time::Instant;

use redis::{Connection, Value};
use tenure_servers::Server;

use crate::harness::{
    config_set, error_of, info, limit_memory, on_oldest_and_newest, send, status, wait_for, with_module,
};
use crate::replies::able_oldest_and_newest;

/// What Tenure may be seen with: sizes that the module API doesn't tell, the table of commands after modules came or
/// went, and a setting once: of a slice that took long, whether `LATENCY` is to show it.
const SEEN: [&str; 3] = ["memory|usage", "command", "config|get"];

const ROUNDS: usize = 20;

/// Collections of many sizes, read and written, and 20 new strings a round; `next` is the number of the first round.
fn work(connection: &mut Connection, next: &mut usize) {
    for i in *next..*next + ROUNDS {
        let mut pipeline = redis::pipe();
        for key in 0..20 {
            pipeline.cmd("HSET").arg(format!("hash:{key}")).arg(i % 50).arg("v".repeat(10 * key)).ignore();
            pipeline.cmd("RPUSH").arg(format!("list:{key}")).arg("v".repeat(10 * key)).ignore();
            pipeline.cmd("SET").arg(format!("string:{i}:{key}")).arg("v".repeat(100 * key)).ignore();
            pipeline.cmd("HGET").arg(format!("hash:{key}")).arg(i % 50).ignore();
            pipeline.cmd("LLEN").arg(format!("list:{key}")).ignore();
        }
        pipeline.exec(connection).unwrap();
    }
    *next += ROUNDS;
}

/// The first two words of each command in SLOWLOG, the newest first.
fn slow_log(connection: &mut Connection) -> Vec<String> {
    let entries: Vec<Vec<Value>> = send(connection, "SLOWLOG GET -1");
    let words = |entry: &Vec<Value>| redis::from_redis_value::<Vec<String>>(entry[3].clone()).unwrap();
    let shown = |words: Vec<String>| words.into_iter().take(2).collect::<Vec<_>>().join("|").to_ascii_lowercase();
    entries.iter().map(|entry| shown(words(entry))).collect()
}

fn is_users(line: &str) -> bool {
    ["hset|", "rpush|", "set|", "hget|", "llen|", "slowlog|", "config|set"].iter().any(|user| line.starts_with(user))
}

fn commands_counted(server: &Server) -> BTreeSet<String> {
    let stats = server.info("commandstats").unwrap();
    stats.keys().map(|name| name.trim_start_matches("cmdstat_").to_owned()).collect()
}

/// Some work with a log of all commands: Tenure's own among them, and the seconds it took.
fn log_work(server: &Server, connection: &mut Connection, next: &mut usize) -> (Vec<String>, f64) {
    server.call::<()>(&["CONFIG", "RESETSTAT"]).unwrap();
    config_set(connection, "slowlog-log-slower-than", 0);
    let began = Instant::now();
    let (mut own, mut n_users) = (Vec::new(), 0);
    wait_for("some work", || {
        work(connection, next);
        let (users, tenures): (Vec<String>, Vec<String>) =
            slow_log(connection).into_iter().partition(|line| is_users(line));
        // What is in the log takes memory, too.
        send::<()>(connection, "SLOWLOG RESET");
        n_users += users.len();
        own.extend(tenures);
        began.elapsed().as_secs_f64() >= 1.5
    });
    config_set(connection, "slowlog-log-slower-than", -1);
    let others: Vec<&String> = own.iter().filter(|line| SEEN.iter().all(|seen| !line.starts_with(seen))).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(own.iter().filter(|line| *line == "config|get").count() <= 1, "{own:?}");
    println!("{} of Tenure's beside {n_users} of the user's", own.len());
    (own, began.elapsed().as_secs_f64())
}

/// With a log of all commands those of Tenure's are few and none is INFO: by the clock where nothing is evicted, and
/// for collections that eviction meets, since the module API doesn't tell their size.
#[test]
fn the_slow_log_and_statistics_are_the_users() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("slowlog-max-len", 1_000_000);
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        let mut next = 0;
        work(&mut connection, &mut next);
        // At first sizes aren't known, and collections double every now and then.
        let wait_for_few = |what: &str, connection: &mut Connection, next: &mut usize| {
            wait_for(what, || {
                let (own, seconds) = log_work(server, connection, next);
                own.len() as f64 <= 32.0 + 16.0 * seconds
            });
        };
        wait_for_few("sizes to be known", &mut connection, &mut next);
        limit_memory(server, 8 << 20);
        wait_for("Tenure to evict", || {
            work(&mut connection, &mut next);
            info(server, "evictions") > 100.0
        });
        wait_for_few("sizes of what is met to be known", &mut connection, &mut next);
        // This test's own INFO comes after.
        let counted = commands_counted(server);
        assert!(!counted.contains("info") && !counted.contains("client|list"), "{counted:?}");
    });
}

/// What Tenure reads of INFO it reads without the command, which may have any name.
#[test]
fn info_may_be_renamed() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").with_info_as("statistics");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        assert!(error_of(&mut connection, "INFO").contains("unknown command"));
        let mut next = 0;
        work(&mut connection, &mut next);
        limit_memory(server, 8 << 20);
        wait_for("Tenure to evict", || {
            work(&mut connection, &mut next);
            info(server, "evictions") > 100.0
        });
        assert_eq!(status(&mut connection)["eviction"], "ready");
    });
}

/// Nor does who waits for replicas ask for more than who they are, ten times a second.
#[test]
fn replies_that_wait_ask_by_the_clock_alone() {
    for binary in able_oldest_and_newest() {
        println!("on {}", binary.label);
        let primary = crate::harness::start(&binary, &with_module());
        let replica = crate::harness::start(&binary, &with_module());
        replica.replica_of(&primary).unwrap();
        replica.wait_until_in_sync().unwrap();
        let mut connection = primary.connection().unwrap();
        config_set(&mut connection, "tenure.replies", "acked");
        wait_for("replies to wait", || primary.info("tenure").unwrap()["tenure_replies"] == "holding: acked");
        primary.call::<()>(&["CONFIG", "RESETSTAT"]).unwrap();
        let began = Instant::now();
        (0..2000).for_each(|i| send::<()>(&mut connection, &format!("SET key:{i} value")));
        let seconds = began.elapsed().as_secs_f64();
        let stats = primary.info("commandstats").unwrap();
        assert!(!stats.contains_key("cmdstat_info"), "{stats:?}");
        let calls = |name: &str| {
            let line = stats.get(&format!("cmdstat_{name}")).cloned().unwrap_or_default();
            line.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse::<f64>().ok()).unwrap_or(0.0)
        };
        assert_eq!(calls("set"), 2000.0);
        assert!(calls("client|list") <= 5.0 + 12.0 * seconds, "{} in {seconds} s", calls("client|list"));
    }
}
