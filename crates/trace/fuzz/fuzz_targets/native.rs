//! Any bytes, read as a native trace, are a trace or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_trace::fuzzing::native_file(bytes);
});
