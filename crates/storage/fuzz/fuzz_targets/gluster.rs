//! Any bytes, read as what GlusterFS says, are a layout or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    presagio_storage::fuzzing::gluster(bytes);
});
