//! The systems of a comparison: the same server with the same memory, alone or with the module and some settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions, clock_path, module_path, wait_for};

use crate::client::{Cache, Connection, Route, SlotMap};
use crate::placement::Placement;
use crate::workload::keys::Tenant;

/// What the module is told of the workload's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Whose they are: each backend's keys are a tenant.
    Tenants,
    /// Whose they are: each tenant's keys are in a database of their own.
    Databases,
    /// What they cost: each backend's keys are a hinted class.
    Classes,
    /// Nothing.
    Nothing,
}

/// The module of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    told: Told,
    /// It may put keys into a folder, which lies in the server's own: new with each run, kept over a restart, gone
    /// with the server.
    spills: bool,
    /// Its settings beside those the user gives.
    settings: &'static [(&'static str, &'static str)],
}

/// One system. All are the server that is installed, with `allkeys-lru`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// What tables call it.
    pub label: &'static str,
    /// Keys that the server samples per eviction, where it evicts.
    samples: u32,
    /// `None`: the server alone.
    module: Option<Module>,
    /// The simulator's policy that does the same, if one does.
    simulated_policy: Option<&'static str>,
}

const PREDIS: (&str, &str) = ("tenure.policy", "predis");

/// Every system there is, by name. One whose policy lives in the module is one line here.
const SYSTEMS: [System; 17] = [
    System::STOCK,
    System::TENURE,
    System::with_module("predis", Told::Tenants, &[PREDIS]).simulated_as("predis"),
    System::with_module("predis-auto", Told::Nothing, &[PREDIS, ("tenure.classes", "auto")]).simulated_as("predis"),
    System::with_module("predis-hint", Told::Classes, &[PREDIS, ("tenure.classes", "hinted")]).simulated_as("predis"),
    System::with_module("kredis", Told::Tenants, &[("tenure.policy", "kredis")]).simulated_as("kredis"),
    // What kRedis consists of, one part after the other: a dictionary per tenant, KRR in place of EAET, K by curve.
    System::with_module("predis-db", Told::Databases, &[PREDIS]).simulated_as("predis"),
    System::with_module("kredis-db-k5", Told::Databases, &[("tenure.policy", "kredis"), ("tenure.kredis-k", "as-set")]),
    System::with_module("kredis-db", Told::Databases, &[("tenure.policy", "kredis")]).simulated_as("kredis"),
    // What DLRU is compared with.
    System { label: "stock-1", samples: 1, simulated_policy: Some("redis:1"), ..System::STOCK },
    System { label: "stock-16", samples: 16, simulated_policy: Some("redis:16"), ..System::STOCK },
    System::with_module("dlru", Told::Nothing, &[("tenure.policy", "dlru")]).simulated_as("dlru"),
    System::with_module("dlru-tenure", Told::Nothing, &[("tenure.policy", "dlru"), ("tenure.dlru-evictor", "tenure")])
        .simulated_as("dlru"),
    // As its authors sample, and as Redis does.
    System::with_module("hyperbolic", Told::Nothing, &[("tenure.policy", "hyperbolic"), ("tenure.samples", "64")])
        .simulated_as("hyperbolic"),
    System::with_module("hyperbolic-5", Told::Nothing, &[("tenure.policy", "hyperbolic")]).simulated_as("hyperbolic:5"),
    System::with_module(
        "tenure-sleep",
        Told::Tenants,
        // Rhythms of seconds in place of days.
        &[("tenure.spill-interval-seconds", "1"), ("tenure.spill-run-intervals", "3")],
    )
    .spilling(),
    System::with_module("tenure-warm", Told::Tenants, &[("tenure.warm-restart", "yes")]).spilling(),
];

/// Where a system spills to, in the server's folder.
const SPILL_FOLDER: &str = "spill";

impl System {
    /// The server alone: what the others are compared with.
    pub const STOCK: System = System { label: "stock", samples: 5, module: None, simulated_policy: Some("redis") };

    /// The server with the module at its defaults, told whose the keys are.
    pub const TENURE: System = System::with_module("tenure", Told::Tenants, &[]).simulated_as("tenure");

    const fn with_module(label: &'static str, told: Told, settings: &'static [(&'static str, &'static str)]) -> System {
        System {
            label,
            module: Some(Module { told, spills: false, settings }),
            simulated_policy: None,
            ..System::STOCK
        }
    }

    const fn simulated_as(self, policy: &'static str) -> System {
        System { simulated_policy: Some(policy), ..self }
    }

    const fn spilling(self) -> System {
        let module = match self.module {
            Some(module) => Some(Module { spills: true, ..module }),
            None => None,
        };
        System { module, ..self }
    }

    /// The names of all systems, between commas.
    pub fn names() -> String {
        SYSTEMS.map(|system| system.label).join(", ")
    }

    /// True where the module is loaded.
    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// True where each tenant's keys are in a database of their own.
    pub fn has_databases(&self) -> bool {
        self.module.as_ref().is_some_and(|module| module.told == Told::Databases)
    }

