//! Any bytes that a server may send are answers or the end of the connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_ninep::fuzzing::client(bytes);
});
