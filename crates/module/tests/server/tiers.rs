//! Two memory tiers: values move between them, and are the same wherever they lie.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::Connection;
use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    Random, config_get, config_set, error_of, info, oldest_and_newest, on_every_server, on_oldest_and_newest, send,
    start, status, used_memory, wait_for, with_module,
};
use crate::observe::counts_of;

const MB: u64 = 1 << 20;

/// Without a thread cache that would mix tiers, and with commands that move a single value.
pub fn without_tiers() -> ServerOptions {
    let mut options = with_module();
    options.module_args = vec!["debug-commands".to_owned(), "yes".to_owned()];
    options.environment.extend(tenure_servers::environment_for_tiers());
    options
}

/// The same with a slow tier, and a fast one into which everything fits until a test says otherwise.
pub fn with_tiers(place: &str) -> ServerOptions {
    without_tiers().set("tenure.tier-slow", place).set("tenure.tier-fast-bytes", "1gb")
}

pub fn text(server: &Server, name: &str) -> String {
    server.info("tenure").unwrap()[&format!("tenure_{name}")].clone()
}

pub fn wait_until_ready(server: &Server) {
    wait_for("the slow tier", || text(server, "tiers") == "ready");
}

pub fn tier_of(connection: &mut Connection, key: &str) -> String {
    send(connection, &format!("TENURE.DEBUG TIER {key}"))
}

pub fn move_to(connection: &mut Connection, key: &str, tier: &str) -> String {
    send(connection, &format!("TENURE.DEBUG TIER {key} {tier}"))
}

/// `length` bytes that are those of this seed only.
pub fn value(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..length).map(|_| random.next() as u8).collect()
}

fn set(connection: &mut Connection, key: &str, value: &[u8]) {
    redis::cmd("SET").arg(key).arg(value).exec(connection).unwrap();
}

fn get(connection: &mut Connection, key: &str) -> Option<Vec<u8>> {
    redis::cmd("GET").arg(key).query(connection).unwrap()
}

/// What INFO says of the slow tier is what jemalloc's own report says of the arena that isn't its own: bytes, and one
/// size class.
fn check_statistics(server: &Server, values: u64, bytes_each: u64) {
    assert_eq!(info(server, "tier_slow_values") as u64, values);
    assert_eq!(info(server, "tier_slow_bytes") as u64, values * bytes_each);
    assert_eq!(info(server, "tier_strays"), 0.0);
    assert_eq!(info(server, "tier_elsewhere_bytes"), 0.0);
}

/// Sizes around the header's and the allocator's steps, small and large classes.
const LENGTHS: [usize; 12] = [256, 300, 1000, 1018, 4090, 13_999, 14_000, 16_384, 65_530, 65_536, 300_000, 1 << 20];

#[test]
fn a_moved_value_is_the_same_and_nobody_notices() {
    on_every_server(&with_tiers("anon").set("notify-keyspace-events", "KEA"), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        let mut watcher = server.connection().unwrap();
        let mut listener = server.connection().unwrap();
        for (i, length) in LENGTHS.into_iter().enumerate() {
            set(&mut connection, &format!("k{i}"), &value(i as u64, length));
            send::<()>(&mut connection, &format!("EXPIRE k{i} 10000"));
        }
        let keys: Vec<String> = (0..LENGTHS.len()).map(|i| format!("k{i}")).collect();
        redis::cmd("WATCH").arg(&keys).exec(&mut watcher).unwrap();
        let mut events = listener.as_pubsub();
        events.psubscribe("__keyevent@*__:*").unwrap();
        let digest: String = send(&mut connection, "DEBUG DIGEST");
        let changes = server.info("persistence").unwrap()["rdb_changes_since_last_save"].clone();
        for tier in ["slow", "fast", "slow"] {
            for (i, key) in keys.iter().enumerate() {
                assert_eq!(move_to(&mut connection, key, tier), "moved", "{} bytes to {tier}", LENGTHS[i]);
                assert_eq!(move_to(&mut connection, key, tier), "not moved", "it is there already");
                assert_eq!(tier_of(&mut connection, key), tier);
                assert_eq!(send::<String>(&mut connection, &format!("OBJECT ENCODING {key}")), "raw");
                assert!(send::<i64>(&mut connection, &format!("TTL {key}")) > 9000);
            }
            assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest, "all in the {tier} tier");
        }
        assert_eq!(info(server, "tier_slow_values") as usize, LENGTHS.len());
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(get(&mut connection, key), Some(value(i as u64, LENGTHS[i])), "{} bytes", LENGTHS[i]);
        }
        assert_eq!(server.info("persistence").unwrap()["rdb_changes_since_last_save"], changes, "nothing was changed");
        // The first event is that of a key written now: moves raise none.
        set(&mut connection, "after", b"x");
        assert_eq!(events.get_message().unwrap().get_payload::<String>().unwrap(), "after");
        // Who watched the keys may go on.
        let ran: Option<Vec<String>> = redis::pipe().atomic().cmd("PING").query(&mut watcher).unwrap();
        assert_eq!(ran, Some(vec!["PONG".to_owned()]));
        send::<()>(&mut connection, "FLUSHALL");
        wait_for("slow memory to be free", || info(server, "tier_slow_bytes") == 0.0);
    });
}

