//! Where a node keeps bytes, as its arguments say.

use crate::failure::failure;
use crate::model;
use crate::size::Size;
use presagio_storage::{
    Direct, Directory, Emulated, LayoutSource, Located, Storage, Striped, StripedSet,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Args {
    /// A directory of a data server: bytes are striped over all that are given, names stay in the export
    #[arg(long, value_name = "DIR")]
    server: Vec<PathBuf>,
    /// Bytes that lie on one data server before the next has its turn
    #[arg(long, value_name = "SIZE", default_value = "1MiB", requires = "server")]
    stripe: Size,
    /// Where the file system keeps bytes: gluster, lustre or ceph servers=N, or stripe=SIZE servers=N
    #[arg(long, value_name = "LAYOUT", conflicts_with = "server")]
    layout: Option<LayoutSource>,
    /// Leave the page cache alone: whole blocks go straight to the device, and reads come from it (O_DIRECT)
    #[arg(long, conflicts_with = "server")]
    direct: bool,
    /// Take as long as such a device would: hdd, raid0, ssd, pastel, graphene, suno, edel, or a profile's file
    #[arg(long, value_name = "DEVICE")]
    emulate: Option<String>,
}

impl Args {
    pub fn open(&self, export: &Path) -> anyhow::Result<Arc<dyn Storage>> {
        let plain: Arc<dyn Storage> = match (&self.layout, self.server.is_empty()) {
            (Some(layout), _) => Arc::new(Located::new(*layout)),
            (None, true) => Arc::new(Directory),
            (None, false) => Arc::new(self.striped(export)?),
        };
        let plain = match self.direct {
            true => self.straight(export, plain)?,
            false => plain,
        };
        let Some(name) = &self.emulate else {
            return Ok(plain);
        };
        let model = model::find(name)?;
        // Presets are checked, and a profile always has a device.
        let device = |_| model.device().expect("a preset or a profile");
        Ok(Arc::new(Emulated::new(plain, device)))
    }

    fn straight(&self, export: &Path, plain: Arc<dyn Storage>) -> anyhow::Result<Arc<dyn Storage>> {
        // What cannot be told now shows with each file, and those that cannot go through the page cache.
        if let Ok(false) = Direct::is_possible(export) {
            return Err(failure(
                format!("cannot leave the page cache of {} alone", export.display()),
                "its file system has no O_DIRECT",
                "leave --direct out",
            ));
        }
        Ok(Arc::new(Direct::new(plain)))
    }

    fn striped(&self, export: &Path) -> anyhow::Result<Striped> {
        let set = StripedSet {
            namespace: export.to_owned(),
            servers: self.server.clone(),
            stripe: self.stripe.0,
        };
        Striped::start(&set).map_err(|error| {
            failure(
                "cannot stripe",
                error,
                "name the same directories in the same order",
            )
        })
    }
}
