//! Any bytes in the file of a namespace are a record, the beginning of one, or damage.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_storage::fuzzing::record(bytes);
});
