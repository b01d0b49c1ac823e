//! Replies that wait for replicas: what is held, for how long, and what becomes of it when replicas, clients, the
//! module or the role go. Replicas that stand still (SIGSTOP) are how a write stays unacknowledged for as long as a
//! test wants.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use redis::{Connection, Value};
use tenure_servers::{Product, Server, ServerBinary, ServerOptions};

use crate::harness::{
    DEADLINE, Unseen, command, config_get, config_set, error_of, info, oldest_and_newest_of, send, servers, start,
    status, wait_for, with_module,
};

/// Longer than any test waits.
const NEVER_MS: u32 = 3_600_000;
const SOON_MS: u32 = 200;

/// A primary with the module, and replicas without.
struct Group {
    primary: Server,
    replicas: Vec<Server>,
}

impl Group {
    #[track_caller]
    fn start(binary: &ServerBinary, n_replicas: usize, settings: &[(&str, &str)]) -> Group {
        println!("on {}", binary.label);
        let options =
            settings.iter().fold(with_module().set("tenure.replies-timeout-ms", NEVER_MS), |options, (name, value)| {
                options.set(name, value)
            });
        let primary = start(binary, &options);
        let replicas: Vec<Server> = (0..n_replicas).map(|_| start(binary, &ServerOptions::default())).collect();
        let group = Group { primary, replicas };
        group.replicas.iter().for_each(|replica| replica.replica_of(&group.primary).unwrap());
        wait_for("the replicas to follow", || info(&group.primary, "replies_replicas") == n_replicas as f64);
        group
    }

    fn halt(&self) {
        self.replicas.iter().for_each(|replica| replica.halt().unwrap());
    }

    fn resume(&self) {
        self.replicas.iter().for_each(|replica| replica.resume().unwrap());
    }

    fn client(&self) -> Client {
        Client::of(&self.primary)
    }

    fn connection(&self) -> Connection {
        self.primary.connection().unwrap()
    }

    /// Waits until so many connections are held.
    #[track_caller]
    fn wait_for_held(&self, n: usize) {
        wait_for("replies to be held", || info(&self.primary, "replies_held_now") == n as f64);
    }

    fn standing(&self) -> String {
        status(&mut self.connection())["replies"].clone()
    }

    #[track_caller]
    fn wait_for_standing(&self, beginning: &str) {
        wait_for(beginning, || self.standing().starts_with(beginning));
    }
}

