//! One running server: started on a free port of 127.0.0.1 in a temporary folder of its own, and gone with its value.
//!
//! All settings are in a configuration file in that folder, so `CONFIG REWRITE` followed by [`Server::restart`] does
//! what it does in real life. What the server writes to standard output and standard error is its log. A server that
//! dies by itself or writes a crash report makes the drop of its value panic, so no test passes over a crash.

use crate::{DEADLINE, Result, ServerBinary, ServerOptions, lifetime, wait_for};
use anyhow::{Context, bail, ensure};
use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, ToRedisArgs};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time a server may take to answer PING; most take 10 ms, one under valgrind or with a long append-only file more.
/// One that says that it loads its data has so long again.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// Time it may take to load them: twelve gigabytes take a minute or more.
const LOAD_DEADLINE: Duration = Duration::from_secs(1800);
/// Time a server may take to exit; it waits up to 10 s for replicas that lag.
const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// Longest wait for a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);
/// Where a test has failed, what the module says of itself is waited for so long.
const LAST_WORDS_DEADLINE: Duration = Duration::from_secs(2);
/// So many ports are tried.
const START_ATTEMPTS: usize = 5;
/// Lines of the log, or of a crash report, in error messages.
const LOG_LINES_SHOWN: usize = 40;

/// A running server. Dropping it kills the process and deletes its folder.
///
/// # Panics
/// The drop panics when the server crashed and nobody asked ([`Server::crash`]). When the thread is panicking already,
/// it prints the end of the server's log instead.
#[derive(Debug)]
pub struct Server {
    binary: ServerBinary,
    options: ServerOptions,
    port: u16,
    directory: TempDir,
    child: Arc<Mutex<Child>>,
    /// `stop` or `kill` ended it.
    ended_on_purpose: bool,
    crash_was_reported: AtomicBool,
}

impl Server {
    /// Starts `binary` on its port, or a free one, and waits until it answers.
    ///
    /// # Errors
    /// When it exits or does not answer within 60 s; the text has the end of its log.
    pub fn start(binary: &ServerBinary, options: &ServerOptions) -> Result<Server> {
        if let Some(port) = options.port {
            return Server::start_on(binary, options, port);
        }
        on_free_ports(|| Server::start_on(binary, options, free_port()?))
    }

