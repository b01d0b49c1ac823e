//! Users of few rights and random commands on real servers: nothing that a client sends stops the server, and what
//! the server's own commands may not do, Tenure's may not either.
//!
//! Users of the usual restricted profiles send every `TENURE.*` command with arguments of every kind, alone, in
//! transactions, scripts and functions, on a server that is paused, full, short of replicas, loading, a replica, or a
//! node of a broken cluster. Not one of these commands is to change the data set or a setting, so both are compared
//! after each scene.
//!
//! What is sent follows from a seed: `TENURE_FUZZ_SEED` is the number to begin with, by default 1, and
//! `TENURE_FUZZ_TIMES` says how many times as much is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use redis::Connection;
use tempfile::TempDir;
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions};

use crate::harness::{
    DEADLINE, Random, config_get, config_set, info, oldest_and_newest_of, send, servers, start, that_know_clients,
    wait_for, with_module,
};

/// Commands of a scene, where a seed is run once.
const COMMANDS: usize = 1500;
/// Commands on one connection.
const ON_ONE_CONNECTION: usize = 25;
/// Keys that all may read, and as many that one user may not.
const KEYS: u64 = 150;
/// What the values of keys begin with that the user of one prefix may not read.
const SECRET: &[u8] = b"S3CRET";

/// Names and rights. None may change settings, or anything that is there for everybody.
const PROFILES: [(&str, &[&str]); 4] = [
    ("reader", &["~*", "+@read", "+@connection", "+@transaction", "+eval", "+eval_ro", "+fcall", "+fcall_ro"]),
    ("app", &["~app:*", "+@all", "-@admin", "-@dangerous"]),
    ("plain", &["~*", "&*", "+@all", "-@admin", "-@dangerous"]),
    ("safe", &["~*", "&*", "+@all", "-@dangerous", "-@admin", "-@write"]),
];

type Words = Vec<Vec<u8>>;

/// What a server answers, RESP2 and RESP3 alike.
#[derive(Clone, PartialEq)]
enum Reply {
    Error(Vec<u8>),
    Plain(Vec<u8>),
    Many(Vec<Reply>),
}

impl Reply {
    fn any(&self, is: &impl Fn(&Reply) -> bool) -> bool {
        is(self) || matches!(self, Reply::Many(parts) if parts.iter().any(|part| part.any(is)))
    }

    /// Begins with a word of capitals, digits and underscores.
    fn has_no_code(&self) -> bool {
        let Reply::Error(text) = self else { return false };
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_of_code = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        code.len() < 2 || !code.iter().all(is_of_code)
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(b"NOPERM"))
    }

    fn tells(&self, of: &[u8]) -> bool {
        matches!(self, Reply::Error(text) | Reply::Plain(text) if text.windows(of.len()).any(|part| part == of))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Error(text) => write!(f, "-{}", text.escape_ascii()),
            Reply::Plain(text) => write!(f, "{}", text.escape_ascii()),
            Reply::Many(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

/// A connection that sends any bytes as words and takes every kind of reply.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(server: &Server) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Client(BufReader::new(stream))
    }

    fn write(&mut self, commands: &[Words]) {
        let mut bytes = Vec::new();
        for words in commands {
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend_from_slice(word);
                bytes.extend(b"\r\n");
            }
        }
        self.0.get_mut().write_all(&bytes).unwrap();
    }

    fn read(&mut self) -> std::io::Result<Reply> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        let Some((&kind, rest)) = line.strip_suffix(b"\r\n").and_then(|line| line.split_first()) else {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        };
        let length = || String::from_utf8_lossy(rest).parse::<i64>().unwrap_or(-1);
        match kind {
            b'-' => Ok(Reply::Error(rest.to_vec())),
            b'+' | b':' | b',' | b'#' | b'(' | b'_' => Ok(Reply::Plain(rest.to_vec())),
            b'$' | b'=' | b'!' if length() < 0 => Ok(Reply::Plain(Vec::new())),
            b'$' | b'=' | b'!' => {
                let mut bytes = vec![0; length() as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length() as usize);
                Ok(if kind == b'!' { Reply::Error(bytes) } else { Reply::Plain(bytes) })
            }
            b'*' | b'~' | b'>' => (0..length()).map(|_| self.read()).collect::<Result<_, _>>().map(Reply::Many),
            b'%' => (0..2 * length()).map(|_| self.read()).collect::<Result<_, _>>().map(Reply::Many),
            _ => panic!("a reply that is none: {}", String::from_utf8_lossy(&line)),
        }
    }
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Makes up commands.
struct Hand {
    random: Random,
    settings: Vec<String>,
}

