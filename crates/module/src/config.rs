//! The settings: one table with name, field, default, range and what each trades. The fields of [`Settings`],
//! `CONFIG GET/SET/REWRITE tenure.*`, the module's arguments, `TENURE.HELP settings` and docs/settings.md are all
//! made of it.

mod declared;

use std::ffi::CStr;
use std::time::Duration;

use tenure_core::decide::objective::Objective;
use tenure_core::decide::penalty_class::ClassLimits;
use tenure_core::sampling::SampleRate;
#[cfg(feature = "tiers")]
use tenure_core::tiers::division::Division;
#[cfg(feature = "tiers")]
use tenure_core::tiers::placer::Rule;

#[cfg(feature = "replies")]
use crate::features::replies::mode::{Mode, OnTimeout};
use crate::ffi::place::Place;
use crate::ffi::{filter, holding, load};
use crate::observe::classes::{ClassRules, ClassSpec, Source};
use crate::observe::keys::Remembers;
use crate::observe::tenants::TenantSpec;
use crate::rivals::{DlruEvictor, KredisK, Rival};
use crate::worker::Instructions;
use crate::worker::model::Modelling;

/// The longest `tenure.auto-tenants-delimiter`, in bytes.
#[cfg(feature = "prefixes")]
const DELIMITER_BYTES_MAX: usize = 8;

/// What evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// What keeping saves least goes, per byte and time, as learned.
    Density,
    /// What others would do, to compare with.
    Rival(Rival),
    /// The longest idle of a sample goes, whoever's it is.
    Lru,
    /// Tenure only watches; the server evicts.
    Off,
}

impl Policy {
    /// The names, in the order of [`Policy::ALL`].
    pub const NAMES: &[&CStr] = &{
        let [a, b, c, d, e] = Rival::NAMES;
        [c"density", a, b, c, d, e, c"lru", c"off"]
    };
    const ALL: [Policy; 8] = {
        let [a, b, c, d, e] = Rival::ALL;
        let rival = Policy::Rival;
        [Policy::Density, rival(a), rival(b), rival(c), rival(d), rival(e), Policy::Lru, Policy::Off]
    };

    /// Its place among all.
    const fn place(self) -> usize {
        match self {
            Policy::Density => 0,
            Policy::Rival(rival) => 1 + rival as usize,
            Policy::Lru => 1 + Rival::ALL.len(),
            Policy::Off => 2 + Rival::ALL.len(),
        }
    }

    /// Which of others' it is; `None` of Tenure's own.
    pub fn rival(self) -> Option<Rival> {
        if let Policy::Rival(rival) = self { Some(rival) } else { None }
    }

    /// True where partitions are held to the targets of the plan.
    pub fn has_targets(self) -> bool {
        self.rival().is_some_and(Rival::has_targets)
    }

    /// True where of keys that may go the longest idle does.
    pub fn goes_by_age(self) -> bool {
        self != Policy::Density && self.rival().is_none_or(|rival| rival.scorer().is_none())
    }

    /// True where evicting needs what the worker learns.
    pub fn learns(self) -> bool {
        self.has_targets() || self == Policy::Density
    }

