//! Any bytes, read as a Darshan log, are a trace or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_trace::fuzzing::darshan_log(bytes);
});