/// A client whose replies can be looked for without waiting.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn of(server: &Server) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, received: Vec::new() }
    }

    /// Sends these lines at once.
    fn send(&mut self, lines: &[&str]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line).get_packed_command()).collect();
        self.stream.write_all(&bytes).unwrap();
    }

    /// Waits for these bytes, and takes them.
    #[track_caller]
    fn expect(&mut self, expected: &str) {
        let mut chunk = [0; 4096];
        while self.received.len() < expected.len() {
            let n = self.read(&mut chunk).expect("a reply");
            assert!(n > 0, "the connection was closed before {expected:?}; it had sent {:?}", self.text());
            self.received.extend_from_slice(&chunk[..n]);
        }
        let text = self.text();
        assert!(text.starts_with(expected), "{text:?} for {expected:?}");
        self.received.drain(..expected.len());
    }

    /// As many bytes as come; goes on where this process was stopped meanwhile.
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.stream.read(to) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Nothing has come so far.
    #[track_caller]
    fn expect_nothing(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let read = self.stream.read(&mut [0; 64]);
        self.stream.set_nonblocking(false).unwrap();
        assert!(matches!(&read, Err(why) if why.kind() == ErrorKind::WouldBlock), "it was answered: {read:?}");
        assert_eq!(self.text(), "");
    }

    /// The server closes the connection without another byte.
    #[track_caller]
    fn expect_end(&mut self) {
        match self.read(&mut [0; 64]) {
            Ok(n) => assert_eq!(n, 0, "it was answered"),
            Err(why) => assert_eq!(why.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// Servers on which replies can be held.
fn able() -> Vec<ServerBinary> {
    servers().into_iter().filter(is_able).collect()
}

pub fn able_oldest_and_newest() -> Vec<ServerBinary> {
    oldest_and_newest_of(able())
}

/// As `ffi/holding.rs` has it: a version that this file has run on is added there and here.
fn is_able(binary: &ServerBinary) -> bool {
    let (major, minor, _) = binary.version;
    match binary.product {
        Product::Redis => [(8, 0)].contains(&(major, minor)),
        Product::Valkey => [(8, 0), (8, 1), (9, 1)].contains(&(major, minor)),
    }
}

#[test]
fn where_replies_cannot_be_held_the_settings_are_refused() {
    for binary in servers().iter().filter(|binary| !is_able(binary)) {
        let server = start(binary, &with_module());
        let mut connection = server.connection().unwrap();
        for line in ["CONFIG SET tenure.replies acked", "CONFIG SET tenure.tenants a=a:*,replies=sent"] {
            let error = error_of(&mut connection, line);
            assert!(error.contains("replies can't be held on "), "{line}: {error}");
            let reason = if binary.version < (7, 2, 0) { "Redis 7.2" } else { "it was tried on" };
            assert!(error.contains(reason), "{line}: {error}");
        }
        assert_eq!(config_get(&mut connection, "tenure.replies"), "async");
        assert_eq!(config_get(&mut connection, "tenure.tenants"), "");
        send::<()>(&mut connection, "CONFIG SET tenure.replies async");
        assert!(
            Server::start(binary, &with_module().set("tenure.replies", "sent")).is_err(),
            "it starts as if it could"
        );
    }
}

/// A build whose functions can't be found by name serves as stock, and says which one it misses.
#[test]
fn a_server_that_does_not_export_its_functions_holds_nothing() {
    for binary in able_oldest_and_newest() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(binary.product.program());
        let mut bytes = std::fs::read(&binary.program).unwrap();
        let name = b"unprotectClient\0";
        let places: Vec<usize> = (0..bytes.len() - name.len()).filter(|&i| bytes[i..].starts_with(name)).collect();
        assert!(!places.is_empty(), "{} doesn't export it anyway", binary.label);
        places.iter().for_each(|place| bytes[place + name.len() - 2] = b'X');
        std::fs::write(&program, bytes).unwrap();
        std::fs::set_permissions(&program, std::fs::metadata(&binary.program).unwrap().permissions()).unwrap();
        let server = start(&ServerBinary { program, ..binary.clone() }, &with_module());
        let mut connection = server.connection().unwrap();
        let error = error_of(&mut connection, "CONFIG SET tenure.replies acked");
        assert!(error.contains("replies can't be held") && error.contains("rotectClient"), "{error}");
        send::<()>(&mut connection, "SET a 1");
        assert_eq!(status(&mut connection)["replies"], "async");
    }
}

#[test]
fn what_replies_wait_for_outlives_a_restart() {
    for binary in able_oldest_and_newest() {
        let mut server = start(&binary, &with_module());
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "tenure.replies", "acked");
        config_set(&mut connection, "tenure.tenants", "a=a:*,replies=sent");
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        assert_eq!(config_get(&mut connection, "tenure.replies"), "acked");
        assert_eq!(config_get(&mut connection, "tenure.tenants"), "a=a:*,replies=sent");
    }
}

#[test]
fn replies_wait_for_acknowledgements_in_their_order_and_others_do_not() {
    for binary in able() {
        let group = Group::start(&binary, 2, &[("tenure.replies", "acked")]);
        let mut client = group.client();
        client.send(&["SET a 1"]);
        client.expect("+OK\r\n");
        group.halt();
        client.send(&["INCR a", "GET a", "INCR a", "NOSUCH", "APPEND s xyz"]);
        group.wait_for_held(1);
        client.expect_nothing();
        // What was written can be read, and a reader isn't held.
        let mut reader = group.connection();
        assert_eq!(send::<u64>(&mut reader, "GET a"), 3);
        // What the held connection sends meanwhile is not read yet.
        client.send(&["GET a"]);
        let mut second = group.client();
        second.send(&["DEL a"]);
        group.wait_for_held(2);
        let lines: String = send(&mut reader, "TENURE.HELD");
        let ports = [&client, &second].map(|held| held.stream.local_addr().unwrap().port());
        for (line, port) in lines.lines().zip(ports) {
            assert!(
                line.starts_with("id=")
                    && line.contains(&format!(" addr=127.0.0.1:{port} db=0 replies=acked held-ms=")),
                "{lines}"
            );
        }
        assert_eq!(lines.lines().count(), 2, "the longest first: {lines}");
        client.expect_nothing();
        second.expect_nothing();
        assert_eq!(send::<Option<u64>>(&mut reader, "GET a"), None);
        group.resume();
        client.expect(":2\r\n$1\r\n2\r\n:3\r\n-ERR unknown command");
        client.received.clear();
        second.expect(":1\r\n");
        group.wait_for_held(0);
        assert_eq!(send::<String>(&mut reader, "TENURE.HELD"), "");
        assert_eq!(info(&group.primary, "replies_unconfirmed") + info(&group.primary, "replies_closed"), 0.0);
        assert!(info(&group.primary, "replies_held") >= 3.0);
        assert!(info(&group.primary, "replies_wait_us_max") > 0.0);
        assert_eq!(group.standing(), "holding: acked");
        assert_eq!(config_get(&mut reader, "tenure.replies"), "acked");
    }
}

#[test]
fn transactions_scripts_and_blocking_commands_keep_their_meaning() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked")]);
        let mut popping = group.client();
        popping.send(&["SET before 1", "BLPOP queue 0"]);
        popping.expect("+OK\r\n");
        wait_for("the client to block", || group.primary.info("clients").unwrap()["blocked_clients"] == "1");
        group.halt();
        let [mut transaction, mut script, mut pushing, mut waiting] = std::array::from_fn(|_| group.client());
        transaction.send(&["MULTI", "INCR n", "GET n", "EXEC"]);
        script.send(&["EVAL return(redis.call('INCR',KEYS[1])) 1 n"]);
        group.wait_for_held(2);
        pushing.send(&["RPUSH queue x"]);
        // Both: who pushed, and who was waiting.
        group.wait_for_held(4);
        waiting.send(&["BLPOP nothing 0.01"]);
        wait_for("it to give up", || group.primary.info("clients").unwrap()["blocked_clients"] == "0");
        for client in [&mut transaction, &mut script, &mut pushing, &mut popping] {
            client.expect_nothing();
        }
        assert_eq!(send::<u64>(&mut group.connection(), "GET n"), 2);
        group.resume();
        transaction.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$1\r\n1\r\n");
        script.expect(":2\r\n");
        pushing.expect(":1\r\n");
        popping.expect("*2\r\n$5\r\nqueue\r\n$1\r\nx\r\n");
        waiting.expect("*-1\r\n");
        // The connection is as good as new: it blocks again, and is served again.
        popping.send(&["BLPOP queue 0"]);
        pushing.send(&["RPUSH queue y"]);
        pushing.expect(":1\r\n");
        popping.expect("*2\r\n$5\r\nqueue\r\n$1\r\ny\r\n");
        group.wait_for_held(0);
    }
}

