//! What a server says of its tiers, before and after the measured requests, and what follows from it: counted, but
//! for one figure, which is modelled.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Serialize;
use tenure_core::tiers::worth::Speeds;
use tenure_servers::Server;
use tenure_sim::tiers::{Counts, Prices};

use crate::full_load::Side;

/// `tenure_tier_*` of INFO at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierInfo {
    /// Reads that found their value in fast memory.
    pub fast_hits: u64,
    /// The same in slow memory.
    pub slow_hits: u64,
    /// Values moved up.
    pub promotions: u64,
    /// Values moved down.
    pub demotions: u64,
    /// Values put into slow memory as they were stored.
    pub stored_slow: u64,
    /// Time of the main thread for all placement, in µs.
    pub spent_us: u64,
    /// Its longest slice since the server started, in µs.
    pub slice_us_max: u64,
    /// What is fast: all but slow values, in bytes.
    pub fast_bytes: u64,
    /// What may be, in bytes.
    pub fast_limit_bytes: u64,
    /// What is slow, in bytes.
    pub slow_bytes: u64,
    /// The same in values.
    pub slow_values: u64,
    /// Slow memory that lies elsewhere, since the place couldn't give it, in bytes.
    pub elsewhere_bytes: u64,
}

impl TierInfo {
    /// Reads it.
    ///
    /// # Errors
    /// When the server has ended, or has no such fields.
    pub fn read(server: &Server) -> anyhow::Result<TierInfo> {
        TierInfo::of(&server.info("tenure")?)
    }

    fn of(info: &BTreeMap<String, String>) -> anyhow::Result<TierInfo> {
        let field = |name: &str| -> anyhow::Result<u64> {
            let value = info.get(&format!("tenure_tier_{name}")).and_then(|value| value.parse().ok());
            value.with_context(|| format!("INFO has no tenure_tier_{name}"))
        };
        Ok(TierInfo {
            fast_hits: field("fast_hits")?,
            slow_hits: field("slow_hits")?,
            promotions: field("promotions")?,
            demotions: field("demotions")?,
            stored_slow: field("stored_slow")?,
            spent_us: field("spent_us")?,
            slice_us_max: field("slice_us_max")?,
            fast_bytes: field("fast_bytes")?,
            fast_limit_bytes: field("fast_limit_bytes")?,
            slow_bytes: field("slow_bytes")?,
            slow_values: field("slow_values")?,
            elsewhere_bytes: field("elsewhere_bytes")?,
        })
    }

    /// What was counted since `before`; what only holds at a moment, as it is now.
    pub fn since(self, before: TierInfo) -> TierInfo {
        TierInfo {
            fast_hits: self.fast_hits.saturating_sub(before.fast_hits),
            slow_hits: self.slow_hits.saturating_sub(before.slow_hits),
            promotions: self.promotions.saturating_sub(before.promotions),
            demotions: self.demotions.saturating_sub(before.demotions),
            stored_slow: self.stored_slow.saturating_sub(before.stored_slow),
            spent_us: self.spent_us.saturating_sub(before.spent_us),
            ..self
        }
    }

    /// Reads that found their value in fast memory, of all that found one; `None` without reads.
    pub fn fast_hit_ratio(&self) -> Option<f64> {
        let hits = self.fast_hits + self.slow_hits;
        (hits > 0).then(|| self.fast_hits as f64 / hits as f64)
    }

    /// Share of the time of `n_commands` at such a throughput that went into placement.
    pub fn moving_share(&self, side: &Side, n_commands: usize) -> f64 {
        self.spent_us as f64 / 1e6 * side.throughput_per_s / n_commands as f64
    }

    /// Modelled: throughput over that of `all_fast` where the slow tier is the dissertation's (twice the latency,
    /// bandwidth ÷ 2.4; see [`Speeds`]) in place of the one measured, which is taken to be as fast as any. By the
    /// simulator's formula ([`Counts::server_ns`]): to the measured time of a request comes what a slow hit takes
    /// longer, and as much for each move and each value stored slow.
    pub fn modelled_ratio(&self, all_fast: &Side, tiers: &Side, n_commands: usize, value_bytes: u32) -> f64 {
        let longer_ns = f64::from(Speeds::default().saved_ns(value_bytes));
        let n_moves = self.promotions + self.demotions + self.stored_slow;
        let counts = Counts {
            requests: n_commands as u64,
            slow_read_ns: self.slow_hits as f64 * longer_ns,
            move_ns: n_moves as f64 * longer_ns,
            ..Counts::default()
        };
        let prices = Prices { request_ns: 1e9 / tiers.throughput_per_s, ..Prices::default() };
        1e9 / all_fast.throughput_per_s / counts.server_ns(&prices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(throughput_per_s: f64) -> Side {
        Side { throughput_per_s, cpu_ns_per_command: 1.0, cpu_main_ns_per_command: 1.0, generator_busy: 0.5 }
    }

    #[test]
    fn fields_are_read_by_name_and_a_missing_one_is_named() {
        let text = serde_json::to_value(TierInfo::default()).unwrap();
        let names = text.as_object().unwrap().keys().enumerate();
        let mut info: BTreeMap<String, String> =
            names.map(|(i, name)| (format!("tenure_tier_{name}"), i.to_string())).collect();
        let read = serde_json::to_value(TierInfo::of(&info).unwrap()).unwrap();
        for (i, (name, value)) in read.as_object().unwrap().iter().enumerate() {
            assert_eq!(value.as_u64(), Some(i as u64), "{name}");
        }
        info.remove("tenure_tier_stored_slow");
        assert!(TierInfo::of(&info).unwrap_err().to_string().contains("tenure_tier_stored_slow"));
    }

    #[test]
    fn counts_are_differences_and_bytes_are_not() {
        let before = TierInfo { fast_hits: 10, slow_hits: 5, spent_us: 100, slow_bytes: 7, ..TierInfo::default() };
        let after = TierInfo { fast_hits: 40, slow_hits: 15, spent_us: 1100, slow_bytes: 9, ..before };
        let since = after.since(before);
        assert_eq!((since.fast_hits, since.slow_hits, since.spent_us, since.slow_bytes), (30, 10, 1000, 9));
        assert_eq!(since.fast_hit_ratio(), Some(0.75));
        assert_eq!(TierInfo::default().fast_hit_ratio(), None);
        // 1 ms of the 10 ms that 1000 commands took.
        assert!((since.moving_share(&side(100_000.0), 1000) - 0.1).abs() < 1e-12);
    }

    /// A read of 1000 bytes takes 100 + 1000 × (1/5 − 1/12) = 216.7 ns longer. Half of the requests are slow hits,
    /// one in ten moves: 130 ns on top of the measured 2000, where all fast takes 1900.
    #[test]
    fn the_model_adds_what_slow_memory_takes_longer() {
        let counted =
            TierInfo { slow_hits: 500, promotions: 30, demotions: 40, stored_slow: 30, ..TierInfo::default() };
        let ratio = counted.modelled_ratio(&side(1e9 / 1900.0), &side(1e9 / 2000.0), 1000, 1000);
        assert!((ratio - 1900.0 / 2130.0).abs() < 1e-6, "{ratio}");
        let none = TierInfo::default().modelled_ratio(&side(100.0), &side(95.0), 1000, 1000);
        assert!((none - 0.95).abs() < 1e-12, "without slow hits it is what was measured");
    }
}
