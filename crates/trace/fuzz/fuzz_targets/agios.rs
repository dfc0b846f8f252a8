//! Any bytes, read as a trace of AGIOS, are a trace or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_trace::fuzzing::agios_text(bytes);
});