/// What stands around a command.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    Anything,
    /// Scripts and functions that may not write.
    ReadOnly,
}

impl Hand {
    fn one_of<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.random.below(of.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        let prefix = self.one_of(&["app:", "secret:"]);
        format!("{prefix}{}", self.random.below(KEYS + 5))
    }

    /// An argument of some kind.
    fn word(&mut self) -> Vec<u8> {
        const NUMBERS: [&str; 12] = [
            "0",
            "1",
            "-1",
            "7",
            "1000",
            "1001",
            "18446744073709551616",
            "-9223372036854775808",
            "1e400",
            "nan",
            "-0.0",
            "0x10",
        ];
        const NAMES: [&str; 16] = [
            "KEY",
            "connection",
            "PREFIX",
            "GET",
            "LIST",
            "HELP",
            "settings",
            "PANIC",
            "worker",
            "TIER",
            "fast",
            "BY-K",
            "db0",
            "other",
            "none",
            "app:*",
        ];
        const COMMANDS: [&str; 14] = [
            "SET",
            "GET",
            "DEL",
            "FLUSHALL",
            "MULTI",
            "EXEC",
            "EVAL",
            "CONFIG",
            "SHUTDOWN",
            "BLPOP",
            "INCR",
            "TENURE.AWAIT",
            "tenure.status",
            "REPLICAOF",
        ];
        match self.random.below(12) {
            0 => Vec::new(),
            1 => (0..1 + self.random.below(20)).map(|_| self.random.next() as u8).collect(),
            2 => self.one_of(&["*", "a b", "\r\n", "-ERR no\r\n", "%s%n", "*?[", "{}", "é"]).as_bytes().to_vec(),
            3 if self.random.below(10) == 0 => vec![b'h'; 70_000],
            3 | 4 => self.one_of(&NUMBERS).as_bytes().to_vec(),
            5 | 6 => self.one_of(&NAMES).as_bytes().to_vec(),
            7 => self.one_of(&COMMANDS).as_bytes().to_vec(),
            _ => self.key().into_bytes(),
        }
    }

    /// One command of Tenure's, or an attempt at its settings, or the reading of a key.
    fn command(&mut self) -> Words {
        const NAMES: [&str; 12] = [
            "TENURE.HELP",
            "TENURE.STATUS",
            "TENURE.PARTITIONS",
            "TENURE.TENANTS",
            "TENURE.MRC",
            "TENURE.WHY",
            "TENURE.TIERS",
            "TENURE.CLASS",
            "TENURE.SLEEP",
            "TENURE.WAKE",
            "TENURE.DEBUG",
            "TENURE.AWAIT",
        ];
        let key = self.key();
        match self.random.below(16) {
            0 => words(&format!("TENURE.WHY {key}")),
            1 => words(&format!("TENURE.CLASS GET {key}")),
            2 => words(&format!("TENURE.CLASS KEY {key} hot")),
            3 => words(&format!("TENURE.CLASS PREFIX {key}* hot")),
            4 => words(self.one_of(&["TENURE.SLEEP db0", "TENURE.DEBUG PANIC TURN", "TENURE.DEBUG PANIC WORKER"])),
            5 | 6 => {
                let line = self.one_of(&[
                    "SET K v",
                    "APPEND K v",
                    "LPUSH new v",
                    "INCR new",
                    "GET K",
                    "DEL K",
                    "MSET K 1 new 2",
                ]);
                words(&format!("TENURE.AWAIT {}", line.replace('K', &key)))
            }
            7 => words(&format!("{} {key}", self.one_of(&["GET", "STRLEN", "EXISTS", "TYPE", "MGET app:1"]))),
            8 => self.attempt_at_a_setting(),
            _ => {
                let n = match self.random.below(4) {
                    0 => self.random.below(21),
                    _ => self.random.below(5),
                };
                let name = self.one_of(&NAMES).as_bytes().to_vec();
                std::iter::once(name).chain((0..n).map(|_| self.word())).collect()
            }
        }
    }

