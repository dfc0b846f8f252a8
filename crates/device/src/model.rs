//! Which device, with which parameters.

use crate::{Device, Hdd, HddParameters, ModelError, Ssd, SsdParameters};

/// A kind of device and its parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Model {
    /// A disk.
    Hdd(HddParameters),
    /// A solid-state drive.
    Ssd(SsdParameters),
}

impl Model {
    /// What [`Model::named`] knows.
    pub const NAMES: [&str; 2] = ["hdd", "ssd"];

    /// A preset: [`HddParameters::default`] or [`SsdParameters::default`].
    pub fn named(name: &str) -> Result<Model, ModelError> {
        match name {
            "hdd" => Ok(Model::Hdd(HddParameters::default())),
            "ssd" => Ok(Model::Ssd(SsdParameters::default())),
            other => Err(ModelError::Name(other.to_owned())),
        }
    }

    /// A new one, at rest.
    pub fn device(&self) -> Result<Box<dyn Device>, ModelError> {
        Ok(match self {
            Model::Hdd(parameters) => Box::new(Hdd::new(parameters.clone())?),
            Model::Ssd(parameters) => Box::new(Ssd::new(parameters.clone())?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_and_works() {
        for name in Model::NAMES {
            let model = Model::named(name).expect(name);
            assert!(model.device().is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_answered_with_those_that_are() {
        let error = Model::named("tape").expect_err("no tapes").to_string();
        assert!(error.contains("\"tape\"") && error.contains("hdd, ssd"));
    }
}
