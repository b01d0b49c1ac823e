//! A partition whose values are divided by size: which of its bins a sampled access is of.
//!
//! Of a key that is there the size is known. One that isn't has the size that it had when it was last met, which the
//! models remember; a miss of a key that nobody knows waits until the write that repairs it tells. A key that has
//! changed its size class takes what is known of it along to the other bin's model. Reads of a bin are those sampled,
//! each standing for 1 / rate of them: what a bin is predicted to miss depends on the sampled misses alone, so that a
//! hot key which is in the sample, or isn't, makes nothing look more expensive.

use tenure_core::access::{Access, Op};
use tenure_core::decide::size_class::{SizeClasses, SizeLimits};
use tenure_core::model::key_map::KeyMap;

use super::model::Model;
use crate::observe::Sampled;

/// Misses of keys that nobody knows, at the most; what is never repaired is forgotten with the rest when it is full.
const WAITING_MAX: usize = 1 << 12;

/// Misses that wait of one key; a key that is asked for again and again and never written waits for nothing.
const WAITING_OF_KEY: usize = 4;

/// What is known of one divided partition. See the file's opening.
pub struct Division {
    sizes: SizeClasses,
    waiting: KeyMap<Vec<(Access, u64)>>,
}

impl Division {
    /// `n` size classes, without limits yet.
    pub fn new(n: usize) -> Self {
        Division { sizes: SizeClasses::new(n), waiting: KeyMap::default() }
    }

    /// Where the size classes begin, as accesses are divided now.
    pub fn limits(&self) -> SizeLimits {
        *self.sizes.limits()
    }

    /// Takes one access of a key in the sample. `models` are those of the partition's bins, `reads` theirs of this
    /// window.
    pub fn take(&mut self, sampled: &Sampled, models: &mut [Model], reads: &mut [f64]) {
        let Sampled { access, at, is_sized, .. } = *sampled;
        let Some(rate) = models.first().map(Model::rate).filter(|rate| rate.takes(access.key)) else { return };
        if access.op == Op::Delete {
            self.waiting.remove(&access.key);
            return models.iter_mut().for_each(|model| model.record_sampled(&access, at));
        }
        let mut count = |class: usize, access: &Access| {
            reads[class] += if access.op == Op::Read { 1.0 / rate.rate() } else { 0.0 };
        };
        let held = models.iter().enumerate().find_map(|(class, model)| Some((class, model.size_of(access.key)?)));
        if !is_sized {
            match held {
                Some((class, size_bytes)) => {
                    let access = Access { size_bytes, ..access };
                    count(class, &access);
                    models[class].record_sampled(&access, at);
                }
                None => self.wait(access, at),
            }
            return;
        }
        self.sizes.saw(access.size_bytes);
        let class = self.sizes.limits().class_of(access.size_bytes).min(models.len() - 1);
        for (waiting, at) in self.waiting.remove(&access.key).unwrap_or_default() {
            let waiting = Access { size_bytes: access.size_bytes, ..waiting };
            count(class, &waiting);
            models[class].record_sampled(&waiting, at);
        }
        count(class, &access);
        match held {
            Some((before, _)) if before != class => {
                if let Ok([from, to]) = models.get_disjoint_mut([before, class]) {
                    to.take_over(from, &access, at);
                }
            }
            _ => models[class].record_sampled(&access, at),
        }
    }

    fn wait(&mut self, access: Access, at: u64) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.clear();
        }
        let of_key = self.waiting.entry(access.key).or_default();
        if of_key.len() < WAITING_OF_KEY {
            of_key.push((access, at));
        }
    }

    /// Ends a window, at whose end the partition has so many keys: what was seen so far weighs `decay`; limits move
    /// where they have to.
    pub fn end_window(&mut self, keys: u64, decay: f32) {
        self.sizes.end_window(keys, decay);
    }

    /// A part of the stream goes by unseen: whatever waits has been answered there.
    pub fn skip(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::sampling::SampleRate;
    use tenure_core::units::{KeyHash, PartitionId};

    use super::super::model::Modelling;
    use super::*;
    use crate::observe::bins::Binning;

    struct Case {
        division: Division,
        models: Vec<Model>,
        reads: Vec<f64>,
        sampled: Sampled,
    }

    /// Four size classes, with limits at about 700, 1100 and 1400 bytes.
    fn case(modelling: Modelling) -> Case {
        let mut binning = Binning::new(4);
        binning.add(0);
        let access = Access::read(KeyHash::of_number(0), 1);
        let bins = binning.of(PartitionId(0));
        let sampled = Sampled {
            access,
            at: 0,
            partition: PartitionId(0),
            bins,
            is_sized: true,
            epoch: 0,
            generation: 0,
            shown: None,
        };
        let models = (0..4).map(|i| Model::new(modelling, SampleRate::ALL, i)).collect();
        let mut case = Case { division: Division::new(4), models, reads: vec![0.0; 4], sampled };
        (0..1600).for_each(|i| case.write(1_000_000 + i, 100 + i as u32));
        case.division.end_window(1600, 0.7);
        case
    }

    impl Case {
        fn take(&mut self, key: u64, op: Op, size_bytes: u32, is_sized: bool) {
            let access = Access { key: KeyHash::of_number(key), op, size_bytes, ..self.sampled.access };
            self.sampled.at += 1;
            let sampled = Sampled { access, is_sized, ..self.sampled };
            self.division.take(&sampled, &mut self.models, &mut self.reads);
        }

        fn write(&mut self, key: u64, size_bytes: u32) {
            self.take(key, Op::Write, size_bytes, true);
        }

        fn hit(&mut self, key: u64, size_bytes: u32) {
            self.take(key, Op::Read, size_bytes, true);
        }

        fn miss(&mut self, key: u64) {
            self.take(key, Op::Read, 700, false);
        }

        fn knows(&self, class: usize, key: u64) -> Option<u32> {
            self.models[class].size_of(KeyHash::of_number(key))
        }
    }

    #[test]
    fn a_miss_is_of_the_size_that_its_write_tells() {
        for modelling in [Modelling::Recency, Modelling::SampleSizes] {
            let mut case = case(modelling);
            case.miss(7);
            case.miss(7);
            assert_eq!((&case.reads[..], case.knows(3, 7)), (&[0.0; 4][..], None));
            case.write(7, 1600);
            assert_eq!((&case.reads[..], case.knows(3, 7)), (&[0.0, 0.0, 0.0, 2.0][..], Some(1600)));
            case.miss(7);
            assert_eq!((case.reads[3], case.knows(3, 7)), (3.0, Some(1600)), "as large as it was");
            case.take(7, Op::Delete, 1, false);
            assert_eq!(case.knows(3, 7), None);
        }
    }

    /// A key that has grown is known to the other bin at once, and its read is no cold miss there.
    #[test]
    fn a_key_of_another_size_takes_what_is_known_along() {
        for modelling in [Modelling::Recency, Modelling::SampleSizes] {
            let mut case = case(modelling);
            case.write(7, 120);
            case.hit(7, 1600);
            assert_eq!((case.knows(0, 7), case.knows(3, 7), case.reads[3]), (None, Some(1600), 1.0));
            case.hit(7, 1600);
            case.models[3].advance(case.sampled.at, 2);
            let (curve, _) = case.models[3].curve(1 << 20);
            assert!(curve.miss_ratio_at(1 << 20) < 1e-6, "{modelling:?} {curve:?}");
        }
    }
}
