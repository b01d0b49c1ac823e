//! What a key takes, in bytes: key, value and the server's overhead for both.
//!
//! A string's length is known exactly and at once and rounded as jemalloc does; what else a key takes (headers, the
//! entry in the dictionary) is learned per partition from the server's own `MEMORY USAGE` on a few keys. A collection
//! or a large string is asked about with `MEMORY USAGE … SAMPLES 64`, which is bounded and up to 64 elements exact.
//! Each question is a call, and a line in the server's `MONITOR`. So there are none where all are alike
//! (`usual_sizes.rs`), and else the answer is remembered (`asked_sizes.rs`).

use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

use super::asked_sizes::AskedSizes;
use super::usual_sizes::{Shape, UsualSizes};
use crate::ffi::server::{Key, Kind, Server};

/// How far back the mean of sizes looks, in keys.
const MEAN_OVER: f64 = 4096.0;
/// The same of overheads, which differ far less between keys.
const OVERHEAD_OVER: f64 = 512.0;
/// Measured overheads whose mean is good to a percent of most keys' size.
const ROUGH_BELOW: f64 = 64.0;
/// Where a partition has so many times as many keys as when they were measured, the first may have been unlike the
/// rest: what was measured counts as so many then.
const GROWN: u64 = 2;
const ROUGH_AGAIN: f64 = ROUGH_BELOW / 4.0;
/// Met keys of a partition whose mean will do for a start.
const UNMET_BELOW: f64 = 64.0;
/// A string from here on may lie in the buffer that it was received in, up to a tenth larger than itself.
pub const LARGE_BYTES: usize = 32 << 10;
/// Sizes that are apart from their mean by less than this share of it, on average, are taken for the mean.
pub(super) const ALIKE_BELOW: f64 = 1.0 / 32.0;
/// A key's overhead until one was measured, in bytes.
const OVERHEAD_GUESS_BYTES: f64 = 64.0;

/// A mean that forgets slowly.
#[derive(Clone, Copy, Default)]
struct Mean {
    n: f64,
    value: f64,
}

impl Mean {
    /// Some samples, by their sum; those count that came among the last `over`.
    fn add(&mut self, samples: f64, sum: f64, over: f64) {
        self.n = (self.n + samples).min(over);
        self.value += (sum - samples * self.value) / self.n;
    }
}

/// Sizes of keys, and the mean size by partition.
pub struct Sizes {
    /// Of collections and large strings, without their names.
    asked: AskedSizes,
    usual: UsualSizes,
    /// By partition, how much more or less than usual they take that were asked about, as a factor.
    than_usual: Vec<Mean>,
    overhead: Vec<Mean>,
    /// How many keys the partition had when they were measured.
    measured_among: Vec<u64>,
    mean: Vec<Mean>,
    /// How far from it sizes are.
    apart: Vec<Mean>,
}

impl Sizes {
    /// Nothing known yet.
    pub fn new() -> Self {
        let none = vec![Mean::default(); PARTITIONS_MAX];
        Sizes {
            asked: AskedSizes::new(),
            usual: UsualSizes::default(),
            than_usual: none.clone(),
            overhead: none.clone(),
            measured_among: vec![0; PARTITIONS_MAX],
            mean: none.clone(),
            apart: none,
        }
    }

    /// Ten times a second, under that limit of the server's: see [`AskedSizes::tick`] and [`UsualSizes::tick`].
    pub fn tick(&mut self, limit_bytes: u64) {
        self.asked.tick(limit_bytes);
        self.usual.tick();
    }

    /// Forgets what was learned of partitions that are no more.
    pub fn forget_partitions(&mut self) {
        for means in [&mut self.overhead, &mut self.mean, &mut self.apart, &mut self.than_usual] {
            means.fill(Mean::default());
        }
        self.measured_among.fill(0);
    }

    /// Forgets what was learned of one.
    pub fn forget(&mut self, partition: PartitionId) {
        for means in [&mut self.overhead, &mut self.mean, &mut self.apart, &mut self.than_usual] {
            means[partition.index()] = Mean::default();
        }
        self.measured_among[partition.index()] = 0;
    }