#[test]
fn what_is_short_or_no_string_or_too_large_stays() {
    on_oldest_and_newest(&with_tiers("anon"), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        set(&mut connection, "short", &value(1, 255));
        set(&mut connection, "large", &value(1, (1 << 20) + 1));
        send::<()>(&mut connection, "SET number 12345");
        send::<()>(&mut connection, "XADD stream 1-1 field value");
        for key in ["short", "large", "number", "stream", "none"] {
            assert_eq!(move_to(&mut connection, key, "slow"), "not moved", "{key}");
            assert_eq!(tier_of(&mut connection, key), "none", "{key}");
        }
        assert_eq!(send::<String>(&mut connection, "OBJECT ENCODING number"), "int");
        check_statistics(server, 0, 0);
    });
}

/// The age that the server evicts by stays, also where the value is moved by being copied.
#[test]
fn a_move_makes_no_value_younger() {
    let options = crate::harness::with_fine_clock(with_tiers("anon"));
    on_oldest_and_newest(&options, |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        for (key, length) in [("small", 1000), ("large", 100_000)] {
            set(&mut connection, key, &value(1, length));
            let idle = |connection: &mut Connection| send::<i64>(connection, &format!("OBJECT IDLETIME {key}"));
            wait_for("the value to grow old", || idle(&mut connection) >= 30);
            assert_eq!(move_to(&mut connection, key, "slow"), "moved");
            assert!(idle(&mut connection) >= 30, "{key}");
        }
    });
}

/// A client's account of what it wrote, beside what the server has.
struct Account {
    connection: Connection,
    random: Random,
    values: HashMap<String, Vec<u8>>,
    prefix: &'static str,
}

impl Account {
    fn new(server: &Server, prefix: &'static str) -> Account {
        Account { connection: server.connection().unwrap(), random: Random::new(9), values: HashMap::new(), prefix }
    }

    /// Writes, changes, deletes or reads one of `keys` keys.
    fn act(&mut self, keys: u64) {
        let key = format!("{}{}", self.prefix, self.random.below(keys));
        let seed = self.random.next();
        let length = 200 + self.random.below(3000) as usize;
        let connection = &mut self.connection;
        match self.random.below(12) {
            0..=3 => {
                let value = value(seed, length);
                set(connection, &key, &value);
                self.values.insert(key, value);
            }
            4 | 5 => {
                let more = value(seed, 1 + length / 10);
                redis::cmd("APPEND").arg(&key).arg(&more).exec(connection).unwrap();
                self.values.entry(key).or_default().extend(more);
            }
            6 | 7 => {
                let (at, part) = (length / 2, value(seed, 50));
                redis::cmd("SETRANGE").arg(&key).arg(at).arg(&part).exec(connection).unwrap();
                let held = self.values.entry(key).or_default();
                if held.len() < at + 50 {
                    held.resize(at + 50, 0);
                }
                held[at..at + 50].copy_from_slice(&part);
            }
            8 => {
                redis::cmd("DEL").arg(&key).exec(connection).unwrap();
                self.values.remove(&key);
            }
            9 => redis::cmd("EXPIRE").arg(&key).arg(100_000).exec(connection).unwrap(),
            _ => assert_eq!(get(connection, &key), self.values.get(&key).cloned(), "{key}"),
        }
    }

    fn check(&mut self) {
        for (key, value) in &self.values {
            assert!(get(&mut self.connection, key).as_ref() == Some(value), "{key} has another value");
        }
    }
}

/// Everything that changes a value, on values that move all the time.
#[test]
fn values_that_move_while_clients_change_them_are_right() {
    for place in ["anon", "file:/tmp"] {
        on_oldest_and_newest(&with_tiers(place), |server| {
            wait_until_ready(server);
            let mut connection = server.connection().unwrap();
            let mut account = Account::new(server, "k");
            (0..6000).for_each(|_| account.act(3000));
            // Less than it takes: most of what moves is slow from now on.
            let fast_bytes = used_memory(server) - 2 * MB;
            config_set(&mut connection, "tenure.tier-fast-bytes", fast_bytes);
            wait_for("values to move down", || {
                account.act(3000);
                info(server, "tier_demotions") > 300.0
            });
            (0..6000).for_each(|_| account.act(3000));
            // One key after another goes up and down while it changes.
            for i in 0..1500 {
                account.act(300);
                move_to(&mut connection, &format!("k{}", i % 300), if i % 2 == 0 { "slow" } else { "fast" });
            }
            account.check();
            assert_eq!(send::<u64>(&mut connection, "DBSIZE") as usize, account.values.len());
            assert!(info(server, "tier_demotions") > 300.0 && info(server, "tier_promotions") > 0.0);
            assert_eq!(info(server, "tier_strays"), 0.0);
            send::<()>(&mut connection, "FLUSHALL");
            wait_for("slow memory to be free", || info(server, "tier_slow_bytes") == 0.0);
            assert_eq!(info(server, "tier_slow_values"), 0.0);
        });
    }
}

/// Until nothing moves any more.
///
/// Collecting ends once a twentieth of the fast tier is free. Where Tenure itself or a client has taken some of that
/// since, it begins again once less than a fiftieth is. Until then only time tells that it is over: it pauses for a
/// second at the most, since it owes the main thread 20 ms at the most, a fiftieth of that.
pub fn wait_until_at_rest(server: &Server) {
    let (mut before, mut since) = (-1.0, Instant::now());
    wait_for("the moves to end", || {
        let moves = info(server, "tier_demotions") + info(server, "tier_promotions");
        if std::mem::replace(&mut before, moves) != moves {
            since = Instant::now();
        }
        match info(server, "tier_fast_bytes") / info(server, "tier_fast_limit_bytes") {
            ..0.955 => since.elapsed() >= Duration::from_millis(250),
            ..1.0 => since.elapsed() >= Duration::from_secs(3),
            _ => false,
        }
    });
}

