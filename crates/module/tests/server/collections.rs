//! Collections in a full cache: what it costs to know what they take, and what another module's values do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use redis::Connection;
use tenure_servers::Server;

use crate::accounting::{Held, check_held, count};
use crate::harness::{
    evicted_by_server, info, limit_memory, on_oldest_and_newest, send, size_of_key, wait_for, with_module,
};

/// New hashes of one field, whose value takes so many bytes.
struct Hashes<'a> {
    connection: Connection,
    value_bytes: &'a dyn Fn(u64) -> usize,
    next: u64,
}

impl<'a> Hashes<'a> {
    fn new(server: &Server, value_bytes: &'a dyn Fn(u64) -> usize) -> Self {
        Hashes { connection: server.connection().unwrap(), value_bytes, next: 0 }
    }

    /// Writes some, and reads some of those that came before.
    fn write_some(&mut self) {
        let mut pipeline = redis::pipe();
        for i in self.next..self.next + 200 {
            let value = vec![b'v'; (self.value_bytes)(i)];
            pipeline.cmd("HSET").arg(format!("hash:{i}")).arg("field").arg(value).ignore();
            pipeline.cmd("HGET").arg(format!("hash:{}", i / 2)).arg("field").ignore();
        }
        self.next += 200;
        pipeline.exec(&mut self.connection).unwrap();
    }
}

/// How often sizes were asked for.
fn asked(server: &Server) -> f64 {
    let stats = server.info("commandstats").unwrap();
    let calls = |line: &String| line.strip_prefix("calls=")?.split(',').next()?.parse().ok();
    stats.get("cmdstat_memory|usage").and_then(calls).unwrap_or(0.0)
}

/// Keys that Tenure has evicted, and the server.
fn evicted(server: &Server) -> f64 {
    info(server, "evictions") + evicted_by_server(server) as f64
}

/// One question for each that goes would cost as much as all else of its eviction.
#[test]
fn of_hashes_that_are_alike_few_are_asked_about() {
    on_oldest_and_newest(&with_module().set("maxmemory-policy", "allkeys-lru"), |server| {
        limit_memory(server, 8 << 20);
        let mut hashes = Hashes::new(server, &|i| 890 + (i % 20) as usize);
        let mut write_until = |keys: f64| {
            wait_for("hashes to go", || {
                hashes.write_some();
                evicted(server) >= keys
            });
        };
        write_until(5_000.0);
        let (asked_before, before) = (asked(server), evicted(server));
        write_until(before + 20_000.0);
        let (asked, evicted) = (asked(server) - asked_before, evicted(server) - before);
        assert!(asked < evicted / 20.0, "{asked} questions for {evicted} hashes that went");
    });
}

/// Hashes that differ, of which none is ever read: there is no time to ask about each, or to search for it. That one
/// was made by a command that changes what is there doesn't count as a read, whether that command was watched or not.
#[test]
fn on_a_busy_main_thread_hashes_that_differ_go_without_questions_and_searches() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.watch-busy-percent", 0);
    on_oldest_and_newest(&options, |server| {
        limit_memory(server, 12 << 20);
        let (mut connection, mut n) = (server.connection().unwrap(), 0);
        let mut write_until = |keys: f64| {
            wait_for("hashes to go", || {
                let mut writes = redis::pipe();
                (n..n + 500).for_each(|i| {
                    let value = vec![b'v'; 20 + size_of_key(i) % 400];
                    writes.cmd("HSET").arg(format!("hash:{i}")).arg("field").arg(value).ignore();
                });
                n += 500;
                writes.exec(&mut connection).unwrap();
                evicted(server) >= keys
            });
        };
        let unsearched = || info(server, "evictions_unsearched");
        wait_for("most to go without a search", || {
            let (asked_before, unsearched_before, before) = (asked(server), unsearched(), evicted(server));
            write_until(before + 20_000.0);
            let evicted = evicted(server) - before;
            let (asked, unsearched) = (asked(server) - asked_before, unsearched() - unsearched_before);
            println!("{asked} questions for {evicted} hashes that went, {unsearched} without a search");
            asked < evicted / 4.0 && unsearched > evicted / 2.0
        });
    });
}

/// Until somebody asks for it a hash is written, as a string is.
#[test]
fn what_makes_a_hash_asks_for_nothing() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.watch-percent", 100);
    on_oldest_and_newest(&options, |server| {
        limit_memory(server, 8 << 20);
        let mut hashes = Hashes::new(server, &|_| 900);
        wait_for("hashes to go", || {
            hashes.write_some();
            evicted(server) > 1000.0
        });
        let mut connection = server.connection().unwrap();
        let mut feature = |write: &str| {
            send::<()>(&mut connection, write);
            let why: BTreeMap<String, String> = send(&mut connection, "TENURE.WHY made");
            why["feature"].clone()
        };
        let (made, changed) = (feature("HSET made field value"), feature("HSET made field other"));
        assert!(made.starts_with("written once"), "{made}");
        assert!(changed.starts_with("2 times"), "{changed}");
    });
}

