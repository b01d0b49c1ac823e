//! Threads of Tenure's that stand still, a disk that answers nothing, and a clock that jumps: nobody waits for them who
//! doesn't need them.
//!
//! `strace` holds a thread at a system call for an hour, and lets go of it when it ends, so nothing here depends on how
//! fast the machine is. It is never a call of the allocator, whose locks all threads of a server share: a thread that
//! stood still there would hold up a stock server too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::Connection;
use tempfile::tempdir;
use tenure_servers::{Server, clock_path, wait_for as wait_until};

use crate::harness::{
    DEADLINE, config_set, evicting_in_time, info, on_oldest_and_newest, send, start, status, that_know_clients,
    wait_for, with_module,
};
use crate::tiers;

/// What asks something of a disk. The class `%desc` has `mmap` too, which the allocator calls.
const DISK_CALLS: &str = "openat,statx,fstat,read,pread64,write,pwrite64,ftruncate,fsync,fdatasync,rename,unlink,close";

/// Threads that stand still at a system call.
struct Held {
    strace: Child,
    threads: Vec<PathBuf>,
}

impl Held {
    /// Holds these threads at the next call of such a kind. `None` where this machine doesn't let anybody.
    fn at(server: &Server, names: &[&str], calls: &str) -> Option<Held> {
        let tasks = PathBuf::from(format!("/proc/{}/task", server.pid()));
        let is_one = |task: &PathBuf| {
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            names.contains(&name.trim())
        };
        let threads: Vec<PathBuf> =
            fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path()).filter(is_one).collect();
        assert_eq!(threads.len(), names.len(), "{names:?}");
        let mut command = Command::new("strace");
        for thread in &threads {
            command.arg("-p").arg(thread.file_name().unwrap());
        }
        command.arg(format!("--trace={calls}")).arg(format!("--inject={calls}:delay_enter=3600s"));
        let strace = command.args(["-o", "/dev/null"]).stderr(Stdio::null()).spawn().ok()?;
        let mut held = Held { strace, threads };
        let is_traced = |held: &Held| {
            held.threads.iter().all(|thread| field(thread, "TracerPid").is_none_or(|tracer| tracer != "0"))
        };
        let waited = wait_until(DEADLINE, "strace", || {
            is_traced(&held) || held.strace.try_wait().is_ok_and(|ended| ended.is_some())
        });
        (waited.is_ok() && is_traced(&held)).then_some(held)
    }

    /// How many stand still.
    fn n_still(&self) -> usize {
        self.threads.iter().filter(|thread| field(thread, "State").is_some_and(|state| state.starts_with('t'))).count()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

fn field(thread: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(thread.join("status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")))?;
    Some(line.trim().to_owned())
}

fn skipped(what: &str) {
    println!("SKIPPED: {}: {what}", std::thread::current().name().unwrap_or("a test"));
}

fn write(connection: &mut Connection, keys: std::ops::Range<u64>) {
    let mut pipeline = redis::pipe();
    keys.for_each(|key| _ = pipeline.cmd("SET").arg(format!("k:{key}")).arg(&[b'v'; 1000][..]).ignore());
    pipeline.exec(connection).unwrap();
}

/// The worker stands still. The server evicts, plans of other policies are asked for, it saves, and Tenure is turned
/// off and on; with the new worker it learns again.
#[test]
fn nobody_waits_for_a_worker_that_stands_still() {
    on_oldest_and_newest(&evicting_in_time().set("maxmemory", "16mb"), |server| {
        let mut connection = server.connection().unwrap();
        let mut key = 0;
        let mut write_some = |connection: &mut Connection| {
            write(connection, key..key + 1000);
            key += 1000;
        };
        wait_for("evictions by what was learned", || {
            write_some(&mut connection);
            info(server, "evictions") > 1000.0
        });
        let Some(held) = Held::at(server, &["tenure-worker"], "clock_nanosleep") else {
            return skipped("no strace here");
        };
        wait_for("it to stand still", || {
            write_some(&mut connection);
            held.n_still() == 1
        });
        let windows = info(server, "windows");
        (0..40).for_each(|_| write_some(&mut connection));
        for policy in ["predis", "lru", "density"] {
            config_set(&mut connection, "tenure.policy", policy);
            write_some(&mut connection);
        }
        for line in ["TENURE.PARTITIONS", "TENURE.TENANTS", "TENURE.WHY k:1", "BGSAVE", "FLUSHALL"] {
            let _: redis::RedisResult<redis::Value> = crate::harness::command(line).query(&mut connection);
        }
        assert_eq!(info(server, "windows"), windows, "it stands still all the while");
        config_set(&mut connection, "tenure.enabled", "no");
        wait_for("Tenure to be off", || status(&mut connection)["state"] == "stopped");
        config_set(&mut connection, "tenure.enabled", "yes");
        wait_for("a new worker to learn", || {
            write_some(&mut connection);
            status(&mut connection)["state"] == "running" && info(server, "windows") > windows
        });
        wait_for("the old one to stand still as before", || held.n_still() == 1);
        drop(held);
        assert_eq!(info(server, "panics"), 0.0);
        drop(connection);
        // Waits for the old one too, whose code goes.
        server.call::<()>(&["MODULE", "UNLOAD", "tenure"]).unwrap();
        assert_eq!(server.call::<String>(&["PING"]).unwrap(), "PONG");
    });
}

