//! Writes lines to stderr and data to stdout.
//!
//! Always true: a reader that has gone is an error and not a panic; a reader that reads nothing does not keep
//! the process from ending after a signal; text from elsewhere cannot control the terminal.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use farhaul::Error;
use farhaul::copy::{FailedEntry, NotSetEntry};
use farhaul::errors::{Code, OptionName};
use farhaul::sisters::{GivenUp, InterruptibleOutput, is_unprintable, plain};
use serde::Serialize;

use crate::{descriptors, exit, signals};

static STDOUT: WatchedOutput = WatchedOutput(Mutex::new(OutputState::Unused));
static STDERR: WatchedOutput = WatchedOutput(Mutex::new(OutputState::Unused));

/// Standard output or standard error of a process that handles signals.
struct WatchedOutput(Mutex<OutputState>);

enum OutputState {
    Unused,
    Used(InterruptibleOutput),
    /// The last write broke off, so nothing may follow it.
    GivenUp,
}

impl WatchedOutput {
    /// Writes to the descriptor, which is the same in all calls. After a signal, this does not wait long for a
    /// reader.
    fn write(&self, descriptor: &impl AsFd, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, OutputState::Unused) {
            *state = OutputState::Used(InterruptibleOutput::of(descriptor.as_fd())?);
        }
        let OutputState::Used(output) = &*state else { return Err(io::Error::other(GivenUp)) };
        let written = output.write_report(bytes, &signals::has_ended_work);
        if written.as_ref().is_err_and(GivenUp::is) {
            *state = OutputState::GivenUp;
        }
        written
    }
}

/// The most failed entries that are listed; the report has more.
const FAILURES_SHOWN: usize = 20;

/// Writes one line for the user.
pub fn line(text: &str) {
    let text = format!("{}\n", harmless(text));
    // If stderr is gone, nobody is left to read it.
    let _ = match signals::is_watching() {
        true => STDERR.write(&io::stderr(), text.as_bytes()),
        false => io::stderr().lock().write_all(text.as_bytes()),
    };
}

/// An option as it is written on the command line.
fn flag(option: OptionName) -> String {
    match option {
        OptionName::IdentityFile => "-i".into(),
        OptionName::Preserve => "-p".into(),
        OptionName::Quiet => "-q".into(),
        OptionName::SshProgram => "-S".into(),
        option => format!("--{option}"),
    }
}

pub fn warning(text: &str) {
    line(&format!("warning: {text}"));
}

/// Writes what has happened and where, and on a second line what to do. `hint` is for errors that have no
/// hint of their own. A reader of stdout that has gone (`| head`) has what it wanted, so nothing is said of it.
pub fn error(error: &Error, hint: Option<&str>) {
    if is_reader_gone(error) {
        return exit::note_broken_pipe();
    }
    line(&format!("error: {error}"));
    if let Some(hint) = error.advice_or(hint) {
        line(&format!("hint: {hint}"));
    }
}

/// Whether the reader of stdout has gone.
pub fn is_reader_gone(error: &Error) -> bool {
    error.code() == Code::OutputLost && error.to_string().contains("broken pipe")
}

/// Writes the error's code, by which docs/reference/errors.md explains it.
pub fn code(error: &Error) {
    match error.misbehaviour() {
        Some(how) => line(&format!("code: {} ({how})", error.code())),
        None => line(&format!("code: {}", error.code())),
    }
}

/// Writes the entries that did not arrive; `count` may be larger than the list.
pub fn failures(failed: &[FailedEntry], count: u64) {
    for text in failure_lines(failed, count) {
        line(&text);
    }
}

/// Writes the entries that have arrived without all of their metadata; `count` may be larger than the list.
pub fn not_set(entries: &[NotSetEntry], count: u64) {
    let shown = &entries[..entries.len().min(FAILURES_SHOWN)];
    for entry in shown {
        line(&format!("not set: {}: {}", entry.path, entry.reason));
    }
    let rest = count.max(entries.len() as u64) - shown.len() as u64;
    if rest > 0 {
        line(&format!("not set: and {rest} more"));
    }
}

fn failure_lines(failed: &[FailedEntry], count: u64) -> Vec<String> {
    let shown = &failed[..failed.len().min(FAILURES_SHOWN)];
    let mut lines: Vec<String> =
        shown.iter().map(|entry| format!("failed: {}: {}", entry.path, entry.reason)).collect();
    let rest = count.max(failed.len() as u64) - shown.len() as u64;
    if rest > 0 {
        lines.push(format!("failed: and {rest} more"));
    }
    lines
}

