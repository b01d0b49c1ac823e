//! The report's text on a restart: the miss ratio before and after it, and when it was back.

use super::table::{figure, median_of, range, ratio4, runs_of, seconds, whole};
use super::{Report, columns};
use crate::restart::Restart;

/// `None` where there was no restart.
pub(super) fn table(report: &Report) -> Option<String> {
    let window_requests = report.runs.iter().find_map(|run| run.restart)?.window_requests;
    let header = ["memory", "system", "miss ratio before", "just after", "back after", "", "not back", "extra misses"];
    let mut rows = vec![header.map(str::to_string).to_vec()];
    rows[0].extend(["woken keys", "sleeping reads", "down s"].map(str::to_string));
    for summary in &report.summary {
        let restarts: Vec<Restart> = runs_of(report, summary).filter_map(|run| run.restart).collect();
        let median = |value: fn(&Restart) -> f64, show| median_of(restarts.iter().map(|r| Some(value(r))), show);
        let back = figure(summary, "back_requests");
        let not_back = restarts.iter().filter(|restart| restart.n_requests_until_back.is_none()).count();
        let mut row = vec![summary.memory.clone(), summary.system.clone()];
        row.push(median(|restart| restart.miss_ratio_before, ratio4));
        row.push(median(|restart| restart.miss_ratio_after, ratio4));
        row.extend([whole(back.median), range(back, whole), not_back.to_string()]);
        row.push(median(|restart| restart.n_misses_extra, whole));
        row.extend(["woken_keys", "sleeping_reads"].map(|name| whole(figure(summary, name).median)));
        row.push(median(|restart| restart.down_s, seconds));
        rows.push(row);
    }
    Some(format!(
        "Restart at {} of the measured requests. Back: after so many requests the next {window_requests} miss at most \
         a tenth more often than before it.\n\n{}",
        report.conditions.restart.as_deref().unwrap_or_default(),
        columns(&rows)
    ))
}
