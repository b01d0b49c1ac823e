//! The settings: one table with name, unit, default, range and what each trades. `CONFIG GET/SET/REWRITE tenure.*`, the module's
//! arguments, `TENURE.HELP settings` and docs/operations.md all say what stands here.

mod declared;

use std::ffi::CStr;
use std::path::Path;
use std::time::Duration;

use tenure_core::decide::objective::Objective;
use tenure_core::decide::penalty_class::ClassLimits;
use tenure_core::sampling::SampleRate;
use tenure_core::tiers::division::Division;
use tenure_core::tiers::placer::Rule;

use crate::enforce::spill::file::Folder;
use crate::features::replies::mode::{Mode, OnTimeout};
use crate::features::tiers;
use crate::ffi::place::Place;
use crate::ffi::{filter, holding, load, tier_memory};
use crate::observe::classes::{ClassRules, ClassSpec, Source};
use crate::observe::keys::Remembers;
use crate::observe::tenants::TenantSpec;
use crate::worker::Instructions;
use crate::worker::model::Modelling;

/// What evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// What keeping saves least goes, per byte and time, as learned.
    Density,
    /// Partitions are held to the targets of the plan.
    Predis,
    /// The same, and each partition under the sampling size that serves it best.
    Kredis,
    /// The longest idle of a sample goes, whoever's it is, of as many keys as cost least.
    Dlru,
    /// What is worth least goes: penalty × requests / time in the cache.
    Hyperbolic,
    /// The same per byte.
    HyperbolicSize,
    /// The longest idle of a sample goes, whoever's it is.
    Lru,
    /// Tenure only watches; the server evicts.
    Off,
}

impl Policy {
    /// The names, in the order of [`Policy::ALL`].
    pub const NAMES: &[&CStr] =
        &[c"density", c"predis", c"kredis", c"dlru", c"hyperbolic", c"hyperbolic-size", c"lru", c"off"];
    const ALL: [Policy; 8] = [
        Policy::Density,
        Policy::Predis,
        Policy::Kredis,
        Policy::Dlru,
        Policy::Hyperbolic,
        Policy::HyperbolicSize,
        Policy::Lru,
        Policy::Off,
    ];

    /// True where partitions are held to the targets of the plan.
    pub fn has_targets(self) -> bool {
        matches!(self, Policy::Predis | Policy::Kredis)
    }

    /// True where of keys that may go the longest idle does.
    pub fn goes_by_age(self) -> bool {
        !matches!(self, Policy::Hyperbolic | Policy::HyperbolicSize | Policy::Density)
    }

    /// True where evicting needs what the worker learns.
    pub fn learns(self) -> bool {
        self.has_targets() || self == Policy::Density
    }

    /// What of each key has to be remembered.
    pub fn remembers(self) -> Remembers {
        match self {
            Policy::Hyperbolic | Policy::HyperbolicSize => Remembers::Residence,
            Policy::Density => Remembers::History,
            _ => Remembers::Classes,
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        Self::NAMES[self as usize].to_string_lossy().into_owned()
    }
}

/// Under which K `kredis` plans and evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KredisK {
    /// Each partition under the one that misses least there.
    ByCurve,
    /// All under `tenure.samples`.
    AsSet,
}

/// Who evicts under `dlru`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DlruEvictor {
    /// The server, whose sampling size is set.
    Server,
    /// Tenure, as under every other policy.
    Tenure,
}

