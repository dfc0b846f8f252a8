//! What /proc says about who asks. The kernel tells user, group and thread, and nothing else.

use std::fs;

/// A line of /proc/PID/status, without its name. Nothing if the process is gone or in another world.
fn status(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Some(line?.trim_start_matches(':').trim().to_owned())
}

/// Whether the thread is in a group beside its first.
pub(super) fn is_in_group(pid: u32, gid: u32) -> bool {
    let groups = status(pid, "Groups").unwrap_or_default();
    let mut groups = groups.split_whitespace();
    groups.any(|group| group.parse() == Ok(gid))
}

/// Whether a signal waits for the thread that it neither blocks nor ignores: whatever it waits for has to end, or it
/// could not even be killed. A thread that is gone waits for nothing.
pub(super) fn is_interrupted(pid: u32) -> bool {
    if pid == 0 {
        // It cannot be seen from here.
        return false;
    }
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    let mask = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    };
    let waiting = mask("SigPnd:") | mask("ShdPnd:");
    waiting & !mask("SigBlk:") & !mask("SigIgn:") != 0
}