fn fill(connection: &mut Connection, keys: u64, length: usize) {
    fill_by(connection, keys, length, 500, redis::pipe);
}

/// The same by so many keys at once, each time by a pipeline like this.
fn fill_by(connection: &mut Connection, keys: u64, length: usize, at_once: usize, pipeline: fn() -> redis::Pipeline) {
    for chunk in (0..keys).collect::<Vec<_>>().chunks(at_once) {
        let mut pipeline = pipeline();
        chunk.iter().for_each(|i| {
            pipeline.cmd("SET").arg(format!("k{i}")).arg(value(*i, length)).ignore();
        });
        pipeline.exec(connection).unwrap();
    }
}

#[test]
fn cold_values_move_down_and_the_fast_tier_keeps_its_limit() {
    on_every_server(&with_tiers("anon"), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        fill(&mut connection, 20_000, 1000);
        let limit = used_memory(server) - 15 * MB;
        config_set(&mut connection, "tenure.tier-fast-bytes", limit);
        wait_for("the fast tier to keep its limit", || info(server, "tier_fast_bytes") < 0.99 * limit as f64);
        wait_until_at_rest(server);
        let values = info(server, "tier_slow_values") as u64;
        assert!((14_000..19_000).contains(&values), "{values}");
        // 1000 bytes, a header of 6, in the class of 1024.
        check_statistics(server, values, 1024);
        assert_eq!(values as f64, info(server, "tier_demotions") - info(server, "tier_promotions"));
        let report: String = send(&mut connection, "MEMORY MALLOC-STATS");
        assert!(report.contains(&format!(" {} ", values * 1024)), "jemalloc's own report has the arena's bytes");
        for i in 0..20_000 {
            assert!(get(&mut connection, &format!("k{i}")) == Some(value(i, 1000)));
        }
        // What is read is counted where it was found.
        assert!(info(server, "tier_slow_hits") > 1000.0 && info(server, "tier_fast_hits") > 100.0);
    });
}

/// What is stored over a slow value is slow at once, by whichever command, in a transaction too; a fast one stays fast.
#[test]
fn what_replaces_a_slow_value_is_slow_without_a_move() {
    on_every_server(&with_tiers("anon"), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        for key in ["slow", "fast"] {
            set(&mut connection, key, &value(1, 1000));
        }
        assert_eq!(move_to(&mut connection, "slow", "slow"), "moved");
        let stores: [&[&str]; 7] = [
            &["SET", "KEY"],
            &["SET", "KEY", "KEEPTTL"],
            &["SETEX", "KEY", "1000"],
            &["PSETEX", "KEY", "1000000"],
            &["GETSET", "KEY"],
            &["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "KEY"],
            &["MULTI"],
        ];
        for (seed, words) in stores.iter().enumerate() {
            for key in ["slow", "fast"] {
                let new = value(seed as u64, 1000 + 300 * seed);
                store(&mut connection, words, key, &new);
                assert!(get(&mut connection, key) == Some(new), "{words:?}");
                // Valkey 9.1 copies what a script stores.
                assert!(words[0] == "EVAL" || tier_of(&mut connection, key) == key, "{words:?}");
            }
        }
        assert_eq!((info(server, "tier_demotions"), info(server, "tier_promotions")), (1.0, 0.0));
        assert_eq!(info(server, "tier_stored_slow"), stores.len() as f64);
        check_statistics(server, 1, 3072);
        // Short ones don't move; the next is new.
        set(&mut connection, "slow", b"short");
        set(&mut connection, "slow", &value(9, 1000));
        assert_eq!(get(&mut connection, "slow"), Some(value(9, 1000)));
        send::<()>(&mut connection, "FLUSHALL");
        wait_for("slow memory to be free", || info(server, "tier_slow_bytes") == 0.0);
    });
}

/// Stores `value` under `key`, the word KEY of a command whose last word it is, or within a transaction.
fn store(connection: &mut Connection, words: &[&str], key: &str, value: &[u8]) {
    if words == ["MULTI"] {
        return redis::pipe().atomic().cmd("SET").arg(key).arg(value).ignore().exec(connection).unwrap();
    }
    let (before, after) = match words {
        ["SET", "KEY", option] => (&words[..2], Some(*option)),
        _ => (words, None),
    };
    let mut command = redis::Cmd::new();
    for word in before {
        command.arg(if *word == "KEY" { key } else { word });
    }
    command.arg(value).arg(after).exec(connection).unwrap();
}