/// The settings as they are. See [`TABLE`] for what each means.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `tenure.enabled`
    pub enabled: bool,
    /// `tenure.policy`
    pub policy: Policy,
    /// `tenure.kredis-k`
    pub kredis_k: KredisK,
    /// `tenure.dlru-evictor`
    pub dlru_evictor: DlruEvictor,
    /// `tenure.tenants`, as written.
    pub tenants_text: String,
    /// `tenure.tenants`, read.
    pub tenants: TenantSpec,
    /// `tenure.classes`, `tenure.class-limits` and `tenure.class-rules`, read.
    pub classes: ClassSpec,
    /// `tenure.class-limits`, as written.
    pub class_limits_text: String,
    /// `tenure.class-rules`, as written: names of keys may be any bytes.
    pub class_rules_text: Vec<u8>,
    /// `tenure.size-classes`
    pub size_classes: i64,
    /// `tenure.key-table-bytes`
    pub key_table_bytes: i64,
    /// `tenure.samples`
    pub samples: i64,
    /// `tenure.density-samples`
    pub density_samples: i64,
    /// `tenure.window-requests`
    pub window_requests: i64,
    /// `tenure.window-seconds`
    pub window_seconds: i64,
    /// `tenure.granularity-bytes`
    pub granularity_bytes: i64,
    /// `tenure.gain-min-percent`
    pub gain_min_percent: i64,
    /// `tenure.objective`
    pub objective: Objective,
    /// `tenure.headroom-bytes`
    pub headroom_bytes: i64,
    /// `tenure.turn-budget-us`
    pub turn_budget_us: i64,
    /// `tenure.sample-percent`
    pub sample_percent: i64,
    /// `tenure.samples-per-second`
    pub samples_per_second: i64,
    /// `tenure.watched-per-second`
    pub watched_per_second: i64,
    /// `tenure.penalty-max-ms`
    pub penalty_max_ms: i64,
    /// `tenure.limits-scope` is `cluster`.
    pub limits_of_cluster: bool,
    /// `tenure.teach-replicas`
    pub teach_replicas: bool,
    /// `tenure.spill-dir`
    pub spill_dir: String,
    /// `tenure.spill-max-bytes`
    pub spill_max_bytes: i64,
    /// `tenure.spill-bytes-per-second`
    pub spill_bytes_per_second: i64,
    /// `tenure.spill-auto`
    pub spill_auto: bool,
    /// `tenure.spill-interval-seconds`
    pub spill_interval_seconds: i64,
    /// `tenure.spill-run-intervals`
    pub spill_run_intervals: i64,
    /// `tenure.warm-restart`
    pub warm_restart: bool,
    /// `tenure.tier-slow`, as written.
    pub tier_slow_text: String,
    /// `tenure.tier-slow`, read.
    pub tier_slow: Option<Place>,
    /// `tenure.tier-fast-bytes`
    pub tier_fast_bytes: i64,
    /// `tenure.tier-rule`
    pub tier_rule: Rule,
    /// `tenure.tier-division`
    pub tier_division: Division,
    /// `tenure.replies`
    pub replies: Mode,
    /// `tenure.replies-replicas`
    pub replies_replicas: i64,
    /// `tenure.replies-timeout-ms`
    pub replies_timeout_ms: i64,
    /// `tenure.replies-on-timeout`
    pub replies_on_timeout: OnTimeout,
    /// `tenure.debug-commands`
    pub debug_commands: bool,
}

/// How a setting is read and written.
pub enum Kind {
    /// `yes` or `no`.
    Bool { default: bool, get: fn(&Settings) -> bool, set: fn(&mut Settings, bool), immutable: bool },
    /// A number within a range; `memory` ones may be written with a unit.
    Number { default: i64, min: i64, max: i64, memory: bool, get: fn(&Settings) -> i64, set: fn(&mut Settings, i64) },
    /// One of some names, `default` among them by its place; the error says why this server can't do that one.
    Choice {
        names: &'static [&'static CStr],
        default: usize,
        get: fn(&Settings) -> usize,
        set: fn(&mut Settings, usize) -> Result<(), String>,
    },
    /// A text with a grammar of its own, empty by default; the error says what is wrong.
    Text { get: fn(&Settings) -> &[u8], set: fn(&mut Settings, &[u8]) -> Result<(), String> },
}

/// One setting.
pub struct Setting {
    /// Its name without `tenure.`.
    pub name: &'static CStr,
    /// Its values.
    pub kind: Kind,
    /// Unit, meaning, and what it trades.
    pub about: &'static str,
}

