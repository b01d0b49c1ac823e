//! The `TENURE.*` commands as the server registers and describes them: one row each, from which registration,
//! `COMMAND INFO`, `COMMAND DOCS`, rights and `TENURE.HELP` come.

use std::ffi::CStr;

use crate::ffi::commands::{Argument, Command, Form, Kind, Pace};

/// Since which version of the module all of them are there.
pub const SINCE: &CStr = c"0.1.0";

const fn argument(name: &'static CStr, form: Form) -> Argument {
    Argument { name, form, is_optional: false }
}

const fn optional(name: &'static CStr, form: Form) -> Argument {
    Argument { name, form, is_optional: true }
}

const KEY: Argument = argument(c"key", Form::Key);
const CLASS: Argument = argument(c"class|none", Form::Text);
const PARTITION: Argument = argument(c"partition", Form::Text);

const fn looks(name: &'static CStr, pace: Pace, summary: &'static CStr, complexity: &'static CStr) -> Command {
    Command { name, subcommand: None, kind: Kind::Looks, pace, arguments: &[], summary, complexity }
}

const fn of_class(name: &'static CStr, kind: Kind, arguments: &'static [Argument], summary: &'static CStr) -> Command {
    let container = c"tenure.class";
    Command { name: container, subcommand: Some(name), kind, pace: Pace::Fast, arguments, summary, complexity: c"O(1)" }
}

const fn changes(name: &'static CStr, arguments: &'static [Argument], summary: &'static CStr) -> Command {
    let (kind, pace) = (Kind::Changes, Pace::Slow);
    Command {
        name,
        subcommand: None,
        kind,
        pace,
        arguments,
        summary,
        complexity: c"O(databases), and work in the background",
    }
}

