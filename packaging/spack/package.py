# Spack's recipe. Put it into a repository of yours as packages/presagio/package.py, then: spack install presagio
"""Presagio: I/O that is watched, predicted, scheduled and explained."""

from spack.package import *


class Presagio(MakefilePackage):
    """A self-tuning I/O layer for HPC: watches the I/O of unmodified programs and loads what they will read,
    schedules requests on I/O nodes that learn what suits their storage, records, predicts, simulates, reports."""

    homepage = "https://github.com/presagio/presagio"
    git = "https://github.com/presagio/presagio.git"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("gmake", type="build")

    # What the preloaded library hooks is glibc on x86-64.
    requires("platform=linux")
    requires("target=x86_64:")

    build_targets = ["build"]

    @property
    def install_targets(self):
        return [f"PREFIX={self.prefix}", f"SYSCONFDIR={self.prefix.etc}", "install"]

    def setup_build_environment(self, env):
        # Cargo keeps what it downloads in the stage, not in the home directory.
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))
