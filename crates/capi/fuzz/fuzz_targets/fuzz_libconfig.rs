//! Any bytes, read as a configuration, give settings that can be used or an error that points into them.

#![no_main]

use agios::config::Config;
use agios::libconfig;
use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Err(error) = libconfig::parse(text) {
        let line = text.split(|b| *b == b'\n').nth(error.at.line - 1);
        let line = line.expect("an error is in a line that exists");
        assert!((1..=line.len() + 1).contains(&error.at.column), "{error}");
    }
    if let Ok(config) = Config::parse(text, Path::new("fuzz.conf")) {
        config.settings.check().expect("what is accepted can be used");
    }
});