    fn attempt_at_a_setting(&mut self) -> Words {
        let at = self.random.below(self.settings.len() as u64) as usize;
        let name = self.settings[at].clone();
        match self.random.below(3) {
            0 => words(&format!("CONFIG GET {name}")),
            _ => [words(&format!("CONFIG SET {name}")), vec![self.word()]].concat(),
        }
    }

    /// A command, alone or within what runs it: as many replies are to come as commands are returned.
    fn some(&mut self, around: Around) -> Vec<Words> {
        let command = self.command();
        let behind = |line: &str| [words(line), command.clone()].concat();
        let script = |name: &str, call: &str| {
            let body = format!("return redis.{call}(unpack(ARGV))").into_bytes();
            [vec![name.as_bytes().to_vec(), body, b"0".to_vec()], command.clone()].concat()
        };
        match (around, self.random.below(8)) {
            (Around::ReadOnly, 0..=2) => vec![script("EVAL_RO", "call")],
            (Around::ReadOnly, 3) => vec![script("EVAL_RO", "pcall")],
            (Around::ReadOnly, _) => vec![behind("FCALL_RO fuzz_ro 0")],
            (Around::Anything, 0) => {
                let others: Vec<Words> = (0..self.random.below(3)).map(|_| self.command()).collect();
                [vec![words("MULTI"), command], others, vec![words("EXEC")]].concat()
            }
            (Around::Anything, 1) => vec![script("EVAL", "call")],
            (Around::Anything, 2) => vec![script("EVAL_RO", "pcall")],
            (Around::Anything, 3) => {
                vec![behind(self.one_of(&["FCALL fuzz 0", "FCALL_RO fuzz_ro 0", "FCALL fuzz_ro 0"]))]
            }
            (Around::Anything, _) => vec![command],
        }
    }
}

/// What no command of a scene may change.
struct Untouched {
    digest: String,
    settings: BTreeMap<String, String>,
}

impl Untouched {
    fn of(server: &Server) -> Untouched {
        let mut connection = server.connection().unwrap();
        Untouched {
            digest: send(&mut connection, "DEBUG DIGEST"),
            settings: send(&mut connection, "CONFIG GET tenure.*"),
        }
    }
}

/// Where and by whom commands are sent.
struct Scene<'a> {
    server: &'a Server,
    name: &'static str,
    user: &'static str,
    around: Around,
    hand: &'a mut Hand,
    n_commands: usize,
}

impl Scene<'_> {
    /// A connection of the user's, speaking either protocol.
    fn client(&mut self) -> Client {
        let mut client = Client::of(self.server);
        let hello = self.hand.one_of(&["HELLO 3 AUTH", "HELLO 2 AUTH", "AUTH"]);
        client.write(&[words(&format!("{hello} {} password", self.user))]);
        let reply = client.read().unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply:?}", self.name);
        client
    }

    /// Sends commands one by one, and looks at each answer.
    fn play(&mut self) {
        for _ in 0..self.n_commands / ON_ONE_CONNECTION {
            let mut client = self.client();
            for _ in 0..ON_ONE_CONNECTION {
                let sent = self.hand.some(self.around);
                client.write(&sent);
                self.take(&mut client, &sent);
            }
        }
    }

    /// Sends some at once, does `meanwhile`, and looks at the answers then.
    fn play_at_once(&mut self, n: usize, meanwhile: impl FnOnce()) {
        let mut client = self.client();
        let sent: Vec<Words> = (0..n).flat_map(|_| self.hand.some(self.around)).collect();
        client.write(&sent);
        meanwhile();
        self.take(&mut client, &sent);
    }

    #[track_caller]
    fn take(&self, client: &mut Client, sent: &[Words]) {
        for words in sent {
            let reply = client.read().unwrap_or_else(|why| self.fail(words, &why.to_string()));
            if reply.any(&Reply::has_no_code) {
                self.fail(words, &format!("an error without a code: {reply:?}"));
            }
            let is_of_settings = words[0] == b"CONFIG";
            if is_of_settings && !reply.any(&Reply::is_refusal) && !reply.any(&|reply| matches!(reply, Reply::Error(_)))
            {
                self.fail(words, &format!("settings are not for this user: {reply:?}"));
            }
            if self.user == "app" {
                self.check_prefix(words, &reply);
            }
        }
    }

    /// The user of one prefix is told nothing of other keys.
    #[track_caller]
    fn check_prefix(&self, words: &[Vec<u8>], reply: &Reply) {
        if reply.any(&|reply| reply.tells(SECRET)) {
            self.fail(words, &format!("it tells a value of another prefix: {reply:?}"));
        }
        let text: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
        let key = match text.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["tenure.why", key] | ["tenure.class", "get", key] | ["tenure.class", "key", key, _] => key,
            _ => return,
        };
        if key.starts_with("secret:") && !reply.is_refusal() {
            self.fail(words, &format!("it tells of a key of another prefix: {reply:?}"));
        }
    }

    #[track_caller]
    fn fail(&self, words: &[Vec<u8>], why: &str) -> ! {
        let shown: Vec<String> = words.iter().map(|word| format!("{:.60}", word.escape_ascii().to_string())).collect();
        let why: String = why.chars().take(500).collect();
        panic!("{}, {}, {}: {}: {why}", self.server.binary().label, self.name, self.user, shown.join(" "));
    }
}

