//! See `tenure::fuzzing::records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure::fuzzing::records(bytes));