/// Newcomers come to lie in fast memory until that is full, and in slow memory from then on: faster than any could
/// move down.
#[test]
fn newcomers_to_a_full_fast_tier_are_slow() {
    on_oldest_and_newest(&with_tiers("anon"), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        let limit = used_memory(server) + 4 * MB;
        config_set(&mut connection, "tenure.tier-fast-bytes", limit);
        wait_for("the limit", || info(server, "tier_fast_limit_bytes") as u64 == limit);
        // Ten transactions: within one nothing moves, so how fast they are sent doesn't matter.
        fill_by(&mut connection, 20_000, 1000, 2000, || redis::pipe().atomic().clone());
        let (stored, fast) = (info(server, "tier_stored_slow"), info(server, "tier_fast_bytes"));
        assert!(stored > 12_000.0, "{stored}");
        // Their keys are fast, 100 bytes each, and a pipeline's replies.
        assert!(fast < (limit + 3 * MB) as f64, "{fast} of {limit}");
        wait_until_at_rest(server);
        let moved = info(server, "tier_demotions") - info(server, "tier_promotions");
        assert_eq!(info(server, "tier_slow_values"), stored + moved);
        for i in 0..20_000 {
            assert!(get(&mut connection, &format!("k{i}")) == Some(value(i, 1000)));
        }
    });
}

/// What is stored at once in a tier that is a file leaves memory nearly as fast as it comes: of 80 MB that lie there,
/// less than a third waits.
#[test]
fn what_is_stored_in_a_file_does_not_stay_in_memory() {
    on_oldest_and_newest(&with_tiers("file:/tmp"), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "tenure.tier-fast-bytes", used_memory(server) + 8 * MB);
        wait_for("the limit", || info(server, "tier_fast_limit_bytes") < 100.0 * MB as f64);
        fill(&mut connection, 20_000, 4000);
        let mut most_kb = 0;
        for _ in 0..3 {
            fill(&mut connection, 20_000, 4000);
            most_kb = most_kb.max(anonymous_kb_of_slow_file(server.pid()));
        }
        assert!(info(server, "tier_stored_slow") > 60_000.0);
        assert!(most_kb < 24 << 10, "{most_kb} KB of the tier are in memory");
        wait_for("the rest to be flushed", || anonymous_kb_of_slow_file(server.pid()) < 512);
    });
}

/// The kernel ends a process whose file gets longer than its limit.
#[test]
fn a_file_that_may_not_get_longer_ends_no_server() {
    let options = without_tiers().set("tenure.tier-fast-bytes", "10mb");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_files(server, MB);
        config_set(&mut connection, "tenure.tier-slow", "file:/tmp");
        wait_for("the reason", || text(server, "tiers").contains("a file may have 1048576 bytes there (ulimit -f"));
        config_set(&mut connection, "tenure.tier-slow", "");
        limit_files(server, 80 * MB);
        config_set(&mut connection, "tenure.tier-slow", "file:/tmp");
        wait_until_ready(server);
        fill(&mut connection, 25_000, 4000);
        wait_for("a full file", || info(server, "tier_slow_bytes") > 56.0 * MB as f64);
        fill(&mut connection, 25_000, 4000);
        assert!(info(server, "tier_slow_bytes") < 80.0 * MB as f64);
        for i in 0..25_000 {
            assert!(get(&mut connection, &format!("k{i}")) == Some(value(i, 4000)));
        }
    });
}

fn limit_files(server: &Server, bytes: u64) {
    let pid = server.pid().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
    assert!(status.unwrap().success());
}

/// Memory of the process's own behind the mapping of the slow tier's file, in KB.
fn anonymous_kb_of_slow_file(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut is_slow = false;
    let mut kb = 0;
    for line in maps.lines() {
        // A mapping's first line, then its fields.
        if !line.split(' ').next().is_some_and(|word| word.ends_with(':')) {
            is_slow = line.contains("/tenure-slow-");
        } else if let Some(number) = line.strip_prefix("Anonymous:").filter(|_| is_slow) {
            kb += number.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    kb
}

#[test]
fn hot_values_move_up() {
    on_oldest_and_newest(&with_tiers("anon").set("tenure.window-requests", 2000), |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        fill(&mut connection, 10_000, 1000);
        let limit = used_memory(server) - 8 * MB;
        config_set(&mut connection, "tenure.tier-fast-bytes", limit);
        wait_for("the fast tier to keep its limit", || info(server, "tier_fast_bytes") < 0.99 * limit as f64);
        // A hundred keys that nobody asked for so far, of which most are slow, are all that is asked for.
        let hot: Vec<String> = (0..100).map(|i| format!("k{}", i * 97)).collect();
        let mut random = Random::new(4);
        wait_for("hot values to be fast", || {
            let mut pipeline = redis::pipe();
            (0..200).for_each(|_| {
                pipeline.cmd("GET").arg(&hot[random.below(100) as usize]).ignore();
                pipeline.cmd("GET").arg(format!("k{}", random.below(10_000))).ignore();
            });
            pipeline.exec(&mut connection).unwrap();
            hot.iter().filter(|key| tier_of(&mut connection, key) == "fast").count() > 90
        });
        assert!(info(server, "tier_promotions") > 20.0);
        assert!(info(server, "tier_hot_requests") > 0.0);
        assert!(info(server, "tier_fast_bytes") < 1.01 * limit as f64);
    });
}

fn watching(server: &Server) -> String {
    text(server, "watching")
}

/// What a client reads, over and over: some keys, most of the time.
struct Reader {
    connection: Connection,
    random: Random,
    hot: Vec<String>,
    reads: u64,
}

impl Reader {
    /// So many keys of those that [`fill`] made.
    fn of(server: &Server, keys: std::ops::Range<u64>) -> Reader {
        let hot = keys.map(|i| format!("k{i}")).collect();
        Reader { connection: server.connection().unwrap(), random: Random::new(5), hot, reads: 0 }
    }

    fn read_some(&mut self) {
        let mut pipeline = redis::pipe();
        for _ in 0..1000 {
            let key = match self.random.below(10) {
                0 => format!("k{}", self.random.below(4000)),
                _ => self.hot[self.random.below(self.hot.len() as u64) as usize].clone(),
            };
            pipeline.cmd("STRLEN").arg(key).ignore();
        }
        pipeline.exec(&mut self.connection).unwrap();
        self.reads += 1000;
    }

    /// Reads until reads go unseen.
    #[track_caller]
    fn read_until_settled(&mut self, server: &Server) {
        let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "reads to go unseen", || {
            self.read_some();
            watching(server) == "writes"
        });
        assert!(waited.is_ok(), "{waited:?}: {:?}", server.info("tenure").unwrap());
    }

    fn fast_ones(&mut self) -> usize {
        let connection = &mut self.connection;
        self.hot.iter().filter(|key| tier_of(connection, key) == "fast").count()
    }
}

