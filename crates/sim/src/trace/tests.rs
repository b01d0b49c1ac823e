//! Each format on hand-made lines, read as a whole trace is.

use std::io::Cursor;

use tenure_core::access::Op::{Delete, Read, Write};
use tenure_core::units::TenantId;

use super::*;

/// Key, operation, size, tenant number, time and TTL in µs.
type Expected = (&'static str, tenure_core::access::Op, u32, u16, u64, u64);

fn reader(trace: impl AsRef<[u8]>, options: TraceOptions) -> Result<TraceReader, TraceError> {
    TraceReader::from_reader("t", Cursor::new(trace.as_ref().to_vec()), options)
}

fn check_with(trace: impl AsRef<[u8]>, options: TraceOptions, expected: &[Expected]) {
    let mut reader = reader(trace, options).unwrap();
    let mut got = Vec::new();
    while let Some(request) = reader.next_request() {
        let Request { access: a, key } = request.unwrap();
        assert_eq!(a.key, KeyHash::of(key));
        got.push((String::from_utf8_lossy(key).into_owned(), a.op, a.size_bytes, a.tenant.0, a.time_us, a.ttl_us));
    }
    let expected: Vec<_> =
        expected.iter().map(|&(key, op, size, n, t, ttl)| (key.to_owned(), op, size, n, t, ttl)).collect();
    assert_eq!(got, expected);
}

/// Told by its content, with 7 bytes where the trace has no size.
fn check(trace: impl AsRef<[u8]>, expected: &[Expected]) {
    check_with(trace, TraceOptions { sizes: Sizes::TraceOr(7), ..TraceOptions::default() }, expected);
}

fn error_of(trace: &str) -> String {
    match reader(trace, TraceOptions::default()) {
        Err(e) => e.to_string(),
        Ok(reader) => reader.filter_map(Result::err).next().expect("an error").to_string(),
    }
}

#[test]
fn tenures_csv() {
    check(
        "time_s,key,op,size,tenant\n1.5,a,get,10,x\n2,\"b,\"\"c\",set,,y\n2.25,a,del,3,x\n",
        &[("a", Read, 10, 0, 0, 0), ("b,\"c", Write, 7, 1, 500_000, 0), ("a", Delete, 3, 0, 750_000, 0)],
    );
    check(",1,get,,\n,2,get,,\n", &[("1", Read, 7, 0, 0, 0), ("2", Read, 7, 0, 0, 0)]);
    check("key,size,ttl_s,op\na,5,0.5,set\n", &[("a", Write, 5, 0, 0, 500_000)]);
}

#[test]
fn a_column_of_penalties_is_the_cost_unless_another_is_asked_for() {
    let trace = "time_s,key,op,size,tenant,penalty_us\n,a,get,1,,250.5\n,b,get,1,,\n";
    let penalties = |costs: Option<CostSpec>| -> Vec<f32> {
        let options = TraceOptions { costs, ..TraceOptions::default() };
        reader(trace, options).unwrap().map(|a| a.unwrap().penalty_us).collect()
    };
    assert_eq!(penalties(None), [250.5, 0.0]);
    assert_eq!(penalties(Some(CostSpec::Fixed(9.0))), [9.0, 9.0]);
    assert_eq!(penalties(Some(CostSpec::Column)), [250.5, 0.0]);
    assert_eq!(penalties(Some(CostSpec::ColumnOr(7.0))), [250.5, 7.0]);
    let options = TraceOptions { costs: Some(CostSpec::Column), ..TraceOptions::default() };
    let last = reader("time_s,key,op,size,tenant\n,a,get,1,\n", options).unwrap().last().unwrap();
    assert!(last.unwrap_err().to_string().starts_with("t: no row says what a miss costs"));
}

#[test]
fn a_trace_without_accesses_and_sizes_beyond_a_value_are_errors() {
    assert_eq!(error_of("time_s,key,op,size,tenant\n"), "t: it holds no access");
    assert_eq!(
        error_of("time_s,key,op,size,tenant\n,a,get,4294967296,\n"),
        "t:2: size 4294967296 is above 4294967295, the largest that a value may have"
    );
}

#[test]
fn libcachesims_csv() {
    let options = |parameters: &str| TraceOptions { parameters: parameters.to_owned(), ..TraceOptions::default() };
    check_with(
        "ts;x;size;id\n5;_;100;k1\n6;_;200;k2\n",
        options("time-col=1, obj-id-col=4, obj-size-col=3, delimiter=;"),
        &[("k1", Read, 100, 0, 0, 0), ("k2", Read, 200, 0, 1_000_000, 0)],
    );
    check_with(
        "1,k,write,30,9\n",
        options("time-col=1,obj-id-col=2,op-col=3,obj-size-col=4,ttl-col=5,delimiter=,,has-header=false"),
        &[("k", Write, 30, 0, 0, 9_000_000)],
    );
    check("timestamp,obj_id,obj_size\n3,42,11\n", &[("42", Read, 11, 0, 0, 0)]);
    assert!(reader("1,2,3\n", options("obj-col=2")).unwrap_err().to_string().contains("allowed are time-col"));
}

#[test]
fn oracle_general_records() {
    let mut trace = Vec::new();
    for (time, id, size, next) in [(10u32, 18_446_744_073_709_551_615u64, 500u32, 2i64), (12, 7, 1, -1)] {
        trace.extend(time.to_le_bytes());
        trace.extend(id.to_le_bytes());
        trace.extend(size.to_le_bytes());
        trace.extend(next.to_le_bytes());
    }
    check(&trace, &[("18446744073709551615", Read, 500, 0, 0, 0), ("7", Read, 1, 0, 2_000_000, 0)]);
    trace.truncate(40);
    let options = TraceOptions { format: Some(Format::OracleGeneral), ..TraceOptions::default() };
    let last = reader(trace, options).unwrap().last().unwrap();
    assert_eq!(last.unwrap_err().to_string(), "t:2: the trace breaks off: 16 bytes of a record of 24");
}

#[test]
fn twitters_csv() {
    check(
        "0,abc,3,20,17,get,0\n1,ns:d,4,30,18,set,3600\n1,abc,3,0,17,delete,0\n",
        &[
            ("abc", Read, 23, 0, 0, 0),
            ("ns:d", Write, 34, 1, 1_000_000, 3_600_000_000),
            ("abc", Delete, 3, 0, 1_000_000, 0),
        ],
    );
}

#[test]
fn msr_cambridge_csv() {
    let trace = "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372013061629,usr,1,Write,512,4096,10\n";
    check(trace, &[("usr.0:7014609920", Read, 24576, 0, 0, 0), ("usr.1:512", Write, 4096, 1, 1_000_000, 0)]);
    let penalty = reader(trace, TraceOptions::default()).unwrap().next().unwrap().unwrap().penalty_us;
    assert_eq!(penalty, 4128.6, "the response time is in units of 100 ns");
}

#[test]
fn logs_of_monitor() {
    check(
        "OK\n100.5 [0 127.0.0.1:60866] \"set\" \"k\\x00\\\"\" \"12345\" \"EX\" \"10\"\n\
         101.0 [3 127.0.0.1:60866] \"PING\"\n\
         101.5 [3 127.0.0.1:60866] \"MGET\" \"k\\x00\\\"\" \"other\"\n\
         102.5 [0 lua] \"del\" \"a\" \"b\"\n",
        &[
            ("k\0\"", Write, 8, 0, 0, 10_000_000),
            ("k\0\"", Read, 8, 1, 1_000_000, 0),
            ("other", Read, 7, 1, 1_000_000, 0),
            ("a", Delete, 7, 0, 2_000_000, 0),
            ("b", Delete, 7, 0, 2_000_000, 0),
        ],
    );
}

#[test]
fn errors_say_where_and_what() {
    let header = "time_s,key,op,size,tenant\n";
    for (trace, expected) in [
        (format!("{header},a,get,-3,\n"), "t:2: size '-3' is negative"),
        (format!("{header},a,get,1,\n,b,fly,1,\n"), "t:3: operation 'fly' is none of get, set, del"),
        (format!("{header},a,get\n"), "t:2: 3 fields; 5 are expected"),
        (format!("{header},,get,1,\n"), "t:2: the key is blank"),
        (format!("{header}x,a,get,1,\n"), "t:2: time 'x' is not a number of seconds, 0 or more"),
        (String::new(), "t: it is empty"),
    ] {
        assert_eq!(error_of(&trace), expected);
    }
    assert!(error_of("what is this\n").contains("its format can't be told"));
    assert!(TraceReader::open("/nonexistent", TraceOptions::default()).is_err());
}

#[test]
fn bad_lines_are_skipped_and_counted_when_asked_so() {
    let trace = "time_s,key,op,size,tenant\n,a,get,x,\n,b,get,1,\nrubbish\n";
    let mut reader = reader(trace, TraceOptions { skip_bad: true, ..TraceOptions::default() }).unwrap();
    assert_eq!(reader.by_ref().map(|a| a.unwrap().size_bytes).collect::<Vec<_>>(), [1]);
    assert_eq!(reader.n_bad(), 2);
}

#[test]
fn a_trace_ends_at_its_first_error() {
    let mut reader =
        reader(",a,fly,,\n,b,get,,\n", TraceOptions { format: Some(Format::Tenure), ..Default::default() }).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

#[test]
fn tenants_by_prefix_column_hash_or_none() {
    let trace = "time_s,key,op,size,tenant\n,u:1,get,1,31\n,v:1,get,1,16\n,w,get,1,x\n,u:2,get,1,1\n";
    let ids = |tenants: &str| {
        let options = TraceOptions { tenants: tenants.parse().unwrap(), ..TraceOptions::default() };
        let mut reader = reader(trace, options).unwrap();
        let ids: Vec<TenantId> = reader.by_ref().map(|a| a.unwrap().tenant).collect();
        (ids.iter().map(|t| t.0).collect::<Vec<_>>(), reader.tenant_names().to_vec())
    };
    assert_eq!(ids("prefix::"), (vec![0, 1, 2, 0], vec!["u".into(), "v".into(), "".into()]));
    assert_eq!(ids("column").0, [0, 1, 2, 3]);
    assert_eq!(ids("column:15").0[..2], [1, 1]);
    assert_eq!(ids("none").0, [0; 4]);
    assert!(ids("hash:2").0.iter().all(|&t| t < 2));
    assert_eq!(ids("client").0, [0, 1, 2, 3], "the column, where no client stands beside it");
    assert!("prefix".parse::<TenantSource>().is_err());
}

#[test]
fn clients_of_monitor_are_addresses_without_ports() {
    let log = "1.0 [0 10.0.0.7:60866] \"get\" \"a\"\n1.1 [0 10.0.0.7:60867] \"get\" \"a\"\n\
               1.2 [0 [::1]:99] \"get\" \"a\"\n1.3 [0 unix:/run/s] \"get\" \"a\"\n";
    let options = TraceOptions { tenants: TenantSource::Client, ..TraceOptions::default() };
    let mut reader = reader(log, options).unwrap();
    let ids: Vec<u16> = reader.by_ref().map(|a| a.unwrap().tenant.0).collect();
    assert_eq!(ids, [0, 0, 1, 2]);
    assert_eq!(reader.tenant_names(), ["10.0.0.7", "[::1]", "unix:/run/s"]);
}

#[test]
fn times_never_go_back() {
    let times = |trace: &str| -> Vec<u64> {
        reader(trace, TraceOptions::default()).unwrap().map(|a| a.unwrap().time_us).collect()
    };
    assert_eq!(
        times("time_s,key,op,size,tenant\n5,a,get,,\n7,a,get,,\n6,a,get,,\n4,a,get,,\n"),
        [0, 2_000_000, 2_000_000, 2_000_000]
    );
}
