//! How policies are set, by the names that the server's settings have, with the server's defaults.

use tenure_core::policy::density::{self, DensityPolicyConfig, Watched};
use tenure_core::policy::partitioned::PlanConfig;

/// Settings of the policies that have any. The number in a policy's name (`tenure:16`) counts before its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How the policies that plan do so; its window and its share of sampled keys are Tenure's own policy's, too.
    pub plan: PlanConfig,
    /// Keys sampled per eviction under Tenure's own policy.
    pub density_samples: u32,
    /// Bytes of its table of keys; 0 = a 64th of the memory.
    pub key_table_bytes: u64,
    /// Which accesses it sees; `None` = all.
    pub watched: Option<Watched>,
    /// It counts what all wait for one fetch.
    pub delayed_hits: bool,
}

impl Default for Settings {
    fn default() -> Self {
        PlanConfig::default().into()
    }
}

impl From<PlanConfig> for Settings {
    fn from(plan: PlanConfig) -> Self {
        Settings { plan, density_samples: density::SAMPLE_SIZE, key_table_bytes: 0, watched: None, delayed_hits: false }
    }
}

impl Settings {
    /// What `name` may be.
    pub const NAMES: [&str; 4] =
        ["tenure.window-requests", "tenure.samples", "tenure.density-samples", "tenure.key-table-bytes"];

    /// Sets one by its name in the server.
    ///
    /// # Errors
    /// A sentence that says which name or value isn't understood, and what is.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |least: u64, most: u64| {
            let parsed = value.parse().ok().filter(|n| (least..=most).contains(n));
            parsed.ok_or_else(|| format!("{name} is '{value}'; allowed are {least} to {most}"))
        };
        match name {
            "tenure.window-requests" => self.plan.window_requests = number(1000, 1_000_000_000)?,
            "tenure.samples" => self.plan.sample_size = number(1, 64)? as u32,
            "tenure.density-samples" => self.density_samples = number(1, 64)? as u32,
            "tenure.key-table-bytes" => self.key_table_bytes = number(0, 1 << 36)?,
            _ => return Err(format!("the simulator does not know {name}; it knows {}", Self::NAMES.join(", "))),
        }
        Ok(())
    }

    /// Tenure's own policy, looking at `sample_size` keys where that is given.
    pub fn density(&self, sample_size: Option<u32>) -> DensityPolicyConfig {
        DensityPolicyConfig {
            sample_size: sample_size.unwrap_or(self.density_samples),
            window_requests: self.plan.window_requests,
            decay: self.plan.decay as f32,
            sampled_keys_max: self.plan.sampled_keys_max,
            key_table_bytes: self.key_table_bytes,
            watched: self.watched,
            delayed_hits: self.delayed_hits,
            ..DensityPolicyConfig::default()
        }
    }
}

/// Reads `SEEN:OF`, such as `10:50`.
///
/// # Errors
/// A sentence that says what is understood.
pub fn parse_watched(text: &str) -> Result<Watched, String> {
    let numbers = text.split_once(':').and_then(|(seen, of)| Some((seen.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((seen, of)) if (1..=of).contains(&seen) => Ok(Watched { seen, of }),
        _ => Err(format!("'{text}' is not SEEN:OF with 1 to OF accesses seen of each OF, as in 10:50")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_servers_names_and_ranges() {
        let mut settings = Settings::default();
        for name in Settings::NAMES {
            assert_eq!(settings.set(name, "2000").is_ok(), !name.ends_with("samples"), "{name}");
        }
        assert_eq!(settings.set("tenure.density-samples", "16"), Ok(()));
        assert_eq!((settings.density(None).sample_size, settings.density(Some(3)).sample_size), (16, 3));
        assert_eq!(settings.density(None).window_requests, 2000);
        let error = settings.set("tenure.policy", "lru").unwrap_err();
        assert!(error.contains("tenure.policy") && error.contains("tenure.density-samples"), "{error}");
    }

    #[test]
    fn a_part_that_is_seen_is_at_least_one_and_at_most_all() {
        assert_eq!(parse_watched("10:50"), Ok(Watched { seen: 10, of: 50 }));
        for text in ["", "10", "0:50", "51:50", "a:b"] {
            assert!(parse_watched(text).unwrap_err().contains("SEEN:OF"), "{text}");
        }
    }

    /// With nothing set, they are the policy's own, which the module's test compares with the server's table.
    #[test]
    fn the_defaults_are_the_policys() {
        assert_eq!(Settings::default().density(None), DensityPolicyConfig::default());
    }
}
