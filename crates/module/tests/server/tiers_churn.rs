//! A day's churn on two memory tiers in minutes: clients that know what each of their keys must hold, saves, and
//! servers that are killed.
//!
//! A primary and a replica, one with a slow tier in ordinary memory and the other with one in a file, each with a
//! fifth to three fifths of the values fast. Now and then a snapshot is taken or the append-only file is written anew
//! while the clients go on, or the primary is killed and its replica takes its place. What was saved, what a killed
//! primary has in its file, and what its replica has must be what the clients wrote. In the end the arenas hold what
//! the server says of its keys, to the byte, and nothing once there are no keys.
//!
//! `TENURE_CHURN_OPERATIONS` says how many operations. Nothing depends on speed: on a slow machine it only takes
//! longer.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use redis::{Connection, Value, from_redis_value_ref};
use tenure_servers::{Server, ServerBinary, ServerOptions};

use crate::harness::{config_set, info, oldest_and_newest, send, start, used_memory, wait_for};
use crate::tiers::{wait_until_ready, with_tiers, without_tiers};
use crate::tiers_client::{Account, Client, check_all, name_of};

const MB: u64 = 1 << 20;
/// Operations where the environment says nothing: seconds.
const OPERATIONS: u64 = 40_000;
const CLIENTS: usize = 3;
/// Rounds between two failovers; the first is in the middle of the shortest day.
const FAILOVER_ROUNDS: u64 = 10;
/// Strings shorter than this don't move, in bytes.
const MOVES_FROM: usize = 256;
/// The largest of jemalloc's small classes, in bytes.
const SMALL_MAX: u64 = 14_336;
/// Fast memory into which everything fits, in bytes.
const ROOM: u64 = 100 << 30;
/// How much of the values is fast in the first half of each round, and in the second.
const FAST_SHARES: [f64; 2] = [0.2, 0.6];
/// What a server without keys may use more than when it was new (its buffers, tables that grew), in bytes.
const GROWTH_MAX: u64 = 2 * MB;

#[test]
fn a_day_of_churn_loses_nothing_and_leaves_nothing() {
    for binary in oldest_and_newest() {
        let day = Day::from_environment();
        println!("on {}: {} operations in {} rounds", binary.label, day.operations, day.rounds);
        let mut churn = Churn::new(&binary, &day);
        (0..day.rounds).for_each(|round| churn.round(&day, round));
        churn.end();
    }
}

/// How much is done.
struct Day {
    operations: u64,
    rounds: u64,
    keys_per_client: usize,
    /// What a child waits for each key that it saves, so that values change while it does, as the server's setting:
    /// µs, or one µs (some 60 really) for one of so many keys.
    save_delay: i64,
}

impl Day {
    fn from_environment() -> Day {
        let said = std::env::var("TENURE_CHURN_OPERATIONS").ok();
        let number = |text: String| text.parse().expect("TENURE_CHURN_OPERATIONS is a number of operations");
        let operations: u64 = said.map_or(OPERATIONS, number);
        let keys = (operations / 16).clamp(2400, 60_000);
        Day {
            operations,
            rounds: (operations / 50_000).max(FAILOVER_ROUNDS),
            keys_per_client: keys as usize / CLIENTS,
            save_delay: if keys < 20_000 { 150_000 / keys as i64 } else { -(keys as i64) / 20_000 },
        }
    }

    /// Operations of each client in half a round.
    fn operations_each(&self) -> u64 {
        self.operations.div_ceil(2 * self.rounds * CLIENTS as u64)
    }
}

/// A server with a slow tier.
struct Member {
    server: Server,
    /// What it used when it had no keys, in bytes: the server, and Tenure in it.
    used_bytes: [u64; 2],
}

impl Member {
    fn new(binary: &ServerBinary, options: &ServerOptions) -> Member {
        let server = start(binary, options);
        wait_until_ready(&server);
        Member { server, used_bytes: [0; 2] }
    }

    fn connection(&self) -> Connection {
        self.server.connection().unwrap()
    }

    /// What the server uses, but for what it keeps for replicas, and of that what Tenure does.
    fn used_bytes(&self) -> [u64; 2] {
        let backlog: u64 = self.server.info("memory").unwrap()["mem_replication_backlog"].parse().unwrap();
        let of_tenure = info(&self.server, "memory_bytes") as u64;
        [used_memory(&self.server) - backlog - of_tenure, of_tenure]
    }

    /// Leaves this share of the values room in fast memory.
    fn set_fast_share(&self, value_bytes: u64, share: f64) {
        let fast_bytes = (share * value_bytes as f64) as u64;
        // A replica may not have all of them yet.
        let others = used_memory(&self.server).saturating_sub(value_bytes);
        config_set(&mut self.connection(), "tenure.tier-fast-bytes", others + fast_bytes);
    }

