//! What a key has shown: how often and how fast it is accessed, in two bytes; and the feature that it is ranked by.
//!
//! Both numbers are logarithms: requests in sixteenths of an octave, older ones less, and the smoothed gap between
//! two in eighths. In place of the gap stands, of a key that was only ever replaced, that nobody asked. Ten bits of
//! them are enough for compact entries. Cost: no logarithm is taken, one table look-up for each access.

/// Gaps are remembered in eighths of an octave.
const GAP_STEPS: f32 = 8.0;
/// Gaps of one feature lie within an octave.
const GAP_STEPS_PER_FEATURE: u8 = 8;
pub(super) const GAPS: usize = 31;
/// The longest gap that is told from longer ones.
const GAP_MAX: u8 = GAPS as u8 * GAP_STEPS_PER_FEATURE - 1;
/// In the place of a gap: the key was only ever replaced, since it is remembered.
const UNREAD: u8 = u8::MAX;
/// The same of compact entries.
const UNREAD_OCTAVE: u8 = GAPS as u8;
/// Ranges of the number of requests, from two on: 2, to 4, to 8, to 16, more.
pub(super) const COUNTS: usize = 5;

/// Groups of keys that were seen once: of these nothing else is known, so what they have in common matters.
pub const GROUPS: usize = 16;

/// Where the features begin of keys that were written once, that were accessed more often, and that were written more
/// often and never asked for. Those asked for once are the first.
pub(super) const WRITTEN_ONCE: usize = GROUPS;
pub(super) const OFTEN: usize = WRITTEN_ONCE + GROUPS;
pub(super) const WRITTEN_OFTEN: usize = OFTEN + COUNTS * GAPS;
/// How many features there are.
pub const FEATURES: usize = WRITTEN_OFTEN + COUNTS;

/// A new gap weighs at least this against the smoothed one.
const GAP_WEIGHT_MIN: f32 = 0.25;

/// Steps per doubling of the number of requests.
const STEPS: f32 = 16.0;
/// Steps per half of an octave, which is what compact entries tell apart.
const STEPS_PER_HALF: u8 = 8;
/// Ranges of the number of requests by which rates are learned: half an octave each.
pub(super) const STEPS_PER_NUMBER: usize = STEPS_PER_HALF as usize;
pub(super) const NUMBERS: usize = 256 / STEPS_PER_NUMBER;
/// Requests with which a range of the number of requests begins.
pub(super) fn requests_from(number: usize) -> f32 {
    ((number * STEPS_PER_NUMBER) as f32 / STEPS).exp2()
}

/// More of them than 2, 4, 8 and 16 requests have: where a range of counts ends and the next begins.
const COUNT_STEPS: [u8; COUNTS - 1] = [21, 35, 50, 65];

/// 2^x for x in sixteenths.
const SIXTEENTHS: [f32; STEPS as usize] = [
    1.0,
    1.044_273_7,
    1.090_507_7,
    1.138_788_6,
    1.189_207_1,
    1.241_857_8,
    1.296_839_6,
    1.354_255_5,
    std::f32::consts::SQRT_2,
    1.476_826_2,
    1.542_210_8,
    1.610_490_3,
    1.681_792_8,
    1.756_252_2,
    1.834_008_1,
    1.915_206_6,
];

const TABLED: usize = 256;
/// 2^-x for x in sixteenths.
const PART: [f32; TABLED] = {
    let mut part = [1.0; TABLED];
    let mut steps = 1;
    while steps < TABLED {
        // 2^(-1/16)
        part[steps] = part[steps - 1] * 0.957_603_3;
        steps += 1;
    }
    part
};
/// What one request adds to a number of requests of 2^x, in steps: log2(1 + 2^-x), by the series of ln((1 + z) / (1 -
/// z)).
const MORE: [f32; TABLED] = {
    let mut more = [0.0; TABLED];
    let mut steps = 0;
    while steps < TABLED {
        let z = PART[steps] / (2.0 + PART[steps]);
        let zz = z * z;
        let series = z * (1.0 + zz * (1.0 / 3.0 + zz * (0.2 + zz * (1.0 / 7.0 + zz / 9.0))));
        more[steps] = 2.0 * series * std::f32::consts::LOG2_E * STEPS;
        steps += 1;
    }
    more
};

/// What a key has shown: how often and how fast it is accessed. 2 bytes, to be kept with the key, also beyond its
/// eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// 0 = not asked for yet; else 1 more than log2 of its requests, in sixteenths. Older requests count for less.
    often: u8,
    /// Smoothed log2 of the time between two, in eighths; or [`UNREAD`].
    gap: u8,
}

