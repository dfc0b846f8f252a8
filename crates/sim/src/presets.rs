//! The papers' experiments, as scenarios.

/// A scenario that comes with Presagio.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// By which it is found.
    pub name: &'static str,
    /// The scenario, as a file would have it.
    pub toml: &'static str,
}

macro_rules! preset {
    ($name:literal) => {
        Preset {
            name: $name,
            toml: include_str!(concat!("../presets/", $name, ".toml")),
        }
    };
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    preset!("first"),
    preset!("001-fig2a"),
    preset!("001-fig2b"),
    preset!("001-campaign"),
    preset!("000-servers"),
    preset!("000-ionodes"),
    preset!("thesis-3.2-shared"),
    preset!("thesis-3.2-shared-x4"),
    preset!("thesis-3.2-files"),
    preset!("thesis-3.2-files-x4"),
    preset!("thesis-4.1"),
    preset!("thesis-4.1-disk"),
    preset!("live"),
    preset!("large"),
];

/// The preset of this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
