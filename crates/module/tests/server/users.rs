//! Tenants by user of the access control lists, in one database: whose each key is, whatever way it comes, and what
//! follows from it.

use std::collections::HashSet;
use std::time::Duration;

use redis::{Connection, Value};
use tenure_servers::{Product, Server, ServerBinary, ServerOptions};

use crate::accounting::{Held, add_hashes, add_strings, check_against, count};
use crate::harness::{
    CacheAside, Unseen, add_user, config_get, config_set, error_of, evicted_by_server, info, limit_memory, login,
    oldest_and_newest_of, partition, partitions, send, servers, start, status, that_know_clients, wait_for,
    with_module,
};

const MB: u64 = 1 << 20;
const USERS: [&str; 3] = ["alice", "bob", "carol"];
const TENANTS: &str = "alice=user:alice bob=user:bob";

/// The setting at start.
fn with_tenants(tenants: &str) -> ServerOptions {
    with_module().set("tenure.tenants", format!("\"{tenants}\""))
}

/// Runs `test` on these servers, each with the users.
fn run_on(binaries: Vec<ServerBinary>, options: &ServerOptions, test: impl Fn(&mut Server)) {
    for binary in binaries {
        println!("on {}", binary.label);
        let mut server = start(&binary, options);
        USERS.iter().for_each(|name| add_user(&server, name, "~*"));
        test(&mut server);
    }
}

fn on_every(options: &ServerOptions, test: impl Fn(&mut Server)) {
    run_on(that_know_clients(servers()), options, test);
}

/// The oldest, the newest, and the newest of Redis.
fn on_three(options: &ServerOptions, test: impl Fn(&mut Server)) {
    let all = that_know_clients(servers());
    let redis = all.iter().rfind(|binary| binary.product == Product::Redis).cloned();
    let mut some = oldest_and_newest_of(all);
    some.extend(redis.filter(|redis| !some.contains(redis)));
    run_on(some, options, test);
}

fn on_two(options: &ServerOptions, test: impl Fn(&mut Server)) {
    run_on(oldest_and_newest_of(that_know_clients(servers())), options, test);
}

/// Every key that is there against the account, by the owner that its name begins with: `alice…` is Alice's.
#[track_caller]
fn check_by_name(server: &Server, what: &str) {
    check(server, what, |key| {
        let owner = USERS.iter().find(|name| key.starts_with(**name));
        owner.map_or("other", |name| *name).to_owned()
    });
}

#[track_caller]
fn check(server: &Server, what: &str, owner_of: impl Fn(&str) -> String) {
    let count_all = |connection: &mut Connection| {
        let mut held = Held::new();
        count(connection, &mut held, &owner_of);
        held
    };
    check_against(server, &mut server.connection().unwrap(), count_all, what);
}

fn keys(connection: &mut Connection, tenant: &str) -> f64 {
    partition(connection, tenant)["keys"]
}

/// Strings and hashes of three users and of one who is no tenant, at one time and in any order; then they go, grow
/// and change names.
#[test]
fn used_bytes_are_those_of_the_keys_that_a_user_has_created() {
    on_three(&with_tenants("alice=user:alice bob=user:bob carol=user:carol"), |server| {
        let mut default = server.connection().unwrap();
        let [mut alice, mut bob, mut carol] = USERS.map(|name| login(server, name));
        add_strings(&mut alice, "alice:", 3000, 80.0);
        add_strings(&mut bob, "bob:", 1500, 1500.0);
        add_strings(&mut default, "x:", 500, 300.0);
        add_hashes(&mut carol, "carol:", 300);
        check_by_name(server, "after writing");

        // Who deletes makes no difference; who renames makes a key of its own.
        (0..1000).for_each(|i| send(&mut bob, &format!("DEL alice:{i}")));
        (0..300).for_each(|i| send(&mut carol, &format!("RENAME bob:{i} carol:renamed:{i}")));
        (0..200).for_each(|i| send(&mut bob, &format!("PEXPIRE alice:{} 1", 1000 + i)));
        // What others write into a key leaves it whose it is.
        (0..500).for_each(|i| send(&mut bob, &format!("SET alice:{} {}", 1500 + i, "v".repeat(400))));
        wait_for("the keys to expire", || send::<u64>(&mut default, "DBSIZE") == 5300 - 1200);
        check_by_name(server, "after deletes, renames and growth");

        send::<()>(&mut default, "FLUSHDB");
        wait_for("nothing to be held", || partitions(&mut default).values().all(|row| row["used_bytes"] == 0.0));
        send::<()>(&mut bob, "SET alice:1 value");
        assert_eq!((keys(&mut default, "alice"), keys(&mut default, "bob")), (0.0, 1.0), "the key is a new one");
    });
}

