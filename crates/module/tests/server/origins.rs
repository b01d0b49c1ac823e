//! Where misses come from: each cause is told apart, together they are the misses, and what Tenure is to regret is
//! known with its cost.

use std::collections::HashSet;
use std::time::Duration;

use redis::Connection;
use tenure_servers::Server;

use crate::harness::{
    CacheAside, EvictedKeys, Row, evicting_in_time, limit_memory, on_oldest_and_newest, partition, send, wait_for,
    with_module,
};

/// What the backend takes for a key.
const FETCH: Duration = Duration::from_millis(2);
const CAUSES: [&str; 5] = ["misses_first", "misses_expired", "misses_evicted", "misses_deleted", "misses_unknown"];

fn causes(row: &Row) -> [f64; 5] {
    CAUSES.map(|cause| row[cause])
}

/// All misses have a cause, and INFO says what the command says.
#[track_caller]
fn check_sum(server: &Server, row: &Row) {
    assert_eq!(causes(row).iter().sum::<f64>(), row["misses"], "{row:?}");
    let fields = &server.info("tenure").unwrap()["tenure_tenant_db0"];
    for cause in CAUSES.iter().chain(&["regret_misses", "regret_us", "miss_us"]) {
        let text = format!(",{cause}={}", row[*cause] as u64);
        assert!(format!("{fields},").contains(&format!("{text},")), "{text} is not in {fields}");
    }
}

fn get(connection: &mut Connection, key: &str) -> bool {
    send::<Option<String>>(connection, &format!("GET {key}")).is_some()
}

/// Far from the limit too, where no access is put into the table.
#[test]
fn what_never_was_what_expired_and_what_was_deleted() {
    on_oldest_and_newest(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let told = |connection: &mut Connection| causes(&partition(connection, "db0"));
        assert!(!get(&mut connection, "never"));
        send::<()>(&mut connection, "SET short v PX 20");
        wait_for("an expiry", || !get(&mut connection, "short"));
        send::<()>(&mut connection, "SET doomed v");
        send::<()>(&mut connection, "DEL doomed");
        assert!(!get(&mut connection, "doomed"));
        assert_eq!(told(&mut connection), [1.0, 1.0, 0.0, 1.0, 0.0]);
        // A miss that nobody answers is of the same cause when it comes again; many at once and in a script, too.
        let keys: String = (0..100).map(|i| format!(" none:{i}")).collect();
        send::<Vec<Option<String>>>(&mut connection, &format!("MGET doomed short{keys}"));
        redis::cmd("EVAL")
            .arg("return redis.call('GET','doomed')")
            .arg(0)
            .query::<Option<String>>(&mut connection)
            .unwrap();
        assert_eq!(told(&mut connection), [101.0, 2.0, 0.0, 3.0, 0.0]);
        send::<()>(&mut connection, "SET doomed again");
        send::<()>(&mut connection, "RENAME doomed other");
        assert!(!get(&mut connection, "doomed") && get(&mut connection, "other"));
        assert_eq!(told(&mut connection)[3], 4.0);
        check_sum(server, &partition(&mut connection, "db0"));
    });
}

#[test]
fn what_was_evicted_is_regretted_at_its_price() {
    on_oldest_and_newest(&evicting_in_time().set("tenure.key-table-bytes", "512kb"), |server| {
        let evicted = EvictedKeys::of(server);
        limit_memory(server, 4 << 20);
        let mut connection = server.connection().unwrap();
        let mut client = CacheAside::new(server.connection().unwrap(), "k:", 10_000, 1000).with_backend(FETCH);
        client.read_all();
        wait_for("evictions", || {
            client.read_some(100);
            evicted.count() > 1_000
        });
        let before = partition(&mut connection, "db0");
        check_sum(server, &before);
        assert!(before["misses_evicted"] > 0.0 && before["regret_misses"] > 0.0, "{before:?}");
        // Of keys that went just now, one after the other.
        let keys: HashSet<Vec<u8>> = evicted.last().into_keys().collect();
        let misses = client.misses;
        for key in keys.iter().take(40).map(|key| std::str::from_utf8(key).unwrap()) {
            client.read(&[key.trim_start_matches("k:").parse().unwrap()]);
        }
        let regretted = (client.misses - misses) as f64;
        let after = partition(&mut connection, "db0");
        check_sum(server, &after);
        let grown = |name: &str| after[name] - before[name];
        assert!(regretted >= 20.0 && grown("misses") == regretted, "{regretted} {after:?}");
        // Of some the table has had to forget it.
        assert!(grown("misses_evicted") >= 0.7 * regretted, "{regretted} {before:?} {after:?}");
        let regret_us = grown("regret_us");
        assert!(
            regret_us >= FETCH.as_micros() as f64 * grown("regret_misses") && grown("regret_misses") >= 0.5 * regretted,
            "{after:?}"
        );
        assert!(grown("miss_us") >= regret_us, "{after:?}");
        assert!((0.0..=60.0).contains(&after["regret_seconds_mean"]), "{after:?}");
    });
}