    /// What of each key has to be remembered.
    pub fn remembers(self) -> Remembers {
        match self {
            Policy::Density => Remembers::History,
            Policy::Rival(rival) => rival.remembers(),
            Policy::Lru | Policy::Off => Remembers::Classes,
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        Self::NAMES[self.place()].to_string_lossy().into_owned()
    }
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

/// Makes of each row a field of [`Settings`], its default and an entry of [`TABLE`]. A row: the cargo feature that it
/// is of, if any, name, field, type, default, kind, and what it says to people; `read` are fields that settings are
/// read into.
macro_rules! settings {
    ($($(#[$when:meta])* $name:literal, $field:ident: $type:ty = $default:expr, $kind:ident $range:tt, $about:literal;)*
     read $($(#[$doc:meta])* $read:ident: $read_type:ty,)*) => {
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
        "What evicts: 'density' evicts what keeping saves least (miss penalty x expected reads / byte and time, \
         learned from the accesses; or GDSF or the longest idle, where miniature caches find that better), 'predis' \
         holds partitions to the plan's targets, 'kredis' too, each under the K (1, 5, 8 or 16) that misses least \
         there, 'dlru' evicts the longest idle of K keys, whoever's they are, with the K (1, 2, 5, 10 or 16) that \
         costs least, which the server's maxmemory-samples follows, 'hyperbolic' evicts what is worth least (miss \
         penalty x requests / time in the cache; 'hyperbolic-size' per byte), best with 64 samples, 'lru' evicts the \
         longest idle whoever's it is, 'off' leaves eviction to the server.";
    c"tenants", tenants_text: String = String::new(), text(set_tenants),
        "Who is a tenant: entries NAME=PREFIX*, NAME=user:USERNAME (keys that this ACL user creates) or NAME=db:N, \
         separated by spaces, each with ,min=BYTES, ,max=BYTES (-1: no maximum, as without), ,weight=N (how much its \
         misses count, 1 to 1000) and ,replies=async|sent|acked (in place of tenure.replies) if wanted. Empty: one \
         per logical database in use.";
    #[cfg(feature = "prefixes")]
    c"auto-tenants-delimiter", auto_tenants_delimiter: String = String::new(), text(set_auto_tenants_delimiter),
        "Tenants that appear by themselves: each first part of a key, up to this text of 1 to 8 bytes, such as ':', \
         becomes a tenant, the up to 64 that are accessed most (fewer by those of tenure.tenants, whose keys stay \
         theirs); all other keys are of the tenant 'other'. Who they are changes at the end of a window alone. Costs \
         a second look at each command's keys. Empty: none appears.";
    c"classes", classes: ClassSpec = ClassSpec::default(), choice_of(classes.source, Source::Off, &[c"off", c"auto", c"hinted"], [Source::Off, Source::Auto, Source::Hinted]),
        "Whether a tenant's keys are divided into miss-penalty classes, each with a curve and a target of its own: \
         'auto' by the penalty measured for the key, where no hint says otherwise, 'hinted' by hints alone \
         (TENURE.CLASS, class-rules), 'off' not at all.";
    c"class-limits", class_limits_text: String = String::new(), text(set_class_limits),
        "Where one measured class ends and the next begins: up to 15 ascending numbers of microseconds. Empty: 10 30 \
         70 150 310 630 1270 2550 5110 10230 20470 40950 81910 163830 327670.";
    c"class-rules", class_rules_text: Vec<u8> = Vec::new(), any_bytes(set_class_rules),
        "Hinted classes by prefix: entries NAME=PREFIX*, separated by spaces, the longest prefix wins; up to 16 names.";
    c"key-table-bytes", key_table_bytes: i64 = 0, bytes(0..=68719476736),
        "Memory for what is remembered of single keys, in the cache or evicted: class, penalty, last access; 16 \
         bytes each, and under the policy density without classes and tiers half of it 5 bytes each. Too little \
         forgets classes. 0: 1/64 of maxmemory, 256 KiB to 256 MiB; none is taken where neither classes nor one of \
         the policies density, hyperbolic and hyperbolic-size is on.";
    c"samples", samples: i64 = 5, number(1..=64),
        "Keys sampled per eviction (K), where the policy doesn't choose. More find older keys, and cost main-thread \
         time for each.";
    c"density-samples", density_samples: i64 = 10, number(1..=64),
        "Keys sampled per eviction under the policy density. More find keys worth less, and cost main-thread time \
         for each: while the main thread is busy for more than 80 % of the time fewer are, from 95 % on 5, and 5 too \
         where replies wait for it.";
    c"kredis-k", kredis_k: KredisK = KredisK::ByCurve, choice(&[c"by-curve", c"as-set"], [KredisK::ByCurve, KredisK::AsSet]),
        "Under which K the policy kredis plans and evicts: 'by-curve' each partition under that of 1, 5, 8 and 16 \
         that misses least there, 'as-set' all under tenure.samples, for a quarter of the model's time and memory.";
    c"dlru-evictor", dlru_evictor: DlruEvictor = DlruEvictor::Server, choice(&[c"server", c"tenure"], [DlruEvictor::Server, DlruEvictor::Tenure]),
        "Who evicts under the policy dlru: 'server' the server itself, with maxmemory-samples set to the chosen K, \
         where maxmemory-policy is allkeys-lru or volatile-lru (Tenure else, and from tenants above their maximum), \
         'tenure' Tenure, ahead of the limit and without the server's pool.";
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
        "What a plan is to reach: 'penalty' the least time lost to misses in all, 'hits' the most hits, 'fair' the \
         least time lost that leaves no tenant with more than it would lose on an equal part of the memory. A \
         tenant's weight counts in all three, but changes nobody's equal part.";
    c"headroom-bytes", headroom_bytes: i64 = 0, bytes(0..=1099511627776),
        "How far below maxmemory Tenure keeps memory, so that the server's own eviction has nothing to do. More \
         wastes memory, less lets it step in. 0: from how much a turn of the event loop brings, and what the worker \
         takes for a moment at the end of a window.";
    c"turn-budget-us", turn_budget_us: i64 = 500, number(50..=5000),
        "Microseconds that eviction may take in one turn of the event loop. Less keeps latency even, more keeps up \
         with bursts.";
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
        "Percent of the main thread's time that watching may take under the policy density while memory is near \
         maxmemory and that thread is busy (watch-busy-percent): then commands are watched in slices, some turns of \
         the event loop in many, and counters show what was watched. Misses and new keys are known all the same. \
         More finds better victims, less leaves more time to commands. 100: all are watched, always.";
    c"watch-busy-percent", watch_busy_percent: i64 = 80, number(0..=100),
        "From which percent of its time at work on the main thread is busy, so that commands are watched in slices.";
    c"penalty-max-ms", penalty_max_ms: i64 = 10000, number(1..=3600000),
        "Milliseconds above which a measured miss penalty counts as this.";
    #[cfg(feature = "cluster")]
    c"limits-scope", limits_of_cluster: bool = false, either(c"node", c"cluster"),
        "What the tenants' minimums and maximums hold for, on a node of a cluster: 'node' each node by itself, \
         'cluster' all primaries together, each having the part that it has of the tenant's keys. To be set alike on \
         all nodes.";
    #[cfg(feature = "lessons")]
    c"teach-replicas", teach_replicas: bool = true, yes_or_no(),
        "Whether a replica asks its primary what it has learned, and a primary answers: each window 1 KB per partition \
         and up to 350 KB of densities, and at most 512 KiB a second of the table of keys. A replica that takes over \
         goes on with it.";
    #[cfg(feature = "sleep")]
    c"spill-dir", spill_dir: String = String::new(), text(set_spill_dir),
        "The folder for values that sleep on disk, of this server alone; it is made where it isn't there. Empty: \
         nothing sleeps.";
    #[cfg(feature = "sleep")]
    c"spill-max-bytes", spill_max_bytes: i64 = 1073741824, bytes(1048576..=1125899906842624),
        "What the files in spill-dir may take, and the file of a warm restart beside them; beyond it the sleepers of \
         a file are given up.";
    #[cfg(feature = "sleep")]
    c"spill-bytes-per-second", spill_bytes_per_second: i64 = 67108864, bytes(1024..=1099511627776),
        "What falling asleep may write. Less spares the disk, more frees memory sooner.";
    #[cfg(feature = "sleep")]
    c"spill-auto", spill_auto: bool = true, yes_or_no(),
        "Whether partitions that are found to be periodic fall asleep in their valleys; 'no' leaves it to \
         TENURE.SLEEP.";
    #[cfg(feature = "sleep")]
    c"spill-interval-seconds", spill_interval_seconds: i64 = 60, number(1..=3600),
        "Seconds of one count of accesses, by which periods, peaks and valleys are told.";
    #[cfg(feature = "sleep")]
    c"spill-run-intervals", spill_run_intervals: i64 = 10, number(1..=1000),
        "Intervals that a peak and a valley last at the least.";
    #[cfg(feature = "sleep")]
    c"warm-restart", warm_restart: bool = false, yes_or_no(),
        "Whether an orderly stop writes the hottest values into spill-dir, and a start has them back, hottest first, \
         while it serves. What changed at the backend meanwhile is not known to a cache that was down.";
    #[cfg(feature = "tiers")]
    c"tier-slow", tier_slow_text: String = String::new(), text(set_tier_slow),
        "Where values lie that are seldom asked for: 'anon' (ordinary memory, to try it), 'numa:NODE' (another \
         socket, or CXL memory, which appears as a node), 'file:PATH' (a file, or one in that folder, mapped into \
         memory). Strings above 256 bytes move; they are read where they lie. Needs jemalloc and \
         MALLOC_CONF=tcache_max:256 in the server's environment (JE_MALLOC_CONF where jemalloc is the server's own \
         copy). Empty: all memory is alike; values that are slow move back.";
    #[cfg(feature = "tiers")]
    c"tier-fast-bytes", tier_fast_bytes: i64 = 0, bytes(0..=1125899906842624),
        "How much of maxmemory may be fast: keys, short values, large collections and the server's own structures \
         are, and the values asked for most. 0: a fifth of maxmemory.";
    #[cfg(feature = "tiers")]
    c"tier-rule", tier_rule: Rule = Rule::ReuseTime, choice(&[c"reuse-time", c"worth", c"always", c"never"], Rule::ALL),
        "What decides who lies in fast memory: 'reuse-time' moves up what is asked for again sooner than fast values \
         are on average, and down what wasn't asked for the longest, 'worth' goes by accesses per byte times what \
         fast memory saves. To compare with: 'always' moves up whatever is read, 'never' nothing; the latter also \
         for slow memory that is nearly as fast.";
    #[cfg(feature = "tiers")]
    c"tier-division", tier_division: Division = Division::Free, choice(&[c"guided", c"free", c"equal"], Division::ALL),
        "How tenants share fast memory: 'guided' by their miss ratio curves, so that most reads are fast, 'free' not \
         at all: whoever has the coldest value gives, 'equal' alike.";
    #[cfg(feature = "replies")]
    c"replies", replies: Mode = Mode::Async, choice_by(Mode::NAMES, Mode::ALL, set_replies),
        "What the reply to a write waits for: 'async' for nothing, as stock, 'sent' until the write was handed to \
         the replicas' sockets, 'acked' until replicas have acknowledged it. A tenant may have its own.";
    #[cfg(feature = "replies")]
    c"replies-replicas", replies_replicas: i64 = 1, number(0..=64),
        "How many replicas must have been sent a write, or have acknowledged it. 0: all that follow, one at least.";
    #[cfg(feature = "replies")]
    c"replies-timeout-ms", replies_timeout_ms: i64 = 1000, number(10..=3600000),
        "Milliseconds that a reply waits for replicas at the most, and for how long there may be too few of them; \
         looked at ten times a second at the least.";
    #[cfg(feature = "replies")]
    c"replies-on-timeout", replies_on_timeout: OnTimeout = OnTimeout::Async, choice(OnTimeout::NAMES, OnTimeout::ALL),
        "What becomes of writes when that time is over, until replicas follow again: 'async' answers them as stock, \
         'refuse' answers NOREPLICAS and closes the connections that wait, whose writes may or may not last.";
    c"debug-commands", debug_commands: bool = false, at_start(),
        "Whether TENURE.DEBUG may provoke faults, for tests. Can be set at start only.";
    read
    /// `tenure.tenants`
    tenants: TenantSpec,
    /// `tenure.tier-slow`
    tier_slow: Option<Place>,
}

impl Settings {
    /// Takes a new text for `tenure.tenants`.
    ///
    /// # Errors
    /// As [`TenantSpec::parse`], tenants by user where the server doesn't tell who sends a command, and replies to be
    /// held where they can't be; nothing changes then.
    pub fn set_tenants(&mut self, text: &str) -> Result<(), String> {
        let tenants = TenantSpec::parse_for(text, load::databases().min(crate::observe::DBS_MAX))?;
        if tenants.has_users() && !cfg!(feature = "owners") {
            return Err("tenants by user need the feature 'owners', which this module was built without".to_owned());
        }
        if tenants.holds_replies() {
            if !cfg!(feature = "replies") {
                return Err("',replies=' needs the feature 'replies', which this module was built without".to_owned());
            }
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

    /// Takes a new `tenure.auto-tenants-delimiter`.
    ///
    /// # Errors
    /// More than 8 bytes; nothing changes then.
    #[cfg(feature = "prefixes")]
    pub fn set_auto_tenants_delimiter(&mut self, text: &str) -> Result<(), String> {
        if text.len() > DELIMITER_BYTES_MAX {
            return Err(format!("delimiter of {} bytes; allowed are 1 to {DELIMITER_BYTES_MAX}, or none", text.len()));
        }
        self.auto_tenants_delimiter = text.to_owned();
        Ok(())
    }

    /// Up to which text first parts of keys become tenants; empty where none does.
    pub fn delimiter(&self) -> &str {
        #[cfg(feature = "prefixes")]
        return &self.auto_tenants_delimiter;
        #[cfg(not(feature = "prefixes"))]
        ""
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

    /// True where tenants' limits are a whole cluster's.
    pub fn has_limits_of_cluster(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.limits_of_cluster;
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// What of each key has to be remembered, for the policy and for tiers.
    pub fn remembers(&self) -> Remembers {
        match self.policy.remembers() {
            Remembers::Classes if self.tier_slow.is_some() => Remembers::History,
            by_policy => by_policy,
        }
    }

    /// True where keys need only be remembered in a compact entry: what they have shown and cost, of which class and
    /// in which tier they are is nobody's concern.
    pub fn keeps_compact_entries(&self) -> bool {
        self.policy == Policy::Density && self.classes.source == Source::Off && self.tier_slow.is_none()
    }

    /// True where single keys have to be remembered.
    pub fn remembers_keys(&self) -> bool {
        self.classes.source != Source::Off || self.remembers() != Remembers::Classes
    }

    /// What the worker models.
    pub fn modelling(&self) -> Modelling {
        match self.policy {
            Policy::Density => Modelling::Densities,
            Policy::Rival(rival) => rival.modelling(self.kredis_k, self.samples as u32),
            Policy::Lru | Policy::Off => Modelling::Recency,
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

/// The allowed values of a setting and its default, for people.
pub fn allowed(setting: &Setting) -> String {
    let (values, default, when) = values_and_default(&setting.kind);
    format!("{values} (default {default}){when}")
}

/// The allowed values of a setting, its default, and when it may be set.
fn values_and_default(kind: &Kind) -> (String, String, &'static str) {
    match kind {
        Kind::Bool { default, immutable, .. } => {
            let when = if *immutable { ", at start only" } else { "" };
            ("yes or no".to_owned(), if *default { "yes" } else { "no" }.to_owned(), when)
        }
        Kind::Number { default, min, max, memory, .. } => {
            let unit = if *memory { " bytes" } else { "" };
            (format!("{min} to {max}{unit}"), default.to_string(), "")
        }
        Kind::Choice { names, default, .. } => {
            let names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            (names.join(", "), names[*default].clone(), "")
        }
        Kind::Text { .. } => ("text".to_owned(), "empty".to_owned(), ""),
    }
}

/// docs/settings.md, as `scripts/settings-docs` writes it.
#[cfg(all(test, feature = "default"))]
fn documentation() -> String {
    let mut text = "# Settings\n\n".to_owned();
    text += "This file is written by `scripts/settings-docs` from the table in `crates/module/src/config.rs`.\n\n";
    text += "How settings are read and changed is in [operations.md](operations.md).\n\n";
    for Setting { name, kind, about } in TABLE {
        let (values, default, when) = values_and_default(kind);
        text += &format!("## `tenure.{}`\n\n", name.to_string_lossy());
        text += &format!("Default: {default}. Allowed: {values}{when}.\n\n{}\n\n", in_lines(about));
    }
    text.trim_end().to_owned() + "\n"
}

/// Text in lines of at most 118 columns.
#[cfg(test)]
fn in_lines(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > 118 {
            lines.push(word.to_owned());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n")
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

    /// Names and values are two lists: each name has to bring the value that it is read as. What replies wait for is
    /// refused where no server is.
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

    /// With `TENURE_WRITE_DOCS` set it writes the file instead.
    #[cfg(feature = "default")]
    #[test]
    fn the_documentation_of_settings_is_this_table() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
        if std::env::var_os("TENURE_WRITE_DOCS").is_some() {
            std::fs::write(&path, documentation()).unwrap();
        }
        let held = std::fs::read_to_string(&path).unwrap();
        assert!(
            held == documentation(),
            "docs/settings.md is not the table of settings; scripts/settings-docs writes it"
        );
    }

    #[cfg(not(feature = "default"))]
    #[test]
    fn what_is_left_out_says_so() {
        use crate::ffi::settings::Settings as _;
        let mut settings = Settings::default();
        for (name, is_in, begins) in crate::features::KNOWN {
            for begin in begins.iter().filter(|_| !is_in) {
                assert!(TABLE.iter().all(|setting| !setting.name.to_string_lossy().starts_with(begin)), "{begin}");
                let why = settings.set_argument(begin, "1").unwrap_err();
                assert!(why.contains(&format!("feature '{name}', which this module was built without")), "{why}");
            }
        }
        if !cfg!(feature = "owners") {
            assert!(settings.set_tenants("a=user:a").unwrap_err().contains("'owners'"));
        }
        if !cfg!(feature = "replies") {
            assert!(settings.set_tenants("a=x*,replies=acked").unwrap_err().contains("'replies'"));
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