/// Each line creates keys of Alice's by another way: 1 to 17, of which 15 becomes 16.
const WAYS: [&[&str]; 9] = [
    &["SET alice:1 v"],
    &["MULTI", "SET alice:2 v", "RPUSH alice:3 a b", "EXEC"],
    &["EVAL redis.call('SET',KEYS[1],'v');redis.call('HSET','alice:5','f','v') 1 alice:4"],
    &["MSET alice:6 v alice:7 v"],
    &["COPY alice:1 alice:8"],
    &["SADD alice:9 a b", "SUNIONSTORE alice:10 alice:9"],
    &["XADD alice:11 * f v", "PFADD alice:12 a", "SETRANGE alice:13 100 v", "INCR alice:14"],
    &["SELECT 3", "SET alice:15 v", "MOVE alice:15 4", "SELECT 4", "RENAME alice:15 alice:16", "SELECT 0"],
    &["MULTI", "EVAL redis.call('SET','alice:17','v') 0", "EXEC"],
];

#[test]
fn a_key_is_its_creators_whichever_way_it_comes() {
    on_every(&with_tenants(TENANTS), |server| {
        let [mut alice, mut bob] = ["alice", "bob"].map(|name| login(server, name));
        for line in WAYS.concat() {
            drop(send::<Value>(&mut alice, line));
            // Another's command between any two.
            drop(send::<Value>(&mut bob, "GET bob:nothing"));
        }
        let mut connection = server.connection().unwrap();
        assert_eq!(keys(&mut connection, "alice"), 16.0);
        // Both ends of one pipeline, and what it finds missing.
        let mut pipeline = redis::pipe();
        for i in 0..50 {
            pipeline.cmd("GET").arg(format!("bob:{i}")).ignore().cmd("SET").arg(format!("bob:{i}")).arg("v").ignore();
        }
        pipeline.exec(&mut bob).unwrap();
        let row = partition(&mut connection, "bob");
        let misses = 50 + WAYS.concat().len();
        assert_eq!((row["keys"], row["writes"], row["misses"]), (50.0, 50.0, misses as f64), "{row:?}");
        assert_eq!(keys(&mut connection, "other"), 0.0);
    });
}

#[test]
fn a_connection_that_logs_in_anew_is_another_tenants() {
    on_every(&with_tenants(TENANTS), |server| {
        let mut watcher = server.connection().unwrap();
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET k:default v");
        send::<()>(&mut connection, "AUTH alice password");
        send::<()>(&mut connection, "SET k:alice v");
        assert!(error_of(&mut connection, "AUTH bob wrong").contains("WRONGPASS"));
        send::<()>(&mut connection, "SET k:alice:still v");
        drop(send::<Value>(&mut connection, "HELLO 2 AUTH bob password"));
        send::<()>(&mut connection, "SET k:bob v");
        send::<()>(&mut connection, "RESET");
        send::<()>(&mut connection, "SET k:default:again v");
        // Within one pipeline as well.
        let mut pipeline = redis::pipe();
        pipeline.cmd("AUTH").arg("bob").arg("password").cmd("SET").arg("p:bob").arg("v");
        pipeline.cmd("AUTH").arg("alice").arg("password").cmd("SET").arg("p:alice").arg("v");
        pipeline.exec(&mut connection).unwrap();
        let counts = ["alice", "bob", "other"].map(|name| keys(&mut watcher, name));
        assert_eq!(counts, [3.0, 2.0, 2.0]);
        let writes = ["alice", "bob", "other"].map(|name| partition(&mut watcher, name)["writes"]);
        assert_eq!(writes, [3.0, 2.0, 2.0], "what was asked for is counted where the keys are");
    });
}

