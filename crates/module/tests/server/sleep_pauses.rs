//! Sleeping keys while writes are paused, by hand or by a failover: what reads them has their value, what writes them
//! waits.

use redis::{Connection, Value};
use tempfile::TempDir;
use tenure_servers::{Server, ServerBinary, ServerOptions};

use crate::harness::{command, info, send, start, wait_for};
use crate::sleep::{put_to_sleep, sleeping_in, two};

/// A server, and a replica of it without the module.
fn start_both(binary: &ServerBinary, options: &ServerOptions) -> (Server, Server) {
    let (server, replica) = (start(binary, options), start(binary, &ServerOptions::default()));
    replica.replica_of(&server).unwrap();
    (server, replica)
}

fn held_back(server: &Server) -> u64 {
    server.info("clients").unwrap()["blocked_clients"].parse().unwrap()
}

/// Sends lines of one client from a thread of its own; the last answer.
fn later(server: &Server, lines: &[&str]) -> std::thread::JoinHandle<Value> {
    let mut connection = server.connection().unwrap();
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    std::thread::spawn(move || {
        let answers = lines.iter().map(|line| command(line).query::<Value>(&mut connection).unwrap());
        answers.last().unwrap()
    })
}

fn fill(connection: &mut Connection) {
    send::<()>(connection, &format!("SET s {}", "x".repeat(1000)));
    for line in ["MSET a 1 b 2 c 3 d 4 e 5", "SET timed v EX 1000", "RPUSH list x y"] {
        send::<Value>(connection, line);
    }
}

/// Nothing of it is replicated while it lasts, all is afterwards, and nothing is lost.
#[test]
fn a_pause_of_writes_loses_nothing() {
    for binary in two() {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let (mut server, replica) = start_both(&binary, &sleeping_in(folder.path()).set("appendonly", "yes"));
        let mut connection = server.connection().unwrap();
        fill(&mut connection);
        put_to_sleep(&server);
        send::<()>(&mut connection, "CLIENT PAUSE 600000 WRITE");
        let mut tracker = server.connection().unwrap();
        send::<()>(&mut tracker, "CLIENT TRACKING ON BCAST");
        assert_eq!(send::<u64>(&mut connection, "GET a"), 1, "a client that may wait");
        assert_eq!(send::<u64>(&mut tracker, "GET b"), 2, "one that may not");
        assert_eq!(send::<u64>(&mut connection, "EVAL_RO return(redis.call('GET','c')) 0"), 3);
        ["MULTI", "GET d"].iter().for_each(|line| drop(send::<Value>(&mut connection, line)));
        assert_eq!(send::<(u64,)>(&mut connection, "EXEC"), (4,));
        let values: Vec<Option<u64>> = send(&mut connection, "MGET a b c d none");
        assert_eq!(values, [Some(1), Some(2), Some(3), Some(4), None]);
        let mut held = Vec::new();
        for lines in [
            &["APPEND s y"][..],
            &["MULTI", "INCR e", "EXEC"],
            &["EVAL return(redis.call('INCR','a')) 0"],
            &["LPUSH list w"],
            &["COPY timed copied"],
        ] {
            held.push(later(&server, lines));
            wait_for("it to be held back", || held_back(&server) == held.len() as u64);
        }
        assert_eq!(send::<u64>(&mut connection, "STRLEN s"), 1000, "not yet");
        send::<()>(&mut connection, "CLIENT UNPAUSE");
        let answers: Vec<Value> = held.into_iter().map(|thread| thread.join().unwrap()).collect();
        let expected =
            [Value::Int(1001), Value::Array(vec![Value::Int(6)]), Value::Int(2), Value::Int(3), Value::Int(1)];
        assert_eq!(answers, expected, "{}", binary.label);
        let state = |connection: &mut Connection| -> Vec<Value> {
            let lines =
                ["STRLEN s", "MGET a b c d e timed copied", "LRANGE list 0 -1", "EXISTS s a b c d e timed list"];
            lines.iter().map(|line| send(connection, line)).collect()
        };
        let after = state(&mut connection);
        let mut at_replica = replica.connection().unwrap();
        wait_for("the replica to have it all", || state(&mut at_replica) == after);
        let left: i64 = send(&mut at_replica, "TTL timed");
        assert!((900..=1000).contains(&left), "{left}");
        assert_eq!((info(&server, "spill_given_up"), info(&server, "panics")), (0.0, 0.0));
        drop(connection);
        server.restart().unwrap();
        assert_eq!(state(&mut server.connection().unwrap()), after, "{}: the append-only file", binary.label);
    }
}