    /// The simulator's name for what the system does; `None` where it does nothing of the kind.
    pub fn simulated_policy(&self) -> Option<&'static str> {
        self.simulated_policy
    }

    /// Starts the system on one server.
    ///
    /// # Errors
    /// When the server does not start, the module is not built, or the module refuses a setting.
    pub fn start(&self, setup: &Setup, maxmemory_bytes: Option<u64>, tenants: &[Tenant]) -> anyhow::Result<Server> {
        let server = Server::start(&setup.binary, &self.options(setup, maxmemory_bytes, tenants)?)?;
        self.tell(&server, setup, tenants)?;
        Ok(server)
    }

    /// Starts the system on what `setup` says: one server, or the primaries of a cluster, each with `maxmemory_bytes`.
    ///
    /// # Errors
    /// As [`System::start`], and when databases of their own are asked for in a cluster, which has one.
    pub fn serve(&self, setup: &Setup, maxmemory_bytes: Option<u64>, tenants: &[Tenant]) -> anyhow::Result<Serving> {
        let Some(Clustering { n_primaries, route }) = setup.cluster else {
            return Ok(Serving::Server(Box::new(self.start(setup, maxmemory_bytes, tenants)?)));
        };
        ensure!(!self.has_databases(), "{} needs several databases, of which a cluster has one", self.label);
        let options = self.options(setup, maxmemory_bytes, tenants)?;
        let cluster = Cluster::start(&setup.binary, &options, n_primaries, 0)?;
        for node in cluster.nodes() {
            self.tell(node, setup, tenants)?;
        }
        Ok(Serving::Cluster { cluster, route, map: SlotMap::default() })
    }

    fn options(
        &self,
        setup: &Setup,
        maxmemory_bytes: Option<u64>,
        tenants: &[Tenant],
    ) -> anyhow::Result<ServerOptions> {
        let mut options = setup.options()?;
        if let Some(bytes) = maxmemory_bytes {
            options = options.set("maxmemory", bytes);
        }
        let n_databases = tenants.len().max(16);
        options = options
            .set("databases", n_databases)
            .set("maxmemory-policy", "allkeys-lru")
            .set("maxmemory-samples", self.samples);
        Ok(if self.has_module() { options.with_module(module_path()?) } else { options })
    }

    /// Tells a server's module its settings.
    fn tell(&self, server: &Server, setup: &Setup, tenants: &[Tenant]) -> anyhow::Result<()> {
        let Some(module) = &self.module else { return Ok(()) };
        for (name, value) in module.all_settings(tenants, server.directory(), &setup.settings)? {
            set(server, &name, &value)?;
        }
        if module.spills { check_spill(server) } else { Ok(()) }
    }
}

/// The servers of a system that runs.
#[derive(Debug)]
pub enum Serving {
    /// One server.
    Server(Box<Server>),
    /// The primaries of a cluster.
    Cluster {
        /// The nodes.
        cluster: Cluster,
        /// How clients find the node of a key.
        route: Route,
        /// What they remember.
        map: SlotMap,
    },
}

impl Serving {
    /// All servers.
    pub fn nodes(&self) -> &[Server] {
        match self {
            Serving::Server(server) => std::slice::from_ref(&**server),
            Serving::Cluster { cluster, .. } => cluster.nodes(),
        }
    }

    /// A client's connection.
    ///
    /// # Errors
    /// When a server does not accept it.
    pub fn connect(&self) -> anyhow::Result<Cache> {
        match self {
            Serving::Server(server) => Ok(Cache::Server(Connection::open(server.port())?)),
            Serving::Cluster { cluster, route, map } => {
                let ports: Vec<u16> = cluster.nodes().iter().map(Server::port).collect();
                Cache::of_cluster(&ports, *route, map)
            }
        }
    }

    /// What happened where a server crashed.
    pub fn crash(&self) -> Option<String> {
        self.nodes().iter().find_map(Server::crash)
    }
}

/// A system that can't spill on this server would be measured for what it isn't.
fn check_spill(server: &Server) -> anyhow::Result<()> {
    let mut standing = String::new();
    let is_known = || {
        let status: BTreeMap<String, String> = server.call(&["TENURE.STATUS"]).unwrap_or_default();
        standing = status.get("sleep").cloned().unwrap_or_default();
        standing == "ready" || standing.starts_with("off: this server")
    };
    let waited = wait_for(Duration::from_secs(10), "the folder to be opened", is_known);
    ensure!(
        waited.is_ok() && standing == "ready",
        "values can't sleep here: {standing}; TENURE_SERVER names another server"
    );
    Ok(())
}

impl Module {
    /// What it is told, where it spills to (the folder is made), its own settings, and the `given` ones, which win.
    fn all_settings(
        &self,
        tenants: &[Tenant],
        server_folder: &Path,
        given: &[(String, String)],
    ) -> anyhow::Result<Vec<(String, String)>> {
        let mut settings = Vec::new();
        let mut add = |name: &str, value: &str| settings.push((name.to_string(), value.to_string()));
        match self.told {
            Told::Tenants => add("tenure.tenants", &prefixes(tenants)),
            Told::Classes => add("tenure.class-rules", &prefixes(tenants)),
            // One per database in use is what the module takes for a tenant by itself.
            Told::Databases | Told::Nothing => {}
        }
        if self.spills {
            let folder = server_folder.join(SPILL_FOLDER);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            add("tenure.spill-dir", folder.to_str().with_context(|| format!("{} is not UTF-8", folder.display()))?);
        }
        for (name, value) in self.settings {
            add(name, value);
        }
        settings.extend_from_slice(given);
        Ok(settings)
    }
}