/// Where the fast tier is hit as it was, reads go unseen for most of the time. What is stored over a slow value is
/// slow all the same, and what is hot later goes up; the hits that INFO tells are all of them.
///
/// Some 800 values are fast, so that the 200 hot ones are among them whatever else the server keeps in memory, which
/// is several MB.
#[test]
fn settled_reads_are_watched_in_part() {
    let options = with_tiers("anon").set("tenure.watched-per-second", 100).set("tenure.window-requests", 5000);
    on_oldest_and_newest(&options, |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        fill(&mut connection, 4000, 4000);
        let limit = used_memory(server) - 12 * MB;
        config_set(&mut connection, "tenure.tier-fast-bytes", limit);
        wait_for("the fast tier to keep its limit", || info(server, "tier_fast_bytes") < 0.99 * limit as f64);
        let mut reader = Reader::of(server, 0..200);
        reader.read_until_settled(server);

        // A pause ends by itself: what is done within one is done again where it didn't last.
        wait_for("some reads within a pause", || {
            reader.read_until_settled(server);
            let before = counts_of(&mut connection, "db0");
            reader.read_some();
            let after = counts_of(&mut connection, "db0");
            after == before && watching(server) == "writes"
        });
        wait_for("values stored within a pause", || {
            reader.read_until_settled(server);
            let (began_at, began) = (Instant::now(), watching(server));
            let stored = info(server, "tier_stored_slow");
            let fast = reader.hot.iter().find(|key| tier_of(&mut connection, key) == "fast").unwrap().clone();
            let names: Vec<String> = (1000..4000).map(|i| format!("k{i}")).collect();
            let slow = names.iter().filter(|key| tier_of(&mut connection, key) == "slow").take(20);
            let slow: Vec<&String> = slow.collect();
            for key in &slow {
                set(&mut connection, key, &value(7, 4000));
            }
            set(&mut connection, &fast, &value(8, 4000));
            let stored = info(server, "tier_stored_slow") - stored;
            let still_slow = slow.iter().filter(|key| tier_of(&mut connection, key) == "slow").count();
            let tier = tier_of(&mut connection, &fast);
            let was_paused = (began.as_str(), watching(server).as_str()) == ("writes", "writes");
            // Between two pauses all is watched for a second.
            if !was_paused || began_at.elapsed() >= Duration::from_secs(1) {
                return false;
            }
            assert_eq!((stored, still_slow, tier.as_str()), (20.0, 20, "fast"));
            true
        });

        let hits = || info(server, "tier_fast_hits") + info(server, "tier_slow_hits");
        wait_for("all reads to be told", || hits() == reader.reads as f64);
        assert!(info(server, "tier_estimated_hits") >= 1000.0);

        let mut others = Reader::of(server, 2000..2200);
        assert!(others.fast_ones() < 150);
        wait_for("what is hot now to be fast", || {
            others.read_some();
            others.fast_ones() > 190
        });
    });
}

/// Of 10,000 values a tenth are asked for again and again before fast memory is limited to three tenths: they are
/// still there afterwards.
#[test]
fn what_is_asked_for_most_stays_fast() {
    for (rule, policy) in [("reuse-time", "predis"), ("worth", "predis"), ("worth", "density")] {
        let options = with_tiers("anon").set("tenure.tier-rule", rule).set("tenure.policy", policy);
        on_oldest_and_newest(&options.set("tenure.window-requests", 2000), |server| {
            wait_until_ready(server);
            let mut connection = server.connection().unwrap();
            fill(&mut connection, 10_000, 1000);
            let hot: Vec<String> = (0..1000).map(|i| format!("k{}", i * 10)).collect();
            for _ in 0..30 {
                let mut pipeline = redis::pipe();
                hot.iter().for_each(|key| _ = pipeline.cmd("GET").arg(key).ignore());
                pipeline.exec(&mut connection).unwrap();
            }
            config_set(&mut connection, "tenure.tier-fast-bytes", used_memory(server) - 7 * MB);
            wait_for("values to move down", || info(server, "tier_demotions") > 5000.0);
            wait_until_at_rest(server);
            let fast = hot.iter().filter(|key| tier_of(&mut connection, key) == "fast").count();
            assert!(fast > 900, "{rule}, {policy}: {fast} of 1000");
        });
    }
}

