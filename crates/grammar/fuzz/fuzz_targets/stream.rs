//! Any stream of symbols and gaps leaves a grammar whose constraints hold, in every mode and under any cap.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_grammar::fuzzing::stream(bytes);
});
