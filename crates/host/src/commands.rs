//! A module's commands as it declares them: names, arguments, what they do and how long they take.

use std::ffi::{CStr, c_int};

/// What a command does, by which the server tells who may run it and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It looks at what the module knows.
    Looks,
    /// It tells the module something of keys that the client writes itself; guards of writes hold for it.
    Hints,
    /// It changes what the module does for everybody.
    Changes,
}

/// How long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No longer where there is more.
    Fast,
    /// As long as there are partitions, tenants or points.
    Slow,
}

/// One argument, as `COMMAND DOCS` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// What it is; of [`Form::Word`] the word itself.
    pub name: &'static CStr,
    /// How it is written.
    pub form: Form,
    /// It may be left out.
    pub is_optional: bool,
}

/// How an argument is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The name of a key of the selected database.
    Key,
    /// Any text.
    Text,
    /// A number.
    Number,
    /// This very word.
    Word,
}

/// One command, or one subcommand.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name, or that of its container.
    pub name: &'static CStr,
    /// Which of its container's it is.
    pub subcommand: Option<&'static CStr>,
    /// What it does.
    pub kind: Kind,
    /// How long it takes.
    pub pace: Pace,
    /// What stands behind its name.
    pub arguments: &'static [Argument],
    /// A sentence or two.
    pub summary: &'static CStr,
    /// What its time depends on.
    pub complexity: &'static CStr,
}

impl Command {
    /// Words of a call at the least, its name included.
    pub fn words_min(&self) -> c_int {
        let names = 1 + usize::from(self.subcommand.is_some());
        (names + self.arguments.iter().filter(|argument| !argument.is_optional).count()) as c_int
    }

    /// As the server counts: that many words, or, where it is negative, so many at the least.
    pub fn arity(&self) -> c_int {
        let may_have_more = self.arguments.iter().any(|argument| argument.is_optional);
        if may_have_more { -self.words_min() } else { self.words_min() }
    }

    /// Which word is a key, if one is.
    pub fn key_at(&self) -> Option<c_int> {
        let at = self.arguments.iter().position(|argument| argument.form == Form::Key)?;
        Some((1 + usize::from(self.subcommand.is_some()) + at) as c_int)
    }

    /// As a call of it is written.
    pub fn syntax(&self) -> String {
        let name = self.name.to_string_lossy().to_ascii_uppercase();
        let subcommand = self.subcommand.map(|name| name.to_string_lossy().to_ascii_uppercase());
        let arguments = self.arguments.iter().map(|argument| {
            let name = argument.name.to_string_lossy();
            let text = if argument.form == Form::Word { name.to_ascii_uppercase() } else { name.into_owned() };
            if argument.is_optional { format!("[{text}]") } else { text }
        });
        std::iter::once(name).chain(subcommand).chain(arguments).collect::<Vec<_>>().join(" ")
    }
}