macro_rules! number {
    ($field:ident, $name:literal, $default:literal, $min:literal..=$max:literal, $memory:literal, $about:literal) => {
        Setting {
            name: $name,
            kind: Kind::Number {
                default: $default,
                min: $min,
                max: $max,
                memory: $memory,
                get: |settings| settings.$field,
                set: |settings, value| settings.$field = value,
            },
            about: $about,
        }
    };
}

/// A setting that is one of some names; `values` in the order of `names`, and of the type's own.
macro_rules! choice {
    ($($field:ident).+, $name:literal, $names:expr, $values:expr, $default:expr, $about:literal) => {
        Setting {
            name: $name,
            kind: Kind::Choice {
                names: $names,
                default: $default as usize,
                get: |settings| settings.$($field).+ as usize,
                set: |settings, i| {
                    settings.$($field).+ = $values[i.min($values.len() - 1)];
                    Ok(())
                },
            },
            about: $about,
        }
    };
}

/// Every setting. The order is that of documentation.
pub const TABLE: &[Setting] = &[
    Setting {
        name: c"enabled",
        kind: Kind::Bool { default: true, get: |s| s.enabled, set: |s, v| s.enabled = v, immutable: false },
        about: "Whether Tenure does anything. 'no' lets the server run as stock; 'yes' after 'no', or after a fault, starts with fresh state.",
    },
    choice!(
        policy,
        c"policy",
        Policy::NAMES,
        Policy::ALL,
        Policy::Density,
        "What evicts: 'density' evicts what keeping saves least (miss penalty x expected reads / byte and time, learned from the accesses; or GDSF or the longest idle, where miniature caches find that better), 'predis' holds partitions to the plan's targets, 'kredis' too, each under the K (1, 5, 8 or 16) that misses least there, 'dlru' evicts the longest idle of K keys, whoever's they are, with the K (1, 2, 5, 10 or 16) that costs least, which the server's maxmemory-samples follows, 'hyperbolic' evicts what is worth least (miss penalty x requests / time in the cache; 'hyperbolic-size' per byte), best with 64 samples, 'lru' evicts the longest idle whoever's it is, 'off' leaves eviction to the server."
    ),
    Setting {
        name: c"tenants",
        kind: Kind::Text { get: |s| s.tenants_text.as_bytes(), set: |s, text| s.set_tenants(as_text(text)?) },
        about: "Who is a tenant: entries NAME=PREFIX*, NAME=user:USERNAME (keys that this ACL user creates) or NAME=db:N, apart by spaces, each with ,min=BYTES, ,max=BYTES (-1: no maximum, as without), ,weight=N (how much its misses count, 1 to 1000) and ,replies=async|sent|acked (in place of tenure.replies) if wanted. Empty: one per logical database in use.",
    },
    choice!(
        classes.source,
        c"classes",
        &[c"off", c"auto", c"hinted"],
        [Source::Off, Source::Auto, Source::Hinted],
        Source::Off,
        "Whether a tenant's keys are divided into miss-penalty classes, each with a curve and a target of its own: 'auto' by the penalty measured for the key, where no hint says otherwise, 'hinted' by hints alone (TENURE.CLASS, class-rules), 'off' not at all."
    ),
    Setting {
        name: c"class-limits",
        kind: Kind::Text { get: |s| s.class_limits_text.as_bytes(), set: |s, text| s.set_class_limits(as_text(text)?) },
        about: "Where one measured class ends and the next begins: up to 15 ascending numbers of microseconds. Empty: 10 30 70 150 310 630 1270 2550 5110 10230 20470 40950 81910 163830 327670.",
    },
    Setting {
        name: c"class-rules",
        kind: Kind::Text { get: |s| &s.class_rules_text, set: Settings::set_class_rules },
        about: "Hinted classes by prefix: entries NAME=PREFIX*, apart by spaces, the longest prefix wins; up to 16 names.",
    },
    number!(
        size_classes,
        c"size-classes",
        0,
        0..=8,
        false,
        "Into how many classes by value size each tenant, or each of its miss-penalty classes, is divided once more (policies predis and kredis), with limits at the quantiles of the sizes of late. Where sizes differ, small values get the memory that large ones waste; each class costs a model and a part of the 128 that there may be. 0 and 1: not at all; 4 is what was measured."
    ),
    number!(
        key_table_bytes,
        c"key-table-bytes",
        0,
        0..=68719476736,
        true,
        "Memory for what is remembered of single keys, in the cache or evicted: class, penalty, last access; 16 bytes each, and under the policy density without classes and tiers half of it 5 bytes each. Too little forgets classes. 0: 1/64 of maxmemory, 256 KiB to 256 MiB; none is taken where neither classes nor one of the policies density, hyperbolic and hyperbolic-size is on."
    ),
    number!(
        samples,
        c"samples",
        5,
        1..=64,
        false,
        "Keys sampled per eviction (K), where the policy doesn't choose. More find older keys, and cost main-thread time for each."
    ),
    number!(
        density_samples,
        c"density-samples",
        10,
        1..=64,
        false,
        "Keys sampled per eviction under the policy density. More find keys worth less, and cost main-thread time for each: while the main thread is busy for more than 80 % of the time fewer are, from 95 % on 5."
    ),
    choice!(
        kredis_k,
        c"kredis-k",
        &[c"by-curve", c"as-set"],
        [KredisK::ByCurve, KredisK::AsSet],
        KredisK::ByCurve,
        "Under which K the policy kredis plans and evicts: 'by-curve' each partition under that of 1, 5, 8 and 16 that misses least there, 'as-set' all under tenure.samples, for a quarter of the model's time and memory."
    ),
    choice!(
        dlru_evictor,
        c"dlru-evictor",
        &[c"server", c"tenure"],
        [DlruEvictor::Server, DlruEvictor::Tenure],
        DlruEvictor::Server,
        "Who evicts under the policy dlru: 'server' the server itself, with maxmemory-samples set to the chosen K, where maxmemory-policy is allkeys-lru or volatile-lru (Tenure else, and from tenants above their maximum), 'tenure' Tenure, ahead of the limit and without the server's pool."
    ),
    number!(
        window_requests,
        c"window-requests",
        50000,
        1000..=1000000000,
        false,
        "Requests between two plans. Fewer follow change sooner, on noisier curves."
    ),
    number!(
        window_seconds,
        c"window-seconds",
        10,
        1..=3600,
        false,
        "Seconds between two plans at the most, where requests are few."
    ),
    number!(
        granularity_bytes,
        c"granularity-bytes",
        0,
        0..=1099511627776,
        true,
        "The unit that memory is allocated in. Smaller fits better and takes the worker longer. 0: a thousandth of the memory."
    ),
    number!(
        gain_min_percent,
        c"gain-min-percent",
        1,
        0..=100,
        false,
        "A plan that saves less than this share of predicted cost isn't adopted. Higher moves less memory about."
    ),
    choice!(
        objective,
        c"objective",
        &[c"penalty", c"hits", c"fair"],
        Objective::ALL,
        Objective::Penalty,
        "What a plan is to reach: 'penalty' the least time lost to misses in all, 'hits' the most hits, 'fair' the least time lost that leaves no tenant with more than it would lose on an equal part of the memory. A tenant's weight counts in all three, but changes nobody's equal part."
    ),
    number!(
        headroom_bytes,
        c"headroom-bytes",
        0,
        0..=1099511627776,
        true,
        "How far below maxmemory Tenure keeps memory, so that the server's own eviction has nothing to do. More wastes memory, less lets it step in. 0: from how much a turn of the event loop brings, and what the worker takes for a moment at the end of a window."
    ),
    number!(
        turn_budget_us,
        c"turn-budget-us",
        500,
        50..=5000,
        false,
        "Microseconds that eviction may take in one turn of the event loop. Less keeps latency even, more keeps up with bursts."
    ),
    number!(
        sample_percent,
        c"sample-percent",
        1,
        1..=100,
        false,
        "Percent of keys that the models look at, at least; more while the working set is small."
    ),
    number!(
        samples_per_second,
        c"samples-per-second",
        10000,
        100..=1000000,
        false,
        "Sampled accesses a second above which the rate is lowered, down to sample-percent. Each costs the main thread up to 1 us."
    ),
    number!(
        watched_per_second,
        c"watched-per-second",
        25000,
        0..=1000000000,
        false,
        "Accesses a second above which, while memory is below half of maxmemory, only one second in several is watched: counters then show what was watched. Each watched access costs the main thread about 0.2 us. 0: all are watched, always."
    ),
    number!(
        penalty_max_ms,
        c"penalty-max-ms",
        10000,
        1..=3600000,
        false,
        "Milliseconds above which a measured miss penalty counts as this."
    ),
    Setting {
        name: c"limits-scope",
        kind: Kind::Choice {
            names: &[c"node", c"cluster"],
            default: 0,
            get: |s| usize::from(s.limits_of_cluster),
            set: |s, i| {
                s.limits_of_cluster = i == 1;
                Ok(())
            },
        },
        about: "What the tenants' minimums and maximums hold for, on a node of a cluster: 'node' each node by itself, 'cluster' all primaries together, each having the part that it has of the tenant's keys. To be set alike on all nodes.",
    },
    Setting {
        name: c"teach-replicas",
        kind: Kind::Bool {
            default: true,
            get: |s| s.teach_replicas,
            set: |s, v| s.teach_replicas = v,
            immutable: false,
        },
        about: "Whether a primary of a cluster sends its replicas what it has learned (with each plan about 1 KB per partition, and of the table of keys at most 80 KB ten times a second), so that one that takes over goes on with it.",
    },
    Setting {
        name: c"spill-dir",
        kind: Kind::Text { get: |s| s.spill_dir.as_bytes(), set: |s, text| s.set_spill_dir(as_text(text)?) },
        about: "The folder for values that sleep on disk, of this server alone; it is made where it isn't there. Empty: nothing sleeps.",
    },
    number!(
        spill_max_bytes,
        c"spill-max-bytes",
        1073741824,
        1048576..=1125899906842624,
        true,
        "What the files in spill-dir may take, and the file of a warm restart beside them; beyond it the sleepers of a file are given up."
    ),
    number!(
        spill_bytes_per_second,
        c"spill-bytes-per-second",
        67108864,
        1024..=1099511627776,
        true,
        "What falling asleep may write. Less spares the disk, more frees memory sooner."
    ),
    Setting {
        name: c"spill-auto",
        kind: Kind::Bool { default: true, get: |s| s.spill_auto, set: |s, v| s.spill_auto = v, immutable: false },
        about: "Whether partitions that are found to be periodic fall asleep in their valleys; 'no' leaves it to TENURE.SLEEP.",
    },
    number!(
        spill_interval_seconds,
        c"spill-interval-seconds",
        60,
        1..=3600,
        false,
        "Seconds of one count of accesses, by which periods, peaks and valleys are told."
    ),
    number!(
        spill_run_intervals,
        c"spill-run-intervals",
        10,
        1..=1000,
        false,
        "Intervals that a peak and a valley last at the least."
    ),
    Setting {
        name: c"warm-restart",
        kind: Kind::Bool { default: false, get: |s| s.warm_restart, set: |s, v| s.warm_restart = v, immutable: false },
        about: "Whether an orderly stop writes the hottest values into spill-dir, and a start has them back, hottest first, while it serves. What changed at the backend meanwhile is not known to a cache that was down.",
    },
    Setting {
        name: c"tier-slow",
        kind: Kind::Text { get: |s| s.tier_slow_text.as_bytes(), set: |s, text| s.set_tier_slow(as_text(text)?) },
        about: "Where values lie that are seldom asked for: 'anon' (ordinary memory, to try it), 'numa:NODE' (another socket, or CXL memory, which appears as a node), 'file:PATH' (a file, or one in that folder, mapped into memory). Strings above 256 bytes move; they are read where they lie. Needs jemalloc and MALLOC_CONF=tcache_max:256 in the server's environment (JE_MALLOC_CONF where jemalloc is the server's own copy). Empty: all memory is alike; values that are slow move back.",
    },
    number!(
        tier_fast_bytes,
        c"tier-fast-bytes",
        0,
        0..=1125899906842624,
        true,
        "How much of maxmemory may be fast: keys, short values, large collections and the server's own structures are, and the values asked for most. 0: a fifth of maxmemory."
    ),
    choice!(
        tier_rule,
        c"tier-rule",
        &[c"reuse-time", c"worth", c"always", c"never"],
        Rule::ALL,
        Rule::ReuseTime,
        "What decides who lies in fast memory: 'reuse-time' moves up what is asked for again sooner than fast values are on average, and down what wasn't asked for the longest, 'worth' goes by accesses per byte times what fast memory saves. To compare with: 'always' moves up whatever is read, 'never' nothing; the latter also for slow memory that is nearly as fast."
    ),
    choice!(
        tier_division,
        c"tier-division",
        &[c"guided", c"free", c"equal"],
        Division::ALL,
        Division::Free,
        "How tenants share fast memory: 'guided' by their miss ratio curves, so that most reads are fast, 'free' not at all: whoever has the coldest value gives, 'equal' alike."
    ),
    Setting {
        name: c"replies",
        kind: Kind::Choice {
            names: Mode::NAMES,
            default: Mode::Async as usize,
            get: |s| s.replies as usize,
            set: |s, i| s.set_replies(Mode::ALL[i.min(2)]),
        },
        about: "What the reply to a write waits for: 'async' for nothing, as stock, 'sent' until the write was handed to the replicas' sockets, 'acked' until replicas have acknowledged it. A tenant may have its own.",
    },
    number!(
        replies_replicas,
        c"replies-replicas",
        1,
        0..=64,
        false,
        "How many replicas must have been sent a write, or have acknowledged it. 0: all that follow, one at least."
    ),
    number!(
        replies_timeout_ms,
        c"replies-timeout-ms",
        1000,
        10..=3600000,
        false,
        "Milliseconds that a reply waits for replicas at the most, and for how long there may be too few of them; looked at ten times a second at the least."
    ),
    choice!(
        replies_on_timeout,
        c"replies-on-timeout",
        OnTimeout::NAMES,
        OnTimeout::ALL,
        OnTimeout::Async,
        "What becomes of writes when that time is over, until replicas follow again: 'async' answers them as stock, 'refuse' answers NOREPLICAS and closes the connections that wait, whose writes may or may not last."
    ),
    Setting {
        name: c"debug-commands",
        kind: Kind::Bool {
            default: false,
            get: |s| s.debug_commands,
            set: |s, v| s.debug_commands = v,
            immutable: true,
        },
        about: "Whether TENURE.DEBUG may provoke faults, for tests. Can be set at start only.",
    },
];

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Settings {
            enabled: true,
            policy: Policy::Density,
            tenants_text: String::new(),
            tenants: TenantSpec::default(),
            classes: ClassSpec::default(),
            class_limits_text: String::new(),
            class_rules_text: Vec::new(),
            size_classes: 0,
            key_table_bytes: 0,
            samples: 0,
            density_samples: 0,
            window_requests: 0,
            window_seconds: 0,
            granularity_bytes: 0,
            gain_min_percent: 0,
            objective: Objective::Penalty,
            kredis_k: KredisK::ByCurve,
            dlru_evictor: DlruEvictor::Server,
            headroom_bytes: 0,
            turn_budget_us: 0,
            sample_percent: 0,
            samples_per_second: 0,
            watched_per_second: 0,
            penalty_max_ms: 0,
            limits_of_cluster: false,
            teach_replicas: false,
            spill_dir: String::new(),
            spill_max_bytes: 0,
            spill_bytes_per_second: 0,
            spill_auto: false,
            spill_interval_seconds: 0,
            spill_run_intervals: 0,
            warm_restart: false,
            tier_slow_text: String::new(),
            tier_slow: None,
            tier_fast_bytes: 0,
            tier_rule: Rule::ReuseTime,
            tier_division: Division::Free,
            replies: Mode::Async,
            replies_replicas: 0,
            replies_timeout_ms: 0,
            replies_on_timeout: OnTimeout::Async,
            debug_commands: false,
        };
        for setting in TABLE {
            match &setting.kind {
                Kind::Bool { default, set, .. } => set(&mut settings, *default),
                Kind::Number { default, set, .. } => set(&mut settings, *default),
                // What is refused here and there is no default.
                Kind::Choice { default, set, .. } => _ = set(&mut settings, *default),
                Kind::Text { .. } => {}
            }
        }
        settings
    }
}