/// A server with users, functions and data, and who sends commands to it.
struct Stage {
    hand: Hand,
    n_commands: usize,
}

impl Stage {
    fn new(seed: u64, times: usize, settings: Vec<String>) -> Stage {
        Stage { hand: Hand { random: Random::new(seed), settings }, n_commands: COMMANDS * times }
    }

    fn scene<'a>(&'a mut self, server: &'a Server, name: &'static str, user: &'static str) -> Scene<'a> {
        let n_commands = self.n_commands;
        Scene { server, name, user, around: Around::Anything, hand: &mut self.hand, n_commands }
    }

    /// Plays a scene by each user, and sees that nothing was touched.
    fn by_all(&mut self, server: &Server, name: &'static str) {
        for (user, _) in PROFILES {
            self.untouched(server, &format!("{name}, {user}"), |stage| {
                let n_commands = stage.n_commands / PROFILES.len();
                Scene { n_commands, ..stage.scene(server, name, user) }.play();
            });
        }
    }

    /// Runs a scene, after which data and settings are to be as they were.
    fn untouched(&mut self, server: &Server, name: &str, scene: impl FnOnce(&mut Stage)) {
        let before = Untouched::of(server);
        scene(self);
        check_alive(server, name);
        let after = Untouched::of(server);
        let is_other = |name: &&String| before.settings[*name] != after.settings[*name];
        let others: Vec<_> =
            before.settings.keys().filter(is_other).map(|name| (name, &after.settings[name])).collect();
        assert!(others.is_empty(), "{}, {name}: settings have changed: {others:?}", server.binary().label);
        assert_eq!(before.digest, after.digest, "{}, {name}: the data have changed", server.binary().label);
    }
}

#[track_caller]
fn check_alive(server: &Server, name: &str) {
    if let Some(crash) = server.crash() {
        panic!("{}, {name}: {crash}", server.binary().label);
    }
    assert_eq!(info(server, "panics"), 0.0, "{}, {name}: {}", server.binary().label, server.log_tail());
}

/// Users and functions.
fn furnish(server: &Server) {
    for (name, rights) in PROFILES {
        server.call::<()>(&[&["ACL", "SETUSER", name, "on", ">password"], rights].concat()).unwrap();
    }
    let library = "#!lua name=fuzz\n\
        local call = function(keys, words) return redis.call(unpack(words)) end\n\
        redis.register_function('fuzz', call)\n\
        redis.register_function{function_name='fuzz_ro', callback=call, flags={'no-writes'}}";
    server.call::<()>(&["FUNCTION", "LOAD", library]).unwrap();
}

fn fill(connection: &mut Connection) {
    let mut pipeline = redis::pipe();
    for i in 0..KEYS {
        pipeline.cmd("SET").arg(format!("app:{i}")).arg(format!("value-{i}")).ignore();
        pipeline.cmd("SET").arg(format!("secret:{i}")).arg([SECRET, &[b'x'; 100]].concat()).ignore();
    }
    pipeline.exec(connection).unwrap();
}

fn options() -> ServerOptions {
    let mut options = with_module().set("appendonly", "yes").set("tenure.classes", "hinted");
    options.module_args = vec!["debug-commands".to_owned(), "yes".to_owned()];
    options
}