    fn persistence(&self, field: &str) -> String {
        self.server.info("persistence").unwrap()[field].clone()
    }

    /// Waits until no child saves.
    fn settle(&self) {
        wait_for("saves to end", || {
            let fields = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"];
            fields.into_iter().all(|field| self.persistence(field) == "0")
        });
    }

    /// Moves down and up, none of which may have gone wrong.
    fn moves(&self) -> [f64; 2] {
        for wrong in ["tier_strays", "tier_elsewhere_bytes", "panics"] {
            assert_eq!(info(&self.server, wrong), 0.0, "{wrong} of {}", self.place());
        }
        ["tier_demotions", "tier_promotions"].map(|way| info(&self.server, way))
    }

    fn place(&self) -> String {
        self.server.info("tenure").unwrap()["tenure_tier_slow_place"].clone()
    }
}

/// The servers and their clients.
struct Churn {
    /// The primary and its replica.
    members: [Member; 2],
    clients: Vec<Client>,
    saves: u64,
    /// Of them, those that went on while half a round of operations was done.
    saves_meanwhile: u64,
    rewrites: u64,
    failovers: u64,
    /// Moves down and up, by processes that were killed until the end.
    moves: [f64; 2],
}

impl Churn {
    fn new(binary: &ServerBinary, day: &Day) -> Churn {
        let options = |place| {
            let options = with_tiers(place).set("dbfilename", "dump.rdb").set("appendonly", "yes");
            // A day's writes are some gigabytes: they needn't wait for the disk, and the file is written anew when
            // this says so.
            let options = options.set("appendfsync", "no").set("auto-aof-rewrite-percentage", 0);
            options.set("repl-backlog-size", "1mb")
        };
        let mut members = ["anon", "file:/tmp"].map(|place| Member::new(binary, &options(place)));
        members[1].server.replica_of(&members[0].server).unwrap();
        for member in &mut members {
            member.settle();
            member.used_bytes = member.used_bytes();
        }
        let clients = (0..CLIENTS).map(|n| Client::new(n, &members[0].server, day.keys_per_client)).collect();
        Churn { members, clients, saves: 0, saves_meanwhile: 0, rewrites: 0, failovers: 0, moves: [0.0; 2] }
    }

    fn round(&mut self, day: &Day, round: u64) {
        if round % FAILOVER_ROUNDS == FAILOVER_ROUNDS / 2 {
            self.fail_over();
        }
        // Another tenth of the keys is hot, so that values have reason to move both ways.
        self.clients.iter_mut().for_each(|client| client.hot_from += day.keys_per_client as u64 / 7);
        self.set_fast_share(FAST_SHARES[0]);
        let saved = (round % 3 == 1).then(|| self.begin_save(day));
        if round % 3 == 2 {
            self.begin_rewrite(day);
        }
        self.work(day);
        if saved.is_some() {
            self.saves_meanwhile += u64::from(self.members[0].persistence("rdb_bgsave_in_progress") == "1");
        }
        self.set_fast_share(FAST_SHARES[1]);
        self.work(day);
        if let Some(saved) = saved {
            self.finish_save(&saved);
        }
    }

    /// All clients at once.
    fn work(&mut self, day: &Day) {
        let operations = day.operations_each();
        std::thread::scope(|scope| {
            self.clients.iter_mut().for_each(|client| {
                scope.spawn(|| client.work(operations));
            });
        });
    }

    /// What the keys must hold; the clients rest.
    fn accounts(&self) -> Vec<Account> {
        self.clients.iter().map(|client| client.account.clone()).collect()
    }

    fn set_fast_share(&self, share: f64) {
        let accounts = self.accounts();
        let value_bytes = that_move(&accounts).iter().map(|(_, length)| *allocated_bytes(*length).end()).sum();
        self.members.iter().for_each(|member| member.set_fast_share(value_bytes, share));
    }

    /// The primary forks, with moves under way.
    fn fork(&self, day: &Day, command: &str) {
        let primary = &self.members[0];
        primary.settle();
        let mut connection = primary.connection();
        config_set(&mut connection, "rdb-key-save-delay", day.save_delay);
        send::<String>(&mut connection, command);
        config_set(&mut connection, "rdb-key-save-delay", 0);
    }

    /// Begins a snapshot. Returns what must be in it.
    fn begin_save(&mut self, day: &Day) -> Vec<Account> {
        self.fork(day, "BGSAVE");
        self.saves += 1;
        self.accounts()
    }

    /// Begins the append-only file anew; what is in it is read when the primary is killed.
    fn begin_rewrite(&mut self, day: &Day) {
        self.fork(day, "BGREWRITEAOF");
        self.rewrites += 1;
    }

