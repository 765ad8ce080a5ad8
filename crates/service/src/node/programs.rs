//! Describes how a hook's program has ended, for the job's log.

use std::path::Path;

use serde_json::json;

use crate::hooks::{HookMoment, ProgramEnd};

/// The most characters of a program's last line that are shown as its reason.
const REASON_CHARS: usize = 300;

/// One line for people.
pub(super) fn line(on: HookMoment, program: &Path, finished: &ProgramEnd) -> String {
    let said = last_line(finished).map_or(String::new(), |line| format!(": {line}"));
    format!("{on} hook {} {}{said}", program.display(), finished.verdict())
}

/// JSON for programs, with all of the output that was kept.
pub(super) fn event(delivery: &str, finished: &ProgramEnd) -> String {
    json!({
        "event": "hook", "delivery": delivery, "status": finished.status, "signal": finished.signal,
        "timed_out": finished.timed_out, "seconds": finished.took.as_secs_f64(),
        "output_bytes": finished.output_bytes, "output": String::from_utf8_lossy(&finished.output),
    })
    .to_string()
}

/// The last line of its output that is not empty.
pub(super) fn last_line(finished: &ProgramEnd) -> Option<String> {
    let lines = finished.output.split(|byte| *byte == b'\n');
    let last = lines.map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty())?;
    Some(farhaul_text::printable(last, REASON_CHARS))
}

/// The level at which it is logged.
pub(super) fn level(finished: &ProgramEnd) -> &'static str {
    if finished.is_success() { "info" } else { "warning" }
}
