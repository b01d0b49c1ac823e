//! `INFO tenure`: counters and state, one field a line, one line of fields per partition, as the server shows its
//! databases.

use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::key_table::KeyTable;

use crate::config::Policy;
use crate::counts::{
    Counted, Kind, Totals, keep_names, names_of_features, past, past_of_partition, past_of_tenant, with_past,
};
use crate::feature::Column;
use crate::ffi::info::{Sink, Value};
use crate::ffi::{alloc, config, guard, turns};
use crate::runtime::Runtime;
use crate::tenure::Tenure;
use crate::worker::PartitionView;

/// What is running, for those who ask by INFO, TENURE.STATUS or MODULE LIST.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The same as one number, as MODULE LIST has it: 1.2.3 is 10203.
pub fn version_number() -> i32 {
    VERSION.split('.').fold(0, |number, part| number * 100 + part.parse().unwrap_or(0))
}

/// How a field is read of what it shows.
enum Read<S> {
    /// As [`Value::Total`].
    Total(fn(&S) -> u64),
    /// A quantity as it is.
    Count(fn(&S) -> u64),
    /// A quantity that there may be none of.
    OrNone(fn(&S) -> Option<u64>),
    /// A fraction as it is.
    Number(fn(&S) -> f64),
    /// Text.
    Text(fn(&S) -> String),
}

impl<S> Read<S> {
    /// Its value, with what of it is past.
    fn of(&self, shown: &S, past: u64) -> Value {
        match self {
            Read::Total(read) => Value::Total(read(shown) + past),
            Read::Count(read) => Value::Count(read(shown)),
            Read::OrNone(read) => Value::OrNone(read(shown)),
            Read::Number(read) => Value::Number(read(shown)),
            Read::Text(read) => Value::Text(read(shown)),
        }
    }

    /// Its value while there is nothing to show.
    fn of_nothing(&self, past: u64) -> Value {
        match self {
            Read::Total(_) => Value::Total(past),
            Read::Count(_) => Value::Count(0),
            Read::OrNone(_) => Value::OrNone(None),
            Read::Number(_) => Value::Number(0.0),
            Read::Text(_) => Value::Text(state_without_tenure().to_owned()),
        }
    }
}

