//! `INFO tenure`: counters and state, one field a line, one line of fields per partition, as the server shows its databases.

use tenure_core::key_table::KeyTable;
use tenure_core::units::PartitionId;

use crate::config::Policy;
use crate::ffi::reply::Answer;
use crate::ffi::{alloc, guard};
use crate::observe::owners::Owners;
use crate::runtime::Runtime;
use crate::tenure::Tenure;
use crate::worker::PartitionView;

/// A value of an INFO field.
pub enum Value {
    /// A count.
    Count(u64),
    /// A fraction.
    Number(f64),
    /// Text.
    Text(String),
    /// Fields of a field.
    Fields(Vec<(&'static str, Value)>),
}

impl From<Value> for Answer {
    fn from(value: Value) -> Answer {
        match value {
            Value::Count(n) => Answer::Integer(n as i64),
            Value::Number(x) => Answer::Number(x),
            Value::Text(text) => Answer::Text(text),
            Value::Fields(fields) => {
                Answer::Map(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

/// Where fields go; their names get the prefix `tenure_`.
pub trait Sink {
    /// Opens the section. False where nobody asked for it.
    fn section(&mut self) -> bool;
    /// Adds a field.
    fn field(&mut self, name: &str, value: Value);
}

/// Writes everything.
pub fn write(runtime: &Runtime, sink: &mut impl Sink) {
    if !sink.section() {
        return;
    }
    use Value::{Count, Number, Text};
    let tenure = &runtime.tenure;
    let published = &tenure.published;
    let observer = &tenure.observer;
    let keys = observer.partitions.keys.table.as_ref();
    let owners = observer.partitions.owners.as_ref();
    let sleepers = &observer.touches.sleepers;
    let slept = tenure.spill.as_ref().map(|spill| spill.counts).unwrap_or_default();
    let (work, losses) = (&tenure.evictor.work, &observer.losses);
    let sum = |count: fn(&crate::observe::Counters) -> u64| Count(observer.counters.iter().map(count).sum());
    let fields = [
        ("state", Text("running".to_owned())),
        ("worker", Text(if tenure.worker.is_alive() { "running" } else { "dead" }.to_owned())),
        ("eviction", Text(tenure.standing.as_str().to_owned())),
        ("uptime_seconds", Count(tenure.uptime_seconds())),
        ("panics", Count(guard::panics())),
        ("last_panic", Text(guard::last_panic())),
        ("partitions", Count(observer.partitions.len() as u64)),
        ("reads", sum(|c| c.reads)),
        ("writes", sum(|c| c.writes)),
        ("deletes", sum(|c| c.deletes)),
        ("misses", sum(|c| c.misses)),
        ("penalties_measured", sum(|c| c.penalties)),
        ("watching", Text(observer.watching().to_owned())),
        ("sample_rate", Number(observer.rate.rate())),
        ("sampled_keys", Count(published.partitions.iter().map(|p| p.sampled_keys as u64).sum())),
        ("samples_dropped_turn", Count(losses.ring_full)),
        ("samples_dropped_queue", Count(losses.queue_full)),
        ("unknown_commands", Count(losses.unknown_commands)),
        ("redirected_keys", Count(observer.redirected)),
        ("windows", Count(published.window)),
        ("plans_adopted", Count(published.plans_adopted)),
        ("curves_us", Count(published.curves_us)),
        ("plan_us", Count(published.plan_us)),
        ("predicted_windows", Count(published.choice.error.windows)),
        ("miss_ratio_error_mean", Number(published.choice.error.mean().unwrap_or(0.0))),
        ("evictions", Count(work.evicted.iter().sum())),
        ("evicted_bytes", Count(work.evicted_bytes)),
        ("eviction_us", Count(work.spent_us)),
        ("eviction_slice_us_max", Count(work.slice_us_max)),
        ("eviction_slices_out_of_time", Count(work.slices_out_of_time)),
        ("visited_keys", Count(tenure.visited_keys())),
        ("headroom_bytes", Count(tenure.headroom_bytes())),
        ("main_thread_busy", Number(tenure.load.share())),
        ("remembered_keys", Count(keys.map_or(0, |keys| keys.len() as u64))),
        ("forgotten_keys", Count(keys.map_or(0, KeyTable::displaced))),
        ("key_table_bytes", Count(keys.map_or(0, KeyTable::memory_bytes))),
        ("ranking", Text(ranking(tenure).to_owned())),
        ("ranking_cost_us_density", Number(published.learned.costs_us[0])),
        ("ranking_cost_us_steady", Number(published.learned.costs_us[1])),
        ("ranking_cost_us_gdsf", Number(published.learned.costs_us[2])),
        ("ranking_cost_us_lru", Number(published.learned.costs_us[3])),
        ("density_table_bytes", Count(published.learned.table.memory_bytes() as u64)),
        ("penalty_trust", Number(f64::from(observer.worths.trust))),
        ("delayed_misses", Number(observer.delays.share())),
        ("owned_keys", Count(owners.map_or(0, Owners::keys))),
        ("owners_bytes", Count(owners.map_or(0, Owners::memory_bytes))),
        ("sleep", Text(tenure.spill_standing.to_string())),
        ("sleeping_keys", Count(sleepers.len() as u64)),
        ("sleeping_bytes", Count(sleepers.live_bytes())),
        ("spill_disk_bytes", Count(sleepers.disk_bytes())),
        ("slept_keys", Count(slept.slept)),
        ("woken_keys", Count(slept.woken)),
        ("sleeping_reads", Count(slept.touched)),
        ("spill_refused", Count(slept.refused)),
        ("spill_damaged", Count(slept.damaged)),
        ("spill_given_up", Count(slept.given_up)),
        ("models_bytes", Count(published.models_bytes)),
        ("memory_bytes", Count(alloc::allocated_bytes() as u64)),
    ];
    for (name, value) in fields {
        sink.field(name, value);
    }
    for (name, value) in runtime.report().info {
        sink.field(&name, value);
    }
    for tenant in tenants(tenure) {
        sink.field(&format!("tenant_{}", tenant.name), Value::Fields(tenant.fields()));
        for view in &tenant.partitions {
            sink.field(&format!("partition_{}", view.name), Value::Fields(view.fields()));
        }
    }
}

/// The ranking in force under Tenure's own policy, `none` under others.
pub fn ranking(tenure: &Tenure) -> &'static str {
    match tenure.settings().policy {
        Policy::Density => tenure.ranking().as_str(),
        _ => "none",
    }
}

/// Writes what there is to say when Tenure doesn't run.
pub fn write_stopped(sink: &mut impl Sink) {
    if !sink.section() {
        return;
    }
    let state = if guard::is_off() { "failed" } else { "stopped" };
    sink.field("state", Value::Text(state.to_owned()));
    sink.field("panics", Value::Count(guard::panics()));
    sink.field("last_panic", Value::Text(guard::last_panic()));
}

/// One partition as INFO and TENURE.PARTITIONS show it.
pub struct PartitionRow {
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
    /// Guaranteed to the tenant, all its partitions together, in bytes.
    pub bytes_min: u64,
    /// Allowed to the tenant, in bytes; `None` = no maximum.
    pub bytes_max: Option<u64>,
    /// Counted so far.
    pub counters: crate::observe::Counters,
    /// Measured in the last window.
    pub miss_ratio: f64,
    /// Predicted for the target, or for what is used where there is none.
    pub miss_ratio_predicted: f64,
    /// Mean miss penalty of late, in µs.
    pub penalty_us_mean: f64,
    /// Its standard deviation, in µs.
    pub penalty_us_spread: f64,
    /// Keys evicted.
    pub evictions: u64,
    /// Sampling size.
    pub k: u64,
    /// Reads of late as the plan counts them: those of each window weigh 0.7 of the next one's.
    pub reads_weighed: f64,
    /// Keys whose values are on disk.
    pub sleeping_keys: u64,
    /// Awake, asleep or between.
    pub rest: &'static str,
}

impl PartitionRow {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        use Value::{Count, Number};
        vec![
            ("keys", Count(self.keys)),
            ("used_bytes", Count(self.used_bytes)),
            ("target_bytes", Count(self.target_bytes.unwrap_or(0))),
            ("bytes_min", Count(self.bytes_min)),
            ("bytes_max", Count(self.bytes_max.unwrap_or(0))),
            ("reads", Count(self.counters.reads)),
            ("writes", Count(self.counters.writes)),
            ("deletes", Count(self.counters.deletes)),
            ("misses", Count(self.counters.misses)),
            ("miss_ratio", Number(self.miss_ratio)),
            ("miss_ratio_predicted", Number(self.miss_ratio_predicted)),
            ("penalty_us_mean", Number(self.penalty_us_mean)),
            ("penalty_us_spread", Number(self.penalty_us_spread)),
            ("evictions", Count(self.evictions)),
            ("k", Count(self.k)),
            ("sleeping_keys", Count(self.sleeping_keys)),
        ]
    }
}

/// One tenant: its partitions taken together.
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<PartitionRow>,
}

impl TenantRow {
    /// A sum over its partitions.
    pub fn sum(&self, part: impl Fn(&PartitionRow) -> u64) -> u64 {
        self.partitions.iter().map(part).sum()
    }

    /// Planned bytes; `None` without a plan.
    pub fn target_bytes(&self) -> Option<u64> {
        self.partitions.iter().map(|row| row.target_bytes).sum()
    }

    /// Misses / reads since the counting began; 0 without reads.
    pub fn miss_ratio(&self) -> f64 {
        self.sum(|row| row.counters.misses) as f64 / self.sum(|row| row.counters.reads).max(1) as f64
    }

    /// Mean miss penalty of late, each partition's by its misses, in µs.
    pub fn penalty_us_mean(&self) -> f64 {
        let misses = |row: &PartitionRow| row.counters.misses as f64;
        let weighed: f64 = self.partitions.iter().map(|row| row.penalty_us_mean * misses(row)).sum();
        weighed / self.partitions.iter().map(misses).sum::<f64>().max(1.0)
    }

    /// The K under which most of its bytes are evicted.
    pub fn k(&self) -> u64 {
        self.partitions.iter().max_by_key(|row| row.used_bytes).map_or(0, |row| row.k)
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        use Value::{Count, Number};
        let first = self.partitions.first();
        vec![
            ("partitions", Count(self.partitions.len() as u64)),
            ("keys", Count(self.sum(|row| row.keys))),
            ("used_bytes", Count(self.sum(|row| row.used_bytes))),
            ("target_bytes", Count(self.target_bytes().unwrap_or(0))),
            ("bytes_min", Count(first.map_or(0, |row| row.bytes_min))),
            ("bytes_max", Count(first.and_then(|row| row.bytes_max).unwrap_or(0))),
            ("hits", Count(self.sum(|row| row.counters.reads.saturating_sub(row.counters.misses)))),
            ("misses", Count(self.sum(|row| row.counters.misses))),
            ("miss_ratio", Number(self.miss_ratio())),
            ("penalty_us_mean", Number(self.penalty_us_mean())),
            ("evictions", Count(self.sum(|row| row.evictions))),
            ("k", Count(self.k())),
        ]
    }
}

/// All tenants, in the order of their first partitions.
pub fn tenants(tenure: &Tenure) -> Vec<TenantRow> {
    let mut tenants: Vec<TenantRow> = Vec::new();
    for row in partitions(tenure) {
        match tenants.iter_mut().find(|tenant| tenant.name == row.tenant) {
            Some(tenant) => tenant.partitions.push(row),
            None => tenants.push(TenantRow { name: row.tenant.clone(), partitions: vec![row] }),
        }
    }
    tenants
}

/// All partitions.
pub fn partitions(tenure: &Tenure) -> Vec<PartitionRow> {
    let observer = &tenure.observer;
    let views = tenure.current().map_or(&[][..], |published| &published.partitions);
    let unknown = PartitionView::default();
    let row = |(i, name): (usize, &String)| {
        let view = views.get(i).unwrap_or(&unknown);
        let used_bytes = tenure.usage.bytes()[i];
        let bins = observer.partitions.binning.of(PartitionId(i as u16));
        let targets = tenure.target_bytes().get(bins.range());
        let target_bytes = targets.map(|targets| targets.iter().sum());
        let (tenant, class) = observer.partitions.of_what()[i];
        let tenant = tenant.0 as usize;
        let tenants = observer.partitions.tenants();
        PartitionRow {
            name: name.clone(),
            tenant: tenants.names()[tenant].clone(),
            class: observer.partitions.classes.name(class),
            keys: tenure.usage.keys()[i].round() as u64,
            used_bytes,
            target_bytes,
            bytes_min: tenants.bytes_min()[tenant],
            bytes_max: Some(tenants.bytes_max()[tenant]).filter(|&bytes| bytes < u64::MAX),
            counters: observer.counters[i],
            miss_ratio: view.miss_ratio.unwrap_or(0.0),
            miss_ratio_predicted: view.curve.miss_ratio_at(target_bytes.unwrap_or(used_bytes)),
            penalty_us_mean: view.penalty_us_mean,
            penalty_us_spread: view.penalty_us_spread,
            evictions: tenure.evictor.work.evicted[i],
            k: u64::from(tenure.sample_size_of(bins.largest(targets))),
            reads_weighed: view.weights.reads,
            sleeping_keys: observer.touches.sleepers.of(PartitionId(i as u16)) as u64,
            rest: tenure.rest_of(PartitionId(i as u16)),
        }
    };
    observer.partitions.names().iter().enumerate().map(row).collect()
}

/// One size class of a partition as TENURE.SIZES shows it.
pub struct SizeRow {
    /// The partition's name.
    pub partition: String,
    /// Which class, from 0 for the smallest values.
    pub class: usize,
    /// From which size of a key with its value on a key is of it, in bytes; `None` where none is.
    pub begins_bytes: Option<u32>,
    /// Keys, estimated.
    pub keys: u64,
    /// Bytes, estimated.
    pub used_bytes: u64,
    /// Planned bytes; `None` without a plan.
    pub target_bytes: Option<u64>,
    /// The share of the partition's reads, as sampled of late.
    pub read_share: f64,
    /// Predicted for the target, or for what is used where there is none.
    pub miss_ratio_predicted: f64,
    /// Sampling size.
    pub k: u64,
}

/// The size classes of all partitions that are divided by size.
pub fn size_classes(tenure: &Tenure) -> Vec<SizeRow> {
    let partitions = &tenure.observer.partitions;
    let of_bins = tenure.current().map_or(&[][..], |published| &published.bins);
    let used_bytes = tenure.usage.bytes_by_bin();
    let mut rows = Vec::new();
    for (i, name) in partitions.names().iter().enumerate() {
        let bins = partitions.binning.of(PartitionId(i as u16));
        let views = of_bins.get(bins.range()).unwrap_or_default();
        let reads: f64 = views.iter().map(|view| view.reads).sum();
        for class in (0..bins.count()).filter(|_| bins.are_many()) {
            let bin = bins.of_class(class);
            let view = views.get(class).cloned().unwrap_or_default();
            let target_bytes = tenure.target_bytes().get(bin.index()).copied();
            rows.push(SizeRow {
                partition: name.clone(),
                class,
                begins_bytes: partitions.binning.limits(PartitionId(i as u16)).begins_bytes(class),
                keys: tenure.usage.keys_of(&partitions.binning, bin).round() as u64,
                used_bytes: used_bytes[bin.index()],
                target_bytes,
                read_share: if reads > 0.0 { view.reads / reads } else { 0.0 },
                miss_ratio_predicted: view.curve.miss_ratio_at(target_bytes.unwrap_or(used_bytes[bin.index()])),
                k: u64::from(tenure.sample_size_of(bin)),
            });
        }
    }
    rows
}
