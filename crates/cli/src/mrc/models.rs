//! Which models the command line asks for: one per model, sampling size K and rate, with a name for tables and plots.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use tenure_core::access::Access;
use tenure_core::curve::MissRatioCurve;
use tenure_core::model::eaet::Eaet;
use tenure_core::model::exact::{Exact, Measure};
use tenure_core::model::krr::Krr;
use tenure_core::model::merged::MergedKrr;
use tenure_core::model::miniature::Miniature;
use tenure_core::model::shards::Shards;
use tenure_core::model::{Counted, CurveModel};
use tenure_core::policy::cache::KLru;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_core::sampling::{SampleRate, Sampling};
use tenure_sim::policies::{PolicyName, Setup};

/// A model by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// Exact LRU stack distances.
    Exact,
    /// Sampled LRU stack distances.
    Shards,
    /// LRU by reuse times.
    Eaet,
    /// K-LRU by a random stack.
    Krr,
    /// The lowest of several K-LRU curves.
    Merged,
    /// Any policy in small caches.
    Miniature,
}

const NAMES: [(&str, ModelName); 6] = [
    ("exact", ModelName::Exact),
    ("shards", ModelName::Shards),
    ("eaet", ModelName::Eaet),
    ("krr", ModelName::Krr),
    ("merged", ModelName::Merged),
    ("miniature", ModelName::Miniature),
];

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, model)| *model);
        found.ok_or_else(|| format!("model '{text}' is none of {}", NAMES.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, model)| model == self).map_or("", |(name, _)| name))
    }
}

/// One model to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Which.
    pub model: ModelName,
    /// The sampling size, where the model has one.
    pub k: Option<u32>,
    /// The policy of a miniature simulation that isn't K-LRU.
    pub policy: Option<PolicyName>,
    /// How it samples keys.
    pub sampling: Sampling,
    /// Seed of what is random in it.
    pub seed: u64,
    /// The sampling sizes of a merged curve.
    pub merged_k: Vec<u32>,
    /// The rate that was asked for, where the model samples at another.
    pub rate_asked: Option<SampleRate>,
}

impl Spec {
    /// True where the sizes must be known before the first access.
    pub fn needs_sizes(&self) -> bool {
        self.model == ModelName::Miniature
    }

    /// True where how many keys there are must be known before: miniature caches are as small as their sample's rate.
    pub fn needs_keys(&self) -> bool {
        self.model == ModelName::Miniature && matches!(self.sampling, Sampling::AtLeast { .. })
    }

    /// Miniature simulation samples at a fixed rate: that which takes keys enough of `n_keys`, where their number is
    /// known.
    pub fn settle_rate(&mut self, n_keys: Option<u64>) {
        let Sampling::AtLeast { rate, keys } = self.sampling else { return };
        if self.model == ModelName::Miniature {
            let enough = n_keys.map_or(0.0, |n_keys| (keys as f64 / n_keys.max(1) as f64).min(1.0));
            self.sampling = Sampling::Rate(SampleRate::new(enough).map_or(rate, |enough| enough.max(rate)));
            self.rate_asked = Some(rate);
        }
    }

    /// The model, for caches of `sizes_bytes`.
    ///
    /// # Errors
    /// A parameter out of its range, and a miniature of a policy that must know the future.
    pub fn build(&self, sizes_bytes: &[u64]) -> Result<Running> {
        let counted = Counted::ReadsAndWrites;
        let k = self.k.unwrap_or(5);
        Ok(match self.model {
            ModelName::Exact => Running::Plain(Box::new(Exact::new(Measure::Bytes))),
            ModelName::Shards => Running::Plain(Box::new(Shards::new(self.sampling, counted))),
            ModelName::Eaet => Running::Plain(Box::new(Eaet::calibrated(self.sampling, counted))),
            ModelName::Krr => Running::Plain(Box::new(Krr::new(k, self.sampling, counted, self.seed)?)),
            ModelName::Merged => Running::Merged(MergedKrr::new(&self.merged_k, self.sampling, counted, self.seed)?),
            ModelName::Miniature => Running::Miniature(self.miniature(sizes_bytes)?),
        })
    }

    fn miniature(&self, sizes_bytes: &[u64]) -> Result<Miniature> {
        let Sampling::Rate(rate) = self.sampling else {
            return Err(usage("miniature simulation samples at a fixed rate: say --rate, not --sample-keys"));
        };
        let counted = Counted::ReadsAndWrites;
        let Some(policy) = self.policy else {
            let k = self.k.unwrap_or(5);
            KLru::new(k, 1, self.seed)?;
            let build = |bytes| KLru::new(k, bytes, self.seed).expect("this K was accepted above");
            return Ok(Miniature::new(sizes_bytes, rate, counted, |bytes| Box::new(build(bytes))));
        };
        if policy.is_offline() {
            return Err(usage(&format!("policy '{policy}' must know the future, which a stream doesn't tell")));
        }
        let setup = |capacity_bytes| Setup {
            capacity_bytes,
            parameter: None,
            seed: self.seed,
            settings: scaled_plan(rate).into(),
            offline: None,
        };
        policy.build(&setup(1))?;
        Ok(Miniature::new(sizes_bytes, rate, counted, |bytes| {
            let cache = policy.build(&setup(bytes)).expect("this policy was built above");
            Box::new(AsCache(cache))
        }))
    }