/// The disk answers nothing, to reads, writes and all else. Who reads a sleeping key waits a second and has a miss;
/// nobody else waits.
#[test]
fn nobody_waits_for_a_disk_that_hangs_who_needs_nothing_of_it() {
    for binary in crate::harness::oldest_and_newest_of(that_know_clients(crate::harness::servers())) {
        let folder = tempdir().unwrap();
        let server = start(&binary, &with_module().set("tenure.spill-dir", folder.path().display()));
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory", "64mb");
        config_set(&mut connection, "maxmemory-policy", "allkeys-lru");
        write(&mut connection, 0..2000);
        let partition = "db0";
        send::<()>(&mut connection, &format!("TENURE.SLEEP {partition}"));
        wait_for("all to sleep", || info(&server, "sleeping_keys") >= 2000.0);
        let Some(held) = Held::at(&server, &["tenure-disk", "tenure-reads"], DISK_CALLS) else {
            return skipped("no strace here");
        };
        let mut reader = server.connection().unwrap();
        std::thread::scope(|scope| {
            let read = scope.spawn(move || send::<Option<Vec<u8>>>(&mut reader, "GET k:7"));
            wait_for("the read to hang", || held.n_still() >= 1 || read.is_finished());
            write(&mut connection, 2000..4000);
            send::<()>(&mut connection, &format!("TENURE.SLEEP {partition}"));
            wait_for("the write to hang", || held.n_still() == 2);
            send::<()>(&mut connection, &format!("TENURE.WAKE {partition}"));
            for key in 3000..3200 {
                assert_eq!(send::<u64>(&mut connection, &format!("EXISTS k:{key}")), 1);
                assert_eq!(send::<u64>(&mut connection, &format!("STRLEN k:{key}")), 1000);
            }
            send::<()>(&mut connection, "BGSAVE");
            config_set(&mut connection, "tenure.policy", "lru");
            assert_eq!(read.join().unwrap(), None, "a miss");
        });
        assert_eq!(held.n_still(), 2, "the disk hangs all the while");
        drop(held);
        wait_for("the disk to answer again", || send::<Option<Vec<u8>>>(&mut connection, "GET k:9").is_some());
        assert_eq!(info(&server, "panics"), 0.0);
    }
}

/// The disk takes nothing of what the slow tier has to write. Values come, are read and are saved; once it takes
/// something again, all goes there.
#[test]
fn nobody_waits_for_a_disk_that_takes_nothing_of_the_slow_tier() {
    on_oldest_and_newest(&tiers::with_tiers("file:/tmp"), |server| {
        tiers::wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        let fast_bytes = server.info("memory").unwrap()["used_memory"].parse::<u64>().unwrap() + (4 << 20);
        config_set(&mut connection, "tenure.tier-fast-bytes", fast_bytes);
        let flushed = || info(server, "tier_flushed_pages");
        wait_for("values to be in the file", || {
            write(&mut connection, 0..8000);
            flushed() > 300.0
        });
        let Some(held) = Held::at(server, &["tenure-pages"], "pwrite64") else { return skipped("no strace here") };
        wait_for("a write to hang", || {
            write(&mut connection, 0..8000);
            held.n_still() == 1
        });
        let mut pages = flushed();
        wait_for("all to be dropped that was written", || std::mem::replace(&mut pages, flushed()) == flushed());
        write(&mut connection, 4000..12_000);
        for key in 0..12_000 {
            assert_eq!(send::<u64>(&mut connection, &format!("STRLEN k:{key}")), 1000);
        }
        send::<()>(&mut connection, "BGSAVE");
        wait_for("the child to have saved", || server.info("persistence").unwrap()["rdb_bgsave_in_progress"] == "0");
        assert_eq!((held.n_still(), flushed()), (1, pages), "it hangs all the while");
        drop(held);
        wait_for("what waits to be in the file", || flushed() > pages + 1000.0);
        assert_eq!(info(server, "panics"), 0.0);
    });
}

/// The wall clock jumps a day ahead and back again, and a day back. Windows end, keys are evicted, and no time to live
/// is taken for another than the server takes it for.
#[test]
fn a_clock_that_jumps_stops_nothing() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("ahead");
    let jump = |seconds: i64| {
        let new = folder.path().join("next");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(&new, &file).unwrap();
    };
    jump(0);
    let mut options = evicting_in_time().set("maxmemory", "16mb").with_clock(clock_path().unwrap(), 1);
    options.environment.push(("TENURE_CLOCK_AHEAD".to_owned(), file.display().to_string()));
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        let mut key = 0;
        for seconds in [0, 86_400, 0, -86_400, 0] {
            jump(seconds);
            let before = ["evictions", "windows"].map(|name| info(server, name));
            wait_for("evictions and windows to go on", || {
                write(&mut connection, key..key + 1000);
                key += 1000;
                let now = ["evictions", "windows"].map(|name| info(server, name));
                now[0] > before[0] + 2000.0 && now[1] > before[1] + 2.0
            });
            send::<()>(&mut connection, "SET lasting v EX 100");
            assert!((90..=100).contains(&send::<i64>(&mut connection, "TTL lasting")), "at {seconds}");
            wait_for("Tenure to evict", || status(&mut connection)["eviction"] == "ready");
        }
        assert_eq!(info(server, "panics"), 0.0);
    });
}