/// 10,000 values of which 8 MB don't fit the fast tier, at rest; returns 50 that are slow.
fn slow_ones_of_many(server: &Server, connection: &mut Connection) -> Vec<String> {
    wait_until_ready(server);
    fill(connection, 1_000, 1000);
    config_set(connection, "tenure.tier-fast-bytes", used_memory(server) - MB / 5);
    wait_until_at_rest(server);
    assert!(info(server, "tier_demotions") > 200.0);
    let keys = (0..1_000).map(|i| format!("k{i}"));
    keys.filter(|key| tier_of(connection, key) == "slow").take(50).collect()
}

/// Each slow value that is read goes up at once. By the default rule none would: nothing says yet how hot fast values
/// are.
#[test]
fn always_moves_up_whatever_is_read() {
    on_oldest_and_newest(&with_tiers("anon"), |server| {
        let mut connection = server.connection().unwrap();
        let slow = slow_ones_of_many(server, &mut connection);
        let (one, others) = slow.split_first().unwrap();
        let spent_us = info(server, "tier_spent_us");
        wait_for("slices to look at what is read", || {
            assert!(get(&mut connection, one).is_some());
            info(server, "tier_spent_us") > spent_us + 10.0
        });
        assert_eq!((tier_of(&mut connection, one).as_str(), info(server, "tier_promotions")), ("slow", 0.0));
        config_set(&mut connection, "tenure.tier-rule", "always");
        for key in others {
            assert!(get(&mut connection, key).is_some());
            wait_for("what was read to be fast", || tier_of(&mut connection, key) == "fast");
        }
        assert!(info(server, "tier_promotions") >= others.len() as f64);
        assert!(info(server, "tier_fast_bytes") < info(server, "tier_fast_limit_bytes"));
    });
}

/// Nothing goes up, though all of it is read again and again and there is room for it. By the default rule it would.
#[test]
fn never_moves_nothing_up() {
    on_oldest_and_newest(&with_tiers("anon").set("tenure.tier-rule", "never"), |server| {
        let mut connection = server.connection().unwrap();
        let slow = slow_ones_of_many(server, &mut connection);
        config_set(&mut connection, "tenure.tier-fast-bytes", "1gb");
        wait_for("the limit", || info(server, "tier_fast_limit_bytes") > 1e9);
        let read_all =
            |connection: &mut Connection| slow.iter().for_each(|key| assert!(get(connection, key).is_some()));
        (0..20).for_each(|_| read_all(&mut connection));
        wait_until_at_rest(server);
        assert!(info(server, "tier_slow_hits") >= 20.0 * slow.len() as f64);
        assert_eq!(info(server, "tier_promotions"), 0.0);
        assert!(slow.iter().all(|key| tier_of(&mut connection, key) == "slow"));
        config_set(&mut connection, "tenure.tier-rule", "reuse-time");
        wait_for("all to be fast", || {
            read_all(&mut connection);
            slow.iter().all(|key| tier_of(&mut connection, key) == "fast")
        });
    });
}

/// A save sees the values of the moment when it began, wherever they lay and whatever becomes of them meanwhile.
#[test]
fn a_save_of_slow_values_that_are_overwritten_meanwhile_is_right() {
    for place in ["anon", "file:/tmp"] {
        for binary in oldest_and_newest() {
            println!("on {} with {place}", binary.label);
            let server = start(&binary, &with_tiers(place).set("dbfilename", "dump.rdb"));
            wait_until_ready(&server);
            let mut connection = server.connection().unwrap();
            const KEYS: u64 = 2000;
            fill(&mut connection, KEYS, 1000);
            (0..KEYS).for_each(|i| assert_eq!(move_to(&mut connection, &format!("k{i}"), "slow"), "moved"));
            if place.starts_with("file") {
                wait_for("values to be in the file", || info(&server, "tier_flushed_pages") > 300.0);
            }
            let digest: String = send(&mut connection, "DEBUG DIGEST");
            // Half a millisecond for each key: a second for what follows.
            config_set(&mut connection, "rdb-key-save-delay", 500);
            send::<String>(&mut connection, "BGSAVE");
            // At once: a busy machine must not let the save end meanwhile.
            let mut changes = redis::pipe();
            for i in 0..KEYS {
                let (key, other) = (format!("k{i}"), format!("other{i}"));
                match i % 4 {
                    0 => changes.cmd("SETRANGE").arg(key).arg(10).arg("changed in place").ignore(),
                    1 => changes.cmd("DEL").arg(key).ignore(),
                    2 => {
                        // Its place in slow memory is another's now.
                        changes.cmd("DEL").arg(key).ignore();
                        changes.cmd("SET").arg(&other).arg(value(7 * i, 1000)).ignore();
                        changes.cmd("TENURE.DEBUG").arg("TIER").arg(&other).arg("slow").ignore()
                    }
                    _ => changes.cmd("TENURE.DEBUG").arg("TIER").arg(key).arg("fast").ignore(),
                };
            }
            changes.exec(&mut connection).unwrap();
            let is_saving = server.info("persistence").unwrap()["rdb_bgsave_in_progress"] == "1";
            assert!(is_saving, "the save was over before what it must not see");
            config_set(&mut connection, "rdb-key-save-delay", 0);
            wait_for("the save", || {
                let persistence = server.info("persistence").unwrap();
                persistence["rdb_bgsave_in_progress"] == "0" && persistence["rdb_last_bgsave_status"] == "ok"
            });
            let now: String = send(&mut connection, "DEBUG DIGEST");
            assert_ne!(now, digest);
            let saved = start(&binary, &without_tiers());
            std::fs::copy(server.directory().join("dump.rdb"), saved.directory().join("dump.rdb")).unwrap();
            let mut its = saved.connection().unwrap();
            send::<()>(&mut its, "DEBUG RELOAD NOSAVE");
            assert_eq!(send::<String>(&mut its, "DEBUG DIGEST"), digest);
            // And the server's own values are right as well, after the pages that waited for the child's end were put
            // into the file.
            for i in (0..KEYS).filter(|i| i % 4 == 2) {
                assert!(get(&mut connection, &format!("other{i}")) == Some(value(7 * i, 1000)));
            }
            for i in (0..KEYS).filter(|i| i % 4 == 0) {
                let mut changed = value(i, 1000);
                changed[10..26].copy_from_slice(b"changed in place");
                assert!(get(&mut connection, &format!("k{i}")) == Some(changed));
            }
        }
    }
}

