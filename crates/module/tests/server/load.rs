//! Loading: with and without arguments and settings, and what happens when they are wrong.

use tenure_servers::{Server, ServerBinary, ServerOptions, module_path};

use crate::harness::{
    config_get, error_of, info, on_every_server, partition, send, servers, status, wait_for, with_module,
};

fn with_arguments(arguments: &[&str]) -> ServerOptions {
    ServerOptions { module_args: arguments.iter().map(|word| (*word).to_owned()).collect(), ..with_module() }
}

fn module() -> String {
    module_path().unwrap().display().to_string()
}

#[test]
fn it_loads_without_arguments_and_says_that_it_runs() {
    let options = ServerOptions::default().with_module(module());
    on_every_server(&options, |server| {
        let mut connection = server.connection().unwrap();
        let status = status(&mut connection);
        assert_eq!((status["state"].as_str(), status["worker"].as_str()), ("running", "running"));
        assert_eq!(status["eviction"], "standing by: maxmemory is 0");
        assert_eq!(config_get(&mut connection, "tenure.samples"), "5");
    });
}

#[test]
fn arguments_and_lines_of_the_configuration_file_are_taken() {
    let options = with_arguments(&["samples", "7", "tenure.policy", "lru", "tenants", "a=x:* b=db:3"]);
    let options = options.set("tenure.penalty-max-ms", 123).set("tenure.headroom-bytes", "2mb");
    on_every_server(&options, |server| {
        let mut connection = server.connection().unwrap();
        for (name, expected) in [
            ("samples", "7"),
            ("policy", "lru"),
            ("tenants", "a=x:* b=db:3"),
            ("penalty-max-ms", "123"),
            ("headroom-bytes", "2097152"),
            ("window-requests", "1000"),
        ] {
            assert_eq!(config_get(&mut connection, &format!("tenure.{name}")), expected, "{name}");
        }
        send::<()>(&mut connection, "SET x:1 value");
        assert_eq!(partition(&mut connection, "a")["writes"], 1.0);
    });
}

/// The server's own loader ends the process when a module of its configuration file fails, as for any other module;
/// the log says what to correct.
#[test]
fn a_wrong_argument_ends_the_start_with_a_line_that_says_what_is_allowed() {
    let refusal = |binary: &ServerBinary, options: &ServerOptions| match Server::start(binary, options) {
        Ok(_) => panic!("{} started", binary.label),
        Err(why) => why.to_string(),
    };
    for binary in servers() {
        for (arguments, expected) in [
            (&["samples"][..], "argument 'samples' has no value"),
            (&["samples", "0"], "tenure.samples is '0'; allowed: 1 to 64"),
            (&["sample", "5"], "there is no setting tenure.sample; did you mean tenure.samples?"),
            (&["no-such", "5"], "there is no setting tenure.no-such; TENURE.HELP settings lists them"),
            (
                &["policy", "mru"],
                "tenure.policy is 'mru'; allowed: density, predis, kredis, dlru, hyperbolic, hyperbolic-size, lru, off",
            ),
            (&["enabled", "maybe"], "tenure.enabled is 'maybe'; allowed: yes or no"),
            (&["tenants", "a"], "tenant 'a' has no selector"),
        ] {
            let log = refusal(&binary, &with_arguments(arguments));
            assert!(log.contains(expected), "{}: {arguments:?}: {log}", binary.label);
        }
        for (name, value) in [("tenure.samples", "0"), ("tenure.tenants", "a"), ("tenure.no-such", "1")] {
            let log = refusal(&binary, &with_module().set(name, value));
            assert!(log.contains(name) || log.contains("tenure"), "{}: {name} {value}: {log}", binary.label);
        }
        let log = refusal(&binary, &with_module().set("tenure.windows-second", 5));
        let expected = "there is no setting tenure.windows-second; did you mean tenure.window-seconds?";
        assert!(log.contains(expected), "{}: {log}", binary.label);
    }
}

/// As the packages have it: the settings stand in a file that the server's own includes.
#[test]
fn an_unknown_setting_of_an_included_file_is_named_with_the_closest() {
    let folder = tempfile::tempdir().unwrap();
    let included = folder.path().join("tenure.conf");
    std::fs::write(&included, "# Settings.\n\ntenure.tenant a=x:*\n").unwrap();
    for binary in servers() {
        for include in [included.clone(), folder.path().join("*.conf")] {
            let Err(why) = Server::start(&binary, &with_module().set("include", include.display())) else {
                panic!("{} started", binary.label)
            };
            let expected =
                format!("{}:3: there is no setting tenure.tenant; did you mean tenure.tenants?", included.display());
            assert!(why.to_string().contains(&expected), "{}: {why}", binary.label);
        }
    }
}

#[test]
fn a_running_server_survives_a_module_that_it_cannot_load_and_loads_it_afterwards() {
    on_every_server(&ServerOptions::default().set("enable-module-command", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET kept 1");
        for wrong in ["samples 0", "samples", "no-such 1", "tenants a=x*,min=2mb,max=1mb"] {
            error_of(&mut connection, &format!("MODULE LOAD {} {wrong}", module()));
            assert_eq!(send::<String>(&mut connection, "GET kept"), "1", "{wrong}");
        }
        let log = server.log();
        for expected in ["Tenure can't be loaded: tenure.samples is '0'", "no setting tenure.no-such", "min of 2 MiB"] {
            assert!(log.contains(expected), "{expected}: {log}");
        }
        send::<()>(&mut connection, &format!("MODULE LOAD {} samples 9", module()));
        assert_eq!(config_get(&mut connection, "tenure.samples"), "9");
        assert_eq!(status(&mut connection)["state"], "running");
    });
}

#[test]
fn settings_can_be_given_to_module_loadex() {
    on_every_server(&ServerOptions::default().set("enable-module-command", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        let module = module();
        error_of(&mut connection, &format!("MODULE LOADEX {module} CONFIG tenure.samples 900"));
        send::<()>(&mut connection, &format!("MODULE LOADEX {module} CONFIG tenure.samples 6 ARGS policy lru"));
        assert_eq!(config_get(&mut connection, "tenure.samples"), "6");
        assert_eq!(config_get(&mut connection, "tenure.policy"), "lru");
    });
}

/// The module arrives late: the keys that are there already are its to count.
#[test]
fn it_loads_into_a_server_full_of_keys() {
    const KEYS: u64 = 20_000;
    on_every_server(&ServerOptions::default().set("enable-module-command", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, &format!("DEBUG POPULATE {KEYS} key 100"));
        send::<()>(&mut connection, "SELECT 5");
        send::<()>(&mut connection, "SET alone 1");
        send::<()>(&mut connection, &format!("MODULE LOAD {}", module()));
        wait_for("the keys of both databases to be counted", || {
            partition(&mut connection, "db0")["keys"] == KEYS as f64 && partition(&mut connection, "db5")["keys"] == 1.0
        });
        assert!(partition(&mut connection, "db0")["used_bytes"] > 100.0 * KEYS as f64);
        assert!(info(server, "uptime_seconds") < 60.0);
    });
}
