//! Any bytes, read as the fields of a request, are one or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_ninep::fuzzing::request(bytes);
});
