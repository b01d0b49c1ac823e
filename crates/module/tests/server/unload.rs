//! Unloading, under load and again and again: the server goes on, and its memory comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tenure_servers::{Server, ServerOptions, module_path};

use crate::harness::{
    Checker, config_set, error_of, info, limit_memory, on_every_server, on_oldest_and_newest, send, status,
    used_memory, wait_for,
};

fn without_module() -> ServerOptions {
    ServerOptions::default().set("enable-module-command", "yes").set("maxmemory-policy", "allkeys-lru")
}

fn load(server: &Server) {
    let arguments = "debug-commands yes window-seconds 1 window-requests 1000";
    let module = module_path().unwrap().display().to_string();
    send::<()>(&mut server.connection().unwrap(), &format!("MODULE LOAD {module} {arguments}"));
}

fn unload(server: &Server) {
    send::<()>(&mut server.connection().unwrap(), "MODULE UNLOAD tenure");
}

#[test]
fn it_is_unloaded_and_loaded_under_load() {
    on_oldest_and_newest(&without_module(), |server| {
        let checker = Checker::start(server, 2_000, 100);
        for _ in 0..10 {
            load(server);
            checker.wait_for_rounds(20);
            wait_for("a window", || info(server, "reads") > 0.0);
            unload(server);
            checker.wait_for_rounds(5);
        }
        assert_eq!(checker.finish(server), Vec::<Vec<u8>>::new());
        assert!(!server.info("modules").unwrap().values().any(|module| module.contains("tenure")));
    });
}

#[test]
fn it_is_unloaded_while_it_evicts() {
    on_oldest_and_newest(&without_module(), |server| {
        load(server);
        limit_memory(server, 5 << 20);
        let checker = Checker::start(server, 10_000, 1000);
        for _ in 0..3 {
            wait_for("Tenure to evict", || info(server, "evictions") > 100.0);
            unload(server);
            checker.wait_for_rounds(20);
            load(server);
        }
        unload(server);
        checker.finish(server);
    });
}

/// Between two slices of watching too, where keys that are to go wait for an idle turn by a timer. Batches of twenty
/// are more than a busy main thread has time to watch, and leave idle turns between them.
#[test]
fn it_is_unloaded_while_it_evicts_in_turns_that_it_does_not_watch() {
    on_oldest_and_newest(&without_module(), |server| {
        let is_over = AtomicBool::new(false);
        let write = || {
            let (mut connection, value) = (server.connection().unwrap(), "v".repeat(1000));
            for batch in (0_u64..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let mut pipe = redis::pipe();
                (0..20).for_each(|i| _ = pipe.set(format!("n:{}", 20 * batch + i), &value).ignore());
                pipe.query::<()>(&mut connection).unwrap();
            }
        };
        thread::scope(|scope| {
            let writing = scope.spawn(write);
            // Who panics here has the writer end all the same.
            let ends = Ends(&is_over);
            for _ in 0..20 {
                load(server);
                limit_memory(server, 5 << 20);
                config_set(&mut server.connection().unwrap(), "tenure.watch-busy-percent", 0);
                wait_for("slices", || server.info("tenure").unwrap()["tenure_watching"] == "slices");
                let evictions = info(server, "evictions");
                wait_for("Tenure to evict", || info(server, "evictions") > evictions + 1_000.0);
                unload(server);
            }
            drop(ends);
            writing.join().unwrap();
        });
    });
}

/// Sets it when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Without the refusal Valkey 8.0 and Redis 8.0 abort: a rule names a command that is gone. Under load, and with what
/// to do about it in the log or in the answer.
#[test]
fn it_stays_while_rights_name_its_commands() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    on_every_server(&without_module().set("logfile", log.display()), |server| {
        let checker = Checker::start(server, 2_000, 100);
        let mut connection = server.connection().unwrap();
        for rules in ["-@all +get +tenure.status", "+@all -tenure.class|prefix"] {
            load(server);
            send::<()>(&mut connection, &format!("ACL SETUSER bob reset on ~* {rules}"));
            let error = error_of(&mut connection, "MODULE UNLOAD tenure");
            let log = std::fs::read_to_string(&log).unwrap();
            assert!(error.contains("unloading module"), "{error}");
            assert!(error.contains("ACL rules") || log.contains("rights of the user 'bob' name"), "{error}: {log}");
            assert_eq!(status(&mut connection)["state"], "running");
            checker.wait_for_rounds(5);
            send::<()>(&mut connection, "ACL SETUSER bob nocommands +get");
            unload(server);
            checker.wait_for_rounds(5);
        }
        assert_eq!(checker.finish(server), Vec::<Vec<u8>>::new());
    });
}

/// What Tenure takes it gives back: tables, models, its thread's stack, the settings.
#[test]
fn its_memory_comes_back() {
    on_oldest_and_newest(&without_module(), |server| {
        let mut connection = server.connection().unwrap();
        let threads = || std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count();
        let work = |connection: &mut redis::Connection| {
            for i in 0..200 {
                let keys: Vec<String> = (0..100).map(|k| format!("key:{}", i * 100 + k)).collect();
                redis::cmd("MGET").arg(&keys).exec(connection).unwrap();
                send::<()>(connection, &format!("HSET hash:{i} f v"));
            }
        };
        // The first time also warms up what the server itself keeps.
        load(server);
        work(&mut connection);
        unload(server);
        let (before, threads_before) = (used_memory(server), threads());
        for _ in 0..5 {
            load(server);
            work(&mut connection);
            wait_for("its tables to be there", || used_memory(server) > before + (1 << 20));
            unload(server);
        }
        wait_for("its memory to come back", || used_memory(server) < before + (64 << 10));
        wait_for("its thread to be gone", || threads() == threads_before);
    });
}

/// Neither a fault nor a wrong setting is remembered by a module that is loaded anew.
#[test]
fn it_starts_afresh_after_a_fault() {
    on_every_server(&without_module(), |server| {
        let mut connection = server.connection().unwrap();
        load(server);
        config_set(&mut connection, "tenure.samples", 11);
        send::<()>(&mut connection, "TENURE.DEBUG PANIC TURN");
        wait_for("the fault", || status(&mut connection)["state"] == "failed");
        unload(server);
        load(server);
        // Servers remember each connection's last command, also one of a module that is gone by now (redis#10259).
        let mut connection = server.connection().unwrap();
        assert_eq!(status(&mut connection)["state"], "running");
        assert_eq!(crate::harness::config_get(&mut connection, "tenure.samples"), "5");
        send::<()>(&mut connection, "SET a 1");
        assert_eq!(info(server, "writes"), 1.0);
    });
}
