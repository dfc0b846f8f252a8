//! Progress, for whoever is watching.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on stderr; it hides itself where stderr is no terminal.
pub fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style)
}