impl Settings {
    /// Takes a new text for `tenure.tenants`.
    ///
    /// # Errors
    /// As [`TenantSpec::parse`], tenants by user where the server doesn't tell who sends a command, and replies to be held where they
    /// can't be; nothing changes then.
    pub fn set_tenants(&mut self, text: &str) -> Result<(), String> {
        let tenants = TenantSpec::parse_for(text, load::databases().min(crate::observe::DBS_MAX))?;
        if tenants.holds_replies() {
            holding::holding()?;
        }
        if tenants.has_users() && !filter::knows_clients() {
            return Err(
                "tenants by user need a server that tells modules who sends a command: Valkey 7.2, Redis 7.2; here, \
                         allowed are a prefix with one '*' at its end, and db:N"
                    .to_owned(),
            );
        }
        self.tenants = tenants;
        self.tenants_text = text.to_owned();
        Ok(())
    }

    /// Takes another mode for `tenure.replies`.
    ///
    /// # Errors
    /// Where this server's replies can't be held; nothing changes then.
    pub fn set_replies(&mut self, mode: Mode) -> Result<(), String> {
        if mode != Mode::Async {
            holding::holding()?;
        }
        self.replies = mode;
        Ok(())
    }

    /// Takes a new text for `tenure.class-limits`.
    ///
    /// # Errors
    /// As [`ClassLimits::parse`]; nothing changes then.
    pub fn set_class_limits(&mut self, text: &str) -> Result<(), String> {
        self.classes.limits = ClassLimits::parse(text)?;
        self.class_limits_text = text.to_owned();
        Ok(())
    }