/// Writes one JSON value and a line end to stdout.
pub fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|error| lost(&error.into()))?;
    data(format!("{}\n", harmless_json(&text)).as_bytes())
}

/// Writes bytes to stdout. Any failure is an error, also a reader that has gone: the user has asked for this
/// output.
pub fn data(bytes: &[u8]) -> Result<(), Error> {
    written(match signals::is_watching() {
        true => STDOUT.write(&io::stdout(), bytes),
        false => io::stdout().lock().write_all(bytes),
    })
}

/// Flushes stdout after a write with this outcome; returns an error if the output is lost.
pub fn written(outcome: io::Result<()>) -> Result<(), Error> {
    descriptors::output()?;
    outcome.and_then(|()| io::stdout().flush()).map_err(|error| lost(&error))
}

fn lost(error: &io::Error) -> Error {
    if GivenUp::is(error) {
        return Error::new(
            Code::Interrupted,
            "interrupted: nobody reads standard output, so something is missing there",
        );
    }
    Error::new(Code::OutputLost, format!("cannot write to standard output: {}", plain(error)))
}

/// Returns the same JSON with all unprintable characters escaped; JSON itself requires that only for a few of
/// them.
pub fn harmless_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            // These characters can be only in strings, where such escapes are allowed.
            let units =
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            out.push_str(&units);
        } else {
            out.push(c);
        }
    }
    out
}

/// Lines as the terminal shows them, each as by [`harmless`].
pub fn harmless_lines(text: &str) -> String {
    text.lines().map(|line| harmless(line) + "\n").collect()
}

/// A text as the terminal shows it: options are written as the user writes them, and what a terminal would act on
/// is escaped.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in OptionName::render(text, flag).chars() {
        if is_unprintable(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use farhaul::copy::FailedAction;

    use super::*;

    fn entries(count: usize) -> Vec<FailedEntry> {
        (0..count)
            .map(|n| FailedEntry {
                path: format!("f{n}"),
                code: Code::PermissionDenied,
                reason: "no permission".into(),
                action: FailedAction::Copy,
            })
            .collect()
    }

    #[test]
    fn each_option_that_messages_name_is_one_of_the_command_line() {
        fn add_flags(command: &clap::Command, flags: &mut Vec<String>) {
            for argument in command.get_arguments() {
                flags.extend(
                    argument.get_long_and_visible_aliases().into_iter().flatten().map(|f| format!("--{f}")),
                );
                flags.extend(argument.get_short().map(|short| format!("-{short}")));
            }
            command.get_subcommands().for_each(|verb| add_flags(verb, flags));
        }
        let mut flags = Vec::new();
        add_flags(&crate::args::Cli::command(), &mut flags);
        for option in OptionName::all() {
            assert!(flags.contains(&flag(option)), "{}", flag(option));
        }
        let shown = harmless("`memory` 8M is too little; `preserve` is not");
        assert_eq!(shown, "--memory 8M is too little; -p is not");
    }

    #[test]
    fn the_list_of_failures_is_bounded() {
        assert!(failure_lines(&[], 0).is_empty());
        assert_eq!(failure_lines(&entries(1), 1), ["failed: f0: no permission"]);
        assert_eq!(failure_lines(&entries(20), 20).len(), 20);
        let lines = failure_lines(&entries(30), 1000);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "failed: and 980 more");
        assert_eq!(failure_lines(&entries(1), 0).len(), 1);
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\r\n\u{9b}"), "a\\u{1b}[2Jb\\r\\n\\u{9b}");
        assert_eq!(harmless("abc\u{202e}gpj.exe"), "abc\\u{202e}gpj.exe");
        assert_eq!(harmless("Grüße 日本"), "Grüße 日本");
        assert_eq!(harmless("a\u{200f}\u{61c}\u{2028}\u{200b}"), "a\\u{200f}\\u{61c}\\u{2028}\\u{200b}");
        let value = "é\u{202e}\u{9b}\u{e0041}\n";
        let text = harmless_json(&serde_json::to_string(value).unwrap());
        assert_eq!(text, r#""é\u202e\u009b\udb40\udc41\n""#);
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }
}
