//! How a server is to be started.

use std::path::PathBuf;
use std::time::Duration;

/// How a server is to be started. The default is a plain server without module and without persistence.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Port on 127.0.0.1; a free one when absent.
    pub port: Option<u16>,
    /// Module to load, see [`module_path`](crate::module_path).
    pub module: Option<PathBuf>,
    /// Arguments of `loadmodule`.
    pub module_args: Vec<String>,
    /// Lines of the configuration file, such as `maxmemory 64mb`. They come after the module, so `tenure.*` settings
    /// work here, and after the defaults, so they win over those.
    pub settings: Vec<String>,
    /// Core to run on, counted from 0; any when absent. All threads of the server stay there.
    pub cpu: Option<usize>,
    /// Environment variables, beside those of this process.
    pub environment: Vec<(String, String)>,
    /// Program and arguments put before the server's own, such as `valgrind --tool=callgrind`. It must become the
    /// server (as `valgrind` and `taskset` do), not start it as a child: signals go to the process started here.
    pub wrapper: Vec<String>,
    /// It is killed once it has run for so long, so that one that hangs fails a test.
    pub lifetime: Option<Duration>,
    /// What INFO is called, where it has another name.
    pub info_name: Option<String>,
}

impl ServerOptions {
    /// The same with a module.
    pub fn with_module(mut self, module: impl Into<PathBuf>) -> Self {
        self.module = Some(module.into());
        self
    }

    /// The same with one more setting: `name` as in `CONFIG SET`, `value` as in the configuration file (quote what has
    /// blanks and is one value). An empty value is passed as one.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        let value = if value.is_empty() { "\"\"" } else { &value };
        self.settings.push(format!("{name} {value}"));
        self
    }

    /// The same where clients know INFO by another name alone.
    pub fn with_info_as(mut self, name: &str) -> Self {
        self.info_name = Some(name.to_string());
        self.set("rename-command", format!("INFO {name}"))
    }

    /// The same on one core.
    pub fn on_cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// The same with a wall clock, and so an LRU clock, that runs `speed` times as fast; `clock` as of
    /// [`clock_path`](crate::clock_path).
    pub fn with_clock(mut self, clock: impl Into<PathBuf>, speed: u32) -> Self {
        let clock: PathBuf = clock.into();
        self.environment.push(("LD_PRELOAD".to_string(), clock.display().to_string()));
        self.environment.push(("TENURE_CLOCK_SPEED".to_string(), speed.to_string()));
        // The server looks at the clock for its LRU clock as often as its timer fires.
        self.set("hz", 100)
    }

    /// The text of the configuration file for a server on `port` that keeps its files in `directory`.
    pub(crate) fn configuration(&self, port: u16, directory: &str) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_string(),
            format!("port {port}"),
            format!("dir {}", quoted(directory)),
            "daemonize no".to_string(),
            "save \"\"".to_string(),
            "appendonly no".to_string(),
            // A replica is served at once instead of after the default 5 s of waiting for others.
            "repl-diskless-sync-delay 0".to_string(),
            // Tests provoke errors and crashes on purpose.
            "enable-debug-command local".to_string(),
            // MODULE LOAD and UNLOAD are refused otherwise.
            "enable-module-command local".to_string(),
            "crash-memcheck-enabled no".to_string(),
        ];
        if let Some(module) = &self.module {
            let arguments: String = self.module_args.iter().map(|argument| format!(" {}", quoted(argument))).collect();
            lines.push(format!("loadmodule {}{arguments}", quoted(&module.display().to_string())));
        }
        lines.extend(self.settings.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }
}

/// `word` as one value of the configuration file, whatever blanks and quotes it has.
pub fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What two memory tiers need in a server's environment: a thread cache that keeps small allocations alone, by either
/// name that jemalloc has.
pub fn environment_for_tiers() -> [(String, String); 2] {
    ["MALLOC_CONF", "JE_MALLOC_CONF"].map(|name| (name.to_owned(), "tcache_max:256".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_module_and_the_defaults() {
        let options = ServerOptions {
            module_args: vec!["a b".to_string(), "say \"x\"".to_string()],
            ..ServerOptions::default().with_module("/m/libtenure.so").set("maxmemory", "1mb").set("save", "")
        };
        let text = options.configuration(7000, "/d");
        let last_lines: Vec<&str> = text.lines().rev().take(3).collect();
        assert_eq!(
            last_lines,
            ["save \"\"", "maxmemory 1mb", r#"loadmodule "/m/libtenure.so" "a b" "say \"x\"""#],
            "{text}"
        );
        assert!(text.starts_with("bind 127.0.0.1\nport 7000\ndir \"/d\"\n"), "{text}");
    }
}
