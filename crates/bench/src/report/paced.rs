//! The report's text on a workload with a pace: each tenant in peaks and valleys, then how soon the periodic one was
//! back.

use super::table::{figure, median_of, number, range, ratio4, runs_of, seconds, whole};
use super::{Report, Summary, columns};
use crate::paced::{FULL_HIT_RATIO, Paced, PhaseFigures, WINDOW_REQUESTS};

/// `None` where the workload has no pace.
pub(super) fn tables(report: &Report) -> Option<String> {
    let period_s = report.conditions.stream.period_s?;
    Some(format!(
        "Peaks and valleys, a period of {period_s} s:\n\n{}\n\
         Back: from when on {WINDOW_REQUESTS} reads in a row of the periodic tenant hit at {} % or more, in s since \
         the peak began, median over the peaks.\n\n{}",
        tenants(report),
        FULL_HIT_RATIO * 100.0,
        returns(report)
    ))
}

fn tenants(report: &Report) -> String {
    let header = ["memory", "system", "tenant", "in peaks", "mean", "miss ratio", "in valleys", "mean", "miss ratio"];
    let mut rows = vec![header.map(str::to_string).to_vec()];
    for summary in &report.summary {
        let n_tenants = paced_of(report, summary).next().map_or(0, |paced| paced.tenants.len());
        rows.extend((0..n_tenants).map(|tenant| tenant_row(report, summary, tenant)));
    }
    columns(&rows)
}

fn tenant_row(report: &Report, summary: &Summary, tenant: usize) -> Vec<String> {
    let all: Vec<_> = paced_of(report, summary).map(|paced| &paced.tenants[tenant]).collect();
    let phase = |of: Vec<PhaseFigures>| {
        [
            of[0].n_requests.to_string(),
            median_of(of.iter().map(|phase| phase.latency_us_mean), number),
            median_of(of.iter().map(|phase| phase.miss_ratio), ratio4),
        ]
    };
    let mut row = vec![summary.memory.clone(), summary.system.clone(), all[0].tenant.clone()];
    row.extend(phase(all.iter().map(|tenant| tenant.peak).collect()));
    row.extend(phase(all.iter().map(|tenant| tenant.valley).collect()));
    row
}

fn returns(report: &Report) -> String {
    let header = ["memory", "system", "back", "", "peaks", "not back", "slept keys", "woken keys", "sleeping reads"];
    let mut rows = vec![header.map(str::to_string).to_vec()];
    rows[0].extend(["late µs", "at most"].map(str::to_string));
    for summary in &report.summary {
        let (back, median) = (figure(summary, "back_s"), |name: &str| figure(summary, name).median);
        let peaks: Vec<_> = paced_of(report, summary).flat_map(|paced| &paced.peaks).collect();
        let not_back = peaks.iter().filter(|peak| peak.back_s.is_none()).count();
        let mut row = vec![summary.memory.clone(), summary.system.clone()];
        row.extend([seconds(back.median), range(back, seconds), peaks.len().to_string(), not_back.to_string()]);
        row.extend(["slept_keys", "woken_keys", "sleeping_reads"].map(|name| whole(median(name))));
        row.push(median_of(paced_of(report, summary).map(|paced| Some(paced.late_us_mean)), number));
        row.push(number(paced_of(report, summary).map(|paced| paced.late_us_max).fold(0.0, f64::max)));
        rows.push(row);
    }
    columns(&rows)
}

fn paced_of<'a>(report: &'a Report, summary: &'a Summary) -> impl Iterator<Item = &'a Paced> {
    runs_of(report, summary).filter_map(|run| run.paced.as_ref())
}
