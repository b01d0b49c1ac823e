//! What a primary has learned, for the replica that may take its place: of its partitions curves, penalties, targets
//! and K; under the default policy what its learner has counted.
//!
//! Curves go in at most 64 points (an error of at most 1/63 in the miss ratio): about 1 KB for each partition. Counts
//! take 16 bytes for each age of a feature that was seen, 350 KB at most.

use tenure_core::curve::{CurvePoint, MissRatioCurve};

use tenure_core::policy::density::{Noise, Teaching};

use crate::wire::{Reader, Writer};
use crate::worker::{Lesson, PartitionView, Published, Weights};

const CURVE_POINTS: usize = 64;

/// What is known of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lessons {
    /// Keys sampled per eviction, where one K was chosen for the whole cache.
    pub sample_size: Option<u32>,
    /// By partition, as the teacher numbers them.
    pub partitions: Vec<Lesson>,
    /// How far penalties tell keys apart.
    pub noise: Noise,
    /// What the learner of the default policy knows; `None` under others, and before anything was learned.
    pub teaching: Option<Teaching>,
}

impl Lessons {
    /// What was published of partitions of these tenants and classes.
    pub fn of(published: &Published, noise: Noise, of_what: impl Iterator<Item = (String, String)>) -> Lessons {
        let targets = published.plan.as_ref().map_or(&[][..], |plan| &plan.target_bytes);
        let lesson = |(i, (view, (tenant, class))): (usize, (&PartitionView, (String, String)))| Lesson {
            tenant,
            class,
            target_bytes: targets.get(i).copied().unwrap_or(0),
            sample_size: published.sample_sizes.get(i).copied().unwrap_or(0),
            weights: view.weights,
            curve: view.curve.thinned(CURVE_POINTS),
        };
        Lessons {
            sample_size: published.choice.sample_size,
            partitions: published.partitions.iter().zip(of_what).enumerate().map(lesson).collect(),
            noise,
            teaching: published.learned.teaching.as_deref().cloned(),
        }
    }

    /// As a message's body.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u64(u64::from(self.sample_size.unwrap_or(0)));
        self.noise.to_numbers().iter().for_each(|x| _ = writer.f64(*x));
        writer.u64(self.partitions.len() as u64);
        for lesson in &self.partitions {
            writer.text(&lesson.tenant).text(&lesson.class);
            writer.u64(lesson.target_bytes).u64(u64::from(lesson.sample_size));
            let weights = &lesson.weights;
            writer.f64(weights.reads).f64(weights.penalties);
            writer.f64(weights.penalty_us_sum).f64(weights.penalty_us_square_sum);
            writer.u64(lesson.curve.points().len() as u64);
            lesson.curve.points().iter().for_each(|point| _ = writer.u64(point.bytes).f64(point.miss_ratio));
        }
        if let Some(Teaching { counts, ranking, windows }) = &self.teaching {
            writer.u32(u32::from(*ranking)).u32(*windows).u64(counts.len() as u64);
            for (at, counted) in counts {
                writer.u32(*at);
                counted.iter().for_each(|n| _ = writer.u32(n.to_bits()));
            }
        }
        writer.0
    }

    /// What [`Lessons::encode`] wrote.
    pub fn decode(body: &[u8]) -> Option<Lessons> {
        let mut reader = Reader(body);
        let sample_size = k(reader.u64()?)?;
        let mut number = || reader.f64();
        let noise = Noise::from_numbers([number()?, number()?, number()?, number()?, number()?])?;
        let n = reader.count(60)?;
        let partitions = (0..n).map(|_| decode_one(&mut reader)).collect::<Option<Vec<Lesson>>>()?;
        let teaching = if reader.0.is_empty() { None } else { Some(decode_teaching(&mut reader)?) };
        let sample_size = (sample_size > 0).then_some(sample_size);
        reader.0.is_empty().then_some(Lessons { sample_size, partitions, noise, teaching })
    }
}