/// So it is where accesses go unseen: who writes is known all the same, as are new users of connections.
#[test]
fn a_key_is_its_creators_though_accesses_go_unseen() {
    for way in Unseen::WAYS {
        println!("{way:?}");
        let options = way.options(with_tenants(&format!("alice=user:alice{} bob=user:bob", way.maximum)));
        on_two(&options, |server| {
            let [mut alice, mut bob, mut both] = ["alice", "bob", "alice"].map(|name| login(server, name));
            let mut connection = server.connection().unwrap();
            way.begin(server);
            let reads = info(server, "reads");
            for line in WAYS.concat() {
                Unseen::pass_by(&mut connection);
                drop(send::<Value>(&mut alice, line));
                drop(send::<Value>(&mut bob, "GET bob:nothing"));
                send::<()>(&mut bob, &format!("SET bob:{} v", line.len()));
            }
            assert!(way.is_so(server));
            let seen = info(server, "reads") - reads;
            assert!(seen < 0.5 * (2000 * WAYS.concat().len()) as f64, "{seen} reads were seen");
            let lengths: HashSet<usize> = WAYS.concat().iter().map(|line| line.len()).collect();
            let mut counts = [16.0, lengths.len() as f64, 0.0];
            assert_eq!(["alice", "bob", "other"].map(|name| keys(&mut connection, name)), counts);
            // A connection with other users, one after the other.
            for line in
                ["SET both:1 v", "AUTH bob password", "SET both:2 v", "HELLO 2 AUTH alice password", "SET both:3 v"]
            {
                Unseen::pass_by(&mut connection);
                drop(send::<Value>(&mut both, line));
            }
            (counts[0], counts[1]) = (counts[0] + 2.0, counts[1] + 1.0);
            assert_eq!(["alice", "bob", "other"].map(|name| keys(&mut connection, name)), counts);
        });
    }
}

#[test]
fn a_tenant_appears_and_vanishes_while_the_server_runs() {
    on_three(&with_tenants("alice=user:alice bob=user:bob jobs=j:*"), |server| {
        let mut default = server.connection().unwrap();
        let [mut alice, mut bob, mut carol] = USERS.map(|name| login(server, name));
        add_strings(&mut alice, "alice:", 600, 200.0);
        add_strings(&mut bob, "bob:", 400, 500.0);
        add_strings(&mut carol, "carol:", 300, 800.0);
        let [alices, bobs, carols] = [600.0, 400.0, 300.0];
        let counts = |connection: &mut Connection, names: &[&str]| -> Vec<f64> {
            names.iter().map(|name| keys(connection, name)).collect()
        };
        assert_eq!(counts(&mut default, &["alice", "bob", "jobs", "other"]), [alices, bobs, 0.0, carols]);

        // What she created before is hers.
        config_set(&mut default, "tenure.tenants", format!("carol=user:carol,max=64mb {TENANTS}"));
        wait_for("the tenant to appear", || partitions(&mut default).contains_key("carol"));
        check_by_name(server, "with another tenant");
        send::<()>(&mut carol, "SET carol:more v");
        wait_for("her key", || keys(&mut default, "carol") == carols + 1.0);

        config_set(&mut default, "tenure.tenants", "alice=user:alice carol=user:carol");
        wait_for("the tenant to vanish", || !partitions(&mut default).contains_key("bob"));
        check(server, "with a tenant less", |key| {
            if key.starts_with("bob") { "other".to_owned() } else { key.split(':').next().unwrap_or("").to_owned() }
        });

        // A user who is deleted loses its connections, not its keys; one of that name takes them over.
        send::<()>(&mut default, "ACL DELUSER alice");
        assert!(redis::cmd("PING").exec(&mut alice).is_err());
        assert_eq!(keys(&mut default, "alice"), alices);
        add_user(server, "alice", "~*");
        let mut alice = login(server, "alice");
        send::<()>(&mut alice, "SET alice:again v");
        (0..10).for_each(|i| send(&mut alice, &format!("DEL alice:{i}")));
        wait_for("her keys to be counted", || keys(&mut default, "alice") == alices - 9.0);
        // Without tenants by user nothing is remembered of owners.
        assert!(info(server, "owned_keys") > 1000.0 && info(server, "owners_bytes") > 4000.0);
        config_set(&mut default, "tenure.tenants", "");
        wait_for("the owners to be forgotten", || info(server, "owned_keys") + info(server, "owners_bytes") == 0.0);
    });
}

