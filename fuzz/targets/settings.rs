//! See `tenure::fuzzing::settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure::fuzzing::settings(bytes));