    /// Takes a new text for `tenure.class-rules`.
    ///
    /// # Errors
    /// As [`ClassRules::parse`]; nothing changes then.
    pub fn set_class_rules(&mut self, text: &[u8]) -> Result<(), String> {
        self.classes.rules = ClassRules::parse(text)?;
        self.class_rules_text = text.to_vec();
        Ok(())
    }

    /// Takes another folder for `tenure.spill-dir`.
    ///
    /// # Errors
    /// Where the server serves already, and it can't be made or written to, or is another server's; nothing changes then.
    pub fn set_spill_dir(&mut self, text: &str) -> Result<(), String> {
        // At the start the server is not to fail over it: it says so and runs without sleep.
        if !text.is_empty() && load::is_loaded() {
            Folder::check(Path::new(text))?;
        }
        self.spill_dir = text.to_owned();
        Ok(())
    }

    /// Takes another place for `tenure.tier-slow`.
    ///
    /// # Errors
    /// As [`Place::parse`]; where the server serves already, also where its allocator can't keep tiers apart, or the place gives no
    /// memory. Nothing changes then.
    pub fn set_tier_slow(&mut self, text: &str) -> Result<(), String> {
        let place = Place::parse(text)?;
        // At the start the server is not to fail over it: it says so and runs without tiers.
        if let Some(place) = &place
            && load::is_loaded()
        {
            tiers::check_allocator()?;
            tier_memory::check_place(place)?;
        }
        self.tier_slow = place;
        self.tier_slow_text = text.to_owned();
        Ok(())
    }

