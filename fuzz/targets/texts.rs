//! See `tenure::fuzzing::texts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure::fuzzing::texts(bytes));
