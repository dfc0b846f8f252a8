//! Devices that were profiled: their files, as scenarios name them.

use crate::model;
use presagio_device::Profile;
use presagio_sim::Run;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Reads every profile that one of the runs has a device by. Names are relative to the scenario's folder.
pub fn read_all(runs: &mut [Run], folder: &Path) -> anyhow::Result<()> {
    let mut known: HashMap<String, Arc<Profile>> = HashMap::new();
    for run in runs {
        let device = &mut run.scenario.servers.device;
        let Some(file) = device.profile().map(str::to_owned) else {
            continue;
        };
        let profile = match known.get(&file) {
            Some(profile) => profile.clone(),
            None => Arc::new(model::read(&folder.join(&file))?),
        };
        known.insert(file, profile.clone());
        device.fit(profile);
    }
    Ok(())
}