/// All of them, in the order in which `TENURE.HELP` tells of them; a container's stand together.
pub const COMMANDS: &[Command] = &[
    Command {
        arguments: &[optional(c"settings", Form::Word)],
        ..looks(
            c"tenure.help",
            Pace::Slow,
            c"This text, or every tenure.* setting with its allowed values, default and what it trades.",
            c"O(lines)",
        )
    },
    looks(
        c"tenure.status",
        Pace::Fast,
        c"Whether Tenure runs and evicts, what it plans on, and what that costs.",
        c"O(partitions), at most 128",
    ),
    looks(
        c"tenure.partitions",
        Pace::Slow,
        c"Each partition: keys, used and target bytes, accesses, miss ratio, miss penalty, evictions, K.",
        c"O(partitions), at most 128",
    ),
    looks(
        c"tenure.tenants",
        Pace::Slow,
        c"The same of each tenant, its partitions taken together: hits, misses, penalty, used, target, minimum and \
          maximum.",
        c"O(partitions), at most 128",
    ),
    Command {
        arguments: &[
            optional(c"tenant|partition", Form::Text),
            optional(c"points", Form::Number),
            optional(c"lru", Form::Word),
            optional(c"by-k", Form::Word),
        ],
        ..looks(
            c"tenure.mrc",
            Pace::Slow,
            c"Its miss ratio curve under the policy in force, or LRU's: pairs of bytes and the miss ratio of its \
              reads at that memory; 40 points by default. Without arguments: what a quarter of maxmemory to four \
              times as much would do, in all and by tenant. BY-K, where the policy chooses each partition's K: the \
              merged curve, and beside it that of each K (1, 5, 8, 16).",
            c"O(points), at most 1000, and O(partitions x points) of a tenant of several",
        )
    },
    Command {
        arguments: &[KEY],
        ..looks(
            c"tenure.why",
            Pace::Fast,
            c"With tenure.policy density: what the key is ranked by, in the cache or evicted, and how many of a \
              sample go before it.",
            c"O(keys sampled per eviction)",
        )
    },
    #[cfg(feature = "lessons")]
    Command {
        arguments: &[
            argument(c"format", Form::Number),
            argument(c"version", Form::Number),
            argument(c"bucket", Form::Number),
        ],
        ..looks(
            c"tenure.lessons",
            Pace::Slow,
            c"What replicas ask their primary: what it has learned, and a piece of what it remembers of keys.",
            c"O(partitions), and at most 512 KiB of the table of keys",
        )
    },
    #[cfg(feature = "tiers")]
    looks(
        c"tenure.tiers",
        Pace::Fast,
        c"Where the slow memory tier lies or why there is none; bytes, values and hits of both tiers, moves and what \
          they cost.",
        c"O(1)",
    ),
    #[cfg(feature = "replies")]
    Command {
        complexity: c"O(connections held)",
        ..changes(
            c"tenure.held",
            &[],
            c"With tenure.replies: whose replies wait for replicas, and for how long, a line for each as in CLIENT \
              LIST.",
        )
    },
    of_class(
        c"key",
        Kind::Hints,
        &[KEY, CLASS],
        c"From now on the key is of that miss-penalty class, whatever is measured; remembered after it is evicted.",
    ),
    of_class(c"connection", Kind::Hints, &[CLASS], c"From now on whatever this connection writes is of that class."),
    Command {
        pace: Pace::Slow,
        complexity: c"O(rules)",
        ..of_class(
            c"prefix",
            Kind::Changes,
            &[argument(c"prefix*", Form::Text), CLASS],
            c"Keys of that prefix are; the same as an entry of tenure.class-rules.",
        )
    },
    of_class(c"get", Kind::Looks, &[KEY], c"The key's class, and its miss penalty in microseconds as measured, or -1."),
    Command {
        pace: Pace::Slow,
        complexity: c"O(partitions), at most 128",
        ..of_class(
            c"list",
            Kind::Looks,
            &[],
            c"Each class in use, with its tenants' partitions, keys, penalty and misses taken together.",
        )
    },
    of_class(c"help", Kind::Looks, &[], c"What TENURE.CLASS takes."),
    #[cfg(feature = "sleep")]
    changes(
        c"tenure.sleep",
        &[PARTITION],
        c"The partition's values go to disk, the least recently used first, in the background; its keys answer from \
          there.",
    ),
    #[cfg(feature = "sleep")]
    changes(c"tenure.wake", &[PARTITION], c"They come back, the hottest first."),
    Command {
        subcommand: Some(c"panic"),
        ..changes(
            c"tenure.debug",
            &[argument(c"worker|filter|turn|command|visit|reads", Form::Text)],
            c"For tests, with tenure.debug-commands yes: a fault inside Tenure.",
        )
    },
    #[cfg(feature = "tiers")]
    Command {
        subcommand: Some(c"tier"),
        ..changes(
            c"tenure.debug",
            &[KEY, optional(c"fast|slow", Form::Text)],
            c"For tests, with tenure.debug-commands yes: where a key's value lies, or a move of it.",
        )
    },
    Command { subcommand: Some(c"help"), ..changes(c"tenure.debug", &[], c"What TENURE.DEBUG takes.") },
];

/// The lines of `TENURE.HELP`, or of one container's.
pub fn help(container: Option<&CStr>) -> Vec<String> {
    let wanted = COMMANDS.iter().filter(|command| container.is_none_or(|name| command.name == name));
    wanted.flat_map(|command| [command.syntax(), format!("    {}", command.summary.to_string_lossy())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &CStr, subcommand: Option<&CStr>) -> &'static Command {
        COMMANDS.iter().find(|command| command.name == name && command.subcommand == subcommand).unwrap()
    }

    #[test]
    fn a_row_tells_words_key_and_syntax() {
        let mrc = of(c"tenure.mrc", None);
        assert_eq!((mrc.arity(), mrc.key_at()), (-1, None));
        assert_eq!(mrc.syntax(), "TENURE.MRC [tenant|partition] [points] [LRU] [BY-K]");
        let hint = of(c"tenure.class", Some(c"key"));
        assert_eq!((hint.arity(), hint.key_at()), (4, Some(2)));
        assert_eq!(hint.syntax(), "TENURE.CLASS KEY key class|none");
        let why = of(c"tenure.why", None);
        assert_eq!((why.arity(), why.key_at()), (2, Some(1)));
    }

    #[test]
    fn subcommands_of_one_container_stand_together() {
        let mut names: Vec<&CStr> = COMMANDS.iter().map(|command| command.name).collect();
        names.dedup();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
        let containers = COMMANDS.iter().filter(|command| command.subcommand.is_some());
        containers.for_each(|command| assert!(of(command.name, Some(c"help")).arguments.is_empty()));
    }
}
