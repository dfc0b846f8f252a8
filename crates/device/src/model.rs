//! Which device, with which parameters.

use crate::profile::Profile;
use crate::{
    Device, Fitted, Hdd, HddParameters, ModelError, Raid0, RaidParameters, Ssd, SsdParameters,
    preset,
};

/// A kind of device and its parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Model {
    /// A disk.
    Hdd(HddParameters),
    /// Disks side by side.
    Raid0(RaidParameters),
    /// A solid-state drive.
    Ssd(SsdParameters),
    /// As a profile says.
    Fitted(Profile),
}

impl Model {
    /// What [`Model::named`] knows: usual devices, then those of four clusters that the thesis measured.
    pub const NAMES: [&str; 7] = ["hdd", "raid0", "ssd", "pastel", "graphene", "suno", "edel"];

    /// A preset: the default of [`HddParameters`], [`RaidParameters`] or [`SsdParameters`], or the storage of a cluster
    /// whose ratios the thesis published (Tables 3.4 and 5.6).
    pub fn named(name: &str) -> Result<Model, ModelError> {
        match name {
            "hdd" => Ok(Model::Hdd(HddParameters::default())),
            "raid0" => Ok(Model::Raid0(RaidParameters::default())),
            "ssd" => Ok(Model::Ssd(SsdParameters::default())),
            "pastel" => Ok(Model::Hdd(preset::pastel())),
            "graphene" => Ok(Model::Hdd(preset::graphene())),
            "suno" => Ok(Model::Raid0(preset::suno())),
            "edel" => Ok(Model::Ssd(preset::edel())),
            other => Err(ModelError::Name(other.to_owned())),
        }
    }

    /// A new one, at rest.
    pub fn device(&self) -> Result<Box<dyn Device>, ModelError> {
        Ok(match self {
            Model::Hdd(parameters) => Box::new(Hdd::new(parameters.clone())?),
            Model::Raid0(parameters) => Box::new(Raid0::new(parameters.clone())?),
            Model::Ssd(parameters) => Box::new(Ssd::new(parameters.clone())?),
            Model::Fitted(profile) => Box::new(Fitted::new(profile.clone())),
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
        assert!(error.contains("\"tape\"") && error.contains("hdd, raid0, ssd"));
    }
}