/// While a script takes long the server serves others, and sends what they have been answered.
#[test]
fn a_long_script_lets_no_reply_slip() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked"), ("lua-time-limit", "10")]);
        let [mut before, mut script] = std::array::from_fn(|_| group.client());
        let mut looking = group.connection();
        group.halt();
        // Both in one turn: the primary finds them when it goes on.
        group.primary.halt().unwrap();
        before.send(&["SET a 1"]);
        script.send(&["EVAL while(redis.call('GET','go')~='yes')do(math.random)()end;redis.call('SET','b','1') 0"]);
        group.primary.resume().unwrap();
        wait_for("the script to take long", || {
            command("PING").query::<Value>(&mut looking).is_err_and(|why| why.to_string().contains("busy"))
        });
        before.expect_nothing();
        send::<()>(&mut looking, "SCRIPT KILL");
        wait_for("the script to end", || command("PING").query::<Value>(&mut looking).is_ok());
        group.wait_for_held(2);
        before.expect_nothing();
        group.resume();
        before.expect("+OK\r\n");
        script.expect("-ERR");
    }
}

#[test]
fn replies_are_held_until_the_sockets_of_replicas_take_the_writes() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "sent")]);
        let mut client = group.connection();
        // The stream begins with a replica's second acknowledgement, up to a second after it has followed.
        send::<()>(&mut client, "SET first 1");
        let n_held = info(&group.primary, "replies_held");
        for i in 0..100 {
            send::<()>(&mut client, &format!("SET k{i} {i}"));
        }
        assert_eq!(info(&group.primary, "replies_held"), n_held, "somebody waits while the sockets have room");
        group.halt();
        let value = "v".repeat(1 << 20);
        let mut writing = group.client();
        for i in 0.. {
            assert!(i < 200, "the sockets have taken 200 MB");
            writing.send(&[&format!("SET big{} {value}", i % 4)]);
            // Where the sockets have room, it may be held for a turn: each look is a turn of its own.
            let (mut answer, mut turns_held) = (None, 0);
            wait_for("the write to be answered or held", || {
                writing.stream.set_nonblocking(true).unwrap();
                let is_answered = writing.stream.read(&mut [0; 64]).is_ok();
                writing.stream.set_nonblocking(false).unwrap();
                let is_held = !is_answered && info(&group.primary, "replies_held_now") > 0.0;
                turns_held = if is_held { turns_held + 1 } else { 0 };
                answer = if is_answered { Some(true) } else { (turns_held >= 20).then_some(false) };
                answer.is_some()
            });
            if answer == Some(false) {
                break;
            }
        }
        writing.expect_nothing();
        assert_eq!(send::<u64>(&mut client, "GET k7"), 7);
        group.resume();
        writing.expect("+OK\r\n");
        group.wait_for_held(0);
        assert_eq!(info(&group.primary, "replies_unconfirmed"), 0.0);
    }
}

