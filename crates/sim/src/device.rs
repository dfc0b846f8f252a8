//! Which device a scenario wants: a preset of `presagio-device` by name, or one with other parameters.

use crate::{Bytes, Span};
use presagio_core::Nanos;
use presagio_device::{Device, HddParameters, Model, SsdParameters};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// `"hdd"`, or `{ model = "hdd", rpm = 10500 }`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    #[serde(default = "usual")]
    model: String,
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

/// A device by name and parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceChoice(Parameters);

impl DeviceChoice {
    /// A preset.
    pub fn named(name: &str) -> DeviceChoice {
        DeviceChoice(Parameters {
            model: name.to_owned(),
            ..Parameters::default()
        })
    }

    /// Its name, with a star where parameters were changed.
    pub fn name(&self) -> String {
        let changed = *self != DeviceChoice::named(&self.0.model);
        format!("{}{}", self.0.model, if changed { "*" } else { "" })
    }

    /// The model with its parameters, or why there is none.
    pub fn model(&self) -> Result<Model, String> {
        let mut model = Model::named(&self.0.model).map_err(|e| e.to_string())?;
        let changed = *self != DeviceChoice::named(&self.0.model);
        match &mut model {
            Model::Hdd(hdd) => self.0.change_hdd(hdd),
            Model::Ssd(ssd) => self.0.change_ssd(ssd),
            _ if changed => return Err(format!("{} has no parameters to change", self.0.model)),
            _ => {}
        }
        Ok(model)
    }

    /// A device at rest.
    pub fn device(&self) -> Result<Box<dyn Device>, String> {
        self.model()?.device().map_err(|e| e.to_string())
    }
}

impl Parameters {
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
        f.write_str("the name of a device, or { model = \"hdd\", rpm = 10500 }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<DeviceChoice, E> {
        Ok(DeviceChoice::named(name))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<DeviceChoice, M::Error> {
        Parameters::deserialize(de::value::MapAccessDeserializer::new(map)).map(DeviceChoice)
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DeviceChoice, D::Error> {
        from.deserialize_any(Choice)
    }
}