/// The fields that are one number or text, but for those that are there without Tenure too.
const FIELDS: &[(&str, Read<Tenure>)] = &[
    ("worker", Read::Text(|t| if t.worker.is_alive() { "running" } else { "dead" }.to_owned())),
    ("eviction", Read::Text(|t| t.status_shown().as_str().to_owned())),
    ("uptime_seconds", Read::Count(|t| t.uptime_seconds())),
    ("partitions", Read::Count(|t| t.observer.partitions.len() as u64)),
    ("reads", Read::Total(|t| t.observer.counters.iter().map(|c| c.reads).sum())),
    ("writes", Read::Total(|t| t.observer.counters.iter().map(|c| c.writes).sum())),
    ("deletes", Read::Total(|t| t.observer.counters.iter().map(|c| c.deletes).sum())),
    ("misses", Read::Total(|t| t.observer.counters.iter().map(|c| c.misses).sum())),
    ("penalties_measured", Read::Total(|t| t.observer.counters.iter().map(|c| c.penalties).sum())),
    ("watching", Read::Text(watching)),
    ("turns", Read::Text(|_| if turns::are_heard() { "each" } else { "asked" }.to_owned())),
    ("watched_time_share", Read::Number(|t| t.watching.slices.watched_share())),
    ("late_accesses", Read::Total(|t| t.evictor.work.late_accesses)),
    ("sample_rate", Read::Number(|t| t.worker.shared.rate().rate())),
    ("sampled_keys", Read::Count(|t| t.published.partitions.iter().map(|p| p.sampled_keys as u64).sum())),
    ("samples_dropped_turn", Read::Total(|t| t.observer.sampler.losses.ring_full)),
    ("samples_dropped_queue", Read::Total(|t| t.observer.sampler.losses.queue_full)),
    ("unknown_commands", Read::Total(|t| t.observer.commands.unknown)),
    ("redirected_keys", Read::Total(|t| t.observer.served.redirected)),
    ("windows", Read::Total(|t| t.published.window)),
    ("plans_adopted", Read::Total(|t| t.published.plans_adopted)),
    ("curves_us", Read::Count(|t| t.published.effort.curves_us)),
    ("plan_us", Read::Count(|t| t.published.effort.plan_us)),
    ("predicted_windows", Read::Count(|t| t.published.choice.error.windows)),
    ("miss_ratio_error_mean", Read::Number(|t| t.published.choice.error.mean().unwrap_or(0.0))),
    ("prediction_error", Read::Number(|t| prediction_error(t).unwrap_or(-1.0))),
    ("evictions", Read::Total(|t| t.evictor.work.evicted.iter().sum())),
    ("evictions_and_servers", Read::Count(|t| total(t, "evictions") + t.memory.evicted_by_server)),
    ("evictions_unsearched", Read::Total(|t| t.evictor.work.unsearched)),
    ("evicted_bytes", Read::Total(|t| t.evictor.work.evicted_bytes)),
    ("eviction_us", Read::Total(|t| t.evictor.work.spent_us)),
    ("eviction_slice_us_max", Read::Count(|t| t.evictor.work.slice_us_max)),
    ("eviction_slices_out_of_time", Read::Total(|t| t.evictor.work.slices_out_of_time)),
    ("visited_keys", Read::Total(|t| t.visited_keys())),
    ("room_bytes", Read::OrNone(|t| t.pressure.room.bytes())),
    ("room_seconds", Read::OrNone(|t| t.pressure.room.seconds())),
    ("not_data_bytes", Read::Count(|t| t.pressure.room.not_data_bytes())),
    ("buffers_bytes", Read::Count(|t| t.pressure.room.buffers_bytes)),
    ("server_bytes", Read::Count(|t| t.pressure.room.server_bytes())),
    ("headroom_bytes", Read::Count(|t| t.headroom_bytes())),
    ("main_thread_busy", Read::Number(|t| t.pressure.load.share())),
    ("remembered_keys", Read::Count(|t| keys(t).map_or(0, |keys| keys.len() as u64))),
    ("forgotten_keys", Read::Total(|t| keys(t).map_or(0, KeyTable::displaced))),
    ("key_table_bytes", Read::Count(|t| keys(t).map_or(0, KeyTable::memory_bytes))),
    ("ranking", Read::Text(|t| ranking(t).to_owned())),
    ("ranking_cost_us_density", Read::Number(|t| t.published.learned.costs_us[0])),
    ("ranking_cost_us_steady", Read::Number(|t| t.published.learned.costs_us[1])),
    ("ranking_cost_us_gdsf", Read::Number(|t| t.published.learned.costs_us[2])),
    ("ranking_cost_us_lru", Read::Number(|t| t.published.learned.costs_us[3])),
    ("density_table_bytes", Read::Count(|t| t.published.learned.table.memory_bytes() as u64)),
    ("penalty_trust", Read::Number(|t| f64::from(t.observer.misses.costs.trust))),
    ("delayed_misses", Read::Number(|t| t.observer.misses.delays.share())),
    ("models_bytes", Read::Count(|t| t.published.effort.models_bytes)),
    ("minimums", Read::Text(Tenure::minimums_status)),
];

/// How far the last prediction of the miss ratio was off: of Tenure's own miniature caches, or of those that choose
/// K.
pub fn prediction_error(tenure: &Tenure) -> Option<f64> {
    tenure.published.prediction_error.or_else(|| tenure.published.choice.error.mean())
}

/// What of the commands is watched, for people.
pub fn watching(tenure: &Tenure) -> String {
    if tenure.watching.slices.are_on() { "slices".to_owned() } else { tenure.observer.coverage.as_str().to_owned() }
}

fn keys(tenure: &Tenure) -> Option<&KeyTable> {
    tenure.observer.partitions.keys.table.as_ref()
}

/// Writes everything.
pub fn write(runtime: &Runtime, sink: &mut Sink) {
    if !sink.section() {
        return;
    }
    let tenure = &runtime.tenure;
    write_common("running", sink);
    for (name, read) in FIELDS {
        sink.field(name, read.of(tenure, past(name)));
    }
    let report = runtime.report();
    for (name, value) in report.info {
        let value = with_past(value, &name);
        sink.field(&name, value);
    }
    for tenant in tenants(tenure) {
        sink.field(&format!("tenant_{}", tenant.name), Value::Fields(tenant.fields()));
        for row in &tenant.partitions {
            let mut fields = row.fields();
            let of_features = report.partitions.iter();
            fields.extend(of_features.filter_map(|c| Some((c.name, Value::Count(c.count_of(row.index)?)))));
            sink.field(&format!("partition_{}", row.name), Value::Fields(fields));
        }
    }
}