    /// The same on that port, once.
    pub(crate) fn start_on(binary: &ServerBinary, options: &ServerOptions, port: u16) -> Result<Server> {
        let directory = tempfile::Builder::new().prefix("tenure-server-").tempdir().context("no temporary folder")?;
        fs::write(configuration_file(directory.path()), options.configuration(port, &path_text(directory.path())?))?;
        let child = spawn(binary, options, directory.path())?;
        let mut server = Server {
            binary: binary.clone(),
            options: options.clone(),
            port,
            directory,
            child,
            ended_on_purpose: false,
            crash_was_reported: AtomicBool::new(false),
        };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Waits for PONG from this very process. A server that does not get there is killed.
    fn wait_until_it_answers(&mut self) -> Result<()> {
        let (mut heard, mut is_ready) = (Instant::now(), false);
        let waited = wait_for(LOAD_DEADLINE, "the first PONG", || {
            is_ready = self.answers(&mut heard);
            is_ready || !self.is_alive() || heard.elapsed() > START_DEADLINE
        });
        if waited.is_ok() && is_ready && self.is_alive() {
            return Ok(());
        }
        let end = match self.exit_status() {
            Some(status) => format!("it ended with {status}"),
            None => format!("it did not answer within {} s", START_DEADLINE.as_secs()),
        };
        // The caller gets the log with the error, so the drop has nothing to add.
        self.crash_was_reported = AtomicBool::new(true);
        self.kill();
        bail!("{} did not start: {end}; the end of its log:\n{}", self.binary.label, self.log_tail());
    }

    /// True when PING is answered (it is not while a data set loads) by the process started here and not by another
    /// that holds the port. `heard` becomes now where the answer is that it loads.
    fn answers(&self, heard: &mut Instant) -> bool {
        let reply = self.call::<String>(&["PING"]);
        let error = reply.as_ref().err().and_then(|why| why.downcast_ref::<redis::RedisError>());
        if error.and_then(redis::RedisError::code) == Some("LOADING") {
            *heard = Instant::now();
        }
        let is_ready = reply.is_ok_and(|reply| reply == "PONG");
        is_ready && self.info("server").is_ok_and(|info| info.get("process_id") == Some(&self.pid().to_string()))
    }

    /// Which server it is.
    pub fn binary(&self) -> &ServerBinary {
        &self.binary
    }

    /// Port on 127.0.0.1. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// The folder with the server's configuration, log, snapshot and append-only files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// All that the server wrote so far, over all its starts.
    pub fn log(&self) -> String {
        let bytes = fs::read(log_file(self.directory())).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of [`Server::log`], for messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// True while the process runs.
    pub fn is_alive(&self) -> bool {
        self.exit_status().is_none()
    }

    fn exit_status(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// What happened when the server crashed: the first lines of its crash report, or its end without being asked for;
    /// else nothing. Whoever asks has been told: the drop does not panic about it.
    pub fn crash(&self) -> Option<String> {
        let crash = self.find_crash();
        if crash.is_some() {
            self.crash_was_reported.store(true, Ordering::Relaxed);
        }
        crash
    }

    fn find_crash(&self) -> Option<String> {
        let log = self.log();
        if let Some(start) = log.find("BUG REPORT START") {
            return Some(log[start..].lines().take(LOG_LINES_SHOWN).collect::<Vec<_>>().join("\n"));
        }
        let status = self.exit_status().filter(|status| !status.success() && !self.ended_on_purpose)?;
        Some(format!("{} ended with {status}; the end of its log:\n{}", self.binary.label, self.log_tail()))
    }

    /// A new connection, on which a reply is waited for as long as the server lives ([`ServerOptions::lifetime`]).
    ///
    /// # Errors
    /// When the server does not accept it; the text says whether it still runs.
    pub fn connection(&self) -> Result<redis::Connection> {
        let address = ConnectionAddr::Tcp(Ipv4Addr::LOCALHOST.to_string(), self.port);
        // Without a library name the connection starts with no command of its own, so counts of commands stay exact.
        let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        let client = redis::Client::open(address.into_connection_info()?.set_redis_settings(settings))?;
        let connection = client.get_connection_with_timeout(CONNECT_DEADLINE).with_context(|| {
            let state = if self.is_alive() { "runs but accepts no connection" } else { "does not run" };
            format!("{} on port {} {state}", self.binary.label, self.port)
        })?;
        Ok(connection)
    }

    /// Sends one command on a connection of its own, as in `server.call::<u64>(&["DBSIZE"])`.
    ///
    /// # Errors
    /// When there is no connection, or the reply is an error or not a `T`. The text names the command.
    pub fn call<T: FromRedisValue>(&self, words: &[impl ToRedisArgs]) -> Result<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection()?).with_context(|| {
            let text: Vec<String> = command.args_iter().map(argument_text).collect();
            format!("{}: {}", self.binary.label, text.join(" "))
        })
    }

    /// The fields of one section of INFO, as text.
    ///
    /// # Errors
    /// As [`Server::call`].
    pub fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let text: String = self.call(&[self.info_command(), section])?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_string(), value.trim_end().to_string())).collect())
    }

    /// Makes this server a replica of `primary` and waits until it has the whole data set.
    ///
    /// # Errors
    /// When the link is not up within [`DEADLINE`].
    pub fn replica_of(&self, primary: &Server) -> Result<()> {
        self.call::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()])?;
        self.wait_until_in_sync()
    }

    /// Waits until this replica has its primary's whole data set.
    ///
    /// # Errors
    /// As [`Server::replica_of`].
    pub fn wait_until_in_sync(&self) -> Result<()> {
        let what = format!("{} to be in sync with its primary; the end of its log:\n", self.binary.label);
        let is_in_sync = || {
            self.info("replication").is_ok_and(|info| info.get("master_link_status").is_some_and(|link| link == "up"))
        };
        wait_for(DEADLINE, &what, is_in_sync).with_context(|| self.log_tail())
    }

    /// Ends the server by SHUTDOWN NOSAVE and waits for its end. Its folder stays for a restart.
    ///
    /// # Errors
    /// When it is still there after 30 s (it is killed then) or ends otherwise than well.
    pub fn stop(&mut self) -> Result<()> {
        if let Ok(mut connection) = self.connection() {
            // The connection breaks instead of a reply.
            let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
        }
        let stopped = wait_for(STOP_DEADLINE, "the end after SHUTDOWN NOSAVE", || !self.is_alive());
        if let Some(crash) = self.crash() {
            bail!("{} crashed: {crash}", self.binary.label);
        }
        if let Err(error) = stopped {
            self.kill();
            return Err(error.context(self.log_tail()));
        }
        self.ended_on_purpose = true;
        Ok(())
    }

    /// Kills the process (SIGKILL) and waits until it is gone: what a power cut does to the data. Its folder stays.
    pub fn kill(&mut self) {
        if self.exit_status().is_none() {
            self.ended_on_purpose = true;
        }
        let mut child = self.child();
        // It fails only for a process that is gone already, and then there is nothing to do.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Lets the process stand still (SIGSTOP): the kernel still takes what is sent to it, as far as its sockets have
    /// room.
    ///
    /// # Errors
    /// When there is no process any more.
    pub fn halt(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a halted process go on.
    ///
    /// # Errors
    /// When there is no process any more.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // Under the lock, and only while it is not waited for, so the number is not another's.
        let mut child = self.child();
        ensure!(child.try_wait()?.is_none(), "{} does not run", self.binary.label);
        let pid = Pid::from_raw(child.id().cast_signed()).context("a process without a number")?;
        kill_process(pid, signal).with_context(|| format!("{} can't be signalled", self.binary.label))
    }

    /// Starts the server again on the same port, in the same folder, with the configuration file as it is now (see
    /// CONFIG REWRITE). One that runs is stopped first.
    ///
    /// # Errors
    /// As [`Server::stop`] and [`Server::start`].
    pub fn restart(&mut self) -> Result<()> {
        if self.is_alive() {
            self.stop()?;
        }
        ensure!(self.crash().is_none(), "{} crashed and is not restarted:\n{}", self.binary.label, self.log_tail());
        self.child = spawn(&self.binary, &self.options, self.directory())?;
        self.ended_on_purpose = false;
        self.wait_until_it_answers()
    }

    /// What the module says of itself, on one line; `None` where the server is silent, or has none.
    fn module_fields(&self) -> Option<String> {
        let mut connection = self.connection().ok()?;
        connection.set_read_timeout(Some(LAST_WORDS_DEADLINE)).ok()?;
        let text: String = redis::cmd(self.info_command()).arg("tenure").query(&mut connection).ok()?;
        let fields = text.lines().filter_map(|line| line.strip_prefix("tenure_"));
        Some(fields.collect::<Vec<_>>().join(" ")).filter(|fields| !fields.is_empty())
    }

    /// INFO, by the name that it has on this server.
    fn info_command(&self) -> &str {
        self.options.info_name.as_deref().unwrap_or("INFO")
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let crash = self.find_crash().filter(|_| !self.crash_was_reported.load(Ordering::Relaxed));
        let state = if thread::panicking() { self.module_fields() } else { None };
        self.kill();
        if thread::panicking() {
            state.iter().for_each(|state| eprintln!("{} on port {}: {state}", self.binary.label, self.port));
            let what = crash.unwrap_or_else(|| format!("the end of its log:\n{}", self.log_tail()));
            eprintln!("{} on port {}: {what}", self.binary.label, self.port);
        } else if let Some(crash) = crash {
            panic!("{} crashed: {crash}", self.binary.label);
        }
    }
}

