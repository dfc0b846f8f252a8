//! Any bytes, read as the output of strace, are a trace or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_trace::fuzzing::strace_text(bytes);
});