/// The same where time ends the pause, and where all commands are paused.
#[test]
fn a_pause_that_ends_by_itself_loses_nothing() {
    for binary in two() {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let (server, replica) = start_both(&binary, &sleeping_in(folder.path()));
        let mut connection = server.connection().unwrap();
        let mut other = server.connection().unwrap();
        let mut at_replica = replica.connection().unwrap();
        for round in 0..6 {
            fill(&mut connection);
            put_to_sleep(&server);
            let how = if round % 2 == 0 { "WRITE" } else { "ALL" };
            send::<()>(&mut connection, &format!("CLIENT PAUSE {} {how}", 150 + round * 37));
            assert_eq!(send::<u64>(&mut other, "GET a"), 1, "{how}");
            assert_eq!(send::<u64>(&mut other, "APPEND s y"), 1001, "{how}");
            assert_eq!(send::<u64>(&mut other, "INCR b"), 3, "{how}");
            wait_for("the replica to have it all", || {
                send::<u64>(&mut at_replica, "STRLEN s") == 1001
                    && send::<Option<u64>>(&mut at_replica, "GET b") == Some(3)
            });
            send::<()>(&mut connection, "FLUSHALL");
        }
        assert_eq!((info(&server, "spill_given_up"), info(&server, "panics")), (0.0, 0.0));
    }
}

/// Clients read all the time: the first command after the pause finds what is still to be replicated.
#[test]
fn what_woke_in_a_pause_is_replicated_beside_reads() {
    for binary in two() {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let (server, replica) = start_both(&binary, &sleeping_in(folder.path()));
        let mut connection = server.connection().unwrap();
        let mut at_replica = replica.connection().unwrap();
        for _ in 0..4 {
            fill(&mut connection);
            put_to_sleep(&server);
            wait_for("the replica to follow", || send::<u64>(&mut at_replica, "DBSIZE") == 0);
            send::<()>(&mut connection, "CLIENT PAUSE 100 WRITE");
            assert_eq!(send::<Vec<u64>>(&mut connection, "MGET a b c"), [1, 2, 3]);
            wait_for("the replica to have what woke", || {
                (0..1000).for_each(|_| drop(send::<Value>(&mut connection, "GET a")));
                send::<Vec<Option<u64>>>(&mut at_replica, "MGET a b c") == [Some(1), Some(2), Some(3)]
            });
            send::<()>(&mut connection, "FLUSHALL");
        }
    }
}

/// A failover pauses writes and then changes roles: what woke meanwhile isn't left behind where the new primary lacks
/// it.
#[test]
fn a_failover_leaves_both_with_the_same_keys() {
    for binary in two() {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let (server, replica) = start_both(&binary, &sleeping_in(folder.path()));
        let mut connection = server.connection().unwrap();
        fill(&mut connection);
        put_to_sleep(&server);
        send::<()>(&mut connection, "SET awake v");
        // Long enough for reads while it is under way.
        replica.halt().unwrap();
        send::<()>(&mut connection, "SET late v");
        send::<()>(&mut connection, "FAILOVER TIMEOUT 600000");
        assert_eq!(send::<u64>(&mut connection, "GET a"), 1);
        assert_eq!(send::<Vec<u64>>(&mut connection, "MGET b c"), [2, 3]);
        replica.resume().unwrap();
        wait_for("the failover", || server.info("replication").unwrap()["role"] == "slave");
        let mut new_primary = replica.connection().unwrap();
        wait_for("the same keys", || {
            send::<u64>(&mut new_primary, "DBSIZE") == 2 && send::<u64>(&mut connection, "DBSIZE") == 2
        });
        assert_eq!(info(&server, "panics"), 0.0);
    }
}
