//! Any bytes, read as a trace, predict one request a line, up to an error that points at the line behind.

#![no_main]

use agios::foresight::{self, Told};
use agios::names::Names;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let (names, mut told) = (Names::default(), 0);
    let result = foresight::read(text, &names, |predicted| {
        assert!(predicted.range.end() <= i64::MAX as u64);
        told += 1;
        true
    });
    let lines = text.split_inclusive(|byte| *byte == b'\n').count() as u64;
    match result {
        Ok(all) => assert_eq!((all, told), (Told::All, lines)),
        Err(error) => assert!(error.line == told + 1 && error.line <= lines, "{error}"),
    }
});