/// Oldest and newest of each product.
fn of_each_product() -> Vec<ServerBinary> {
    let mut of: BTreeMap<_, Vec<ServerBinary>> = BTreeMap::new();
    servers().into_iter().for_each(|binary| of.entry(binary.product).or_default().push(binary));
    of.into_values().flat_map(oldest_and_newest_of).collect()
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is '{text}'")))
}

/// Plays `scenes` on a fresh server of each kind.
fn on_stage(scenes: impl Fn(&mut Stage, &Server)) {
    let (seed, times) = (number_of("TENURE_FUZZ_SEED").unwrap_or(1), number_of("TENURE_FUZZ_TIMES").unwrap_or(1));
    println!("TENURE_FUZZ_SEED={seed} TENURE_FUZZ_TIMES={times}");
    for binary in of_each_product() {
        println!("on {}", binary.label);
        let server = start(&binary, &options());
        furnish(&server);
        let mut connection = server.connection().unwrap();
        fill(&mut connection);
        let settings: Vec<String> = send(&mut connection, "CONFIG GET tenure.*");
        let settings = settings.chunks(2).map(|pair| pair[0].clone()).collect();
        scenes(&mut Stage::new(seed, times as usize, settings), &server);
    }
}

#[test]
fn users_of_few_rights_change_nothing_and_learn_nothing_of_others() {
    on_stage(|stage, server| {
        stage.by_all(server, "a server at work");
        stage.untouched(server, "scripts that may not write", |stage| {
            Scene { around: Around::ReadOnly, ..stage.scene(server, "scripts that may not write", "plain") }.play();
        });
    });
}

#[test]
fn what_refuses_writes_refuses_theirs() {
    on_stage(|stage, server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "min-replicas-to-write", 1);
        stage.untouched(server, "too few replicas", |stage| stage.scene(server, "too few replicas", "plain").play());
        config_set(&mut connection, "min-replicas-to-write", 0);
        config_set(&mut connection, "maxmemory", 1);
        stage.untouched(server, "out of memory", |stage| stage.scene(server, "out of memory", "plain").play());
        config_set(&mut connection, "maxmemory", 0);

        let replica = start(server.binary(), &options());
        furnish(&replica);
        replica.replica_of(server).unwrap();
        stage.untouched(&replica, "a replica", |stage| stage.scene(&replica, "a replica", "plain").play());
    });
}

#[test]
fn a_paused_server_lives_and_stays_as_it_is() {
    on_stage(|stage, server| {
        let mut connection = server.connection().unwrap();
        let digest = |connection: &mut Connection| send::<String>(connection, "DEBUG DIGEST");
        stage.untouched(server, "writes paused", |stage| {
            for _ in 0..stage.n_commands / 50 {
                let before = digest(&mut connection);
                send::<()>(&mut connection, "CLIENT PAUSE 600000 WRITE");
                let meanwhile = || {
                    (0..3).for_each(|_| send(&mut connection, "PING"));
                    assert_eq!(digest(&mut connection), before, "while writes are paused");
                    send::<()>(&mut connection, "CLIENT UNPAUSE");
                };
                stage.scene(server, "writes paused", "plain").play_at_once(50, meanwhile);
            }
        });
        // Nobody is answered before the end of such a pause.
        stage.untouched(server, "all paused", |stage| {
            for _ in 0..stage.n_commands / 100 {
                send::<()>(&mut connection, "CLIENT PAUSE 100 ALL");
                stage.scene(server, "all paused", "plain").play_at_once(20, || ());
            }
        });
    });
}