/// What a client was told is on a replica when the primary is no more: with sockets that are full, and with pipelines.
#[test]
fn no_acknowledged_write_is_lost_with_the_primary() {
    const DEPTH: usize = 200;
    let value = "v".repeat(1000);
    for binary in able_oldest_and_newest() {
        for mode in ["sent", "acked"] {
            let group = Group::start(&binary, 2, &[("tenure.replies", mode)]);
            let mut clients: Vec<Client> = (0..20).map(|_| group.client()).collect();
            let mut acknowledged = vec![0; clients.len()];
            let mut n_sent = vec![0; clients.len()];
            let mut is_halted = false;
            while info(&group.primary, "replies_held_now") < 20.0 || !is_halted {
                if !is_halted && acknowledged.iter().sum::<usize>() > 20 * DEPTH {
                    is_halted = true;
                    group.halt();
                }
                for (i, client) in clients.iter_mut().enumerate() {
                    acknowledged[i] += take_oks(client);
                    if acknowledged[i] == n_sent[i] {
                        let lines: Vec<String> =
                            (0..DEPTH).map(|n| format!("SET {i}:{} {value}", n_sent[i] + n)).collect();
                        client.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
                        n_sent[i] += DEPTH;
                    }
                }
            }
            // It says nothing more, and its replicas read what it has sent. Of one that is dead they would read no more
            // than until their next report to it.
            group.primary.halt().unwrap();
            group.resume();
            for (client, acknowledged) in clients.iter_mut().zip(&mut acknowledged) {
                *acknowledged += take_oks(client);
            }
            let acknowledged = acknowledged.iter().enumerate();
            let mut missing: Vec<String> =
                acknowledged.flat_map(|(i, n)| (0..*n).map(move |n| format!("{i}:{n}"))).collect();
            let mut replicas: Vec<Connection> = group.replicas.iter().map(|one| one.connection().unwrap()).collect();
            let waited = tenure_servers::wait_for(DEADLINE, "what was acknowledged to be on a replica", || {
                let mut has =
                    |key: &str| replicas.iter_mut().any(|one| send::<u64>(one, &format!("EXISTS {key}")) == 1);
                missing.retain(|key| !has(key));
                missing.is_empty()
            });
            assert!(waited.is_ok(), "{mode}: {missing:?}");
        }
    }
}

/// The replies that have come, all of which are OK.
fn take_oks(client: &mut Client) -> usize {
    client.stream.set_nonblocking(true).unwrap();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = client.stream.read(&mut chunk) {
        client.received.extend_from_slice(&chunk[..n]);
    }
    client.stream.set_nonblocking(false).unwrap();
    let n = client.received.len() / 5;
    let taken: Vec<u8> = client.received.drain(..n * 5).collect();
    assert_eq!(taken, b"+OK\r\n".repeat(n));
    n
}

#[test]
fn a_slow_replica_turns_it_off_and_back_on() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked")]);
        let mut operator = group.connection();
        let mut listening = group.client();
        listening.send(&["SUBSCRIBE tenure:replies"]);
        listening.expect("*3\r\n$9\r\nsubscribe\r\n$14\r\ntenure:replies\r\n:1\r\n");
        group.halt();
        let mut client = group.client();
        client.send(&["SET a 1"]);
        group.wait_for_held(1);
        config_set(&mut operator, "tenure.replies-timeout-ms", SOON_MS);
        client.expect("+OK\r\n");
        let why = "fewer than 1 of 1 replicas have acknowledged the writes for 200 ms";
        assert_eq!(group.standing(), format!("degraded to async: {why}"));
        assert_eq!(info(&group.primary, "replies_degraded"), 1.0);
        assert_eq!(info(&group.primary, "replies_unconfirmed"), 1.0);
        assert!(
            group.primary.log().contains(&format!("tenure.replies acked: replies don't wait for replicas now: {why}"))
        );
        let event = format!("degraded acked: {why}");
        listening.expect(&format!("*3\r\n$7\r\nmessage\r\n$14\r\ntenure:replies\r\n${}\r\n{event}\r\n", event.len()));
        // As stock: nobody waits.
        send::<()>(&mut operator, "SET b 1");
        assert_eq!(info(&group.primary, "replies_held_now"), 0.0);
        group.resume();
        group.wait_for_standing("holding: acked");
        listening.expect("*3\r\n$7\r\nmessage\r\n$14\r\ntenure:replies\r\n$14\r\nrestored acked\r\n");
        assert!(group.primary.log().contains("tenure.replies acked: replicas follow again, replies wait for them"));
        config_set(&mut operator, "tenure.replies-timeout-ms", NEVER_MS);
        group.halt();
        client.send(&["SET a 2"]);
        group.wait_for_held(1);
        client.expect_nothing();
        group.resume();
        client.expect("+OK\r\n");
    }
}