#[test]
fn a_replica_is_the_same_whatever_moves() {
    for binary in oldest_and_newest() {
        println!("on {}", binary.label);
        let primary = start(&binary, &with_tiers("anon"));
        let replica = start(&binary, &with_tiers("anon"));
        replica.replica_of(&primary).unwrap();
        wait_until_ready(&primary);
        let mut connection = primary.connection().unwrap();
        let mut its = replica.connection().unwrap();
        fill(&mut connection, 5000, 1000);
        let offset = |server: &Server| server.info("replication").unwrap()["master_repl_offset"].clone();
        // What waits to be sent to a replica counts as used.
        wait_for("the replica to follow", || offset(&primary) == offset(&replica));
        config_set(&mut connection, "tenure.tier-fast-bytes", used_memory(&primary) - 4 * MB);
        wait_for("values to move down", || info(&primary, "tier_demotions") > 3000.0);
        wait_for("the replica to follow", || offset(&primary) == offset(&replica));
        config_set(&mut its, "tenure.tier-fast-bytes", used_memory(&replica) - 2 * MB);
        wait_for("the replica to place its own", || info(&replica, "tier_demotions") > 1000.0);
        let mut account = Account::new(&primary, "k");
        (0..2000).for_each(|_| {
            account.act(1);
        });
        wait_for("the replica to follow", || offset(&primary) == offset(&replica));
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), send::<String>(&mut its, "DEBUG DIGEST"));
    }
}

#[test]
fn wrong_settings_are_refused_and_say_what_is_allowed() {
    on_oldest_and_newest(&without_tiers(), |server| {
        let mut connection = server.connection().unwrap();
        for (value, part) in [
            ("cxl", "allowed are anon"),
            ("numa:x", "0 to 1023"),
            ("file:here", "not absolute"),
            ("dax:/dev/dax0.0", "numa:NODE"),
        ] {
            let error = error_of(&mut connection, &format!("CONFIG SET tenure.tier-slow {value}"));
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(config_get(&mut connection, "tenure.tier-slow"), "");
        assert!(text(server, "tiers").starts_with("off: tenure.tier-slow is empty"));
        config_set(&mut connection, "tenure.tier-slow", "anon");
        wait_for("a reason", || text(server, "tiers").contains("maxmemory"));
        config_set(&mut connection, "tenure.tier-fast-bytes", "10mb");
        wait_until_ready(server);
        // A place that can't be had is refused, and what there is stays.
        for (place, part) in [("file:/nowhere/at/all", "can't make"), ("numa:1000", "gives no memory")] {
            let error = error_of(&mut connection, &format!("CONFIG SET tenure.tier-slow {place}"));
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(config_get(&mut connection, "tenure.tier-slow"), "anon");
        config_set(&mut connection, "tenure.tier-slow", "anon");
        config_set(&mut connection, "tenure.policy", "hyperbolic");
        wait_for("the reason", || text(server, "tiers").contains("under this tenure.policy"));
        assert_eq!(status(&mut connection)["state"], "running");
    });
}

/// Addresses of the process, in KB.
fn address_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

/// Each try would take a terabyte of addresses for good, of some 120 that there are.
#[test]
fn a_place_that_gives_nothing_keeps_nothing_and_is_tried_once() {
    let options = without_tiers().set("tenure.tier-fast-bytes", "10mb").set("tenure.tier-slow", "numa:1001");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        wait_for("the reason", || text(server, "tiers").contains("numa:1001 gives no memory"));
        // Another setting is no reason to try again.
        for samples in [3, 4] {
            config_set(&mut connection, "tenure.samples", samples);
            let seconds = info(server, "uptime_seconds");
            wait_for("some ticks", || info(server, "uptime_seconds") > seconds + 1.0);
        }
        assert_eq!(server.log().matches("no memory tiers").count(), 1);
        assert!(address_kb(server) < 1 << 30, "{} KB", address_kb(server));
        config_set(&mut connection, "tenure.tier-slow", "anon");
        wait_until_ready(server);
    });
}

#[test]
fn with_the_usual_thread_cache_there_are_no_tiers_and_a_word_what_to_set() {
    let options = with_module().set("tenure.tier-slow", "anon").set("tenure.tier-fast-bytes", "10mb");
    on_every_server(&options, |server| {
        wait_for("the reason", || text(server, "tiers").contains(" MALLOC_CONF=tcache_max:256"));
        assert!(server.log().contains("no memory tiers"));
        let mut connection = server.connection().unwrap();
        fill(&mut connection, 20_000, 1000);
        assert_eq!(info(server, "tier_slow_values"), 0.0);
        let error = error_of(&mut connection, "CONFIG SET tenure.tier-slow file:/tmp");
        assert!(error.contains(" MALLOC_CONF=tcache_max:256"), "{error}");
    });
}

