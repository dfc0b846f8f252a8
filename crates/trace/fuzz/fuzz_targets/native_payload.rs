//! Any bytes, read as the records of a native chunk, are a trace or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_trace::fuzzing::native_payload(bytes);
});