#[test]
fn writes_are_refused_while_replicas_cannot_follow_if_so_set() {
    for binary in able() {
        let settings = [
            ("tenure.replies", "async"),
            ("tenure.replies-on-timeout", "refuse"),
            ("tenure.tenants", "\"safe=safe:*,replies=acked free=free:*\""),
        ];
        let group = Group::start(&binary, 1, &settings);
        let mut operator = group.connection();
        group.halt();
        let [mut held, mut queued] = std::array::from_fn(|_| group.client());
        held.send(&["SET safe:a 1"]);
        group.wait_for_held(1);
        // A queued command writes nothing yet, and waits for what was written before.
        queued.send(&["MULTI", "SET safe:q 1"]);
        group.wait_for_held(2);
        config_set(&mut operator, "tenure.replies-timeout-ms", SOON_MS);
        // Whether its write lasts nobody knows, so it isn't told that it does.
        held.expect_end();
        queued.expect_end();
        assert_eq!(info(&group.primary, "replies_closed"), 2.0);
        assert!(group.standing().starts_with("refusing writes: fewer than 1 of 1"), "{}", group.standing());

        let refused = |connection: &mut Connection, line: &str| {
            let error = error_of(connection, line);
            assert!(error.to_lowercase().contains("not enough good replicas"), "{line}: {error}");
        };
        refused(&mut operator, "SET safe:a 2");
        refused(&mut operator, "EVAL return(redis.call('SET',KEYS[1],'2')) 1 safe:a");
        send::<()>(&mut operator, "SET free:a 2");
        assert_eq!(send::<u64>(&mut operator, "GET safe:a"), 1, "it can be read");
        send::<()>(&mut operator, "MULTI");
        refused(&mut operator, "SET safe:a 2");
        let error = error_of(&mut operator, "EXEC");
        assert!(error.contains("discarded because of previous errors"), "{error}");
        // What the server was told for that is never seen.
        assert_eq!(config_get(&mut operator, "min-replicas-to-write"), "0");
        send::<()>(&mut operator, "CONFIG REWRITE");
        let file = std::fs::read_to_string(group.primary.directory().join("server.conf")).unwrap();
        assert!(!file.contains("2147483647"), "{file}");

        group.resume();
        group.wait_for_standing("holding: acked");
        send::<()>(&mut operator, "SET safe:a 3");
        assert_eq!(config_get(&mut operator, "min-replicas-to-write"), "0");
    }
}

#[test]
fn each_tenant_has_its_own_mode() {
    able_oldest_and_newest().iter().for_each(|binary| modes_by_tenant(binary, None));
}

/// So it is where accesses go unseen: where a written key is, is known all the same. Without users, who would have it
/// known by themselves.
#[test]
fn each_tenant_has_its_own_mode_though_accesses_go_unseen() {
    for binary in able_oldest_and_newest() {
        Unseen::WAYS.into_iter().for_each(|way| modes_by_tenant(&binary, Some(way)));
    }
}