    /// What tables and legends call it.
    pub fn label(&self) -> String {
        let mut label = match (&self.policy, self.k) {
            (Some(policy), _) => format!("{} {policy}", self.model),
            (None, Some(k)) => format!("{} K={k}", self.model),
            (None, None) => self.model.to_string(),
        };
        match self.asked() {
            Sampling::Rate(SampleRate::ALL) => {}
            Sampling::Rate(rate) | Sampling::AtLeast { rate, .. } => label += &format!(" rate {}", rounded(rate)),
            Sampling::Keys(keys) => label += &format!(" {keys} keys"),
        }
        label
    }

    /// How it was asked to sample.
    pub fn asked(&self) -> Sampling {
        self.rate_asked.map_or(self.sampling, Sampling::Rate)
    }
}

/// Bad usage that shows only when all options are known.
pub fn usage(what: &str) -> anyhow::Error {
    clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{what}\n")).into()
}

/// A miniature sees the share `rate` of requests, so its windows shrink with them.
fn scaled_plan(rate: SampleRate) -> PlanConfig {
    let whole = PlanConfig::default();
    PlanConfig { window_requests: ((whole.window_requests as f64 * rate.rate()) as u64).max(1), ..whole }
}

/// The rate as it was asked for: a threshold on 64 bits is not exactly 0.01.
pub fn rounded(rate: SampleRate) -> f64 {
    (rate.rate() * 1e9).round() / 1e9
}

/// A model at work.
pub enum Running {
    /// One curve.
    Plain(Box<dyn CurveModel + Send>),
    /// One curve with a K at each point.
    Merged(MergedKrr),
    /// One curve with what misses cost at each point.
    Miniature(Miniature),
}

/// A curve, and the K of each of its points where the model chose one.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The curve, at the sizes asked for.
    pub curve: MissRatioCurve,
    /// K by point; empty for most models.
    pub k: Vec<u32>,
    /// Time lost to misses by point, in µs per request; empty for all but miniature simulation.
    pub penalty_us: Vec<f64>,
}

impl Running {
    fn model(&self) -> &dyn CurveModel {
        match self {
            Running::Plain(model) => model,
            Running::Merged(model) => model,
            Running::Miniature(model) => model,
        }
    }

    /// Takes accesses of the stream.
    pub fn record_all(&mut self, accesses: &[Access]) {
        match self {
            Running::Plain(model) => accesses.iter().for_each(|access| model.record(access)),
            Running::Merged(model) => accesses.iter().for_each(|access| model.record(access)),
            Running::Miniature(model) => accesses.iter().for_each(|access| model.record(access)),
        }
    }

    /// Ends a warm-up or a window.
    pub fn forget_counts(&mut self) {
        match self {
            Running::Plain(model) => model.forget_counts(),
            Running::Merged(model) => model.forget_counts(),
            Running::Miniature(model) => model.forget_counts(),
        }
    }

    /// The curve at `sizes_bytes`.
    pub fn curve(&self, sizes_bytes: &[u64]) -> Curve {
        let (k, penalty_us) = (Vec::new(), Vec::new());
        match self {
            Running::Plain(model) => Curve { curve: model.curve(sizes_bytes), k, penalty_us },
            Running::Merged(model) => {
                let merged = model.merged(sizes_bytes);
                Curve {
                    curve: merged.curve().clone(),
                    k: merged.points().iter().map(|point| point.k).collect(),
                    penalty_us,
                }
            }
            Running::Miniature(model) => {
                Curve { curve: model.curve(sizes_bytes), k, penalty_us: model.penalties_us(sizes_bytes) }
            }
        }
    }

    /// The share of keys that the model looks at now.
    pub fn sample_rate(&self) -> SampleRate {
        self.model().sample_rate()
    }

    /// The model's own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.model().memory_bytes()
    }
}

/// A policy of the simulator as a plain cache.
struct AsCache(Box<dyn tenure_sim::policies::Policy>);

impl tenure_core::policy::cache::Cache for AsCache {
    fn access(&mut self, access: &Access) -> tenure_core::policy::cache::Outcome {
        self.0.access(access)
    }

    fn used_bytes(&self) -> u64 {
        self.0.used_bytes()
    }

    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }

    fn evictions(&self) -> u64 {
        self.0.evictions()
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}