    fn finish_save(&self, saved: &[Account]) {
        let primary = &self.members[0];
        primary.settle();
        assert_eq!(primary.persistence("rdb_last_bgsave_status"), "ok");
        let loaded = start(primary.server.binary(), &without_tiers());
        let path = |server: &Server| server.directory().join("dump.rdb");
        std::fs::copy(path(&primary.server), path(&loaded)).unwrap();
        send::<()>(&mut loaded.connection().unwrap(), "DEBUG RELOAD NOSAVE");
        check_all("the snapshot", &loaded, saved);
    }

    /// The primary is killed once its replica has all. The replica goes on, and the other, started again with its
    /// file, is its replica.
    fn fail_over(&mut self) {
        self.wait_for_the_replica();
        let accounts = self.accounts();
        self.members.iter().for_each(Member::settle);
        self.count_moves(0);
        let [killed, promoted] = &mut self.members;
        killed.server.kill();
        send::<()>(&mut promoted.connection(), "REPLICAOF NO ONE");
        check_all("the promoted replica", &promoted.server, &accounts);
        killed.server.restart().unwrap();
        wait_until_ready(&killed.server);
        check_all("the killed primary with its append-only file", &killed.server, &accounts);
        killed.server.replica_of(&promoted.server).unwrap();
        self.members.swap(0, 1);
        let primary = &self.members[0];
        self.clients.iter_mut().for_each(|client| client.connection = primary.connection());
        self.failovers += 1;
    }

    fn count_moves(&mut self, member: usize) {
        let moves = self.members[member].moves();
        self.moves.iter_mut().zip(moves).for_each(|(sum, n)| *sum += n);
    }

    fn wait_for_the_replica(&mut self) {
        for client in &mut self.clients {
            assert_eq!(send::<u64>(&mut client.connection, "WAIT 1 50000"), 1, "the replica follows");
        }
    }

    /// Every key is read once more, and both arenas are compared with the keys.
    fn end(mut self) {
        self.wait_for_the_replica();
        wait_for("times to live to end", || self.clients.iter_mut().all(Client::forget_what_ended));
        let accounts = self.accounts();
        self.clients.clear();
        (0..2).for_each(|member| self.count_moves(member));
        for (member, what) in self.members.iter().zip(["the primary", "its replica"]) {
            member.settle();
            check_all(what, &member.server, &accounts);
        }
        for member in &self.members {
            // Each by itself: what one is told from now on the other doesn't hear.
            send::<()>(&mut self.members[1].connection(), "REPLICAOF NO ONE");
            check_arena(member, &accounts);
            check_all("with all values moved up and down", &member.server, &accounts);
            check_that_nothing_is_left(member, &accounts);
        }
        let [down, up] = self.moves;
        println!(
            "{} saves ({} while values changed), {} rewrites, {} failovers, {down} moves down, {up} up",
            self.saves, self.saves_meanwhile, self.rewrites, self.failovers
        );
        assert!(self.saves_meanwhile > 0, "no save went on while values changed");
        let keys: usize = accounts.iter().map(Vec::len).sum();
        assert!(down > keys as f64 / 2.0 && up > keys as f64 / 50.0, "{down} moves down and {up} up of {keys} keys");
    }
}

/// Strings that may lie in either tier: their keys' names and lengths.
fn that_move(accounts: &[Account]) -> Vec<(String, usize)> {
    let of_client = |(client, account): (usize, &Account)| {
        let lengths = account.iter().map(|held| held.as_ref().map_or(0, |held| held.value.len())).enumerate();
        let those = lengths.filter(|(_, length)| *length >= MOVES_FROM);
        those.map(|(key, length)| (name_of(client, key), length)).collect::<Vec<_>>()
    };
    accounts.iter().enumerate().flat_map(of_client).collect()
}

/// What jemalloc takes for a string (its bytes, a header and a zero), in bytes: four classes to a doubling; what is
/// large takes whole pages from version 5.3.1 on, and may so take less.
fn allocated_bytes(length: usize) -> RangeInclusive<u64> {
    let wanted = (length + if length < 1 << 16 { 6 } else { 10 }) as u64;
    let class = wanted.next_multiple_of((wanted.next_power_of_two() / 8).max(16));
    let least = if class > SMALL_MAX { wanted.next_multiple_of(4096) } else { class };
    least..=class
}

/// What the server says of its slow tier: values and bytes.
type Figures = (u64, u64);

