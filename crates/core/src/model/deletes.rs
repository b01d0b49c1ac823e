//! What deletes make of the requests that a sample lacks.
//!
//! SHARDS-adj (Waldspurger et al., FAST'15, sec. 3.3) counts them as hits: they are those of a few hot keys, which
//! any cache holds. Not so where hot keys are deleted, since the request behind a delete misses in any cache. Ours
//! (docs/models.md, "Deletes"): a value that came to be either was deleted, expired, or is still there, so misses of
//! unlimited memory are the deletes that found their key plus what the sample tells well. How many deletes there were
//! is known of the whole stream, and the sample tells the share of them that found their key: of those that it lacks,
//! that share is misses. Cost: a few additions; nothing is remembered of deleted keys.

/// The counts. See the file's opening.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletes {
    /// Deletes of the stream, sampled or not; 0 where nobody tells them.
    all: f64,
    /// Deletes of sampled keys.
    sampled: f64,
    /// Of those, the ones that found their key.
    found: f64,
    /// Values of sampled keys that came to be where there was none.
    begun: f64,
    /// Of those, the ones by a request that counts.
    begun_counted: f64,
}

impl Deletes {
    /// Counts deletes of the stream.
    pub fn advance(&mut self, deletes: f64) {
        self.all += deletes;
    }

    /// Counts the delete of a sampled key, and whether it found it.
    pub fn count(&mut self, found: bool) {
        self.sampled += 1.0;
        self.found += f64::from(u8::from(found));
    }

    /// Counts a request of a sampled key that was not there, and whether it is of the kind that counts.
    pub fn began(&mut self, counts: bool) {
        self.begun += 1.0;
        self.begun_counted += f64::from(u8::from(counts));
    }

    /// What the stream counted so far weighs `decay` of what it did.
    pub fn decay_stream(&mut self, decay: f64) {
        self.all *= decay;
    }

    /// What the sample counted so far weighs `factor` of what it did.
    pub fn scale_sample(&mut self, factor: f64) {
        for count in [&mut self.sampled, &mut self.found, &mut self.begun, &mut self.begun_counted] {
            *count *= factor;
        }
    }

    /// Misses that a sample of the share `rate` lacks for its deletes being too few, in sampled requests; below 0
    /// where they are too many.
    pub fn misses_missing(&self, rate: f64) -> f64 {
        if self.all == 0.0 || self.sampled == 0.0 {
            return 0.0;
        }
        let counted = if self.begun > 0.0 { self.begun_counted / self.begun } else { 1.0 };
        (self.all * rate - self.sampled) * self.found / self.sampled * counted
    }
}