    /// What `key` of that name takes, in bytes. About 10 ns for a string; a collection costs a call where such differ
    /// and it isn't remembered. One that has no elements yet is as the mean of its partition.
    pub fn of(
        &mut self,
        partition: PartitionId,
        name: &impl AsRef<[u8]>,
        hash: impl FnOnce() -> KeyHash,
        key: &Key,
    ) -> u32 {
        let name = name.as_ref();
        let known = self.known(partition, name, key).or_else(|| {
            let (shape, Sizes { asked, usual, than_usual, .. }) = (shape_of(key), &mut *self);
            // Then one alone is of no use to remember.
            let are_alike = usual.are_alike(shape);
            let mut ask = || {
                let size_bytes = saturate(key.memory_usage(name)? as f64 - f64::from(named_bytes(name)));
                if let Some(mean_bytes) = usual.mean_bytes(shape) {
                    than_usual[partition.index()].add(1.0, f64::from(size_bytes) / f64::from(mean_bytes), MEAN_OVER);
                }
                usual.learn(shape, size_bytes);
                Some(size_bytes)
            };
            let size_bytes = if are_alike { ask() } else { asked.of(hash(), shape.elements, ask) };
            Some(size_bytes?.saturating_add(named_bytes(name)))
        });
        known.unwrap_or_else(|| self.mean_bytes(partition))
    }

    /// The same without a call. One that would have to be asked about takes as much as others of its type with about as
    /// many elements, by how much its partition's differ from those.
    pub fn roughly(
        &mut self,
        partition: PartitionId,
        name: &impl AsRef<[u8]>,
        hash: impl FnOnce() -> KeyHash,
        key: &Key,
    ) -> u32 {
        let name = name.as_ref();
        let known = self.known(partition, name, key).or_else(|| {
            let (shape, than_usual) = (shape_of(key), self.than_usual[partition.index()]);
            let mean_bytes = || self.usual.mean_bytes(shape).filter(|_| than_usual.n > 0.0);
            let guess = || Some(saturate(f64::from(mean_bytes()?) * than_usual.value));
            let size_bytes = self.asked.remembered(hash(), shape.elements).or_else(guess)?;
            Some(size_bytes.saturating_add(named_bytes(name)))
        });
        known.unwrap_or_else(|| self.mean_bytes(partition))
    }

    /// What needn't be asked for.
    fn known(&mut self, partition: PartitionId, name: &[u8], key: &Key) -> Option<u32> {
        let length = key.length();
        if length < LARGE_BYTES && key.kind() == Kind::String {
            let bytes = (string_bytes(name.len(), length) as u32).saturating_add(self.overhead_bytes(partition));
            return Some(bytes.max(1));
        }
        let size_bytes = self.usual.alike_bytes(shape_of(key))?;
        Some(size_bytes.saturating_add(named_bytes(name)))
    }

    /// Learns the overhead of a string from the server's own word. Costs a call: for a few keys now and then.
    pub fn calibrate(&mut self, server: &mut Server, partition: PartitionId, name: &[u8], length: usize) {
        if let Some(usage) = memory_usage(server, name) {
            self.learn_overhead(partition, usage - string_bytes(name.len(), length) as f64);
        }
    }

    fn learn_overhead(&mut self, partition: PartitionId, bytes: f64) {
        self.overhead[partition.index()].add(1.0, bytes, OVERHEAD_OVER);
    }

    /// True where few overheads were measured of a partition that has so many keys, or were when it had far fewer: such
    /// a mean is off by more than it may be.
    pub fn is_rough(&mut self, partition: PartitionId, keys: u64) -> bool {
        let (overhead, among) = (&mut self.overhead[partition.index()], &mut self.measured_among[partition.index()]);
        if keys > GROWN * *among {
            overhead.n = overhead.n.min(ROUGH_AGAIN);
        }
        let is_rough = overhead.n < ROUGH_BELOW;
        if is_rough {
            *among = keys;
        }
        is_rough
    }

    /// A key of the partition was met on a walk through the key space.
    pub fn met(&mut self, partition: PartitionId, size_bytes: u32) {
        self.met_many(partition, 1, (u64::from(size_bytes), self.apart_bytes(partition, size_bytes)));
    }

    /// A few of its keys were, that take so many bytes together, and are so many apart from the mean.
    pub fn met_many(&mut self, partition: PartitionId, keys: u64, (bytes, apart_bytes): (u64, u64)) {
        if keys > 0 {
            self.mean[partition.index()].add(keys as f64, bytes as f64, MEAN_OVER);
            self.apart[partition.index()].add(keys as f64, apart_bytes as f64, MEAN_OVER);
        }
    }

    /// How far from the mean of its partition that size is, in bytes.
    #[inline]
    pub fn apart_bytes(&self, partition: PartitionId, size_bytes: u32) -> u64 {
        (f64::from(size_bytes) - self.mean[partition.index()].value).abs() as u64
    }

    /// True where the sizes of the partition's keys have to be looked at one by one: they differ, or few were met.
    #[inline]
    pub fn vary(&self, partition: PartitionId) -> bool {
        let (mean, apart) = (self.mean[partition.index()], self.apart[partition.index()]);
        mean.n < UNMET_BELOW || apart.value >= ALIKE_BELOW * mean.value
    }

    /// True where so few keys were met that each new one is worth a look.
    pub fn are_unmet(&self, partition: PartitionId) -> bool {
        self.mean[partition.index()].n < UNMET_BELOW
    }

