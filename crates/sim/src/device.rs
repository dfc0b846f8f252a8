//! Which device a scenario wants: a preset of `presagio-device` by name, one with other parameters, or one that was
//! profiled. The file of a profile is named here and read by whoever runs the scenario.

use crate::{Bytes, Span};
use presagio_core::Nanos;
use presagio_device::{Device, HddParameters, Model, Profile, SsdParameters};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::sync::Arc;

/// `"hdd"`, or `{ model = "hdd", rpm = 10500 }`, or `{ profile = "disk.json" }`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    #[serde(default = "usual")]
    model: String,
    profile: Option<String>,
    capacity: Option<Bytes>,
    rpm: Option<u32>,
    bytes_per_s: Option<Bytes>,
    seek_least: Option<Span>,
    seek_average: Option<Span>,
    seek_most: Option<Span>,
    read_ahead: Option<Bytes>,
    write_cache: Option<Bytes>,
    channels: Option<u32>,
    unit: Option<Bytes>,
    read_overhead: Option<Span>,
    write_overhead: Option<Span>,
}

/// What is changed where no model is named.
fn usual() -> String {
    "hdd".to_owned()
}

/// A device by name and parameters, or by a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceChoice {
    parameters: Parameters,
    /// What was in the file of the profile.
    fitted: Option<Arc<Profile>>,
}

impl DeviceChoice {
    /// A preset.
    pub fn named(name: &str) -> DeviceChoice {
        DeviceChoice::of(Parameters::named(name))
    }

    fn of(parameters: Parameters) -> DeviceChoice {
        DeviceChoice {
            parameters,
            fitted: None,
        }
    }

    /// The file of the profile that says what it is like, if one does.
    pub fn profile(&self) -> Option<&str> {
        self.parameters.profile.as_deref()
    }

    /// What was in that file.
    pub fn fit(&mut self, profile: Arc<Profile>) {
        self.fitted = Some(profile);
    }

    /// Its name, with a star where parameters were changed.
    pub fn name(&self) -> String {
        match self.profile() {
            Some(file) => file.to_owned(),
            None if self.is_changed() => format!("{}*", self.parameters.model),
            None => self.parameters.model.clone(),
        }
    }

    /// Why there can be no such device, whatever is in the file of its profile.
    pub(crate) fn reason_against(&self) -> Option<String> {
        let Some(file) = self.profile() else {
            return self.device().err();
        };
        let alone = Parameters {
            profile: Some(file.to_owned()),
            ..Parameters::named(&usual())
        };
        (self.parameters != alone)
            .then(|| "a profile says all of it: leave model and parameters out".to_owned())
    }

    /// The model with its parameters, or why there is none.
    pub fn model(&self) -> Result<Model, String> {
        if let Some(profile) = &self.fitted {
            return Ok(Model::Fitted(Profile::clone(profile)));
        }
        if let Some(file) = self.profile() {
            return Err(format!("the profile {file} has not been read"));
        }
        let name = &self.parameters.model;
        let mut model = Model::named(name).map_err(|e| e.to_string())?;
        match &mut model {
            Model::Hdd(hdd) => self.parameters.change_hdd(hdd),
            Model::Ssd(ssd) => self.parameters.change_ssd(ssd),
            _ if self.is_changed() => return Err(format!("{name} has no parameters to change")),
            _ => {}
        }
        Ok(model)
    }

    /// A device at rest.
    pub fn device(&self) -> Result<Box<dyn Device>, String> {
        self.model()?.device().map_err(|e| e.to_string())
    }

    fn is_changed(&self) -> bool {
        self.parameters != Parameters::named(&self.parameters.model)
    }
}

impl Parameters {
    fn named(model: &str) -> Parameters {
        Parameters {
            model: model.to_owned(),
            ..Parameters::default()
        }
    }

    fn change_hdd(&self, hdd: &mut HddParameters) {
        set(&mut hdd.capacity, self.capacity.map(|b| b.0));
        set(&mut hdd.rpm, self.rpm);
        set(&mut hdd.bytes_per_s, self.bytes_per_s.map(|b| b.0));
        set(&mut hdd.seek_least, self.seek_least.map(nanos));
        set(&mut hdd.seek_average, self.seek_average.map(nanos));
        set(&mut hdd.seek_most, self.seek_most.map(nanos));
        set(&mut hdd.read_ahead, self.read_ahead.map(|b| b.0));
        set(&mut hdd.write_cache, self.write_cache.map(|b| b.0));
    }

    fn change_ssd(&self, ssd: &mut SsdParameters) {
        set(&mut ssd.channels, self.channels);
        set(&mut ssd.unit, self.unit.map(|b| b.0));
        set(&mut ssd.bytes_per_s, self.bytes_per_s.map(|b| b.0));
        set(&mut ssd.read_overhead, self.read_overhead.map(nanos));
        set(&mut ssd.write_overhead, self.write_overhead.map(nanos));
    }
}

fn nanos(span: Span) -> Nanos {
    Nanos(span.0)
}

fn set<T>(parameter: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *parameter = given;
    }
}

struct Choice;

impl<'de> Visitor<'de> for Choice {
    type Value = DeviceChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the name of a device, { model = \"hdd\", rpm = 10500 }, or { profile = \"disk.json\" }",
        )
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<DeviceChoice, E> {
        Ok(DeviceChoice::named(name))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<DeviceChoice, M::Error> {
        let parameters = Parameters::deserialize(de::value::MapAccessDeserializer::new(map));
        parameters.map(DeviceChoice::of)
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DeviceChoice, D::Error> {
        from.deserialize_any(Choice)
    }
}