/// Nobody knows who created what was there before. Who uses such a key has it, if it may use it.
#[test]
fn keys_that_were_there_before_are_whose_user_asks_for_them() {
    on_three(&with_module(), |server| {
        let mut default = server.connection().unwrap();
        add_user(server, "eve", "~eve:*");
        let [mut alice, mut eve] = ["alice", "eve"].map(|name| login(server, name));
        add_strings(&mut default, "alice:", 500, 300.0);
        add_strings(&mut default, "bob:", 500, 300.0);
        config_set(&mut default, "tenure.tenants", format!("{TENANTS} eve=user:eve"));
        wait_for("the tenants", || partitions(&mut default).contains_key("alice"));
        wait_for("all keys to be nobody's", || keys(&mut default, "other") == 1000.0);
        let mut bob = login(server, "bob");
        for i in 0..500 {
            assert!(error_of(&mut eve, &format!("GET alice:{i}")).contains("permission"));
            drop(send::<Value>(&mut eve, &format!("GET eve:{i}")));
            // Alice and Bob look for what isn't there too.
            drop(send::<Value>(&mut alice, &format!("GET bob:{}", 500 + i)));
        }
        // A key that wasn't taken for lack of room in a turn is asked for again.
        wait_for("the keys to have owners", || {
            (0..500).for_each(|i| {
                drop(send::<Value>(&mut alice, &format!("GET alice:{i}")));
                send::<()>(&mut bob, &format!("SET bob:{i} value"));
                drop(send::<Value>(&mut alice, &format!("GET bob:{i}")));
            });
            info(server, "owned_keys") == 1000.0
        });
        check_by_name(server, "after the owners were found");
    });
}

/// A snapshot doesn't know who created its keys, nor does a replica; their users take them over, in the databases
/// they are in.
#[test]
fn after_a_restart_a_swap_of_databases_and_on_a_replica_owners_are_right_or_found_again() {
    let options = with_tenants(TENANTS).set("repl-backlog-size", "64kb");
    on_two(&options, |server| {
        let mut default = server.connection().unwrap();
        let [mut alice, mut bob] = ["alice", "bob"].map(|name| login(server, name));
        add_strings(&mut alice, "alice:", 300, 300.0);
        send::<()>(&mut bob, "SELECT 1");
        add_strings(&mut bob, "bob:", 200, 300.0);
        send::<()>(&mut default, "SWAPDB 0 1");
        (0..100).for_each(|i| send(&mut alice, &format!("DEL bob:{i}")));
        wait_for("the keys to be counted", || {
            (keys(&mut default, "alice"), keys(&mut default, "bob")) == (300.0, 100.0)
        });
        send::<()>(&mut default, "FLUSHDB");
        wait_for("the keys to be counted", || (keys(&mut default, "alice"), keys(&mut default, "bob")) == (300.0, 0.0));

        let use_all = |server: &Server| {
            let mut alice = login(server, "alice");
            send::<()>(&mut alice, "SELECT 1");
            let mut default = server.connection().unwrap();
            wait_for("the keys to be nobody's", || keys(&mut default, "other") == 300.0);
            wait_for("her keys to be hers", || {
                (0..300).for_each(|i| drop(send::<Value>(&mut alice, &format!("GET alice:{i}"))));
                keys(&mut default, "alice") == 300.0
            });
        };
        let replica = start(server.binary(), &options);
        USERS.iter().for_each(|name| add_user(&replica, name, "~*"));
        replica.replica_of(server).unwrap();
        let has_all = || replica.info("keyspace").unwrap().get("db1").is_some_and(|db| db.starts_with("keys=300,"));
        wait_for("the replica to have the keys", has_all);
        replica.call::<()>(&["REPLICAOF", "NO", "ONE"]).unwrap();
        use_all(&replica);

        send::<()>(&mut default, "SAVE");
        server.restart().unwrap();
        USERS.iter().for_each(|name| add_user(server, name, "~*"));
        use_all(server);
    });
}

