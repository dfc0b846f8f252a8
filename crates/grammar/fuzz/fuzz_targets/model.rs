//! Any bytes, loaded as a grammar or a series, are one that works, or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_grammar::fuzzing::model(bytes);
});