    /// What of each key has to be remembered, for the policy and for tiers.
    pub fn remembers(&self) -> Remembers {
        match self.policy.remembers() {
            Remembers::Classes if self.tier_slow.is_some() => Remembers::History,
            by_policy => by_policy,
        }
    }

    /// True where keys need only be remembered in outline: what they have shown and cost, of which class and in which tier they are is nobody's concern.
    pub fn outlines_keys(&self) -> bool {
        self.policy == Policy::Density && self.classes.source == Source::Off && self.tier_slow.is_none()
    }

    /// Into how many bins partitions are to be divided.
    pub fn bins(&self) -> usize {
        if self.policy.has_targets() { self.size_classes.max(1) as usize } else { 1 }
    }

    /// True where single keys have to be remembered.
    pub fn remembers_keys(&self) -> bool {
        self.classes.source != Source::Off || self.remembers() != Remembers::Classes
    }

    /// What the worker models.
    pub fn modelling(&self) -> Modelling {
        match (self.policy, self.kredis_k) {
            (Policy::Kredis, KredisK::ByCurve) => Modelling::SampleSizes,
            (Policy::Kredis, KredisK::AsSet) => Modelling::OneSampleSize(self.samples as u32),
            (Policy::Dlru, _) => Modelling::Miniatures,
            (Policy::Density, _) => Modelling::Densities,
            _ => Modelling::Recency,
        }
    }

