//! Any bytes, received in pieces, are frames up to an error, and none gets lost.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_ninep::fuzzing::stream(bytes);
});
