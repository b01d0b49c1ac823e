//! What ends the value of a sleeping key: clients that track, watch or listen are told as of any other key.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use redis::{Connection, Value};
use tenure_servers::Server;

use crate::harness::{config_set, info, send, status, wait_for};
use crate::sleep::{on_servers_that_can, put_to_sleep, two};

/// A connection that shows all that it is sent, asked for or not.
struct Raw {
    stream: TcpStream,
    seen: String,
}

impl Raw {
    fn new(server: &Server) -> Raw {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Raw { stream, seen: String::new() }
    }

    /// Sends a line, and forgets what was seen before its answer.
    fn ask(&mut self, line: &str) -> String {
        while self.read() {}
        self.seen.clear();
        self.stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        wait_for("an answer", || self.read());
        while self.read() {}
        std::mem::take(&mut self.seen)
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 1 << 16];
        match self.stream.read(&mut bytes) {
            Ok(n) => self.seen.push_str(&String::from_utf8_lossy(&bytes[..n])),
            Err(_) => return false,
        }
        true
    }

    #[track_caller]
    fn wait_to_see(&mut self, words: &[&str]) {
        wait_for(&format!("{words:?}"), || {
            self.read();
            words.iter().all(|word| self.seen.contains(word))
        });
    }
}

/// Clients to whom the end of a key matters, in every way there is.
struct Audience {
    trackers: Vec<Raw>,
    listener: Raw,
    watcher: Connection,
    _second: Connection,
}

impl Audience {
    /// They have read `key`, or watch it. It is awake.
    fn of(server: &Server, key: &str) -> Audience {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "notify-keyspace-events", "KEA");
        let mut redirected = Raw::new(server);
        let id = redirected.ask("CLIENT ID");
        redirected.ask("SUBSCRIBE __redis__:invalidate");
        let mut second = server.connection().unwrap();
        send::<()>(&mut second, &format!("CLIENT TRACKING ON REDIRECT {}", id.trim().trim_start_matches(':')));
        send::<Value>(&mut second, &format!("GET {key}"));
        let mut trackers = vec![redirected];
        for mode in ["", " BCAST", " BCAST PREFIX k", " OPTIN", " OPTOUT", " NOLOOP"] {
            let mut tracker = Raw::new(server);
            tracker.ask("HELLO 3");
            tracker.ask(&format!("CLIENT TRACKING ON{mode}"));
            if mode == " OPTIN" {
                tracker.ask("CLIENT CACHING YES");
            }
            tracker.ask(&format!("GET {key}"));
            trackers.push(tracker);
        }
        let mut listener = Raw::new(server);
        listener.ask("PSUBSCRIBE __keyspace@*__:*");
        let mut watcher = server.connection().unwrap();
        send::<()>(&mut watcher, &format!("WATCH {key}"));
        Audience { trackers, listener, watcher, _second: second }
    }

    /// What they have seen so far doesn't count.
    fn begins_to_listen(&mut self) {
        for raw in self.trackers.iter_mut().chain([&mut self.listener]) {
            while raw.read() {}
            assert!(!raw.seen.contains("invalidate"), "nothing has changed: {}", raw.seen);
            raw.seen.clear();
        }
    }

    #[track_caller]
    fn are_told(&mut self, key: &str, event: &str) {
        self.hear(key, event);
        self.transaction_fails();
    }

    #[track_caller]
    fn hear(&mut self, key: &str, event: &str) {
        self.trackers.iter_mut().for_each(|tracker| tracker.wait_to_see(&["invalidate", key]));
        self.listener.wait_to_see(&[&format!(":{key}\r\n"), event]);
    }

    #[track_caller]
    fn transaction_fails(&mut self) {
        send::<()>(&mut self.watcher, "MULTI");
        send::<()>(&mut self.watcher, "PING");
        assert_eq!(send::<Value>(&mut self.watcher, "EXEC"), Value::Nil, "a watched key is no more");
    }
}

#[test]
fn a_sleeper_that_expires_ends_as_any_key_that_expires() {
    on_servers_that_can(two(), |server, _| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET k:1 v PX 6000");
        send::<()>(&mut connection, "SET k:2 v");
        let mut audience = Audience::of(server, "k:1");
        put_to_sleep(server);
        audience.begins_to_listen();
        let expired = |server: &Server| server.info("stats").unwrap()["expired_keys"].parse::<u64>().unwrap();
        assert_eq!((info(server, "sleeping_keys"), expired(server)), (2.0, 0));
        // Nobody asks for it.
        audience.are_told("k:1", "expired");
        assert_eq!((info(server, "sleeping_keys"), expired(server)), (1.0, 1));
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), 0);
    });
}

/// Ends before anybody was told of it: whoever asks, runs or writes first sees it.
#[test]
fn a_transaction_fails_that_watches_a_sleeper_whose_time_is_over() {
    on_servers_that_can(two(), |server, _| {
        let mut connection = server.connection().unwrap();
        let keys: Vec<String> = (0..20).map(|i| format!("k:{i}")).collect();
        for round in 0..2 {
            keys.iter().for_each(|key| send(&mut connection, &format!("SET {key} v PX 2000")));
            let mut watchers: Vec<Connection> = keys.iter().map(|_| server.connection().unwrap()).collect();
            for (watcher, key) in watchers.iter_mut().zip(&keys) {
                send::<()>(watcher, &format!("WATCH {key}"));
            }
            put_to_sleep(server);
            let over = std::time::Instant::now() + Duration::from_millis(2000);
            for watcher in &mut watchers {
                send::<()>(watcher, "MULTI");
                send::<()>(watcher, "PING");
            }
            let slept = info(server, "sleeping_keys");
            wait_for("their time to be over", || std::time::Instant::now() > over);
            for watcher in &mut watchers {
                assert_eq!(send::<Value>(watcher, "EXEC"), Value::Nil, "in round {round}, {slept} asleep");
            }
        }
    });
}