fn modes_by_tenant(binary: &ServerBinary, way: Option<Unseen>) {
    let maximum = way.map_or("", |way| way.maximum);
    let user = if way.is_none() { "shop=user:shop,replies=acked" } else { "" };
    let tenants =
        format!("\"safe=safe:*,replies=acked fast=fast:*,replies=async three=db:3,replies=acked{maximum} {user}\"");
    let mut settings = vec![("tenure.tenants", tenants), ("tenure.replies", "async".to_owned())];
    settings.extend(way.iter().flat_map(Unseen::settings));
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let group = Group::start(binary, 1, &settings);
    let mut fast = group.connection();
    if let Some(way) = way {
        println!("{way:?}");
        way.begin(&group.primary);
    }
    group.halt();
    send::<()>(&mut fast, "SET fast:1 1");
    send::<()>(&mut fast, "SET anybodys 1");
    send::<()>(&mut fast, "ACL SETUSER shop on >pw ~* +@all");
    let mut n_held = 0;
    let mut clients = Vec::new();
    for (lines, expected) in [
        (&["SET safe:1 1"][..], "+OK\r\n"),
        (&["MSET fast:2 1 safe:2 1"], "+OK\r\n"),
        (&["SELECT 3", "SET fast-in-3 1"], "+OK\r\n+OK\r\n"),
        (&["AUTH shop pw", "SET shops 1"], "+OK\r\n+OK\r\n"),
        // Whoever writes it, it is the shop's.
        (&["APPEND shops 1"], ":2\r\n"),
        // Nobody knows what a script or a transaction writes before it does.
        (&["MULTI", "SET fast:3 1", "EXEC"], ""),
    ] {
        if user.is_empty() && lines.concat().contains("shop") {
            continue;
        }
        if way.is_some() {
            Unseen::pass_by(&mut fast);
        }
        let mut client = group.client();
        // Known from then on to be in database 0, and the default user's.
        client.send(&["SET fast:5 1"]);
        client.expect("+OK\r\n");
        client.send(lines);
        n_held += 1;
        group.wait_for_held(n_held);
        client.expect_nothing();
        clients.push((client, expected));
    }
    send::<()>(&mut fast, "SET fast:4 1");
    assert!(way.is_none_or(|way| way.is_so(&group.primary)));
    group.resume();
    for (mut client, expected) in clients {
        client.expect(expected);
    }
    group.wait_for_held(0);
    // A tenant's mode may change without what is known of its keys being lost.
    let before = info(&group.primary, "writes");
    config_set(&mut fast, "tenure.tenants", "safe=safe:* fast=fast:* three=db:3 shop=user:shop");
    group.wait_for_standing("async");
    assert!(info(&group.primary, "writes") >= before);
    let error = error_of(&mut fast, "CONFIG SET tenure.tenants a=a:*,replies=later");
    assert!(error.contains("replies 'later'; allowed is async, sent or acked"), "{error}");
}

/// Whoever turns it off, wittingly or by a fault: nobody is left waiting.
#[test]
fn nobody_waits_for_a_module_that_has_gone() {
    type End = fn(&Group);
    let ends: [(&str, End); 4] = [
        ("unloaded", |group| send(&mut group.connection(), "MODULE UNLOAD tenure")),
        ("a fault", |group| send(&mut group.connection(), "TENURE.DEBUG PANIC TURN")),
        ("turned off", |group| config_set(&mut group.connection(), "tenure.enabled", "no")),
        ("set otherwise", |group| config_set(&mut group.connection(), "tenure.replies", "async")),
    ];
    for binary in able() {
        for (what, end) in ends {
            let settings = [("tenure.replies", "acked"), ("tenure.debug-commands", "yes")];
            let group = Group::start(&binary, 1, &settings);
            group.halt();
            let mut clients = [group.client(), group.client()];
            clients[0].send(&["SET a 1", "GET a"]);
            clients[1].send(&["INCR n"]);
            group.wait_for_held(2);
            end(&group);
            clients[0].expect("+OK\r\n$1\r\n1\r\n");
            clients[1].expect(":1\r\n");
            // The connections are whole, and nothing waits any more.
            clients[0].send(&["SET a 2", "PING"]);
            clients[0].expect("+OK\r\n+PONG\r\n");
            println!("{what}");
            group.resume();
        }
    }
}

#[test]
fn clients_that_leave_while_held_leave_nothing_behind() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked")]);
        let mut operator = group.connection();
        group.halt();
        let mut clients: Vec<Client> = (0..10).map(|_| group.client()).collect();
        clients.iter_mut().for_each(|client| client.send(&["INCR n", "BLPOP nothing 0"]));
        group.wait_for_held(10);
        let killed = clients.pop().unwrap();
        let id = killed.stream.local_addr().unwrap();
        send::<()>(&mut operator, &format!("CLIENT KILL {id}"));
        drop(clients);
        assert_eq!(send::<u64>(&mut operator, "GET n"), 10);
        group.resume();
        group.wait_for_held(0);
        // The operator's is left, and the one that asks.
        wait_for("the connections to be closed", || group.primary.info("clients").unwrap()["connected_clients"] == "2");
        send::<()>(&mut operator, "SET a 1");
        drop(killed);
    }
}