#[test]
fn what_wakes_is_whose_it_was() {
    let folder = tempfile::TempDir::new().unwrap();
    let options = with_tenants(TENANTS).set("maxmemory-policy", "allkeys-lru");
    on_two(&options, |server| {
        let mut default = server.connection().unwrap();
        let mut alice = login(server, "alice");
        add_strings(&mut alice, "alice:", 300, 300.0);
        config_set(&mut default, "tenure.spill-dir", folder.path().join(&server.binary().label).display());
        send::<()>(&mut default, "TENURE.SLEEP alice");
        wait_for("all to sleep", || partition(&mut default, "alice")["sleeping_keys"] == 300.0);
        assert_eq!(keys(&mut default, "alice"), 0.0);
        // Others wake some of them; and the tenants change while the rest is asleep.
        (0..50).for_each(|i| drop(send::<Value>(&mut default, &format!("STRLEN alice:{i}"))));
        wait_for("some to wake", || keys(&mut default, "alice") >= 50.0);
        config_set(&mut default, "tenure.tenants", "bob=user:bob alice=user:alice");
        wait_for("other tenants", || partitions(&mut default)["alice"]["sleeping_keys"] > 0.0);
        send::<()>(&mut default, "TENURE.WAKE alice");
        wait_for("all to wake", || keys(&mut default, "alice") == 300.0);
        assert_eq!(keys(&mut default, "other"), 0.0);
    });
}

/// A reader whose keys are its own because of who it is.
fn reader(server: &Server, user: &str, prefix: &'static str, keys: u64) -> CacheAside {
    CacheAside::new(login(server, user), prefix, keys, 1000)
}

/// Three users, misses of the second most expensive; the third has a minimum, though its misses are cheap and it asks
/// for little.
#[test]
fn memory_goes_to_the_dear_user_and_bounds_hold() {
    let tenants = "alice=user:alice,max=1mb bob=user:bob carol=user:carol,min=1mb";
    for policy in ["predis", "kredis"] {
        let options = with_tenants(tenants).set("tenure.policy", policy).set("maxmemory-policy", "allkeys-lru");
        on_two(&options, |server| {
            let mut default = server.connection().unwrap();
            config_set(&mut default, "maxmemory", 1024 * MB);
            let mut alice = reader(server, "alice", "alice:", 4000);
            let mut bob = reader(server, "bob", "bob:", 4000).with_backend(Duration::from_millis(40));
            let mut carol = reader(server, "carol", "carol:", 4000);
            wait_for("a plan", || {
                [&mut alice, &mut bob, &mut carol].into_iter().for_each(|client| client.read_some(50));
                status(&mut default)["eviction"] == "ready"
            });
            limit_memory(server, 4 * MB);
            let mut shown = String::new();
            let is_settled = || {
                alice.read_some(200);
                bob.read_some(200);
                carol.read_some(40);
                let rows = partitions(&mut default);
                shown = format!("{rows:?}");
                let used = |name: &str| rows[name]["used_bytes"] / MB as f64;
                let is_bounded = used("alice") <= 1.02 && used("carol") >= 0.95 && rows["carol"]["keys"] > 800.0;
                is_bounded && used("bob") > used("alice") + used("carol") && rows["bob"]["evictions"] > 100.0
            };
            let settled = tenure_servers::wait_for(crate::harness::DEADLINE, "memory to be divided", is_settled);
            assert!(settled.is_ok(), "{policy}: {shown}");
            check_by_name(server, "of a full cache");
            let (ours, theirs) = (info(server, "evictions"), evicted_by_server(server) as f64);
            assert!(theirs <= 0.1 * (ours + theirs), "{ours} by Tenure, {theirs} by the server");
            for (name, user) in [("alice", &alice), ("bob", &bob), ("carol", &carol)] {
                let row = partition(&mut default, name);
                assert_eq!((row["reads"], row["misses"]), (user.reads as f64, user.misses as f64), "{name}");
            }
        });
    }
}

/// As with prefixes: the maximum holds while memory is free, and costs nobody else a key.
#[test]
fn a_user_above_its_maximum_shrinks_while_memory_is_free() {
    let options = with_tenants("alice=user:alice,max=1mb bob=user:bob").set("maxmemory-policy", "allkeys-lru");
    on_two(&options.set("maxmemory", "1gb"), |server| {
        let mut default = server.connection().unwrap();
        let (mut alice, mut bob) = (reader(server, "alice", "alice:", 4000), reader(server, "bob", "bob:", 3000));
        bob.read_all();
        alice.read_all();
        wait_for("her keys to shrink", || {
            alice.write(&[0]);
            partition(&mut default, "alice")["used_bytes"] <= 1.02 * MB as f64
        });
        let rows = partitions(&mut default);
        assert!(rows["alice"]["keys"] > 700.0, "{rows:?}");
        assert_eq!((rows["bob"]["keys"], rows["bob"]["evictions"], evicted_by_server(server)), (3000.0, 0.0, 0));
        check_by_name(server, "above the maximum");
    });
}