/// Values that sleep are read while writes are paused and while they are not; in the end all are as they were.
#[test]
fn what_sleeps_is_not_changed_by_reading_it() {
    let knows: Vec<String> = that_know_clients(servers()).into_iter().map(|binary| binary.label).collect();
    on_stage(|stage, server| {
        if !knows.contains(&server.binary().label) {
            return;
        }
        let folder = TempDir::new().unwrap();
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory-policy", "allkeys-lru");
        config_set(&mut connection, "tenure.spill-dir", folder.path().display());
        stage.untouched(server, "asleep", |stage| {
            for (is_paused, user) in [(false, "plain"), (true, "plain"), (false, "reader"), (true, "app")] {
                // All but those that were hinted into other classes.
                send::<()>(&mut connection, "TENURE.SLEEP db0");
                wait_for("most to sleep", || info(server, "sleeping_keys") >= KEYS as f64);
                if is_paused {
                    send::<()>(&mut connection, "CLIENT PAUSE 600000 WRITE");
                }
                let meanwhile = || {
                    (0..3).for_each(|_| send(&mut connection, "PING"));
                    send::<()>(&mut connection, "CLIENT UNPAUSE");
                };
                stage.scene(server, "asleep", user).play_at_once(100, meanwhile);
                wait_until_awake(server, &mut connection);
            }
            // What is read in a tenant that sleeps may fall asleep again.
            send::<()>(&mut connection, "TENURE.WAKE db0");
            wait_until_awake(server, &mut connection);
        });
        config_set(&mut connection, "tenure.spill-dir", "");
    });
}

/// Reads each key until all are there again: none was lost, and none has come.
fn wait_until_awake(server: &Server, connection: &mut Connection) {
    let mut there = 0;
    let waited = tenure_servers::wait_for(DEADLINE, "all to be awake", || {
        for i in 0..KEYS {
            let _: Vec<Option<String>> = send(connection, &format!("MGET app:{i} secret:{i}"));
        }
        there = send(connection, "DBSIZE");
        there == 2 * KEYS
    });
    let told = server.info("tenure").unwrap();
    assert!(waited.is_ok(), "{}: {there} keys of {}: {told:?}", server.binary().label, 2 * KEYS);
}

#[test]
fn a_loading_server_lives() {
    on_stage(|stage, server| {
        let mut connection = server.connection().unwrap();
        // Some milliseconds for each of the keys, and a look at the clients after each.
        config_set(&mut connection, "loading-process-events-interval-bytes", 1024);
        config_set(&mut connection, "key-load-delay", 3000);
        stage.untouched(server, "loading", |stage| {
            std::thread::scope(|threads| {
                let reload = threads.spawn(|| server.call::<()>(&["DEBUG", "RELOAD"]));
                while !reload.is_finished() {
                    Scene { n_commands: ON_ONE_CONNECTION, ..stage.scene(server, "loading", "plain") }.play();
                }
                reload.join().unwrap().unwrap();
            });
        });
        config_set(&mut connection, "key-load-delay", 0);
    });
}

#[test]
fn a_node_of_a_broken_cluster_lives() {
    let (seed, times) = (number_of("TENURE_FUZZ_SEED").unwrap_or(1), number_of("TENURE_FUZZ_TIMES").unwrap_or(1));
    println!("TENURE_FUZZ_SEED={seed} TENURE_FUZZ_TIMES={times}");
    for binary in of_each_product() {
        println!("on {}", binary.label);
        let mut cluster = Cluster::start(&binary, &options().set("cluster-node-timeout", 1000), 2, 0).unwrap();
        furnish(&cluster.nodes()[0]);
        cluster.node_mut(1).kill();
        let server = &cluster.nodes()[0];
        let is_down = || server.call::<String>(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:fail");
        wait_for("the cluster to be down", is_down);
        let settings = vec!["tenure.policy".to_owned()];
        let mut stage = Stage::new(seed, times as usize, settings);
        stage.untouched(server, "a broken cluster", |stage| stage.scene(server, "a broken cluster", "plain").play());
    }
}

/// Whoever may change settings may set them to anything: it is taken or refused with a reason.
#[test]
fn settings_of_any_value_are_taken_or_refused() {
    on_stage(|stage, server| {
        let mut client = Client::of(server);
        for _ in 0..stage.n_commands {
            let sent = stage.hand.attempt_at_a_setting();
            // What would make folders, or take whole seconds, has tests of its own.
            if ["spill-dir", "tier-slow", "key-table-bytes"].iter().any(|name| sent[2].ends_with(name.as_bytes())) {
                continue;
            }
            client.write(std::slice::from_ref(&sent));
            let scene = stage.scene(server, "settings", "default");
            let reply = client.read().unwrap_or_else(|why| scene.fail(&sent, &why.to_string()));
            if reply.any(&Reply::has_no_code) {
                scene.fail(&sent, &format!("an error without a code: {reply:?}"));
            }
        }
        check_alive(server, "settings");
        assert!(!config_get(&mut server.connection().unwrap(), "tenure.policy").is_empty());
    });
}
