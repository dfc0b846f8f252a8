//! Any text is a configured layout or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_storage::fuzzing::configured(bytes);
});