/// A fiftieth of 64 MB, also where each takes something else, so that what they take is remembered one by one.
#[test]
fn sizes_of_collections_have_a_place_in_what_tenure_takes() {
    // On a busy main thread fewer are asked about.
    let options = with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru");
    on_oldest_and_newest(&options.set("tenure.watch-busy-percent", 100), |server| {
        let mut hashes = Hashes::new(server, &|i| size_of_key(i).min(4_000));
        wait_for("it to have learned in a full cache", || {
            hashes.write_some();
            evicted(server) > 120_000.0 && info(server, "windows") >= 8.0 && asked(server) > 20_000.0
        });
        let limit = f64::from(64 << 20);
        wait_for("it to take little", || info(server, "memory_bytes") <= limit / 50.0);
    });
}

/// A module with a type of its own, whose values take what they are told to.
const OTHER_MODULE: &str = r#"
#include <stddef.h>
#include <stdlib.h>

typedef struct Methods {
    unsigned long version;
    void *(*load)(void *, int);
    void (*save)(void *, void *);
    void (*rewrite)(void *, void *, void *);
    size_t (*usage)(const void *);
    void (*digest)(void *, void *);
    void (*free)(void *);
} Methods;

static int (*SetModuleAttribs)(void *, const char *, int, int);
static int (*CreateCommand)(void *, const char *, int (*)(void *, void **, int), const char *, int, int, int);
static void *(*CreateDataType)(void *, const char *, int, Methods *);
static void *(*OpenKey)(void *, void *, int);
static void (*CloseKey)(void *);
static int (*ModuleTypeSetValue)(void *, void *, void *);
static int (*StringToLongLong)(void *, long long *);
static int (*ReplyWithNull)(void *);
static void *type;

static size_t usage(const void *value) { return *(const long long *)value; }

static int blob(void *ctx, void **argv, int argc) {
    long long *value = malloc(sizeof(long long));
    StringToLongLong(argv[argc - 1], value);
    void *key = OpenKey(ctx, argv[1], 3);
    ModuleTypeSetValue(key, type, value);
    CloseKey(key);
    return ReplyWithNull(ctx);
}

int RedisModule_OnLoad(void *ctx) {
    int (*get)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    get("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    get("RedisModule_CreateCommand", &CreateCommand);
    get("RedisModule_CreateDataType", &CreateDataType);
    get("RedisModule_OpenKey", &OpenKey);
    get("RedisModule_CloseKey", &CloseKey);
    get("RedisModule_ModuleTypeSetValue", &ModuleTypeSetValue);
    get("RedisModule_StringToLongLong", &StringToLongLong);
    get("RedisModule_ReplyWithNull", &ReplyWithNull);
    SetModuleAttribs(ctx, "blob", 1, 1);
    Methods methods = {.version = 1, .usage = usage, .free = free};
    type = CreateDataType(ctx, "blob-test", 0, &methods);
    return CreateCommand(ctx, "blob.set", blob, "write", 1, 1, 1) || type == NULL;
}
"#;

/// The library in `folder`.
fn build_other_module(folder: &Path) -> String {
    let (source, library) = (folder.join("blob.c"), folder.join("blob.so"));
    fs::write(&source, OTHER_MODULE).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    library.display().to_string()
}

/// They have no elements, but take what their module says.
#[test]
fn values_of_another_module_count_with_what_they_take() {
    let folder = tempfile::tempdir().unwrap();
    let library = build_other_module(folder.path());
    let options = with_module().set("enable-module-command", "yes").set("tenure.tenants", "\"blobs=b:* rest=r:*\"");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, &format!("MODULE LOAD {library}"));
        for i in 0..2000 {
            let bytes = if i % 2 == 0 { 1_000 } else { 20_000 };
            send::<()>(&mut connection, &format!("BLOB.SET b:{i} {bytes}"));
            send::<()>(&mut connection, &format!("SET r:{i} value"));
        }
        let mut held = Held::new();
        count(&mut connection, &mut held, |key| if key.starts_with("b:") { "blobs" } else { "rest" }.to_owned());
        assert!(held["blobs"].1 > 20_000_000);
        check_held(server, &mut connection, &held, "values of another module");
    });
}
