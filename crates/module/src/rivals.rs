//! Policies of others that the server can run, to compare with: which there are, and what each needs.
//!
//! Nothing else in the module knows one by name: what settings, help and messages say of them is here. What they do is
//! in `tenure_core::policy` and `tenure_lab`.

use std::ffi::CStr;

use tenure_core::policy::Scorer;
pub use tenure_lab::chooser::{Choice, Chooser, Whole};
use tenure_lab::hyperbolic::Hyperbolic;

use crate::observe::keys::Remembers;
use crate::worker::model::Modelling;

/// What `tenure.policy` says of them.
macro_rules! about_rivals {
    () => {
        "'predis' holds partitions to the plan's targets. 'kredis' does too, each under the K (1, 5, 8 or 16) that \
         misses least there. 'dlru' evicts the longest idle of K keys, whoever's they are, with the K (1, 2, 5, 10 \
         or 16) that costs least; the server's maxmemory-samples follows it. 'hyperbolic' evicts what is worth \
         least: miss penalty x requests / time in the cache, 'hyperbolic-size' per byte. Both are best with 64 \
         samples."
    };
}
pub(crate) use about_rivals;

/// The setting of [`RivalK`], and what it says.
pub const K_SETTING: (&CStr, &str) = (
    c"kredis-k",
    "Under which K the policy kredis plans and evicts. 'by-curve': each partition under that of 1, 5, 8 and 16 that \
     misses least there. 'as-set': all under tenure.samples, for a quarter of the model's time and memory.",
);

/// The setting of [`RivalEvictor`], and what it says.
pub const EVICTOR_SETTING: (&CStr, &str) = (
    c"dlru-evictor",
    "Who evicts under the policy dlru. 'server': the server itself, with maxmemory-samples set to the chosen K, \
     where maxmemory-policy is allkeys-lru or volatile-lru (Tenure else, and from tenants above their maximum). \
     'tenure': Tenure, ahead of the limit and without the server's pool.",
);

/// Why there are no curves of single K.
pub const NO_CURVES_BY_K: &str = "there are curves of single K with tenure.policy kredis alone";

/// A policy of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Partitions are held to the targets of the plan.
    Predis,
    /// The same, and each partition under the sampling size that serves it best.
    Kredis,
    /// The longest idle of a sample goes, whoever's it is, of as many keys as cost least.
    Dlru,
    /// What is worth least goes: penalty × requests / time in the cache.
    Hyperbolic,
    /// The same per byte.
    HyperbolicSize,
}

/// Under which K `kredis` plans and evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RivalK {
    /// Each partition under the one that misses least there.
    ByCurve,
    /// All under `tenure.samples`.
    AsSet,
}

/// Who evicts under `dlru`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RivalEvictor {
    /// The server, whose sampling size is set.
    Server,
    /// Tenure, as under every other policy.
    Tenure,
}

impl RivalK {
    /// The names, in the order of [`RivalK::ALL`].
    pub const NAMES: &[&CStr] = &[c"by-curve", c"as-set"];
    /// All.
    pub const ALL: [RivalK; 2] = [RivalK::ByCurve, RivalK::AsSet];
}

impl RivalEvictor {
    /// The names, in the order of [`RivalEvictor::ALL`].
    pub const NAMES: &[&CStr] = &[c"server", c"tenure"];
    /// All.
    pub const ALL: [RivalEvictor; 2] = [RivalEvictor::Server, RivalEvictor::Tenure];
}

impl Rival {
    /// The names, in the order of [`Rival::ALL`].
    pub const NAMES: [&CStr; 5] = [c"predis", c"kredis", c"dlru", c"hyperbolic", c"hyperbolic-size"];
    /// All.
    pub const ALL: [Rival; 5] = [Rival::Predis, Rival::Kredis, Rival::Dlru, Rival::Hyperbolic, Rival::HyperbolicSize];

    /// True where partitions are held to the targets of the plan.
    pub fn has_targets(self) -> bool {
        matches!(self, Rival::Predis | Rival::Kredis)
    }

    /// What ranks keys; `None` where the longest idle goes.
    pub fn scorer(self) -> Option<&'static dyn Scorer> {
        match self {
            Rival::Hyperbolic => Some(&Hyperbolic { per_size: false }),
            Rival::HyperbolicSize => Some(&Hyperbolic { per_size: true }),
            _ => None,
        }
    }

    /// True where it has to know how large keys are.
    pub fn goes_by_size(self) -> bool {
        self == Rival::HyperbolicSize
    }

    /// What of each key has to be remembered.
    pub fn remembers(self) -> Remembers {
        if self.scorer().is_some() { Remembers::Residence } else { Remembers::Classes }
    }

    /// What the worker models, where `k` and `samples` are set.
    pub fn modelling(self, k: RivalK, samples: u32) -> Modelling {
        match (self, k) {
            (Rival::Kredis, RivalK::ByCurve) => Modelling::SampleSizes,
            (Rival::Kredis, RivalK::AsSet) => Modelling::OneSampleSize(samples),
            (Rival::Dlru, _) => Modelling::Miniatures,
            _ => Modelling::Recency,
        }
    }

    /// True where no more keys are looked at than are to be sampled.
    pub fn keeps_to_samples(self) -> bool {
        self.plans_sample_sizes() || self.chooses_sample_size()
    }

    /// True where the plan says under which K each partition is evicted.
    pub fn plans_sample_sizes(self) -> bool {
        self == Rival::Kredis
    }

    /// True where the worker chooses one K for the whole cache.
    pub fn chooses_sample_size(self) -> bool {
        self == Rival::Dlru
    }

    /// True where the server may evict by itself, under the K that was chosen.
    pub fn leaves_eviction(self, evictor: RivalEvictor) -> bool {
        self.chooses_sample_size() && evictor == RivalEvictor::Server
    }
}
