//! Traces of every format: the first byte says which, or that it is told by the beginning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_sim::trace::{Format, TraceOptions, TraceReader};

const FORMATS: [Format; 6] =
    [Format::Tenure, Format::LibCacheSimCsv, Format::OracleGeneral, Format::Twitter, Format::Msr, Format::Monitor];

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    let format = FORMATS.get(usize::from(which & 15)).copied();
    let parameters = if which & 16 == 0 { "" } else { "time-col=1, obj-id-col=2, obj-size-col=3" };
    let options = TraceOptions {
        format,
        parameters: parameters.to_owned(),
        skip_bad: which & 32 != 0,
        ..TraceOptions::default()
    };
    let Ok(mut reader) = TraceReader::from_reader("fuzz", std::io::Cursor::new(bytes.to_vec()), options) else {
        return;
    };
    while let Some(Ok(_)) = reader.next_request() {}
});
