//! What places values, by the simulator's names, and what the server is told for it.

use tenure_core::tiers::placer::Rule;
use tenure_sim::tiers::System;

/// A system of `tenure simulate --tiers`, but for all fast, which stands beside each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing(System);

impl Placing {
    /// sdTMM, the default.
    pub const SDTMM: Placing = Placing(System::Sdtmm);

    /// True where there is a fast tier for values.
    pub fn has_tiers(&self) -> bool {
        self.0.has_tiers()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Settings of the module. Placement by worth has densities where the server evicts by them.
    pub(super) fn settings(self) -> Vec<(&'static str, &'static str)> {
        let rule = if self.has_tiers() { self.0.rule() } else { Rule::Never };
        let policy = (rule == Rule::Worth).then_some(("tenure.policy", "density"));
        policy.into_iter().chain([("tenure.tier-rule", rule.name())]).collect()
    }
}

impl TryFrom<System> for Placing {
    type Error = anyhow::Error;

    fn try_from(system: System) -> anyhow::Result<Self> {
        anyhow::ensure!(system != System::AllFast, "all-fast stands beside each of the others anyway");
        Ok(Placing(system))
    }
}

impl std::fmt::Display for Placing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_is_told_its_rule() {
        let settings = |system: System| {
            let settings = Placing::try_from(system).unwrap().settings();
            settings.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(settings(System::Sdtmm), "tenure.tier-rule reuse-time");
        assert_eq!(settings(System::Worth), "tenure.policy density, tenure.tier-rule worth");
        assert_eq!(settings(System::Naive), "tenure.tier-rule always");
        assert_eq!([System::DemotionOnly, System::AllSlow].map(settings), ["tenure.tier-rule never"; 2]);
        assert!(Placing::try_from(System::AllFast).unwrap_err().to_string().contains("beside"));
    }
}