#[test]
fn sixty_four_users_are_tenants_and_one_more_is_refused() {
    on_three(&with_module(), |server| {
        let mut default = server.connection().unwrap();
        let entries: Vec<String> = (0..65).map(|i| format!("t{i}=user:u{i}")).collect();
        let mut command = redis::cmd("CONFIG");
        let error = command.arg("SET").arg("tenure.tenants").arg(entries.join(" ")).exec(&mut default).unwrap_err();
        assert!(error.to_string().contains("65 tenants; allowed are 64"), "{error}");
        assert_eq!(config_get(&mut default, "tenure.tenants"), "");
        config_set(&mut default, "tenure.tenants", entries[..64].join(" "));
        wait_for("65 partitions", || partitions(&mut default).len() == 65);
        // No two users have as many keys of the same size. They have few in all: what a tenant of one key holds is
        // known once the account has looked at that key.
        let keys_of = |i: usize| 1 + i / 4;
        for i in 0..65 {
            add_user(server, &format!("u{i}"), "~*");
            let mut user = login(server, &format!("u{i}"));
            let value = "v".repeat(500 + 200 * (i % 4));
            (0..keys_of(i)).for_each(|key| send(&mut user, &format!("SET k:{i}:{key} {value}")));
        }
        let rows = partitions(&mut default);
        (0..64).for_each(|i| assert_eq!(rows[&format!("t{i}")]["keys"], keys_of(i) as f64, "t{i}"));
        assert_eq!(rows["other"]["keys"], 17.0);
        check(server, "of 64 users", |key| match key.split(':').nth(1) {
            Some("64") => "other".to_owned(),
            user => format!("t{}", user.unwrap_or("")),
        });
    });
}

#[test]
fn what_is_no_selector_is_refused_with_the_reason() {
    on_every(&with_tenants(TENANTS), |server| {
        let mut default = server.connection().unwrap();
        for (text, expected) in [
            ("a=user:", "selector 'user:'; allowed are a prefix with one '*' at its end, user:USERNAME, and db:N"),
            ("a=user:x*y", "selector 'user:x*y'"),
            ("a=user", "selector 'user'"),
            ("a=user:x,min=2mb,max=1mb", "above max"),
            ("a=user:x,limit=1", "option 'limit=1'"),
            ("user:x", "has no selector; write NAME=PREFIX*, NAME=user:USERNAME or NAME=db:N"),
            ("other=user:x", "tenant name 'other'"),
        ] {
            let error = error_of(&mut default, &format!("CONFIG SET tenure.tenants {text}"));
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = redis::cmd("CONFIG").arg(&["SET", "tenure.tenants", "a=user:x b=user:x"]).exec(&mut default);
        assert!(error.unwrap_err().to_string().contains("'a' and 'b' select the same keys"));
        assert_eq!(config_get(&mut default, "tenure.tenants"), TENANTS);

        // With a star it is a prefix, and wins.
        config_set(&mut default, "tenure.tenants", "users=user:* alice=user:alice");
        wait_for("the tenants", || partitions(&mut default).contains_key("users"));
        let mut alice = login(server, "alice");
        ["user:1", "user:alice", "alice:1"].iter().for_each(|key| send(&mut alice, &format!("SET {key} v")));
        assert_eq!((keys(&mut default, "users"), keys(&mut default, "alice")), (2.0, 1.0));
        send::<()>(&mut default, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut default = server.connection().unwrap();
        assert_eq!(config_get(&mut default, "tenure.tenants"), "users=user:* alice=user:alice");
    });
}

/// On Redis 7.0 nobody tells who sends a command.
#[test]
fn a_server_that_does_not_tell_who_sends_a_command_refuses_it() {
    for binary in servers() {
        if that_know_clients(vec![binary.clone()]).is_empty() {
            println!("on {}", binary.label);
            let server = start(&binary, &with_module());
            let mut connection = server.connection().unwrap();
            let error = error_of(&mut connection, "CONFIG SET tenure.tenants a=user:alice");
            assert!(error.contains("tenants by user need") && error.contains("Valkey 7.2, Redis 7.2"), "{error}");
            assert_eq!(config_get(&mut connection, "tenure.tenants"), "");
            config_set(&mut connection, "tenure.tenants", "a=user:*");
            let refused = Server::start(&binary, &with_tenants("a=user:alice"));
            assert!(refused.is_err(), "it started");
        }
    }
}
