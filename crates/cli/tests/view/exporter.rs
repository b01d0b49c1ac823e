//! The exporter, its alerts and its Grafana dashboard, by a real Prometheus.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tenure_servers::{Server, wait_for};

use crate::http::{get, request};
use crate::load::{DEADLINE, Load, server};
use crate::programs::{Program, address_of, installed, serving};

/// A file of the crate that the exporter is in.
fn of_view(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../view").join(path)
}

fn calls_of_info(server: &Server) -> u64 {
    let line = server.info("commandstats").unwrap().get("cmdstat_info").cloned().unwrap_or_default();
    line.split_once("calls=").and_then(|(_, rest)| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn alerts_ring_for_what_they_are_about() {
    let Some(promtool) = installed("alerts_ring_for_what_they_are_about", "promtool") else { return };
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts-test.yml"]] {
        let output = Command::new(&promtool).args(arguments).current_dir(of_view("prometheus")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_scrape_is_one_info_and_a_server_that_is_gone_is_no_error() {
    let Some(mut server) = server("a_scrape_is_one_info_and_a_server_that_is_gone_is_no_error") else { return };
    let both = format!("127.0.0.1:{},127.0.0.1:1", server.port());
    let (_exporter, url) = serving(&["exporter", &both, "--listen", "127.0.0.1:0"]);
    let address = address_of(&url);
    let scrape = || get(&address, "/metrics").unwrap();
    let load = Load::on(&server);
    wait_for(DEADLINE, "misses to have been scraped", || scrape().body.contains("tenure_evictions_total")).unwrap();
    drop(load);

    let before = calls_of_info(&server);
    for _ in 0..5 {
        scrape();
    }
    // Of these calls one is the second look's own.
    assert_eq!(calls_of_info(&server) - before, 5 + 1);

    let answer = scrape();
    let tenants: Vec<std::collections::BTreeMap<String, String>> = server.call(&["TENURE.TENANTS"]).unwrap();
    let own = format!("server=\"127.0.0.1:{}\"", server.port());
    for tenant in &tenants {
        for (field, series) in
            [("misses", "tenure_misses_total"), ("evictions", "tenure_evictions_total"), ("keys", "tenure_keys")]
        {
            let prefix = format!("{series}{{{own},tenant=\"{}\"", tenant["name"]);
            let told: f64 = answer
                .body
                .lines()
                .filter(|line| line.starts_with(&prefix))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum();
            assert_eq!(told, tenant[field].parse::<f64>().unwrap(), "{field} of {tenant:?}");
        }
    }
    assert!(answer.head.contains("application/openmetrics-text"), "{}", answer.head);
    assert!(answer.body.contains("tenure_up{server=\"127.0.0.1:1\"} 0.0"), "{}", answer.body);
    server.stop().unwrap();
    let answer = scrape();
    assert_eq!(
        (answer.status, answer.body.contains(&format!("tenure_up{{{own}}} 0.0"))),
        (200, true),
        "{}",
        answer.body
    );
    assert_eq!(request(&address, "POST", "/metrics", &[], "").unwrap().status, 405);
    assert_eq!(get(&address, "/else").unwrap().status, 404);
}

/// What Prometheus answers to a query: the values of all series.
fn query(prometheus: &str, text: &str) -> Vec<f64> {
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = get(prometheus, &format!("/api/v1/query?query={encoded}")).unwrap().json();
    assert_eq!(answer["status"], "success", "{text}: {answer}");
    let value = |row: &Value| row["value"][1].as_str()?.parse::<f64>().ok();
    answer["data"]["result"].as_array().map_or(Vec::new(), |rows| rows.iter().filter_map(value).collect())
}

/// Every query of the dashboard, with its variables replaced.
fn queries_of_dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(of_view("grafana/tenure.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expression = |target: &Value| {
        let mut text = target["expr"].as_str().unwrap().to_owned();
        for (variable, value) in
            [("$instance", ".*"), ("$server", ".*"), ("$tenant", ".*"), ("$__rate_interval", "10s")]
        {
            text = text.replace(variable, value);
        }
        assert!(!text.contains('$'), "{text}");
        text
    };
    targets.map(expression).collect()
}

#[test]
fn a_real_prometheus_reads_a_real_server() {
    let test = "a_real_prometheus_reads_a_real_server";
    let Some(program) = installed(test, "prometheus") else { return };
    let Some(mut server) = server(test) else { return };
    let _load = Load::on(&server);
    let (_exporter, url) = serving(&["exporter", &format!("127.0.0.1:{}", server.port()), "--listen", "127.0.0.1:0"]);
    let folder = tempfile::tempdir().unwrap();
    let rules = of_view("prometheus/alerts.yml").canonicalize().unwrap();
    let configuration = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n- job_name: \
         tenure\n  static_configs: [{{targets: ['{}']}}]\n",
        rules.display(),
        address_of(&url)
    );
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, configuration).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let prometheus = format!("127.0.0.1:{port}");
    let child = Command::new(program)
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={prometheus}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _prometheus = Program(child);

    wait_for(DEADLINE, "Prometheus to answer", || {
        get(&prometheus, "/-/ready").is_ok_and(|answer| answer.status == 200)
    })
    .unwrap();
    let lost = "sum(rate(tenure_miss_seconds_total[10s])) > 0";
    wait_for(DEADLINE, "time lost to be counted", || !query(&prometheus, lost).is_empty()).unwrap();
    assert_eq!(query(&prometheus, "tenure_up"), [1.0]);
    assert_eq!(query(&prometheus, "count(count by (tenant) (tenure_used_bytes))"), [4.0], "three tenants and other");
    let units = get(&prometheus, "/api/v1/targets/metadata?metric=tenure_used_bytes").unwrap().json();
    assert_eq!((&units["data"][0]["unit"], &units["data"][0]["type"]), (&"bytes".into(), &"gauge".into()), "{units}");
    assert!(units["data"][0]["help"].as_str().is_some_and(|help| !help.is_empty()), "{units}");
    // Tiers aren't there on this server, nor need there be regret; the rest is.
    let is_silent = |text: &&String| query(&prometheus, text).is_empty();
    let queries = queries_of_dashboard();
    let silent: Vec<&String> = queries.iter().filter(is_silent).collect();
    let may_be = ["regret", "tier", "prediction", "target"];
    assert!(silent.iter().all(|text| may_be.iter().any(|word| text.contains(word))), "nothing for {silent:?}");

    server.stop().unwrap();
    let gone = "ALERTS{alertname=\"TenureServerGone\"}";
    wait_for(DEADLINE, "the alert of a server that is gone", || !query(&prometheus, gone).is_empty()).unwrap();
    assert_eq!(query(&prometheus, "tenure_up"), [0.0]);
}