impl History {
    /// The history after one more request at `now`, `gap` ticks after the last; of a key that had none, `gap` is not
    /// looked at. Requests count for less with time, for half after 1 / `fading` ticks. `now` decides which way a
    /// fraction of a step is rounded, so that the count is right in the mean. No logarithm is taken: of the gap it is
    /// linear within an octave, of the count it stands in a table.
    #[inline]
    pub fn accessed(self, gap: u64, now: u32, fading: f32) -> History {
        let Some(steps) = self.often.checked_sub(1) else { return History { often: 1, gap: 0 } };
        let gap = gap.max(1) as f32;
        // Exponent and upper three bits of the mantissa, rounded: eighths of an octave.
        let shown = (((gap.to_bits() + (1 << 19)) >> 20) - (127 << 3)).min(GAP_MAX.into()) as f32;
        // Before the first read of what was only written no gap is known.
        let weight = if self.is_unread() { 1.0 } else { PART[usize::from(steps)].max(GAP_WEIGHT_MIN) };
        let smoothed = f32::from(self.gap) + weight * (shown - f32::from(self.gap));
        let faded = f32::from(steps) - gap * fading * STEPS;
        let fraction = (now.wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 24) as f32;
        let more = MORE[((faded.abs() + 0.5) as usize).min(TABLED - 1)];
        History { often: (faded.max(0.0) + more + fraction).clamp(1.0, 254.0) as u8 + 1, gap: (smoothed + 0.5) as u8 }
    }

    /// The same by a write that replaces whatever was there, and so asks for nothing.
    #[inline]
    pub fn replaced(self, gap: u64, now: u32, fading: f32) -> History {
        let after = self.accessed(gap, now, fading);
        if self.often == 0 || self.is_unread() { History { gap: UNREAD, ..after } } else { after }
    }

    #[inline]
    fn is_unread(self) -> bool {
        self.gap == UNREAD
    }

    /// Requests, older ones less: rounded, and beyond a dozen within a few percent.
    pub fn n_requests(self) -> u32 {
        self.often.checked_sub(1).map_or(0, |steps| (f32::from(steps) / STEPS).exp2().round() as u32)
    }

    /// log2 of that, rounded down.
    #[inline]
    pub fn octave(self) -> u32 {
        u32::from(self.often.saturating_sub(1)) / STEPS as u32
    }

    /// Smoothed time between two requests, in ticks; `None` where there were fewer than two, or no read.
    pub fn gap_ticks(self) -> Option<f32> {
        (self.often > 1 && !self.is_unread()).then(|| (f32::from(self.gap) / GAP_STEPS).exp2())
    }

    /// Where it stands in the table. `group` is what keys that were seen once are told apart by, the penalty's class
    /// for one; taken modulo [`GROUPS`].
    #[inline]
    pub fn feature(self, group: u8) -> Feature {
        let steps = self.often.saturating_sub(1);
        let (group, is_unread) = (usize::from(group) % GROUPS, self.is_unread());
        let count = || COUNT_STEPS.iter().filter(|&&most| steps > most).count();
        let row = match steps {
            0 if is_unread => WRITTEN_ONCE + group,
            0 => group,
            _ if is_unread => WRITTEN_OFTEN + count(),
            _ => OFTEN + count() * GAPS + usize::from(self.gap / GAP_STEPS_PER_FEATURE),
        };
        Feature { row: row as u16, often: steps }
    }

    /// As ten bits: counts in halves of an octave, gaps in octaves. `seed` decides which way a fraction of a count is
    /// rounded.
    pub fn to_ten_bits(self, seed: u32) -> u16 {
        let fraction = (seed.wrapping_mul(0x9e37_79b9) >> 29) as u16;
        let halves = (u16::from(self.often.saturating_sub(1)) + fraction) / u16::from(STEPS_PER_HALF);
        halves.min(31) << 5 | u16::from(self.gap / GAP_STEPS_PER_FEATURE)
    }

    /// What the lower ten bits say, which [`History::to_ten_bits`] gave of a key that was accessed.
    #[inline]
    pub fn from_ten_bits(bits: u16) -> Self {
        let (halves, octave) = ((bits >> 5 & 31) as u8, (bits & 31) as u8);
        let gap = match octave {
            UNREAD_OCTAVE => UNREAD,
            _ if halves == 0 => 0,
            // It lies in the middle of its octave.
            _ => octave * GAP_STEPS_PER_FEATURE + GAP_STEPS_PER_FEATURE / 2,
        };
        History { often: halves * STEPS_PER_HALF + 1, gap }
    }

    /// As two bytes, for a table that keeps them.
    pub fn to_bits(self) -> u16 {
        u16::from_le_bytes([self.often, self.gap])
    }

    /// What [`History::to_bits`] gave.
    pub fn from_bits(bits: u16) -> Self {
        let [often, gap] = bits.to_le_bytes();
        History { often, gap }
    }
}