#[test]
fn it_waits_for_as_many_replicas_as_set_and_as_are_there() {
    for binary in able_oldest_and_newest() {
        let mut group = Group::start(&binary, 2, &[("tenure.replies", "acked")]);
        let mut operator = group.connection();
        let mut client = group.client();
        group.replicas[0].halt().unwrap();
        client.send(&["SET a 1"]);
        client.expect("+OK\r\n");
        for n in [2, 0] {
            config_set(&mut operator, "tenure.replies-replicas", n);
            client.send(&["SET a 1"]);
            group.wait_for_held(1);
            group.replicas[0].resume().unwrap();
            client.expect("+OK\r\n");
            group.replicas[0].halt().unwrap();
        }
        // Of those that are there: the dead one isn't.
        group.replicas[0].kill();
        client.send(&["SET a 2"]);
        client.expect("+OK\r\n");
        config_set(&mut operator, "tenure.replies-replicas", 1);
        group.replicas[1].kill();
        wait_for("nobody to follow", || info(&group.primary, "replies_replicas") == 0.0);
        client.send(&["SET a 3"]);
        group.wait_for_held(1);
        client.expect_nothing();
        // Too few for too long: it is said before anybody writes.
        config_set(&mut operator, "tenure.replies-timeout-ms", SOON_MS);
        client.expect("+OK\r\n");
        assert!(group.standing().starts_with("degraded to async: fewer than 1 of 0 replicas"), "{}", group.standing());
        let newcomer = start(&binary, &ServerOptions::default());
        newcomer.replica_of(&group.primary).unwrap();
        group.wait_for_standing("holding: acked");
    }
}

/// What a primary that follows another now has written may be lost: nobody is told that it isn't.
#[test]
fn who_waits_when_the_role_changes_is_not_answered() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked")]);
        let other = start(&binary, &ServerOptions::default());
        let mut operator = group.connection();
        group.halt();
        let mut client = group.client();
        client.send(&["SET a 1"]);
        group.wait_for_held(1);
        send::<()>(&mut operator, &format!("REPLICAOF 127.0.0.1 {}", other.port()));
        client.expect_end();
        group.wait_for_standing("off: this server is a replica");
        // The stream of its primary is not held up.
        send::<()>(&mut other.connection().unwrap(), "SET b 1");
        wait_for("it to follow", || command("GET b").query::<Option<u64>>(&mut operator).unwrap() == Some(1));
        group.resume();
        send::<()>(&mut operator, "REPLICAOF NO ONE");
        group.wait_for_standing("holding: acked");
    }
}

/// Threads send replies when they like, so nothing can be promised.
#[test]
fn with_threads_it_says_that_it_cannot() {
    for binary in able() {
        let options = with_module().set("io-threads", 2).set("tenure.replies", "acked");
        let options = options.set("tenure.replies-on-timeout", "refuse");
        println!("on {}", binary.label);
        let server = start(&binary, &options);
        let mut connection = server.connection().unwrap();
        let standing = || status(&mut server.connection().unwrap())["replies"].clone();
        wait_for("its standing", || standing().starts_with("refusing writes: io-threads is 2"));
        assert!(error_of(&mut connection, "SET a 1").to_lowercase().contains("not enough good replicas"));
        config_set(&mut connection, "tenure.replies-on-timeout", "async");
        send::<()>(&mut connection, "SET a 1");
        assert!(standing().starts_with("degraded to async: io-threads is 2"), "{}", standing());
    }
}

/// Whether threads send replies is not known then.
#[test]
fn without_config_it_says_that_it_cannot() {
    for binary in able_oldest_and_newest() {
        let server = start(&binary, &with_module().set("tenure.replies", "acked").set("rename-command", "CONFIG \"\""));
        let standing = || status(&mut server.connection().unwrap())["replies"].clone();
        wait_for("its standing", || standing().starts_with("off: CONFIG can't be called"));
        server.call::<()>(&["SET", "a", "1"]).unwrap();
    }
}

/// A key and a certificate that it has signed itself, for connections under TLS.
pub fn make_certificate(folder: &std::path::Path) -> [std::path::PathBuf; 2] {
    let [key, certificate] = ["key.pem", "cert.pem"].map(|name| folder.join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), certificate.as_os_str()])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    [key, certificate]
}

/// A client behind `openssl s_client`.
struct TlsClient {
    process: Child,
    received: Receiver<u8>,
}

impl TlsClient {
    fn of(port: u16) -> TlsClient {
        let mut process = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        let (sender, received) = channel();
        let output = process.stdout.take().unwrap();
        let bytes = BufReader::new(output).bytes().map_while(Result::ok);
        std::thread::spawn(move || bytes.take_while(|byte| sender.send(*byte).is_ok()).count());
        TlsClient { process, received }
    }