/// What there is to say with and without Tenure.
fn write_common(state: &str, sink: &mut Sink) {
    sink.field("state", Value::Text(state.to_owned()));
    sink.field("version", Value::Text(VERSION.to_owned()));
    sink.field("panics", Value::Count(guard::panics()));
    sink.field("last_panic", Value::Text(guard::last_panic()));
    sink.field("memory_bytes", Value::Count(alloc::allocated_bytes() as u64));
}

/// One of the counts, as INFO shows it.
pub fn total(tenure: &Tenure, name: &str) -> u64 {
    match FIELDS.iter().find(|(field, _)| *field == name).map(|(_, read)| read.of(tenure, past(name))) {
        Some(Value::Total(n)) => n,
        _ => 0,
    }
}

/// The ranking in force under Tenure's own policy, `none` under others.
pub fn ranking(tenure: &Tenure) -> &'static str {
    match tenure.settings().policy {
        Policy::Density => tenure.ranking().as_str(),
        _ => "none",
    }
}

/// Why Tenure stands aside.
pub const NO_ROOM: &str = "maxmemory is below 4mb, too little for Tenure's own memory";

/// Tenure has last been stopped for want of room.
static HAS_NO_ROOM: AtomicBool = AtomicBool::new(false);

/// Tenure starts, as far as room goes, or stops for want of it.
pub fn note_room(has_room: bool) {
    HAS_NO_ROOM.store(!has_room, Ordering::Relaxed);
}

/// Why Tenure doesn't run, and what starts it.
pub fn why_without_tenure() -> (&'static str, &'static str) {
    match state_without_tenure() {
        "no-room" => (NO_ROOM, "a larger maxmemory starts it"),
        _ => ("Tenure does not run", "TENURE.STATUS says why, CONFIG SET tenure.enabled yes starts it"),
    }
}

/// The state while there is none to look at.
pub fn state_without_tenure() -> &'static str {
    if guard::is_off() {
        "failed"
    } else if config::is_to_start() {
        "starting"
    } else if config::is_enabled() && HAS_NO_ROOM.load(Ordering::Relaxed) {
        "no-room"
    } else {
        "stopped"
    }
}

/// Writes what there is to say when Tenure doesn't run: every field, with what was counted before, and nothing held.
pub fn write_stopped(sink: &mut Sink) {
    if !sink.section() {
        return;
    }
    write_common(state_without_tenure(), sink);
    for (name, read) in FIELDS {
        sink.field(name, read.of_nothing(past(name)));
    }
    for (name, kind) in names_of_features() {
        let value = match kind {
            Kind::Total => Value::Total(past(&name)),
            Kind::Count => Value::Count(0),
            Kind::Text => Value::Text(state_without_tenure().to_owned()),
        };
        sink.field(&name, value);
    }
}

/// One partition as INFO and TENURE.PARTITIONS show it.
pub struct PartitionRow {
    /// Its place among the partitions.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Its miss-penalty class, or `none`.
    pub class: String,
    /// Keys, estimated.
    pub keys: u64,
    /// Bytes, estimated.
    pub used_bytes: u64,
    /// Planned bytes; `None` without a plan.
    pub target_bytes: Option<u64>,
    /// What its tenant may have.
    pub bounds: TenantBounds,
    /// Counted since these partitions are in force.
    pub counters: crate::observe::Counters,
    /// Counted under this name since the module was loaded.
    pub counted: Counted,
    /// What the worker knows of it.
    pub of_late: OfLate,
    /// Keys evicted since these partitions are in force.
    pub evicted: u64,
    /// Sampling size.
    pub k: u64,
}

/// What a tenant may have, all its partitions together.
#[derive(Clone, Copy, Debug, Default)]
pub struct TenantBounds {
    /// Promised, in bytes.
    pub bytes_min: u64,
    /// What of that it has: less where minimums don't fit.
    pub bytes_guaranteed: u64,
    /// Allowed, in bytes; `None` = no maximum.
    pub bytes_max: Option<u64>,
}

/// What the worker has published of a partition.
#[derive(Clone, Copy, Debug)]
pub struct OfLate {
    /// Measured in the last window.
    pub miss_ratio: f64,
    /// Predicted for the target, or for what is used where there is none.
    pub miss_ratio_predicted: f64,
    /// Mean miss penalty, in µs.
    pub penalty_us_mean: f64,
    /// Its standard deviation, in µs.
    pub penalty_us_spread: f64,
    /// Reads as the plan counts them: those of each window weigh 0.7 of the next one's.
    pub reads_weighed: f64,
}