/// What ranking goes by of a history: which keys have shown alike, and how often this one was accessed. As text:
/// `once, group 5`, or `5 to 8 times, every 2^9 ticks`; with `written ` before it, and no gap, where nobody has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// Of the table, below [`FEATURES`].
    row: u16,
    /// log2 of its requests, in sixteenths.
    often: u8,
}

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const TIMES: [&str; COUNTS] =
            ["2 times", "3 or 4 times", "5 to 8 times", "9 to 16 times", "more than 16 times"];
        let row = self.row();
        if row < WRITTEN_ONCE {
            write!(f, "once, group {row}")
        } else if row < OFTEN {
            write!(f, "written once, group {}", row - WRITTEN_ONCE)
        } else if row < WRITTEN_OFTEN {
            write!(f, "{}, every 2^{} ticks", TIMES[(row - OFTEN) / GAPS], (row - OFTEN) % GAPS)
        } else {
            write!(f, "written {}", TIMES[row - WRITTEN_OFTEN])
        }
    }
}

impl Feature {
    /// Its place in the table, below [`FEATURES`].
    #[inline]
    pub(super) fn row(self) -> usize {
        usize::from(self.row)
    }

    /// log2 of how often it was accessed, in sixteenths: below 256.
    #[inline]
    pub(super) fn steps(self) -> usize {
        usize::from(self.often)
    }

    /// The range of that, below [`NUMBERS`].
    #[inline]
    pub(super) fn number(self) -> usize {
        self.steps() / STEPS_PER_NUMBER
    }

    /// How often it was accessed, older requests less; at least 1.
    #[inline]
    pub fn often(self) -> f32 {
        let octave = u32::from(self.often) / SIXTEENTHS.len() as u32;
        f32::from_bits((127 + octave) << 23) * SIXTEENTHS[usize::from(self.often) % SIXTEENTHS.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FADING: f32 = 1e-6;

    /// The history of a key that was accessed after these gaps.
    fn accessed(gaps: &[u64]) -> History {
        gaps.iter().fold(History::default(), |history, &gap| history.accessed(gap, 0, FADING))
    }

    /// AccessRing for at 0, 8 and 24: gaps 8 and 16, whose logarithms 3 and 4 have the mean 3.5.
    #[test]
    fn a_history_counts_and_smooths() {
        let history = accessed(&[99, 8, 16]);
        assert_eq!(history.gap_ticks(), Some(2_f32.powf(3.5)));
        assert_eq!(History::from_bits(history.to_bits()), history);
        assert_eq!(accessed(&[1]).gap_ticks(), None);
        let often = (0..1000).fold(History::default(), |history, now| history.accessed(1 << 31, now, 0.0));
        assert!(usize::from(often.feature(0).row) < FEATURES);
        assert_eq!(accessed(&[1]).feature(5).to_string(), "once, group 5");
        assert_eq!(history.feature(5).to_string(), "3 or 4 times, every 2^3 ticks");
        assert_eq!(often.feature(0).to_string(), "more than 16 times, every 2^30 ticks");
    }

    /// Until somebody asks it is only known how often a key was written; who was asked for once stays so. Compact
    /// entries know as much.
    #[test]
    fn who_is_written_and_never_asked_for_is_told_apart() {
        let written = |times| (0..times).fold(History::default(), |history, now| history.replaced(8, now, FADING));
        let told = |history: History| {
            assert_eq!(History::from_ten_bits(history.to_ten_bits(0)).feature(5), history.feature(5));
            history.feature(5).to_string()
        };
        assert_eq!([told(written(1)), told(written(4))], ["written once, group 5", "written 3 or 4 times"]);
        assert_eq!((written(4).gap_ticks(), written(4).n_requests()), (None, 4));
        let asked = written(3).accessed(64, 3, FADING);
        assert_eq!(told(asked), "3 or 4 times, every 2^6 ticks");
        assert_eq!(asked.replaced(64, 4, FADING), asked.accessed(64, 4, FADING));
        assert!((0..FEATURES).all(|row| !Feature { row: row as u16, often: 0 }.to_string().is_empty()));
    }

    /// Every 8 ticks, a thousand times: what rounds up and what rounds down is even. Then with half-lives of 64
    /// ticks: the sum over i of 2^(-i/8) is 12.05.
    #[test]
    fn requests_are_counted_in_the_mean_and_fade() {
        let count = |fading: f32| {
            let histories = (0..100_u32)
                .map(|first| (0..1000).fold(History::default(), |h, i| h.accessed(8, 1009 * first + 8 * i, fading)));
            histories.map(|history| f64::from(history.n_requests())).sum::<f64>() / 100.0
        };
        assert!((count(0.0) / 1000.0 - 1.0).abs() < 0.1, "{}", count(0.0));
        assert!((count(1.0 / 64.0) - 12.05).abs() < 0.5, "{}", count(1.0 / 64.0));
    }
}