    /// Sends these lines at once.
    fn send(&mut self, lines: &[&str]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line).get_packed_command()).collect();
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(&bytes).and_then(|()| input.flush()).unwrap();
    }

    #[track_caller]
    fn expect(&mut self, expected: &str) {
        for (i, byte) in expected.bytes().enumerate() {
            let received = self.received.recv_timeout(DEADLINE);
            assert_eq!(received, Ok(byte), "byte {i} of {} for {:.40?}", expected.len(), expected);
        }
    }
}

impl Drop for TlsClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection under TLS is held as any other, also where its library has read further than the server.
#[test]
fn connections_under_tls_are_held_too() {
    let folder = tempfile::tempdir().unwrap();
    let [key, certificate] = make_certificate(folder.path());
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked")]);
        let mut operator = group.connection();
        let set = |connection: &mut Connection, name: &str, value: &str| {
            redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(connection)
        };
        if set(&mut operator, "tls-auth-clients", "no").is_err() {
            println!("{} was built without TLS", binary.label);
            continue;
        }
        set(&mut operator, "tls-key-file", key.to_str().unwrap()).unwrap();
        set(&mut operator, "tls-cert-file", certificate.to_str().unwrap()).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        set(&mut operator, "tls-port", &port.to_string()).unwrap();
        let mut client = TlsClient::of(port);
        client.send(&["SET a 1"]);
        client.expect("+OK\r\n");
        group.halt();
        client.send(&["INCR a", "GET a"]);
        group.wait_for_held(1);
        // More than the server reads at once, and longer than a record.
        let value = "v".repeat(50_000);
        let lines: Vec<String> = (0..20).map(|i| format!("SET k{i} {value}")).collect();
        client.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        client.send(&["GET k19"]);
        assert_eq!(send::<u64>(&mut operator, "EXISTS k19"), 0, "what a held connection sends is not read");
        assert_eq!(client.received.try_recv().ok(), None, "it was answered");
        group.resume();
        client.expect(":2\r\n$1\r\n2\r\n");
        client.expect(&"+OK\r\n".repeat(20));
        client.expect(&format!("$50000\r\n{value}\r\n"));
        group.wait_for_held(0);
    }
}

/// Commands that wait by themselves, and pauses, go along with it.
#[test]
fn it_goes_along_with_waits_and_pauses() {
    for binary in able() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked")]);
        let mut operator = group.connection();
        let [mut client, mut silent] = std::array::from_fn(|_| group.client());
        client.send(&["SET a 1", "WAIT 1 0", "SET a 2"]);
        client.expect("+OK\r\n:1\r\n+OK\r\n");
        silent.send(&["CLIENT REPLY OFF", "SET b 1", "SET b 2", "CLIENT REPLY ON", "GET b"]);
        silent.expect("+OK\r\n$1\r\n2\r\n");
        group.halt();
        silent.send(&["SET b 3"]);
        group.wait_for_held(1);
        send::<()>(&mut operator, "CLIENT PAUSE 100000 WRITE");
        client.send(&["SET a 3"]);
        wait_for("it to be put off", || group.primary.info("clients").unwrap()["blocked_clients"] == "1");
        // While the stream may not grow nobody can be asked, and what was asked before is answered.
        group.resume();
        silent.expect("+OK\r\n");
        group.halt();
        send::<()>(&mut operator, "CLIENT UNPAUSE");
        group.wait_for_held(1);
        client.expect_nothing();
        group.resume();
        client.expect("+OK\r\n");
    }
}

/// Nothing that Tenure does changes what replicas hold, and the append-only file gets the clients' commands alone.
#[test]
fn replicas_and_the_append_only_file_stay_as_they_are() {
    for binary in able_oldest_and_newest() {
        let group = Group::start(&binary, 1, &[("tenure.replies", "acked"), ("appendonly", "yes")]);
        let mut operator = group.connection();
        for i in 0..50 {
            send::<()>(&mut operator, &format!("SET k{i} {i}"));
        }
        let digest = |server: &Server| server.call::<String>(&["DEBUG", "DIGEST"]).unwrap();
        assert_eq!(digest(&group.primary), digest(&group.replicas[0]));
        let folder = group.primary.directory().join("appendonlydir");
        let read = || {
            let files = std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
            String::from_utf8_lossy(&files.flatten().collect::<Vec<u8>>()).into_owned()
        };
        // The server puts off writing to the file while the disk is busy.
        wait_for("the last command to be written down", || read().contains("k49"));
        assert!(!read().to_uppercase().contains("GETACK"));
    }
}
