//! See `tenure::fuzzing::warm`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure::fuzzing::warm(bytes));
