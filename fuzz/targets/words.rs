//! See `tenure::fuzzing::words`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tenure::fuzzing::words(bytes));
