//! A module's settings: their names and kinds, what each is set to, and the trait of the type that holds them.

use std::ffi::CStr;

/// What values a setting has.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A number.
    Number {
        /// The least.
        min: i64,
        /// The most.
        max: i64,
        /// It may be written with a unit of memory.
        memory: bool,
    },
    /// One of some names.
    Choice {
        /// The names, by which it is set; its value is the place in this list.
        names: &'static [&'static CStr],
    },
    /// A text.
    Text,
}

/// A setting, as the server is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name without the module's.
    pub name: &'static CStr,
    /// Its values.
    pub kind: Kind,
}

/// What a setting is set to, of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given<'a> {
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Number`], within its range.
    Number(i64),
    /// Of [`Kind::Choice`].
    Choice(usize),
    /// Of [`Kind::Text`].
    Text(&'a [u8]),
}

/// A module's settings; the defaults are what a module begins with. None of these may panic: they work after a fault
/// too.
pub trait Settings: Clone + Default + 'static {
    /// All of them, always in the same order.
    fn declared() -> Vec<Declared>;
    /// What the one at `i` is.
    fn get(&self, i: usize) -> Given<'_>;
    /// Sets it, to a value of its kind.
    ///
    /// # Errors
    /// What is wrong with the value and what is allowed; nothing changes then.
    fn set(&mut self, i: usize, value: Given) -> Result<(), String>;
    /// Sets one by its name, without the module's, as an argument of the module gives it.
    ///
    /// # Errors
    /// As [`Settings::set`], and where there is no setting of that name.
    fn set_argument(&mut self, name: &str, value: &str) -> Result<(), String>;
    /// The module is to run.
    fn is_enabled(&self) -> bool;
}

/// The one of `names` that is most like `word`, where one is like it: at most a third of its letters are others.
pub fn closest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names.map(|name| (edits(word, name), name)).min()?;
    (distance <= word.len().max(name.len()) / 3).then_some(name)
}

/// How many letters have to be put in, taken out or changed to make one word of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn a_misspelt_name_finds_what_was_meant() {
        let names = || ["samples", "window-seconds", "window-requests", "policy"].into_iter();
        for (word, expected) in [
            ("sample", Some("samples")),
            ("windows-second", Some("window-seconds")),
            ("polycy", Some("policy")),
            ("no-such", None),
            ("", None),
        ] {
            assert_eq!(closest(word, names()), expected, "{word}");
        }
    }
}