/// The figures by INFO, which TENURE.TIERS must say too, and of which jemalloc's own report must have the bytes.
fn figures([info, tiers, report]: [&Value; 3]) -> Figures {
    let info: String = from_redis_value_ref(info).unwrap();
    let tiers: HashMap<String, Value> = from_redis_value_ref(tiers).unwrap();
    let report: String = from_redis_value_ref(report).unwrap();
    let [values, bytes] = ["slow_values", "slow_bytes"].map(|field| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("tenure_tier_{field}:"))).expect(field);
        let said: u64 = line.parse().unwrap();
        assert_eq!(tiers[field], Value::Int(said as i64), "{field} of TENURE.TIERS");
        said
    });
    assert!(report.contains(&format!(" {bytes} ")), "jemalloc's own report has no {bytes}");
    (values, bytes)
}

/// The arena holds what the keys' values take: as they lie after the churn, with all moved up, and with the same
/// moved down again. In one transaction, so that nothing moves meanwhile.
fn check_arena(member: &Member, accounts: &[Account]) {
    let mut connection = member.connection();
    // Nothing moves down by itself.
    config_set(&mut connection, "tenure.tier-fast-bytes", ROOM);
    wait_for("room", || info(&member.server, "tier_fast_limit_bytes") as u64 == ROOM);
    let mut keys = that_move(accounts);
    let mut questions = redis::pipe();
    keys.iter().for_each(|(name, _)| {
        questions.cmd("TENURE.DEBUG").arg("TIER").arg(name);
    });
    let tiers: Vec<String> = questions.query(&mut connection).unwrap();
    let mut tiers = tiers.iter();
    keys.retain(|_| tiers.next().is_some_and(|tier| tier == "slow"));
    let mut transaction = redis::pipe();
    transaction.atomic();
    for tier in [None, Some("fast"), Some("slow")] {
        for (name, _) in &keys {
            transaction.cmd("TENURE.DEBUG").arg("TIER").arg(name).arg(tier);
            transaction.cmd("MEMORY").arg("USAGE").arg(name);
        }
        transaction.cmd("INFO").arg("tenure").cmd("TENURE.TIERS").cmd("MEMORY").arg("MALLOC-STATS");
    }
    let replies: Vec<Value> = transaction.query(&mut connection).unwrap();
    let parts: Vec<&[Value]> = replies.chunks(2 * keys.len() + 3).collect();
    let said = |part: usize| figures(std::array::from_fn(|i| &parts[part][2 * keys.len() + i]));
    let usage = |part: usize| -> u64 {
        let of_keys = parts[part][..2 * keys.len()].chunks(2);
        of_keys.map(|pair| from_redis_value_ref::<u64>(&pair[1]).unwrap()).sum()
    };
    let (n, place) = (keys.len() as u64, member.place());
    assert!(n > 100, "only {n} values in {place}");
    let (bytes_least, bytes_most) = keys.iter().fold((0, 0), |(least, most), (_, length)| {
        let bytes = allocated_bytes(*length);
        (least + bytes.start(), most + bytes.end())
    });
    assert_eq!(said(1), (0, 0), "values and bytes with all moved up, in {place}");
    let (values, bytes) = said(2);
    assert_eq!(values, n, "values moved down, in {place}");
    assert!((bytes_least..=bytes_most).contains(&bytes), "{bytes} in {place}, not {bytes_least} to {bytes_most}");
    // A value that has grown where it lies has room to spare, and takes so much more than moved.
    assert_eq!(said(0), (n, bytes + usage(0) - usage(2)), "values and bytes after the churn, in {place}");
}

/// Half of the keys is deleted one by one, the rest at once.
fn check_that_nothing_is_left(member: &Member, accounts: &[Account]) {
    let mut connection = member.connection();
    let held: usize = accounts.iter().map(|account| account.iter().flatten().count()).sum();
    assert_eq!(send::<usize>(&mut connection, "DBSIZE"), held);
    for (client, account) in accounts.iter().enumerate() {
        let half: Vec<String> = (0..account.len()).step_by(2).map(|key| name_of(client, key)).collect();
        half.chunks(500).for_each(|names| redis::cmd("DEL").arg(names).exec(&mut connection).unwrap());
    }
    send::<()>(&mut connection, "FLUSHALL");
    for field in ["tier_slow_bytes", "tier_slow_values", "tier_slow_active_bytes"] {
        wait_for("slow memory to be free", || info(&member.server, field) == 0.0);
    }
    let used = || member.used_bytes();
    println!(
        "{}: {:?} bytes used when new, {:?} without keys, by the server and by Tenure",
        member.place(),
        member.used_bytes,
        used()
    );
    wait_for("used memory to be what it was", || {
        let growth: Vec<u64> =
            std::iter::zip(used(), member.used_bytes).map(|(now, new)| now.saturating_sub(new)).collect();
        growth.iter().all(|bytes| *bytes < GROWTH_MAX)
    });
}
