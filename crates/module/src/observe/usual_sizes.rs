//! What collections and large strings of one type with about as many elements usually take. Where those that were
//! asked about are alike no others are: each question is a call of the server's, of some 8,000 instructions.
//!
//! Alike are a type's values of a quarter of an octave of elements if they differ from what is expected by less than a
//! 32nd on average: so no more than a 32nd of their memory is told wrong. One in 256 is asked about still, and one each
//! tick. Memory: nothing before the first, then 16 KB.

use tenure_core::log_linear::bucket_of;

use super::sizes::ALIKE_BELOW;

/// Values that are asked about before the others are taken for alike.
const ASKED_MIN: u16 = 64;
/// How far back the means look, in values that were asked about.
const MEAN_OVER: u16 = 256;
/// One in so many is asked about where they are alike.
const ASKED_ONE_IN: u16 = 256;
/// Where that one is so many times further off than alike ones are on average, all may have grown: what was found
/// before counts as so many values then. It is further than two neighbouring sizes of the allocator are apart.
const FAR_FROM: f32 = 8.0;
const COUNTS_STILL: u16 = 8;
/// Types of values that the server has.
const TYPES: usize = 8;
const PER_OCTAVE: u64 = 4;
/// Numbers of elements that are told apart.
const NUMBERS: usize = bucket_of::<PER_OCTAVE>(u32::MAX as u64) + 1;

/// A value as far as it is known without a question: its type's number, and its elements.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The type, as the server numbers them.
    pub type_number: usize,
    /// Elements of a collection, bytes of a string.
    pub elements: u32,
}

impl Shape {
    fn place(self) -> usize {
        self.type_number % TYPES * NUMBERS + bucket_of::<PER_OCTAVE>(self.elements.into())
    }
}

/// What was found of values of one shape. Means.
#[derive(Clone, Copy, Default)]
struct Usual {
    /// Values asked about, as many as count.
    asked: u16,
    /// Values since the last of them.
    unasked: u16,
    bytes: f32,
    elements: f32,
    /// By how many bytes a value takes more or less than expected.
    off_bytes: f32,
}

impl Usual {
    fn expected_bytes(&self, elements: u32) -> f32 {
        self.bytes * elements.max(1) as f32 / self.elements
    }

    fn are_alike(&self) -> bool {
        self.asked >= ASKED_MIN && self.off_bytes < self.alike_below_bytes()
    }

    fn alike_below_bytes(&self) -> f32 {
        ALIKE_BELOW as f32 * self.bytes
    }

    fn learn(&mut self, elements: u32, bytes: f32) {
        let off_bytes = if self.asked == 0 { 0.0 } else { (bytes - self.expected_bytes(elements)).abs() };
        if self.are_alike() && off_bytes > FAR_FROM * self.alike_below_bytes() {
            self.asked = COUNTS_STILL;
        }
        self.asked = (self.asked + 1).min(MEAN_OVER);
        self.unasked = 0;
        let weight = 1.0 / f32::from(self.asked);
        self.bytes += weight * (bytes - self.bytes);
        self.elements += weight * (elements.max(1) as f32 - self.elements);
        self.off_bytes += weight * (off_bytes - self.off_bytes);
    }
}

/// The sizes. See the file's opening.
#[derive(Default)]
pub struct UsualSizes {
    /// By type, then by number of elements.
    usual: Vec<Usual>,
    /// The next is asked about, though others tell of it.
    is_question_due: bool,
}

impl UsualSizes {
    fn of(&mut self, shape: Shape) -> &mut Usual {
        if self.usual.is_empty() {
            self.usual = vec![Usual::default(); TYPES * NUMBERS];
        }
        &mut self.usual[shape.place()]
    }

    /// Ten times a second: where few are met, one in so many would come too late to tell that they have grown.
    pub fn tick(&mut self) {
        self.is_question_due = true;
    }

    /// What a value of that shape takes, in bytes; `None` where it has to be asked about.
    pub fn alike_bytes(&mut self, shape: Shape) -> Option<u32> {
        let is_due = std::mem::take(&mut self.is_question_due);
        let usual = self.of(shape);
        if !usual.are_alike() || usual.unasked >= ASKED_ONE_IN || is_due {
            return None;
        }
        usual.unasked += 1;
        Some(usual.expected_bytes(shape.elements) as u32)
    }