impl OfLate {
    /// Of a partition that has so many bytes, or will.
    fn new(view: &PartitionView, bytes: u64) -> OfLate {
        OfLate {
            miss_ratio: view.miss_ratio.unwrap_or(0.0),
            miss_ratio_predicted: view.curve.miss_ratio_at(bytes),
            penalty_us_mean: view.penalty_us_mean,
            penalty_us_spread: view.penalty_us_spread,
            reads_weighed: view.weights.reads,
        }
    }
}

impl PartitionRow {
    /// Misses / reads since the counting began; 0 without reads.
    pub fn miss_ratio(&self) -> f64 {
        self.counted.miss_ratio()
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        use Value::{Count, Number, OrNone};
        let mut fields = vec![
            ("keys", Count(self.keys)),
            ("used_bytes", Count(self.used_bytes)),
            ("target_bytes", OrNone(self.target_bytes)),
            ("bytes_min", Count(self.bounds.bytes_min)),
            ("bytes_max", OrNone(self.bounds.bytes_max)),
            ("reads", Count(self.counted.reads)),
            ("writes", Count(self.counted.writes)),
            ("deletes", Count(self.counted.deletes)),
            ("misses", Count(self.counted.misses)),
            ("miss_ratio", Number(self.miss_ratio())),
            ("miss_ratio_window", Number(self.of_late.miss_ratio)),
            ("miss_ratio_predicted", Number(self.of_late.miss_ratio_predicted)),
            ("penalty_us_mean", Number(self.of_late.penalty_us_mean)),
            ("penalty_us_spread", Number(self.of_late.penalty_us_spread)),
            ("evictions", Count(self.counted.evictions)),
            ("k", Count(self.k)),
        ];
        fields.extend(self.counted.of_misses());
        fields
    }
}

/// One tenant: its partitions taken together.
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<PartitionRow>,
    /// Counted under its name since the module was loaded, in partitions that are no more too.
    pub counted: Counted,
}

impl TenantRow {
    /// A sum over its partitions.
    pub fn sum(&self, part: impl Fn(&PartitionRow) -> u64) -> u64 {
        self.partitions.iter().map(part).sum()
    }

    /// A feature's counts of its partitions, as a sum; `None` where they are none.
    pub fn count_of(&self, column: &Column) -> Option<u64> {
        self.partitions.iter().map(|row| column.count_of(row.index)).sum()
    }

    /// Planned bytes; `None` without a plan.
    pub fn target_bytes(&self) -> Option<u64> {
        self.partitions.iter().map(|row| row.target_bytes).sum()
    }

    /// Misses / reads since the counting began; 0 without reads.
    pub fn miss_ratio(&self) -> f64 {
        self.counted.miss_ratio()
    }

    /// The same in the last window, each partition's by its reads of late.
    pub fn miss_ratio_window(&self) -> f64 {
        let weighed: f64 = self.partitions.iter().map(|row| row.of_late.miss_ratio * row.of_late.reads_weighed).sum();
        let reads: f64 = self.partitions.iter().map(|row| row.of_late.reads_weighed).sum();
        if reads > 0.0 { weighed / reads } else { 0.0 }
    }

    /// Mean miss penalty of late, each partition's by its misses, in µs.
    pub fn penalty_us_mean(&self) -> f64 {
        let misses = |row: &PartitionRow| row.counters.misses as f64;
        let weighed: f64 = self.partitions.iter().map(|row| row.of_late.penalty_us_mean * misses(row)).sum();
        weighed / self.partitions.iter().map(misses).sum::<f64>().max(1.0)
    }

    /// The K under which most of its bytes are evicted.
    pub fn k(&self) -> u64 {
        self.partitions.iter().max_by_key(|row| row.used_bytes).map_or(0, |row| row.k)
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        use Value::{Count, Number, OrNone};
        let first = self.partitions.first();
        let mut fields = vec![
            ("partitions", Count(self.partitions.len() as u64)),
            ("keys", Count(self.sum(|row| row.keys))),
            ("used_bytes", Count(self.sum(|row| row.used_bytes))),
            ("target_bytes", OrNone(self.target_bytes())),
            ("bytes_min", Count(first.map_or(0, |row| row.bounds.bytes_min))),
            ("bytes_guaranteed", Count(first.map_or(0, |row| row.bounds.bytes_guaranteed))),
            ("bytes_max", OrNone(first.and_then(|row| row.bounds.bytes_max))),
            ("hits", Count(self.counted.reads.saturating_sub(self.counted.misses))),
            ("misses", Count(self.counted.misses)),
            ("miss_ratio", Number(self.miss_ratio())),
            ("miss_ratio_window", Number(self.miss_ratio_window())),
            ("penalty_us_mean", Number(self.penalty_us_mean())),
            ("evictions", Count(self.counted.evictions)),
            ("k", Count(self.k())),
        ];
        fields.extend(self.counted.of_misses());
        fields
    }
}