    /// What concerns the worker.
    pub fn instructions(&self) -> Instructions {
        Instructions {
            window_requests: self.window_requests as u64,
            window: Duration::from_secs(self.window_seconds as u64),
            granularity_bytes: self.granularity_bytes as u64,
            gain_min: self.gain_min_percent as f64 / 100.0,
            objective: self.objective,
            rate_min: SampleRate::new(self.sample_percent as f64 / 100.0).unwrap_or(SampleRate::ALL),
            samples_per_second: self.samples_per_second as u64,
            modelling: self.modelling(),
            sample_size: self.samples as u32,
        }
    }
}

/// # Errors
/// Where the bytes are no text; names of keys alone may be any.
fn as_text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("'{}' is not UTF-8 text", bytes.escape_ascii()))
}

/// The allowed values of a setting, for people.
pub fn allowed(setting: &Setting) -> String {
    match &setting.kind {
        Kind::Bool { default, immutable, .. } => {
            let when = if *immutable { ", at start only" } else { "" };
            format!("yes or no (default {}){when}", if *default { "yes" } else { "no" })
        }
        Kind::Number { default, min, max, memory, .. } => {
            let unit = if *memory { " bytes" } else { "" };
            format!("{min} to {max}{unit} (default {default})")
        }
        Kind::Choice { names, default, .. } => {
            let names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            format!("{} (default {})", names.join(", "), names[*default])
        }
        Kind::Text { .. } => "text (default empty)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_lie_within_their_ranges_and_reach_their_fields() {
        let mut settings = Settings::default();
        for setting in TABLE {
            if let Kind::Number { default, min, max, get, set, .. } = &setting.kind {
                assert!((min..=max).contains(&default), "{:?}", setting.name);
                assert_eq!(get(&settings), *default, "{:?}", setting.name);
                set(&mut settings, *max);
                assert_eq!(get(&settings), *max, "{:?}", setting.name);
            }
        }
    }

    /// Names and values are two lists: each name has to bring the value that it is read as. What replies wait for is refused where no
    /// server is.
    #[test]
    fn choices_are_in_the_order_of_their_names() {
        let mut settings = Settings::default();
        for setting in TABLE {
            if let Kind::Choice { names, default, get, set } = &setting.kind {
                assert_eq!(get(&settings), *default, "{:?}", setting.name);
                for i in 0..names.len() {
                    let is_refused = set(&mut settings, i).is_err();
                    assert!(!is_refused || setting.name == c"replies", "{:?}", setting.name);
                    assert!(is_refused || get(&settings) == i, "{:?} {:?}", setting.name, names[i]);
                }
            }
        }
    }

    #[test]
    fn a_wrong_tenant_changes_nothing() {
        let mut settings = Settings::default();
        settings.set_tenants("a=x*").unwrap();
        assert!(settings.set_tenants("a=x* b").is_err());
        assert_eq!(settings.tenants_text, "a=x*");
    }
}
