//! The systems of a comparison: the same server with the same memory, alone or with the module and some settings.

use std::str::FromStr;

use anyhow::{Context, bail};
use tenure_servers::{Server, ServerBinary, ServerOptions, module_path};

use crate::placement::Placement;
use crate::workload::keys::Tenant;

/// What the module is told of the workload's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Whose they are: each backend's keys are a tenant.
    Tenants,
    /// What they cost: each backend's keys are a hinted class.
    Classes,
    /// Nothing.
    Nothing,
}

/// One system. All are the server that is installed, with `allkeys-lru` and a sample of five keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// What tables call it.
    pub label: &'static str,
    /// Without: the server alone. With: what it is told, and its settings beside those the user gives.
    module: Option<(Told, &'static [(&'static str, &'static str)])>,
    /// The simulator's policy that does the same.
    simulated_policy: &'static str,
}

/// Every system there is, by name. One whose policy lives in the module is one line here.
const SYSTEMS: [System; 6] = [
    System::STOCK,
    System::TENURE,
    System {
        label: "predis-auto",
        module: Some((Told::Nothing, &[("tenure.classes", "auto")])),
        simulated_policy: "predis",
    },
    System {
        label: "predis-hint",
        module: Some((Told::Classes, &[("tenure.classes", "hinted")])),
        simulated_policy: "predis",
    },
    // As its authors sample, and as Redis does.
    System {
        label: "hyperbolic",
        module: Some((Told::Nothing, &[("tenure.policy", "hyperbolic"), ("tenure.samples", "64")])),
        simulated_policy: "hyperbolic",
    },
    System {
        label: "hyperbolic-5",
        module: Some((Told::Nothing, &[("tenure.policy", "hyperbolic")])),
        simulated_policy: "hyperbolic:5",
    },
];

impl System {
    /// The server alone: what the others are compared with.
    pub const STOCK: System = System { label: "stock", module: None, simulated_policy: "redis" };

    /// The server with the module at its defaults, told whose the keys are.
    pub const TENURE: System =
        System { label: "tenure", module: Some((Told::Tenants, &[])), simulated_policy: "predis" };

    /// True where the module is loaded.
    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// The simulator's name for what the system does.
    pub fn simulated_policy(&self) -> &'static str {
        self.simulated_policy
    }

    /// Starts the system.
    ///
    /// # Errors
    /// When the server does not start, the module is not built, or the module refuses a setting.
    pub fn start(&self, setup: &Setup, maxmemory_bytes: Option<u64>, tenants: &[Tenant]) -> anyhow::Result<Server> {
        let mut options = ServerOptions { cpu: setup.placement.server, ..ServerOptions::default() };
        if let Some(bytes) = maxmemory_bytes {
            options = options.set("maxmemory", bytes);
        }
        options = options.set("maxmemory-policy", "allkeys-lru").set("maxmemory-samples", 5);
        let Some((told, settings)) = self.module else {
            return Server::start(&setup.binary, &options);
        };
        let server = Server::start(&setup.binary, &options.with_module(module_path()?))?;
        match told {
            Told::Tenants => set(&server, "tenure.tenants", &prefixes(tenants))?,
            Told::Classes => set(&server, "tenure.class-rules", &prefixes(tenants))?,
            Told::Nothing => {}
        }
        for (name, value) in settings {
            set(&server, name, value)?;
        }
        for (name, value) in &setup.settings {
            set(&server, name, value)?;
        }
        Ok(server)
    }
}

impl FromStr for System {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match SYSTEMS.iter().find(|system| system.label == text) {
            Some(system) => Ok(system.clone()),
            None => bail!("system '{text}' is none of {}", SYSTEMS.map(|system| system.label).join(", ")),
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
}

/// How the module is told which keys are whose, or of which class: `b0=b0:* b1=b1:*`.
fn prefixes(tenants: &[Tenant]) -> String {
    let entries: Vec<String> = tenants.iter().map(|tenant| format!("{0}={0}:*", tenant.name)).collect();
    entries.join(" ")
}

fn set(server: &Server, name: &str, value: &str) -> anyhow::Result<()> {
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
    fn tenants_are_prefixes() {
        let tenant = |name: &str| Tenant { name: name.into(), backend: 0 };
        assert_eq!(prefixes(&[tenant("b0"), tenant("t07")]), "b0=b0:* t07=t07:*");
    }
}