/// All tenants, in the order of their first partitions.
pub fn tenants(tenure: &Tenure) -> Vec<TenantRow> {
    let mut tenants: Vec<TenantRow> = Vec::new();
    for row in partitions(tenure) {
        let counted = Counted::of(&row.counters, row.evicted);
        match tenants.iter_mut().find(|tenant| tenant.name == row.tenant) {
            Some(tenant) => {
                tenant.counted += counted;
                tenant.partitions.push(row);
            }
            None => {
                let counted = counted + past_of_tenant(&row.tenant);
                tenants.push(TenantRow { name: row.tenant.clone(), partitions: vec![row], counted });
            }
        }
    }
    tenants
}

/// All partitions.
pub fn partitions(tenure: &Tenure) -> Vec<PartitionRow> {
    let observer = &tenure.observer;
    let unknown = PartitionView::default();
    let row = |(i, name): (usize, &String)| {
        let view = tenure.view(i).unwrap_or(&unknown);
        let evicted = tenure.evictor.work.evicted[i];
        let used_bytes = tenure.usage.bytes()[i];
        let target_bytes = tenure.target_bytes().get(i).copied();
        let (tenant, class) = observer.partitions.of_what()[i];
        let tenant = tenant.0 as usize;
        let tenants = observer.partitions.tenants();
        PartitionRow {
            index: i,
            name: name.clone(),
            tenant: tenants.names()[tenant].clone(),
            class: observer.partitions.classes.name(class),
            keys: tenure.usage.keys()[i].round() as u64,
            used_bytes,
            target_bytes,
            bounds: TenantBounds {
                bytes_min: tenants.bytes_min()[tenant],
                bytes_guaranteed: tenants.guaranteed()[tenant],
                bytes_max: Some(tenants.bytes_max()[tenant]).filter(|&bytes| bytes < u64::MAX),
            },
            counters: observer.counters[i],
            counted: Counted::of(&observer.counters[i], evicted) + past_of_partition(name),
            of_late: OfLate::new(view, target_bytes.unwrap_or(used_bytes)),
            evicted,
            k: u64::from(tenure.sample_size_of(i)),
        }
    };
    observer.partitions.names().iter().enumerate().map(row).collect()
}

/// All that is counted now, without what is past and what features count.
fn totals_of(tenure: &Tenure) -> Totals {
    let mut all = Totals::default();
    let of_all = FIELDS.iter().filter_map(|(name, read)| match read {
        Read::Total(read) => Some(((*name).to_owned(), read(tenure))),
        _ => None,
    });
    all.fields.extend(of_all);
    for row in partitions(tenure) {
        let counted = Counted::of(&row.counters, row.evicted);
        *all.tenants.entry(row.tenant).or_default() += counted;
        all.partitions.insert(row.name, counted);
    }
    all
}

/// The same with what features count.
fn totals(runtime: &Runtime) -> Totals {
    let mut all = totals_of(&runtime.tenure);
    let of_features = runtime.report().info.into_iter().filter_map(|(name, value)| match value {
        Value::Total(n) => Some((name, n)),
        _ => None,
    });
    all.fields.extend(of_features);
    all
}

/// A change that makes some counts begin anew: what they had counted is kept. One such change within another would
/// keep it twice.
pub fn keep_counts(runtime: &mut Runtime, change: impl FnOnce(&mut Runtime)) {
    let before = totals(runtime);
    change(runtime);
    before.keep(&totals(runtime));
}

/// The same where all of it ends; what features report has the same names afterwards.
pub fn keep_last_counts(runtime: &Runtime) {
    totals(runtime).keep(&Totals::default());
    let kind = |value: &Value| match value {
        Value::Total(_) => Kind::Total,
        Value::Text(_) => Kind::Text,
        _ => Kind::Count,
    };
    keep_names(runtime.report().info.iter().map(|(name, value)| (name.clone(), kind(value))).collect());
}