/// Twice as much memory, half of it, none: the fast tier's part follows, and what is slow comes back when it is given
/// up.
#[test]
fn limits_follow_and_a_slow_tier_can_be_given_up() {
    let options = without_tiers().set("tenure.tier-slow", "file:/tmp").set("maxmemory-policy", "allkeys-lru");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory", "100mb");
        wait_until_ready(server);
        wait_for("a fifth", || info(server, "tier_fast_limit_bytes") as u64 == 20 * MB);
        fill(&mut connection, 40_000, 1000);
        wait_for("the fast tier to keep its limit", || info(server, "tier_fast_bytes") < 19.9 * MB as f64);
        config_set(&mut connection, "maxmemory", "200mb");
        wait_for("a fifth", || info(server, "tier_fast_limit_bytes") as u64 == 40 * MB);
        config_set(&mut connection, "maxmemory", "40mb");
        wait_for("keys to go", || used_memory(server) < 41 * MB);
        // Of what goes at once the server takes most: how much is a matter of the machine.
        wait_for("Tenure to evict, whichever tier they lie in", || {
            fill(&mut connection, 40_000, 1000);
            info(server, "evictions") > 10_000.0
        });
        config_set(&mut connection, "maxmemory", "1gb");
        let digest: String = send(&mut connection, "DEBUG DIGEST");
        config_set(&mut connection, "tenure.tier-slow", "");
        wait_for("everything to be fast", || text(server, "tiers").starts_with("off"));
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest);
        config_set(&mut connection, "tenure.tier-fast-bytes", "30mb");
        config_set(&mut connection, "tenure.tier-slow", "file:/tmp");
        wait_until_ready(server);
        wait_for("values to move down again", || info(server, "tier_demotions") > 1000.0);
        assert_eq!(send::<String>(&mut connection, "DEBUG DIGEST"), digest);
        // Stopped and started again, Tenure knows by its address what is slow.
        let slow = info(server, "tier_slow_values");
        config_set(&mut connection, "tenure.enabled", "no");
        wait_for("Tenure to stop", || status(&mut connection)["state"] == "stopped");
        config_set(&mut connection, "tenure.enabled", "yes");
        wait_for("Tenure to start", || status(&mut connection)["state"] == "running");
        wait_until_ready(server);
        assert!(info(server, "tier_slow_values") >= slow);
        let left = std::fs::read_dir("/tmp").unwrap().flatten();
        let name = format!("tenure-slow-{}", server.pid());
        assert!(left.into_iter().all(|entry| entry.file_name().to_string_lossy() != name), "the file has no name");
    });
}

/// Two tenants, each value of whom is asked for as often as any: with equal parts, who has a third as many values has
/// more of them fast.
#[test]
fn tenants_share_fast_memory_as_they_are_told_to() {
    let options = with_tiers("anon").set("tenure.tier-division", "equal").set("tenure.window-requests", 2000);
    let options = options.set("tenure.tenants", "\"a=a:* b=b:*\"").set("maxmemory", "1gb");
    on_oldest_and_newest(&options, |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        // The first has three times as many values as the second.
        for i in 0..12_000u64 {
            let name = if i % 4 == 3 { format!("b:{i}") } else { format!("a:{i}") };
            redis::cmd("SET").arg(name).arg(value(i, 1000)).exec(&mut connection).unwrap();
        }
        config_set(&mut connection, "tenure.tier-fast-bytes", used_memory(server) - 6 * MB);
        let read_some = |connection: &mut Connection, random: &mut Random| {
            let mut pipeline = redis::pipe();
            for _ in 0..400 {
                let i = random.below(12_000);
                pipeline.cmd("GET").arg(if i % 4 == 3 { format!("b:{i}") } else { format!("a:{i}") }).ignore();
            }
            pipeline.exec(connection).unwrap();
        };
        let mut random = Random::new(5);
        wait_for("values to move down", || {
            read_some(&mut connection, &mut random);
            info(server, "tier_demotions") > 5000.0
        });
        let fast_of = |connection: &mut Connection, prefix: &str, from: u64| {
            let keys = (0..400u64).map(|i| format!("{prefix}:{}", i * 28 + from));
            keys.filter(|key| tier_of(connection, key) == "fast").count()
        };
        // Of three times as many values a third as large a share.
        wait_for("the second to keep its part", || {
            read_some(&mut connection, &mut random);
            2 * fast_of(&mut connection, "b", 3) > 3 * fast_of(&mut connection, "a", 0)
        });
    });
}

/// A place that can't be had keeps no server from starting: it runs without tiers and says why.
#[test]
fn a_server_starts_without_its_slow_tier() {
    for (place, part) in [("file:/nowhere/at/all", "can't make"), ("numa:1000", "gives no memory")] {
        let options = without_tiers().set("tenure.tier-slow", place).set("tenure.tier-fast-bytes", "10mb");
        on_oldest_and_newest(&options, |server| {
            wait_for("the reason", || text(server, "tiers").contains(part));
            assert!(server.log().contains("no memory tiers"), "{place}");
            assert_eq!(status(&mut server.connection().unwrap())["state"], "running");
        });
    }
}
