//! Which device a scenario wants: a preset of `presagio-device` by name, one with other parameters, or one that was
//! profiled. The file of a profile is named here and read by whoever runs the scenario.

use crate::{Bytes, Span};
use presagio_core::Nanos;
use presagio_device::{
    Device, HddParameters, Model, ModelError, Profile, RaidParameters, SsdParameters,
};
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
    write_slots: Option<u32>,
    read_command: Option<Span>,
    write_command: Option<Span>,
    disks: Option<u32>,
    stripe: Option<Bytes>,
    channels: Option<u32>,
    unit: Option<Bytes>,
    read_overhead: Option<Span>,
    write_overhead: Option<Span>,
    write_amplification_percent: Option<u32>,
    link_bytes_per_s: Option<Bytes>,
}

/// Why there is no such device.
#[derive(Debug)]
pub(crate) struct Against {
    /// The parameter that cannot be, where it is one.
    pub field: Option<&'static str>,
    pub reason: String,
}

impl From<ModelError> for Against {
    fn from(error: ModelError) -> Against {
        Against {
            field: match &error {
                ModelError::Parameter { name, .. } => Some(name),
                _ => None,
            },
            reason: error.to_string(),
        }
    }
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
    pub(crate) fn reason_against(&self) -> Option<Against> {
        if self.profile().is_none() {
            let device = self.known().and_then(|model| Ok(model.device()?));
            return device.err();
        }
        let field = match self.parameters.first_given() {
            None if self.parameters.model == usual() => return None,
            given => given.unwrap_or("model"),
        };
        Some(Against {
            field: Some(field),
            reason: "a profile says all of it: leave model and parameters out".to_owned(),
        })
    }

    /// The model with its parameters, or why there is none.
    pub fn model(&self) -> Result<Model, String> {
        if let Some(profile) = &self.fitted {
            return Ok(Model::Fitted(Profile::clone(profile)));
        }
        if let Some(file) = self.profile() {
            return Err(format!("the profile {file} has not been read"));
        }
        self.known().map_err(|against| against.reason)
    }

    /// A device of a model that is known by name, with the parameters that were given for it.
    fn known(&self) -> Result<Model, Against> {
        let name = &self.parameters.model;
        let mut model = Model::named(name)?;
        let mut left = self.parameters.clone();
        let kind = match &mut model {
            Model::Hdd(hdd) => {
                left.change_hdd(hdd);
                "a disk"
            }
            Model::Raid0(array) => {
                left.change_array(array);
                "an array of disks"
            }
            Model::Ssd(ssd) => {
                left.change_ssd(ssd);
                "an SSD"
            }
            _ => "a device without parameters",
        };
        match left.first_given() {
            None => Ok(model),
            Some(field) => Err(Against {
                field: Some(field),
                reason: format!("{name} is {kind}, which has no {field}"),
            }),
        }
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

    /// Takes what was given of a disk.
    fn change_hdd(&mut self, hdd: &mut HddParameters) {
        set(&mut hdd.capacity, self.capacity.take().map(bytes));
        set(&mut hdd.rpm, self.rpm.take());
        set(&mut hdd.bytes_per_s, self.bytes_per_s.take().map(bytes));
        set(&mut hdd.seek_least, self.seek_least.take().map(nanos));
        set(&mut hdd.seek_average, self.seek_average.take().map(nanos));
        set(&mut hdd.seek_most, self.seek_most.take().map(nanos));
        set(&mut hdd.read_ahead, self.read_ahead.take().map(bytes));
        set(&mut hdd.write_cache, self.write_cache.take().map(bytes));
        set(&mut hdd.write_slots, self.write_slots.take());
        set(&mut hdd.read_command, self.read_command.take().map(nanos));
        set(&mut hdd.write_command, self.write_command.take().map(nanos));
    }

    /// Takes what was given of an array and its disks.
    fn change_array(&mut self, array: &mut RaidParameters) {
        self.change_hdd(&mut array.disk);
        set(&mut array.disks, self.disks.take());
        set(&mut array.stripe, self.stripe.take().map(bytes));
    }

    /// Takes what was given of an SSD.
    fn change_ssd(&mut self, ssd: &mut SsdParameters) {
        let amplification = self.write_amplification_percent.take();
        let link = self.link_bytes_per_s.take().map(bytes);
        set(&mut ssd.channels, self.channels.take());
        set(&mut ssd.unit, self.unit.take().map(bytes));
        set(&mut ssd.bytes_per_s, self.bytes_per_s.take().map(bytes));
        set(&mut ssd.read_overhead, self.read_overhead.take().map(nanos));
        set(
            &mut ssd.write_overhead,
            self.write_overhead.take().map(nanos),
        );
        set(&mut ssd.read_ahead, self.read_ahead.take().map(bytes));
        set(&mut ssd.write_cache, self.write_cache.take().map(bytes));
        set(&mut ssd.write_amplification_percent, amplification);
        set(&mut ssd.link_bytes_per_s, link);
        set(&mut ssd.read_command, self.read_command.take().map(nanos));
        set(&mut ssd.write_command, self.write_command.take().map(nanos));
    }

    /// The name of the first parameter that was given and not taken.
    fn first_given(&self) -> Option<&'static str> {
        let all = [
            ("capacity", self.capacity.is_some()),
            ("rpm", self.rpm.is_some()),
            ("bytes_per_s", self.bytes_per_s.is_some()),
            ("seek_least", self.seek_least.is_some()),
            ("seek_average", self.seek_average.is_some()),
            ("seek_most", self.seek_most.is_some()),
            ("read_ahead", self.read_ahead.is_some()),
            ("write_cache", self.write_cache.is_some()),
            ("write_slots", self.write_slots.is_some()),
            ("read_command", self.read_command.is_some()),
            ("write_command", self.write_command.is_some()),
            ("disks", self.disks.is_some()),
            ("stripe", self.stripe.is_some()),
            ("channels", self.channels.is_some()),
            ("unit", self.unit.is_some()),
            ("read_overhead", self.read_overhead.is_some()),
            ("write_overhead", self.write_overhead.is_some()),
            (
                "write_amplification_percent",
                self.write_amplification_percent.is_some(),
            ),
            ("link_bytes_per_s", self.link_bytes_per_s.is_some()),
        ];
        all.into_iter()
            .find_map(|(name, is_given)| is_given.then_some(name))
    }
}

fn bytes(bytes: Bytes) -> u64 {
    bytes.0
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