    /// Mean size of the partition's keys, in bytes.
    pub fn mean_bytes(&self, partition: PartitionId) -> u32 {
        let mean = self.mean[partition.index()];
        saturate(if mean.n > 0.0 { mean.value } else { 2.0 * OVERHEAD_GUESS_BYTES })
    }

    fn overhead_bytes(&self, partition: PartitionId) -> u32 {
        let overhead = self.overhead[partition.index()];
        (if overhead.n > 0.0 { overhead.value } else { OVERHEAD_GUESS_BYTES }) as u32
    }
}

fn shape_of(key: &Key) -> Shape {
    Shape { type_number: key.type_number() as usize, elements: key.length().min(u32::MAX as usize) as u32 }
}

/// What a collection's size has its name in it for, in bytes.
fn named_bytes(name: &[u8]) -> u32 {
    size_class(name.len() + AROUND) as u32
}

/// Around a string: a header of 1 to 9 bytes and a closing zero, as it is for most lengths.
const AROUND: usize = 4;

/// A string and its name as the allocator rounds them, less what every key has alike.
#[inline]
fn string_bytes(name_len: usize, length: usize) -> usize {
    size_class(name_len + AROUND) + size_class(length + AROUND)
}

/// What jemalloc gives for `bytes`: multiples of 16 up to 128, then four sizes an octave.
#[inline]
fn size_class(bytes: usize) -> usize {
    // Steps are powers of two: a mask rounds up, without a division.
    let step = if bytes <= 128 { 16 } else { 1 << ((bytes - 1).ilog2() - 2) };
    (bytes + step - 1) & !(step - 1)
}

/// What the server says that a key of the selected database takes, in bytes; `None` where it isn't there. Up to 64
/// elements exact.
pub fn memory_usage(server: &mut Server, name: &[u8]) -> Option<f64> {
    let reply = server.call(c"MEMORY", &[b"USAGE", name, b"SAMPLES", b"64"])?;
    reply.integer().map(|bytes| bytes as f64)
}

fn saturate(bytes: f64) -> u32 {
    bytes.clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use tenure_core::units::PartitionId;

    use super::{Sizes, size_class};

    /// Values become of another length, and so of another overhead: some thousand measured keys tell it, while the mean
    /// of sizes still looks back.
    #[test]
    fn overheads_follow_before_sizes_do() {
        let (mut sizes, partition) = (Sizes::new(), PartitionId(3));
        for (keys, overhead, size_bytes) in [(10_000, 140.0, 4_000), (1_500, 90.0, 100)] {
            for _ in 0..keys {
                sizes.learn_overhead(partition, overhead);
                sizes.met(partition, size_bytes);
            }
        }
        let (overhead, size_bytes) = (sizes.overhead_bytes(partition), sizes.mean_bytes(partition));
        assert!((90..95).contains(&overhead) && size_bytes > 2_000, "{overhead} {size_bytes}");
    }

    /// The first hundred are alike, as where their names are short, and the next four hundred are others.
    #[test]
    fn a_partition_that_has_grown_is_measured_again() {
        let (mut sizes, partition) = (Sizes::new(), PartitionId(3));
        let mut measured = |keys: u64, overhead: f64| {
            let mut n = 0;
            while sizes.is_rough(partition, keys) {
                sizes.learn_overhead(partition, overhead);
                n += 1;
            }
            (n, sizes.overhead_bytes(partition))
        };
        assert_eq!(measured(100, 32.0), (64, 32));
        assert_eq!(measured(200, 40.0), (0, 32), "not twice as many yet");
        assert_eq!(measured(500, 40.0), (48, 38));
        assert_eq!(measured(500, 40.0), (0, 38));
        sizes.forget(partition);
        assert!(sizes.is_rough(partition, 500));
    }

    /// One size, then in one of a hundred keys another: sizes vary until those were long ago.
    #[test]
    fn sizes_are_alike_or_vary() {
        let (mut sizes, partition) = (Sizes::new(), PartitionId(3));
        let mut meet = |n: usize, other_bytes: u32| {
            (0..n).for_each(|i| sizes.met(partition, if i % 100 == 99 { other_bytes } else { 1_000 }));
            sizes.vary(partition)
        };
        assert!(meet(10, 1_000), "few were met");
        assert!(!meet(300, 1_000));
        assert!(meet(3_000, 10_000));
        assert!(!meet(30_000, 1_010));
        assert!(Sizes::new().vary(partition));
    }

    #[test]
    fn sizes_are_rounded_as_jemalloc_rounds_them() {
        for (bytes, class) in
            [(1, 16), (16, 16), (17, 32), (128, 128), (129, 160), (161, 192), (1025, 1280), (4096, 4096)]
        {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
    }
}