#[test]
fn sleepers_that_are_given_up_are_told_of() {
    on_servers_that_can(two(), |server, folder| {
        let ways =
            ["CONFIG SET tenure.spill-dir ", "SWAPDB 0 1", "CONFIG SET tenure.enabled no", "MODULE UNLOAD tenure"];
        for way in ways {
            let mut connection = server.connection().unwrap();
            send::<()>(&mut connection, "MSET k:1 v k:2 v");
            let mut audience = Audience::of(server, "k:1");
            put_to_sleep(server);
            audience.begins_to_listen();
            // The last word may be empty, which is none of a line.
            let words: Vec<&str> = way.split(' ').collect();
            server.call::<Value>(&words).unwrap_or_else(|why| panic!("{way}: {why:#}"));
            audience.are_told("k:1", "evicted");
            if !way.starts_with("MODULE") {
                assert_eq!(send::<u64>(&mut connection, "EXISTS k:1 k:2"), 0, "{way}");
                send::<()>(&mut connection, "CONFIG SET tenure.enabled yes");
                wait_for("Tenure to run", || status(&mut connection).get("state").is_some_and(|is| is == "running"));
                config_set(&mut connection, "tenure.spill-dir", folder.display());
                wait_for("sleep to be ready", || status(&mut connection)["sleep"] == "ready");
            }
        }
    });
}

/// The server tells those who track of an emptied database by itself, and those who watch only of keys that it knows.
#[test]
fn a_transaction_fails_that_watches_a_sleeper_that_is_emptied_deleted_or_overwritten() {
    on_servers_that_can(two(), |server, _| {
        for line in
            ["FLUSHALL", "FLUSHDB ASYNC", "DEL k:1", "UNLINK k:1", "SET k:1 other", "EXPIRE k:1 -1", "RENAME k:2 k:1"]
        {
            let mut connection = server.connection().unwrap();
            send::<()>(&mut connection, "MSET k:1 v k:2 v");
            let mut audience = Audience::of(server, "k:1");
            put_to_sleep(server);
            audience.begins_to_listen();
            send::<Value>(&mut connection, line);
            audience.trackers.iter_mut().for_each(|tracker| tracker.wait_to_see(&["invalidate"]));
            audience.transaction_fails();
        }
    });
}

/// Of more keys than one command may wake the rest are given up, and whoever has them is told.
#[test]
fn keys_that_one_command_gives_up_are_told_of() {
    on_servers_that_can(two(), |server, _| {
        let mut connection = server.connection().unwrap();
        let keys: Vec<String> = (0..300).map(|i| format!("k:{i}")).collect();
        keys.iter().for_each(|key| send(&mut connection, &format!("SET {key} v")));
        let mut audience = Audience::of(server, "k:299");
        put_to_sleep(server);
        audience.begins_to_listen();
        for command in ["EVAL return(redis.call('MGET',unpack(ARGV))) 0", "MGET"] {
            let values: Vec<Option<String>> = send(&mut connection, &format!("{command} {}", keys.join(" ")));
            assert_eq!((values[255].as_deref(), values[299].as_deref()), (Some("v"), None));
        }
        audience.are_told("k:299", "evicted");
        assert_eq!(info(server, "spill_given_up"), 44.0);
    });
}

/// A folder that is let go has its sleepers told over many turns; whatever is asked meanwhile is right.
#[test]
fn many_that_are_given_up_at_once_are_told_over_turns() {
    const KEYS: usize = 20_000;
    on_servers_that_can(two(), |server, folder| {
        let mut connection = server.connection().unwrap();
        let mut pipeline = redis::pipe();
        for i in 0..KEYS {
            pipeline.cmd("SET").arg(format!("k:{i}")).arg("v").ignore();
        }
        pipeline.exec(&mut connection).unwrap();
        let mut audience = Audience::of(server, "k:7");
        let mut listener = Raw::new(server);
        put_to_sleep(server);
        audience.begins_to_listen();
        listener.ask("SUBSCRIBE __keyevent@0__:evicted");
        // All in one turn: a watched one, one that is written anew, one that is deleted, and the next folder.
        let mut other = server.connection().unwrap();
        let begun: (Value, Value, u64, Option<String>) = redis::pipe()
            .cmd("CONFIG")
            .arg("SET")
            .arg("tenure.spill-dir")
            .arg("")
            .cmd("SET")
            .arg("k:8")
            .arg("new")
            .cmd("DEL")
            .arg("k:9")
            .cmd("GET")
            .arg("k:8")
            .query(&mut other)
            .unwrap();
        audience.transaction_fails();
        assert_eq!(begun.3.as_deref(), Some("new"));
        config_set(&mut connection, "tenure.spill-dir", folder.display());
        audience.hear("k:7", "evicted");
        wait_for("all to be told", || {
            listener.read();
            listener.seen.matches("message").count() + 10 >= KEYS
        });
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), 1);
        assert_eq!(send::<String>(&mut connection, "GET k:8"), "new");
        assert_eq!(info(server, "panics"), 0.0);
    });
}