    /// True where one tells of the others.
    pub fn are_alike(&self, shape: Shape) -> bool {
        self.usual.get(shape.place()).is_some_and(Usual::are_alike)
    }

    /// What it takes in the mean, whether they are alike or not; `None` where nobody was asked about.
    pub fn mean_bytes(&self, shape: Shape) -> Option<f32> {
        let usual = self.usual.get(shape.place()).filter(|usual| usual.asked > 0)?;
        Some(usual.expected_bytes(shape.elements))
    }

    /// One was asked about.
    pub fn learn(&mut self, shape: Shape, bytes: u32) {
        self.of(shape).learn(shape.elements, bytes as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: usize = 3;

    fn shape(elements: u32) -> Shape {
        Shape { type_number: HASH, elements }
    }

    /// What is told of a thousand values of that shape, the i-th of which takes `bytes_of(i)`, and how many were asked
    /// about.
    fn meet(sizes: &mut UsualSizes, shape: Shape, bytes_of: impl Fn(u32) -> u32) -> (u64, u32) {
        let (mut told, mut asked) = (0, 0);
        for i in 0..1000 {
            told += u64::from(sizes.alike_bytes(shape).unwrap_or_else(|| {
                asked += 1;
                sizes.learn(shape, bytes_of(i));
                bytes_of(i)
            }));
        }
        (told, asked)
    }

    #[test]
    fn of_values_that_are_alike_few_are_asked_about() {
        let mut sizes = UsualSizes::default();
        assert_eq!(sizes.usual.capacity(), 0);
        let (told, asked) = meet(&mut sizes, shape(10), |i| 990 + i % 20);
        assert!((64..=64 + 1000 / 256).contains(&asked) && told.abs_diff(1_000_000) < 10_000, "{told} of {asked}");
        assert_eq!(sizes.alike_bytes(Shape { type_number: HASH + 1, ..shape(10) }), None, "another type");
        assert_eq!(sizes.alike_bytes(shape(5)), None, "other elements");
        let (bytes_of_11, bytes_of_10) = (sizes.alike_bytes(shape(11)), sizes.alike_bytes(shape(10)));
        assert_eq!((bytes_of_11.map(|bytes| bytes / 100), bytes_of_10.map(|bytes| bytes / 100)), (Some(10), Some(9)));
    }

    /// All have grown by a half, and nothing else tells: that is found out by the first that is asked about.
    #[test]
    fn values_that_have_grown_are_asked_about_again() {
        let mut sizes = UsualSizes::default();
        meet(&mut sizes, shape(10), |_| 1000);
        let (_, asked) = meet(&mut sizes, shape(10), |_| 1500);
        assert!(asked >= u32::from(ASKED_MIN), "{asked}");
        let (told, asked) = meet(&mut sizes, shape(10), |_| 1500);
        assert!(told.abs_diff(1_500_000) < 1_500_000 / 32 && asked < 500, "{told} of {asked}");
        sizes.tick();
        assert_eq!([(); 2].map(|()| sizes.alike_bytes(shape(10)).is_some()), [false, true]);
        // One alone that is large is soon forgotten.
        meet(&mut sizes, shape(10), |i| if i == 500 { 10_000 } else { 1500 });
        let (told, asked) = meet(&mut sizes, shape(10), |_| 1500);
        assert!(told.abs_diff(1_500_000) < 1_500_000 / 32 && asked < 500, "{told} of {asked}");
    }

    /// Where one in twenty is ten times as large, each is asked about; and so it is soon once that begins.
    #[test]
    fn values_that_differ_are_asked_about_each() {
        let few_are_large = |i: u32| if i % 20 == 19 { 10_000 } else { 1000 };
        let mut sizes = UsualSizes::default();
        assert_eq!(meet(&mut sizes, shape(10), few_are_large).1, 1000);
        assert!(meet(&mut sizes, shape(20), |_| 1000).1 < 100);
        (0..10).for_each(|_| _ = meet(&mut sizes, shape(20), few_are_large));
        assert_eq!(meet(&mut sizes, shape(20), few_are_large).1, 1000);
        let mean_bytes = sizes.mean_bytes(shape(20)).unwrap();
        assert!((1200.0..1800.0).contains(&mean_bytes), "{mean_bytes}");
        assert_eq!(sizes.mean_bytes(shape(3)), None);
    }
}