impl FromStr for System {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match SYSTEMS.iter().find(|system| system.label == text) {
            Some(system) => Ok(system.clone()),
            None => bail!("system '{text}' is none of {}", System::names()),
        }
    }
}

/// What all systems of a comparison share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which server.
    pub binary: ServerBinary,
    /// Where it runs.
    pub placement: Placement,
    /// Settings of the module that the user gives, as `("tenure.window-requests", "10000")`.
    pub settings: Vec<(String, String)>,
    /// Environment variables of the servers, beside those of this process.
    pub environment: Vec<(String, String)>,
    /// On a cluster, on which; `None`: on one server.
    pub cluster: Option<Clustering>,
    /// How many times as fast the server's wall clock runs, and with it the LRU clock.
    pub clock_speed: u32,
    /// Settings of the servers themselves that the user gives, as `("io-threads", "2")`.
    pub server_settings: Vec<(String, String)>,
}

/// A cluster without replicas, and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clustering {
    /// How many primaries share the slots.
    pub n_primaries: usize,
    /// How clients find the node of a key.
    pub route: Route,
}

/// When, which server, and where: what reports begin with.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Venue {
    /// When the report was made, in UTC.
    pub date: String,
    /// The server, such as `redis-7.0.15`.
    pub server: String,
    /// Where both ends ran.
    pub placement: String,
}

impl Setup {
    /// What a report of now begins with.
    pub fn venue(&self) -> Venue {
        Venue {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            server: self.binary.label.clone(),
            placement: self.placement.to_string(),
        }
    }

    /// How many servers share the memory.
    pub fn n_nodes(&self) -> u64 {
        self.cluster.map_or(1, |cluster| cluster.n_primaries as u64)
    }

    /// What every server of a comparison is started with.
    fn options(&self) -> anyhow::Result<ServerOptions> {
        let environment = self.environment.clone();
        let options = ServerOptions { cpu: self.placement.server, environment, ..ServerOptions::default() };
        let options = self.server_settings.iter().fold(options, |options, (name, value)| options.set(name, value));
        Ok(if self.clock_speed == 1 { options } else { options.with_clock(clock_path()?, self.clock_speed) })
    }
}

/// How the module is told which keys are whose, or of which class: `b0=b0:* b1=b1:*`.
fn prefixes(tenants: &[Tenant]) -> String {
    let entries: Vec<String> = tenants.iter().map(|tenant| format!("{0}={0}:*", tenant.name)).collect();
    entries.join(" ")
}

/// Changes a setting of a server's module.
///
/// # Errors
/// When it refuses.
pub(crate) fn set(server: &Server, name: &str, value: &str) -> anyhow::Result<()> {
    let reply: String = server.call(&["CONFIG", "SET", name, value]).context("the module refuses a setting")?;
    if reply != "OK" {
        bail!("CONFIG SET {name} was answered by {reply}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_known_by_name() {
        assert_eq!("stock".parse::<System>().unwrap(), System::STOCK);
        assert_eq!("tenure".parse::<System>().unwrap(), System::TENURE);
        let error = "memcached".parse::<System>().unwrap_err().to_string();
        assert!(error.contains("'memcached'") && error.contains("stock, tenure"), "{error}");
    }

    #[test]
    fn the_module_is_told_its_folder_and_the_user_has_the_last_word() {
        let tenants = ["b0", "t07"].map(|name| Tenant { name: name.into(), backend: 0 });
        let given = [("tenure.spill-interval-seconds".to_string(), "5".to_string())];
        let folder = tempfile::tempdir().unwrap();
        let settings_of = |system: &str| {
            let system: System = system.parse().unwrap();
            system.module.unwrap().all_settings(&tenants, folder.path(), &given).unwrap()
        };
        let prefixes = "b0=b0:* t07=t07:*";
        let spill = folder.path().join("spill");
        let text = |settings: &[(String, String)]| -> Vec<String> {
            settings.iter().map(|(name, value)| format!("{} {value}", name.trim_start_matches("tenure."))).collect()
        };
        assert_eq!(text(&settings_of("tenure")), [&format!("tenants {prefixes}"), "spill-interval-seconds 5"]);
        assert!(!spill.exists());
        let expected = [
            format!("tenants {prefixes}"),
            format!("spill-dir {}", spill.display()),
            "spill-interval-seconds 1".to_string(),
            "spill-run-intervals 3".to_string(),
            "spill-interval-seconds 5".to_string(),
        ];
        assert_eq!(text(&settings_of("tenure-sleep")), expected);
        assert!(spill.is_dir());
        assert_eq!(text(&settings_of("predis-hint"))[0], format!("class-rules {prefixes}"));
        assert_eq!(text(&settings_of("predis"))[1], "policy predis");
    }
}
