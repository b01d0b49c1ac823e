//! Policies of others that the evictor can carry out (`tenure_lab`): what they rank keys by.

use tenure_core::policy::Scorer;
use tenure_lab::hyperbolic::Hyperbolic;

use crate::config::Policy;

/// What ranks keys under `policy`, where that is one of these.
pub fn scorer(policy: Policy) -> Option<&'static dyn Scorer> {
    match policy {
        Policy::Hyperbolic => Some(&Hyperbolic { per_size: false }),
        Policy::HyperbolicSize => Some(&Hyperbolic { per_size: true }),
        _ => None,
    }
}

/// Whether `policy` is one of these and has to know how large keys are.
pub fn goes_by_size(policy: Policy) -> bool {
    policy == Policy::HyperbolicSize
}
