//! Which device a person means: a preset by its name, or a profile by its file.

use crate::failure::failure;
use presagio_core::Op;
use presagio_device::profile::{Pattern, Test};
use presagio_device::{Model, Profile};
use presagio_sched::ServiceTime;
use std::path::Path;

/// The model of that name. What is no preset's name is the file of a profile.
pub fn find(name: &str) -> anyhow::Result<Model> {
    match Model::named(name) {
        Ok(model) => Ok(model),
        Err(_) if Path::new(name).exists() => Ok(Model::Fitted(read(Path::new(name))?)),
        Err(error) => Err(failure(
            format!("cannot emulate {name}"),
            error,
            "name one of these, or the file of a profile (presagio profile -o FILE)",
        )),
    }
}

/// What the model takes for a request by its size, where others come between: by this foresight knows which waits pay.
pub fn service_time(model: &Model) -> anyhow::Result<ServiceTime> {
    if let Model::Fitted(profile) = model {
        let [reads, writes] = Op::ALL.map(|op| profile.corners(Test::of(op, Pattern::Random)));
        return Ok(ServiceTime::measured(&reads, &writes));
    }
    Ok(presagio_sim::service_time(&mut *model.device()?))
}

/// A profile's file.
pub fn read(path: &Path) -> anyhow::Result<Profile> {
    let what = || format!("cannot read the profile {}", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| failure(what(), error, "name a file that presagio profile -o wrote"))?;
    Profile::from_text(&text)
        .map_err(|error| failure(what(), error, "write it anew with presagio profile -o"))
}
