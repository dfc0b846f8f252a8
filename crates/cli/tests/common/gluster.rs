//! GlusterFS's daemons, in namespaces of a test's own, and volumes.

use super::apart::run;
use super::nodes::{Running, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the clients of a volume may keep.
pub const CACHES: [&str; 6] = [
    "quick-read",
    "io-cache",
    "stat-prefetch",
    "read-ahead",
    "write-behind",
    "open-behind",
];

/// How a volume is mounted of which the kernel keeps nothing.
pub const UNCACHED: &str = "attribute-timeout=0,entry-timeout=0,direct-io-mode=enable";

/// The daemon that starts the others, with a state of its own. All end with the test's namespaces.
pub struct Gluster {
    host: String,
    _daemon: Running,
}

impl Gluster {
    /// On an address of this network.
    pub fn start(dir: &Path, host: &str) -> Gluster {
        for path in ["/var/lib/glusterd", "/var/log/glusterfs"] {
            run("mount", &["-t", "tmpfs", "none", path]);
        }
        fs::create_dir("/run/gluster").unwrap();
        let mut daemon = Command::new("glusterd");
        daemon.arg("-N").arg("-l").arg(dir.join("glusterd.log"));
        let daemon = Running::start(daemon);
        until("glusterd answers", || {
            let mut ask = Command::new("gluster");
            let asked = ask.args(["--mode=script", "pool", "list"]).output();
            asked.is_ok_and(|asked| asked.status.success())
        });
        Gluster {
            host: host.to_owned(),
            _daemon: daemon,
        }
    }

    /// Makes a volume of three bricks, of which so many things are turned off, and mounts it twice with these options.
    pub fn volume(&self, dir: &Path, name: &str, off: &[&str], options: &str) -> [PathBuf; 2] {
        let brick = |i| format!("{}:{}/brick{i}", self.host, dir.display());
        let bricks: Vec<String> = (0..3).map(brick).collect();
        let mut create = vec!["create", name];
        create.extend(bricks.iter().map(String::as_str));
        create.push("force");
        gluster(&create);
        for cache in off {
            gluster(&["set", name, &format!("performance.{cache}"), "off"]);
        }
        gluster(&["start", name]);
        ["volume1", "volume2"].map(|point| {
            let point = dir.join(point);
            fs::create_dir(&point).unwrap();
            let source = format!("{}:/{name}", self.host);
            let at = point.to_str().expect("a path in UTF-8");
            run("mount", &["-t", "glusterfs", "-o", options, &source, at]);
            point
        })
    }
}

fn gluster(arguments: &[&str]) {
    run(
        "gluster",
        &[&["--mode=script", "volume"], arguments].concat(),
    );
}
