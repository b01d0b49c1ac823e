//! The table of settings: a row for each. The fields of [`Settings`], their defaults and [`TABLE`] are made of it.

use tenure_core::decide::objective::Objective;
#[cfg(feature = "tiers")]
use tenure_core::tiers::division::Division;
#[cfg(feature = "tiers")]
use tenure_core::tiers::placer::Rule;

use super::given::as_text;
use super::{Kind, Policy, Setting};
#[cfg(feature = "replies")]
use crate::features::replies::mode::{Mode, OnTimeout};
use crate::ffi::place::Place;
use crate::observe::classes::{ClassSpec, Source};
use crate::observe::tenants::TenantSpec;
use crate::rivals::{self, RivalEvictor, RivalK};

/// Makes of each row a field of [`Settings`], its default and an entry of [`TABLE`]. A row: the cargo feature that it
/// is of, if any (as `@[cfg(…)]`), name, field, type, default, kind, and what it says to people; `read` are fields
/// that settings are read into.
macro_rules! settings {
    ($($(@[$when:meta])* $name:expr, $field:ident: $type:ty = $default:expr, $kind:ident $range:tt, $about:expr;)*
     @read $($(#[$doc:meta])* $read:ident: $read_type:ty,)*) => {
        /// The settings as they are. See [`TABLE`] for what each means.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($(#[$when])* #[doc = concat!("The setting ", stringify!($name), ".")] pub $field: $type,)*
            $($(#[$doc])* pub $read: $read_type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($(#[$when])* $field: $default,)* $($read: <$read_type>::default(),)* }
            }
        }

        /// Every setting. The order is that of documentation.
        pub const TABLE: &[Setting] =
            &[$($(#[$when])* Setting { name: $name, kind: kind!($kind $range, $field, $default), about: $about },)*];
    };
}

/// How a row's field is read and written.
macro_rules! kind {
    (yes_or_no(), $field:ident, $default:expr) => { kind!(bool, $field, $default, false) };
    (at_start(), $field:ident, $default:expr) => { kind!(bool, $field, $default, true) };
    (bool, $field:ident, $default:expr, $immutable:literal) => {
        Kind::Bool { default: $default, get: |s| s.$field, set: |s, v| s.$field = v, immutable: $immutable }
    };
    (number($min:literal..=$max:literal), $field:ident, $default:expr) => {
        kind!(i64, $field, $default, $min, $max, false)
    };
    (bytes($min:literal..=$max:literal), $field:ident, $default:expr) => {
        kind!(i64, $field, $default, $min, $max, true)
    };
    (i64, $field:ident, $default:expr, $min:literal, $max:literal, $memory:literal) => {
        Kind::Number {
            default: $default,
            min: $min,
            max: $max,
            memory: $memory,
            get: |s| s.$field,
            set: |s, v| s.$field = v,
        }
    };
    // Names, and the values in their order, which is the type's own.
    (choice($names:expr, $values:expr), $field:ident, $default:expr) => {
        kind!(choice_of($field, $default, $names, $values), $field, $default)
    };
    (choice_of($($place:ident).+, $chosen:expr, $names:expr, $values:expr), $field:ident, $default:expr) => {
        Kind::Choice {
            names: $names,
            default: $chosen as usize,
            get: |s| s.$($place).+ as usize,
            set: |s, i| {
                s.$($place).+ = $values[i.min($values.len() - 1)];
                Ok(())
            },
        }
    };
    // The same of a type that knows each value's place.
    (placed($names:expr, $values:expr), $field:ident, $default:expr) => {
        Kind::Choice {
            names: $names,
            default: $default.place(),
            get: |s| s.$field.place(),
            set: |s, i| {
                s.$field = $values[i.min($values.len() - 1)];
                Ok(())
            },
        }
    };
    // The same where some may be refused.
    (choice_by($names:expr, $values:expr, $set:ident), $field:ident, $default:expr) => {
        Kind::Choice {
            names: $names,
            default: $default as usize,
            get: |s| s.$field as usize,
            set: |s, i| s.$set($values[i.min($values.len() - 1)]),
        }
    };
    // False is the first of two names, true the other.
    (either($no:literal, $yes:literal), $field:ident, $default:expr) => {
        Kind::Choice {
            names: &[$no, $yes],
            default: $default as usize,
            get: |s| usize::from(s.$field),
            set: |s, i| {
                s.$field = i == 1;
                Ok(())
            },
        }
    };
    (text($set:ident), $field:ident, $default:expr) => {
        Kind::Text { get: |s| s.$field.as_bytes(), set: |s, text| s.$set(as_text(text)?) }
    };
    (any_bytes($set:ident), $field:ident, $default:expr) => {
        Kind::Text { get: |s| &s.$field, set: Settings::$set }
    };
}

settings! {
    c"enabled", enabled: bool = true, yes_or_no(),
        "Whether Tenure does anything. 'no' lets the server run as stock; 'yes' after 'no', or after a fault, starts \
         with fresh state.";
    c"policy", policy: Policy = Policy::Density, placed(Policy::NAMES, Policy::ALL),
        concat!("What evicts. 'density' evicts what keeping saves least: miss penalty x expected reads / byte and \
         time, learned from the accesses (or GDSF or the longest idle, where miniature caches find that better). ",
        rivals::about_rivals!(),
        " 'lru' evicts the longest idle, whoever's it is. 'off' leaves eviction to the server.");
    c"tenants", tenants_text: String = String::new(), text(set_tenants),
        "Who is a tenant: entries separated by spaces. NAME=PREFIX*, NAME=user:USERNAME (keys that this ACL user \
         creates) or NAME=db:N. Each may have ,min=BYTES, ,max=BYTES (-1: no maximum, as without), ,weight=N (how \
         much its misses count, 1 to 1000) and ,replies=async|sent|acked (in place of tenure.replies). Empty: one \
         per logical database in use.";
    @[cfg(feature = "prefixes")]
    c"auto-tenants-delimiter", auto_tenants_delimiter: String = String::new(), text(set_auto_tenants_delimiter),
        "Tenants that appear by themselves. Each first part of a key, up to this text of 1 to 8 bytes, such as ':', \
         becomes a tenant. There are up to 64 of them, those that are accessed most, fewer by those of \
         tenure.tenants, whose keys stay theirs. All other keys are of the tenant 'other'. Who they are changes at \
         the end of a window alone. Costs a second look at each command's keys. Empty: none appears.";
    c"classes", classes: ClassSpec = ClassSpec::default(),
        choice_of(classes.source, Source::Off, Source::NAMES, Source::ALL),
        "Whether a tenant's keys are divided into miss-penalty classes, each with a curve and a target of its own. \
         'auto': by the penalty measured for the key, where no hint says otherwise. 'hinted': by hints alone \
         (TENURE.CLASS, class-rules). 'off': not at all.";
    c"class-limits", class_limits_text: String = String::new(), text(set_class_limits),
        "Where one measured class ends and the next begins: up to 15 ascending numbers of microseconds. Empty: 10 30 \
         70 150 310 630 1270 2550 5110 10230 20470 40950 81910 163830 327670.";
    c"class-rules", class_rules_text: Vec<u8> = Vec::new(), any_bytes(set_class_rules),
        "Hinted classes by prefix: entries NAME=PREFIX*, separated by spaces, the longest prefix wins; up to 16 names.";
    c"key-table-bytes", key_table_bytes: i64 = 0, bytes(0..=68719476736),
        "Memory for what is remembered of single keys, in the cache or evicted: class, penalty, last access. A key \
         takes 16 bytes; under the policy density, without classes and tiers, half of the table has 5 bytes each. \
         Too little forgets classes. 0: 1/64 of maxmemory, 256 KiB to 256 MiB, and where it has entries of 5 bytes \
         512 KiB less, down to 1/104. None is taken where classes are off and the policy remembers no keys.";
    c"samples", samples: i64 = 5, number(1..=64),
        "Keys sampled per eviction (K), where the policy doesn't choose. More find older keys, and cost main-thread \
         time for each.";
    c"density-samples", density_samples: i64 = 10, number(1..=64),
        "Keys sampled per eviction under the policy density. More find keys worth less, and cost main-thread time \
         for each. While the main thread is busy for more than 30 % of the time fewer are, and from 50 % on 5. They go \
         down to 2 where turn-budget-us is too little for what a turn brings.";
    rivals::K_SETTING.0, rival_k: RivalK = RivalK::ByCurve, choice(RivalK::NAMES, RivalK::ALL), rivals::K_SETTING.1;
    rivals::EVICTOR_SETTING.0, rival_evictor: RivalEvictor = RivalEvictor::Server,
        choice(RivalEvictor::NAMES, RivalEvictor::ALL), rivals::EVICTOR_SETTING.1;
    c"window-requests", window_requests: i64 = 50000, number(1000..=1000000000),
        "Requests between two plans. Fewer follow change sooner, on noisier curves.";
    c"window-seconds", window_seconds: i64 = 10, number(1..=3600),
        "Seconds between two plans at the most, where requests are few.";
    c"granularity-bytes", granularity_bytes: i64 = 0, bytes(0..=1099511627776),
        "The unit that memory is allocated in. Smaller fits better and takes the worker longer. 0: a thousandth of \
         the memory.";
    c"gain-min-percent", gain_min_percent: i64 = 1, number(0..=100),
        "A plan that saves less than this share of predicted cost isn't adopted. Higher moves less memory about.";
    c"objective", objective: Objective = Objective::Penalty, choice(&[c"penalty", c"hits", c"fair"], Objective::ALL),
        "What a plan is to reach. 'penalty': the least time lost to misses in all. 'hits': the most hits. 'fair': \
         the least time lost that leaves no tenant with more than it would lose on an equal part of the memory. A \
         tenant's weight counts in all three, but changes nobody's equal part.";
    c"headroom-bytes", headroom_bytes: i64 = 0, bytes(0..=1099511627776),
        "How far below maxmemory Tenure keeps memory, so that the server's own eviction has nothing to do. More \
         wastes memory, less lets it step in. 0: by how much a turn of the event loop brings, and by what the worker \
         takes for a moment at the end of a window. While a child saves, keys go only where the next turn may need \
         their room.";
    c"turn-budget-us", turn_budget_us: i64 = 500, number(50..=5000),
        "Microseconds that eviction may take in one turn of the event loop. Less keeps latency even, more keeps up \
         with bursts. Keys that go without a search aren't counted, up to as many as came: the server would take \
         as long.";
    c"sample-percent", sample_percent: i64 = 1, number(1..=100),
        "Percent of keys that the models look at, at least; more while the working set is small.";
    c"samples-per-second", samples_per_second: i64 = 10000, number(100..=1000000),
        "Sampled accesses a second above which the rate is lowered, down to sample-percent. Each costs the main \
         thread up to 1 us.";
    c"watched-per-second", watched_per_second: i64 = 25000, number(0..=1000000000),
        "Accesses a second above which, while memory is below half of maxmemory, only one second in several is \
         watched: counters then show what was watched. Each watched access costs the main thread about 0.2 us. 0: \
         all are watched, always.";
    c"watch-percent", watch_percent: i64 = 1, number(1..=100),
        "Percent of the main thread's time that watching may take, under the policy density, while memory is near \
         maxmemory and that thread is busy (watch-busy-percent). Then commands are watched in slices, some turns of \
         the event loop in many, and counters show what was watched. Misses and new keys are known all the same. \
         Where no key has to go within ten seconds, a quarter of it is taken. More finds better victims, less leaves \
         more time to commands. 100: all are watched, always.";
    c"watch-busy-percent", watch_busy_percent: i64 = 80, number(0..=100),
        "From which percent of its time at work on the main thread is busy. Under the policy density commands are \
         watched in slices then. Keys that came may go without a search for a better victim, where few like them are \
         ever read.";
    c"penalty-max-ms", penalty_max_ms: i64 = 10000, number(1..=3600000),
        "Milliseconds above which a measured miss penalty counts as this.";
    @[cfg(feature = "cluster")]
    c"limits-scope", limits_of_cluster: bool = false, either(c"node", c"cluster"),
        "What the tenants' minimums and maximums hold for, on a node of a cluster. 'node': each node by itself. \
         'cluster': all primaries together, each having the part that it has of the tenant's keys. To be set alike \
         on all nodes.";
    @[cfg(feature = "lessons")]
    c"teach-replicas", teach_replicas: bool = true, yes_or_no(),
        "Whether a replica asks its primary what it has learned, and a primary answers. A replica that takes over \
         goes on with it. Each window takes 1 KB per partition and up to 350 KB of densities, and at most 512 KiB a \
         second of the table of keys.";
    @[cfg(feature = "sleep")]
    c"spill-dir", spill_dir: String = String::new(), text(set_spill_dir),
        "The folder for values that sleep on disk, of this server alone; it is made where it isn't there. Empty: \
         nothing sleeps.";
    @[cfg(feature = "sleep")]
    c"spill-max-bytes", spill_max_bytes: i64 = 1073741824, bytes(1048576..=1125899906842624),
        "What the files in spill-dir may take, and the file of a warm restart beside them; beyond it the sleepers of \
         a file are given up.";
    @[cfg(feature = "sleep")]
    c"spill-bytes-per-second", spill_bytes_per_second: i64 = 67108864, bytes(1024..=1099511627776),
        "What falling asleep may write. Less spares the disk, more frees memory sooner.";
    @[cfg(feature = "sleep")]
    c"spill-auto", spill_auto: bool = true, yes_or_no(),
        "Whether partitions that are found to be periodic fall asleep in their valleys; 'no' leaves it to \
         TENURE.SLEEP.";
    @[cfg(feature = "sleep")]
    c"spill-interval-seconds", spill_interval_seconds: i64 = 60, number(1..=3600),
        "Seconds of one count of accesses, by which periods, peaks and valleys are told.";
    @[cfg(feature = "sleep")]
    c"spill-run-intervals", spill_run_intervals: i64 = 10, number(1..=1000),
        "Intervals that a peak and a valley last at the least.";
    @[cfg(feature = "sleep")]
    c"warm-restart", warm_restart: bool = false, yes_or_no(),
        "Whether an orderly stop writes the hottest values into spill-dir, and a start has them back, hottest first, \
         while it serves. What changed at the backend meanwhile is not known to a cache that was down.";
    @[cfg(feature = "tiers")]
    c"tier-slow", tier_slow_text: String = String::new(), text(set_tier_slow),
        "Where values lie that are seldom accessed. 'anon': ordinary memory, to try it. 'numa:NODE': another socket, \
         or CXL memory, which appears as a node. 'file:PATH': a file, or one in that folder, mapped into memory. \
         Strings above 256 bytes move; they are read where they lie. Needs jemalloc and MALLOC_CONF=tcache_max:256 \
         in the server's environment (JE_MALLOC_CONF where jemalloc is the server's own copy). Empty: all memory is \
         alike; values that are slow move back.";
    @[cfg(feature = "tiers")]
    c"tier-fast-bytes", tier_fast_bytes: i64 = 0, bytes(0..=1125899906842624),
        "How much of maxmemory may be fast: keys, short values, large collections and the server's own structures \
         are, and the values asked for most. 0: a fifth of maxmemory.";
    @[cfg(feature = "tiers")]
    c"tier-rule", tier_rule: Rule = Rule::ReuseTime, choice(&[c"reuse-time", c"worth", c"always", c"never"], Rule::ALL),
        "What decides who lies in fast memory. 'reuse-time' moves up what is accessed again sooner than fast values \
         are on average, and down what wasn't accessed the longest. 'worth' goes by accesses per byte times what \
         fast memory saves. To compare with: 'always' moves up whatever is read, 'never' nothing. The latter is also \
         for slow memory that is nearly as fast.";
    @[cfg(feature = "tiers")]
    c"tier-division", tier_division: Division = Division::Free, choice(&[c"guided", c"free", c"equal"], Division::ALL),
        "How tenants share fast memory. 'guided': by their miss ratio curves, so that most reads are fast. 'free': \
         not at all, so whoever has the coldest value gives. 'equal': alike.";
    @[cfg(feature = "replies")]
    c"replies", replies: Mode = Mode::Async, choice_by(Mode::NAMES, Mode::ALL, set_replies),
        "What the reply to a write waits for. 'async': nothing, as stock. 'sent': until the write was handed to the \
         replicas' sockets. 'acked': until replicas have acknowledged it. A tenant may have its own.";
    @[cfg(feature = "replies")]
    c"replies-replicas", replies_replicas: i64 = 1, number(0..=64),
        "How many replicas must have been sent a write, or have acknowledged it. 0: all that follow, one at least.";
    @[cfg(feature = "replies")]
    c"replies-timeout-ms", replies_timeout_ms: i64 = 1000, number(10..=3600000),
        "Milliseconds that a reply waits for replicas at the most, and for how long there may be too few of them; \
         looked at ten times a second at the least.";
    @[cfg(feature = "replies")]
    c"replies-on-timeout", replies_on_timeout: OnTimeout = OnTimeout::Async, choice(OnTimeout::NAMES, OnTimeout::ALL),
        "What becomes of writes when that time is over, until replicas follow again. 'async' answers them as stock. \
         'refuse' answers NOREPLICAS and closes the connections that wait, whose writes may or may not last.";
    c"debug-commands", debug_commands: bool = false, at_start(),
        "Whether TENURE.DEBUG may provoke faults, for tests. Can be set at start only.";
    @read
    /// `tenure.tenants`
    tenants: TenantSpec,
    /// `tenure.tier-slow`
    tier_slow: Option<Place>,
}
