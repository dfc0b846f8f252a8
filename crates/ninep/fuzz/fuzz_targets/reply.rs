//! Any bytes, read as the fields of a reply, are one or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_ninep::fuzzing::reply(bytes);
});
