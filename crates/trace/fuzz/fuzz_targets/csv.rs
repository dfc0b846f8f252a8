//! Any bytes, read as comma-separated values, are a trace or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_trace::fuzzing::csv_text(bytes);
});