/// Starts the process with its output in the log, behind `taskset` and the wrapper when asked for.
fn spawn(binary: &ServerBinary, options: &ServerOptions, directory: &Path) -> Result<Arc<Mutex<Child>>> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(cpu) = options.cpu {
        words.extend(["taskset".into(), "--cpu-list".into(), cpu.to_string().into()]);
    }
    words.extend(options.wrapper.iter().map(OsString::from));
    words.extend(binary.command_line());
    words.push(configuration_file(directory).into());
    let log: File = OpenOptions::new().create(true).append(true).open(log_file(directory))?;
    let child = Command::new(&words[0])
        .args(&words[1..])
        .envs(options.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} does not start", words[0].display()))?;
    let child = Arc::new(Mutex::new(child));
    if let Some(lifetime) = options.lifetime {
        lifetime::bound(Arc::downgrade(&child), lifetime);
    }
    Ok(child)
}

/// Starts a server by `start`, which takes free ports: again where another process has taken one between the look and
/// the start.
///
/// # Errors
/// Those of `start`.
pub(crate) fn on_free_ports(start: impl Fn() -> Result<Server>) -> Result<Server> {
    let mut attempt = 1;
    loop {
        let error = match start() {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        if attempt == START_ATTEMPTS || !error.to_string().contains("Address already in use") {
            return Err(error);
        }
        attempt += 1;
    }
}

/// A port of 127.0.0.1 that nobody listens on now and that this process has not handed out lately.
///
/// It lies below the range from which the kernel gives ports to outgoing connections (usually 32768 and up), so a
/// restart finds it free; where to begin depends on the process, so that two test programs rarely meet.
pub(crate) fn free_port() -> Result<u16> {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 12_000;
    static HANDED_OUT: AtomicU16 = AtomicU16::new(0);
    let begin = (process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = HANDED_OUT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (begin + step) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port from {FIRST} to {}", FIRST + COUNT - 1)
}

fn configuration_file(directory: &Path) -> PathBuf {
    directory.join("server.conf")
}

fn log_file(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

fn path_text(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.to_string())
}

fn argument_text(argument: redis::Arg<&[u8]>) -> String {
    match argument {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "?".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_port_that_was_taken_meanwhile_is_no_reason_to_give_up_at_once() {
        let attempts = |why: &'static str| {
            let n = Cell::new(0);
            let started = on_free_ports(|| {
                n.set(n.get() + 1);
                bail!("bind: {why}")
            });
            (n.get(), started.is_err())
        };
        assert_eq!(attempts("Address already in use"), (START_ATTEMPTS, true));
        assert_eq!(attempts("Permission denied"), (1, true));
    }
}
