//! Progress, for whoever is watching.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on stderr; it hides itself where stderr is no terminal.
pub fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style)
}

/// Like [`progress`], counting bytes; a spinner where nobody knows how many there are.
pub fn progress_bytes(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{bar:30} {bytes}/{total_bytes} {elapsed} {wide_msg}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {bytes} {elapsed} {wide_msg}",
        ),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
