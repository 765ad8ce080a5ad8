//! What a program says of files: by its exit code for one, by lines of JSON for several.

use farhaul::sisters::CheckVerdict;
use farhaul_text::printable;
use serde::Deserialize;

use super::super::program::ProgramEnd;

/// The most characters of a reason. More are cut off.
const REASON_CHARS: usize = 300;
/// The bytes that an answer may have. The room for a program's output is made of it.
pub(super) const LINE_MAX: usize = 2 << 10;

/// The line by which a program judges a file.
#[derive(Debug, Deserialize)]
struct FileAnswer {
    id: usize,
    accept: bool,
    #[serde(default)]
    reason: String,
}

/// The verdict of a program that got one file and has ended by itself.
pub(super) fn of_status(end: &ProgramEnd) -> CheckVerdict {
    match end.is_success() {
        true => CheckVerdict::Accepted,
        false => CheckVerdict::Refused(last_line(&end.output).unwrap_or_else(|| end.verdict())),
    }
}

/// The verdicts of a program that got `count` files. Lines that are no answers are its own notes. A file that it
/// has refused in one of its answers is refused.
pub(super) fn of_lines(end: &ProgramEnd, count: usize) -> Vec<CheckVerdict> {
    if !end.is_success() {
        let why = last_line(&end.output).map_or(String::new(), |line| format!(": {line}"));
        return vec![CheckVerdict::Failed(format!("the program {}{why}", end.verdict())); count];
    }
    let mut verdicts = vec![CheckVerdict::Failed("the program has not answered for it".into()); count];
    let answers =
        end.output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    for FileAnswer { id, accept, reason } in answers {
        let Some(verdict) = verdicts.get_mut(id) else { continue };
        match (accept, &verdict) {
            (_, CheckVerdict::Refused(_)) => {}
            (true, _) => *verdict = CheckVerdict::Accepted,
            (false, _) => {
                let reason = printable(reason.trim().as_bytes(), REASON_CHARS);
                let reason = if reason.is_empty() { "it gave no reason".into() } else { reason };
                *verdict = CheckVerdict::Refused(reason);
            }
        }
    }
    verdicts
}

/// The last line of an output that is not empty, fit for a terminal.
pub(super) fn last_line(output: &[u8]) -> Option<String> {
    let last = output.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty())?;
    Some(printable(last, REASON_CHARS))
}