fn decode_teaching(reader: &mut Reader) -> Option<Teaching> {
    let (ranking, windows) = (u8::try_from(reader.u32()?).ok()?, reader.u32()?);
    let n = reader.count(16)?;
    let mut number = || reader.u32();
    let mut counted = || Some((number()?, [number()?, number()?, number()?].map(f32::from_bits)));
    let counts = (0..n).map(|_| counted()).collect::<Option<Vec<_>>>()?;
    Some(Teaching { counts, ranking, windows })
}

fn decode_one(reader: &mut Reader) -> Option<Lesson> {
    let (tenant, class) = (reader.text()?.to_owned(), reader.text()?.to_owned());
    let (target_bytes, sample_size) = (reader.u64()?, k(reader.u64()?)?);
    let mut weight = || reader.f64().filter(|weight| *weight >= 0.0);
    let weights =
        Weights { reads: weight()?, penalties: weight()?, penalty_us_sum: weight()?, penalty_us_square_sum: weight()? };
    let n = reader.count(16)?;
    let point = |_| Some(CurvePoint { bytes: reader.u64()?, miss_ratio: reader.f64()? });
    let points = (0..n).map(point).collect::<Option<Vec<CurvePoint>>>()?;
    let increases = points.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
    increases.then(|| Lesson { tenant, class, target_bytes, sample_size, weights, curve: MissRatioCurve::new(points) })
}

/// A sampling size that may be.
fn k(n: u64) -> Option<u32> {
    u32::try_from(n).ok().filter(|&k| k <= 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lessons() -> Lessons {
        let curve = |n: u64| {
            let point = |i| CurvePoint { bytes: i * 1000, miss_ratio: 1.0 / (1.0 + i as f64) };
            MissRatioCurve::new((1..=n).map(point).collect())
        };
        let weights = Weights { reads: 5.0, penalties: 2.0, penalty_us_sum: 300.5, penalty_us_square_sum: 9e4 };
        let lesson = |tenant: &str, class: &str, n| Lesson {
            tenant: tenant.to_owned(),
            class: class.to_owned(),
            target_bytes: n,
            sample_size: 8,
            weights,
            curve: curve(n),
        };
        let partitions = vec![lesson("a", "none", 3), lesson("a", "70-150us", 0)];
        let teaching = Teaching { counts: vec![(7, [3.0, 2.0, 9.5]), (900, [0.5; 3])], ranking: 1, windows: 12 };
        let noise = Noise::from_numbers([5.0, 4.0, -1.0, 3.0, 2.0]).unwrap();
        Lessons { sample_size: Some(10), partitions, noise, teaching: Some(teaching) }
    }

    #[test]
    fn what_is_taught_is_heard_and_what_is_cut_is_not() {
        let body = lessons().encode();
        assert_eq!(Lessons::decode(&body), Some(lessons()));
        let partitions_end = body.len() - (8 + 8 + 2 * 16);
        let is_whole = |length: usize| length == partitions_end;
        assert!((0..body.len()).all(|length| Lessons::decode(&body[..length]).is_some() == is_whole(length)));
        assert_eq!(Lessons::decode(&Lessons::default().encode()), Some(Lessons::default()));
        let nameless = Lessons { partitions: vec![Lesson::default(); 3], ..Lessons::default() };
        assert_eq!(Lessons::decode(&nameless.encode()), Some(nameless), "the least that a partition takes");
    }

    #[test]
    fn what_cannot_be_is_dropped() {
        let with = |change: fn(&mut Lessons)| {
            let mut lessons = lessons();
            change(&mut lessons);
            Lessons::decode(&lessons.encode())
        };
        assert_eq!(with(|lessons| lessons.sample_size = Some(65)), None);
        assert_eq!(with(|lessons| lessons.partitions[0].weights.reads = -1.0), None);
        assert_eq!(with(|lessons| lessons.partitions[0].weights.penalties = f64::INFINITY), None);
        let mut body = Lessons { teaching: None, ..lessons() }.encode();
        // The second partition has two texts of 3 and 10 bytes, seven numbers and no point; the last point before it
        // has 16 bytes.
        let last_point = body.len() - (3 + 10 + 7 * 8) - 16;
        body[last_point - 16..last_point - 8].fill(0xff);
        assert_eq!(Lessons::decode(&body), None, "sizes don't increase");
    }
}
