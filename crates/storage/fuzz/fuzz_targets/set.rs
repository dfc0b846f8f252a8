//! Any bytes in the record of a striped set are one, or none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_storage::fuzzing::set(bytes);
});
