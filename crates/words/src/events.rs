//! The events of a transfer, as values: terminals, logs and programs are told of them.
//!
//! The set is closed and includes the events of all services, so this file has all that a reader can meet.
//! docs/reference/events.md shows them as JSON.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::carrier::Carrier;
use crate::cipher::Cipher;
use crate::error::{Code, ExitCode};
use crate::figures::CpuChoice;
use crate::policy::Policy;

/// Something that has happened. Its text is a line for people; paths in it are escaped
/// ([`farhaul_text::unescape`] undoes that).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The work begins; nothing is connected yet.
    Started {
        /// The id of the transfer's handle, which tells transfers apart.
        id: String,
    },
    /// The far end has not answered yet; it may wait for something that its user does not see. Sent once.
    AnswerAwaited {
        /// The far end, as the user has named it.
        peer: String,
        /// How long this end has waited so far.
        seconds: u64,
    },
    /// A farhaul is sent to the far end, which has none that can talk with this one.
    Brings {
        /// The far end, as the user has named it.
        peer: String,
        /// The size of the program.
        bytes: u64,
    },
    /// The session is established, and content can flow.
    Connected {
        /// The far end, by the name that people know.
        peer: String,
        /// What carries the content.
        transport: Carrier,
        /// The cipher that seals the content.
        cipher: Cipher,
        /// The number of flows over that carrier.
        flows: u16,
    },
    /// The CPUs that this end runs on.
    Placed(CpuChoice),
    /// Content takes another carrier from now on.
    CarrierChanged {
        /// The far end.
        peer: String,
        /// What carried the content.
        from: Carrier,
        /// What carries it now.
        to: Carrier,
    },
    /// Nothing comes back on a path; the other paths take over its share.
    PathDown(PathEnds),
    /// A path carries again.
    PathUp(PathEnds),
    /// The rate has changed: this end or the other end has set it, or a cap has.
    RateChanged {
        /// The controller's policy.
        policy: Policy,
        /// Ceiling, or the fixed rate, in bits per second.
        rate_bps: Option<u64>,
        /// Floor, in bits per second.
        rate_min_bps: Option<u64>,
    },
    /// The limit of the transfer in the last seconds, as far as this end can tell. Sent when it changes.
    StageVerdict {
        /// The limit, such as "network", "rate" or "sender read".
        limit: String,
        /// The limit with its figures, for people.
        text: String,
    },
    /// No new content is sent until the transfer is resumed.
    Paused {
        /// True if the far end has asked for the pause.
        by_peer: bool,
    },
    /// The transfer goes on.
    Resumed,
    /// An entry is as it should be, or would be after a dry run.
    EntryDone {
        /// The path of the entry.
        path: String,
        /// The action.
        #[serde(flatten)]
        done: EntryAction,
        /// True if nothing was done, and the event says what would be done.
        dry_run: bool,
    },
    /// An entry could not be made as it should be. The others go on.
    EntryFailed {
        /// The path of the entry.
        path: String,
        /// The kind of error. A code of a later version is read as [`Code::FilesFailed`].
        #[serde(deserialize_with = "code_of_files")]
        code: Code,
        /// The reason.
        reason: String,
    },
    /// A source file was listed, but was gone when it was to be read. This is no failure.
    EntryVanished {
        /// The path of the entry.
        path: String,
    },
    /// More files have vanished than are reported one by one.
    MoreVanished,
    /// The content of an entry is there, but its mode, times or attributes could not be set. The others go
    /// on.
    MetadataNotSet {
        /// The path of the entry.
        path: String,
        /// The reason.
        reason: String,
    },
    /// An entry is not taken, as its kind was not asked for.
    EntrySkipped {
        /// The path of the entry.
        path: String,
        /// The reason.
        reason: String,
    },
    /// More entries were skipped than are reported one by one.
    MoreSkipped,
    /// The scan does not enter a directory.
    NotEntered {
        /// The path of the entry.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A file changed while it was read; it is read again.
    EntryAgain {
        /// The path of the entry.
        path: String,
        /// The change of the file.
        reason: String,
    },
    /// Something that the user should know although nothing has failed.
    Warning {
        /// The problem, and what to do about it.
        text: String,
    },
    /// Some events are left out here, because nobody read the earlier ones in time.
    LeftOut {
        /// The number of events.
        count: u64,
    },
    /// The transfer is over; this is the last event.
    Ended {
        /// True if everything is as it should be.
        ok: bool,
        /// Why the transfer ended early, if it did.
        error: Option<String>,
        /// The error's code. A code of a later version is read as none.
        #[serde(default, deserialize_with = "known_code")]
        code: Option<Code>,
        /// The exit code of the command.
        exit_code: u8,
    },
}

/// An event, and when it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// Since the transfer's handle was made.
    pub seconds: f64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The addresses of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEnds {
    /// The path's number.
    pub path: usize,
    /// The address of the end that connected.
    pub local: IpAddr,
    /// The address of the other end.
    pub remote: IpAddr,
}

/// The action that was done with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum EntryAction {
    /// It was sent, and is safe at the receiver.
    Sent {
        /// Its size.
        bytes: u64,
    },
    /// It was received.
    Received {
        /// Its size.
        bytes: u64,
    },
    /// It was at the destination under another name, and was renamed.
    Renamed {
        /// The name before.
        from: String,
    },
    /// It was at the destination but not in the source, and was deleted.
    Deleted,
    /// It was of another kind than the source's entry, which has taken its place.
    Replaced {
        /// The kind of the old entry.
        was: String,
        /// The kind of the new entry.
        by: String,
    },
    /// It was to be changed in place, but has other names at the destination, so it was written as a file of
    /// its own.
    Parted,
    /// What was at the destination is kept under another name, as it is replaced or deleted.
    BackedUp {
        /// The other name.
        to: String,
    },
    /// It is at the destination but not in the source, and stays there.
    Left {
        /// The reason.
        reason: String,
    },
}

/// Which readers an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// For every user.
    Notice,
    /// For users who want a line for each entry, and the details of how things are done.
    Detail,
    /// For programs that follow the transfer.
    Trace,
}

/// The fate of an event that nobody has read when further ones come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// It stays; if the queue is full, the transfer waits, but not for ever.
    Each,
    /// Only the newest event of its kind stays.
    Newest,
    /// It stays, even if others are left out.
    Always,
}

impl Event {
    /// An event for something that the user should know although nothing has failed.
    pub fn warning(text: impl Into<String>) -> Event {
        Event::Warning { text: text.into() }
    }

    /// Which readers it is for.
    pub fn level(&self) -> EventLevel {
        match self {
            Event::EntryDone { dry_run: true, .. }
            | Event::EntryVanished { .. }
            | Event::MoreVanished
            | Event::EntrySkipped { .. }
            | Event::MoreSkipped
            | Event::EntryAgain { .. }
            | Event::AnswerAwaited { .. }
            | Event::Brings { .. }
            | Event::Warning { .. }
            | Event::PathDown(_)
            | Event::PathUp(_)
            | Event::LeftOut { .. } => EventLevel::Notice,
            Event::CarrierChanged { from, to, .. } if is_udp_back(*from, *to) => EventLevel::Notice,
            Event::EntryDone { .. } | Event::NotEntered { .. } | Event::Placed(_) => EventLevel::Detail,
            Event::Started { .. }
            | Event::Connected { .. }
            | Event::CarrierChanged { .. }
            | Event::RateChanged { .. }
            | Event::StageVerdict { .. }
            | Event::Paused { .. }
            | Event::Resumed
            | Event::EntryFailed { .. }
            | Event::MetadataNotSet { .. }
            | Event::Ended { .. } => EventLevel::Trace,
        }
    }

    /// The text, if it is a warning.
    pub fn as_warning(&self) -> Option<String> {
        match self {
            Event::Warning { .. } | Event::PathDown(_) | Event::LeftOut { .. } => {
                Some(self.to_string().trim_start_matches("warning: ").to_string())
            }
            _ => None,
        }
    }

    /// What becomes of it when further events come and nobody has read it.
    pub fn retention(&self) -> Retention {
        match self {
            Event::RateChanged { .. } | Event::StageVerdict { .. } => Retention::Newest,
            Event::Started { .. } | Event::Connected { .. } | Event::Ended { .. } => Retention::Always,
            _ => Retention::Each,
        }
    }

    /// Bytes that the event takes in a queue.
    pub fn weight(&self) -> usize {
        let texts = match self {
            Event::EntryDone { path, done, .. } => path.len() + done.weight(),
            Event::EntryFailed { path, reason, .. }
            | Event::MetadataNotSet { path, reason }
            | Event::EntrySkipped { path, reason }
            | Event::NotEntered { path, reason }
            | Event::EntryAgain { path, reason } => path.len() + reason.len(),
            Event::EntryVanished { path } => path.len(),
            Event::Warning { text } | Event::StageVerdict { text, .. } => text.len(),
            _ => 0,
        };
        size_of::<Event>() + texts
    }
}

impl EntryAction {
    fn weight(&self) -> usize {
        match self {
            EntryAction::Renamed { from } => from.len(),
            EntryAction::BackedUp { to } => to.len(),
            EntryAction::Left { reason } => reason.len(),
            EntryAction::Sent { .. }
            | EntryAction::Received { .. }
            | EntryAction::Deleted
            | EntryAction::Parted
            | EntryAction::Replaced { .. } => 0,
        }
    }
}

impl fmt::Display for PathEnds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.local, self.remote)
    }
}

/// True if UDP gets through again.
fn is_udp_back(from: Carrier, to: Carrier) -> bool {
    to == Carrier::Udp && !from.has_udp()
}

fn known_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Code>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|name| Code::of_name(&name)))
}

fn code_of_files<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    Ok(Code::of_name(&String::deserialize(deserializer)?).unwrap_or(Code::FilesFailed))
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { id } => write!(formatter, "transfer {id} begins"),
            Event::AnswerAwaited { peer, seconds } => write!(
                formatter,
                "waiting for {peer} to answer, for {seconds} s so far: does ssh still connect, or does its shell print or wait for \
                 something?"
            ),
            Event::Brings { peer, bytes } => {
                write!(formatter, "bringing farhaul to {peer} ({} MB), once", bytes.div_ceil(1_000_000))
            }
            Event::Connected { peer, transport, cipher, flows } => {
                let flows = if *flows == 1 { "1 flow".to_string() } else { format!("{flows} flows") };
                write!(formatter, "connected with {peer} over {transport}, {flows}, {cipher}")
            }
            Event::Placed(choice) => write!(formatter, "on {choice}"),
            Event::CarrierChanged { peer, from, to } if is_udp_back(*from, *to) => {
                write!(formatter, "UDP gets through to {peer} again")
            }
            Event::CarrierChanged { from, to, .. } => write!(formatter, "over {to}, no longer over {from}"),
            Event::PathDown(ends) => write!(
                formatter,
                "warning: nothing comes back by the path {ends}; going on without it until something does"
            ),
            Event::PathUp(ends) => write!(formatter, "the path {ends} is used again"),
            Event::RateChanged { policy, rate_bps, rate_min_bps } => {
                write!(formatter, "the policy is {policy:?}")?;
                rate_bps.map_or(Ok(()), |bps| write!(formatter, ", {bps} bit/s at most"))?;
                rate_min_bps.map_or(Ok(()), |bps| write!(formatter, ", {bps} bit/s at least"))
            }
            Event::StageVerdict { text, .. } => write!(formatter, "what limits it: {text}"),
            Event::Paused { by_peer: true } => formatter.write_str("paused by the far end"),
            Event::Paused { by_peer: false } => formatter.write_str("paused"),
            Event::Resumed => formatter.write_str("goes on"),
            Event::EntryDone { path, done, dry_run } => done.write(formatter, path, *dry_run),
            Event::EntryFailed { path, reason, .. } => write!(formatter, "failed: {path}: {reason}"),
            Event::EntryVanished { path } => write!(formatter, "vanished before it was read: {path}"),
            Event::MoreVanished => formatter.write_str("vanished: and more like these"),
            Event::MetadataNotSet { path, reason } => write!(formatter, "not set: {path}: {reason}"),
            Event::EntrySkipped { path, reason } => write!(formatter, "skipped {path}: {reason}"),
            Event::MoreSkipped => formatter.write_str("skipped: and more like these"),
            Event::NotEntered { path, reason } => write!(formatter, "not entered {path}: {reason}"),
            Event::EntryAgain { path, reason } => write!(formatter, "{path} {reason}; it is read again"),
            Event::Warning { text } => write!(formatter, "warning: {text}"),
            Event::LeftOut { count } => write!(
                formatter,
                "warning: {count} more lines were not shown, as nobody has read those before"
            ),
            Event::Ended { ok: true, .. } => formatter.write_str("ended"),
            Event::Ended { error: Some(error), .. } => write!(formatter, "ended: {error}"),
            Event::Ended { exit_code, .. } if *exit_code == ExitCode::Metadata as u8 => {
                formatter.write_str("ended; some metadata could not be set")
            }
            Event::Ended { .. } => formatter.write_str("ended, but not all is there"),
        }
    }
}

impl EntryAction {
    fn write(&self, formatter: &mut fmt::Formatter<'_>, path: &str, dry_run: bool) -> fmt::Result {
        match (self, dry_run) {
            (EntryAction::Sent { bytes }, true) => write!(formatter, "would send {path} ({bytes} bytes)"),
            (EntryAction::Received { bytes }, true) => {
                write!(formatter, "would receive {path} ({bytes} bytes)")
            }
            (EntryAction::Sent { .. } | EntryAction::Received { .. }, false) => formatter.write_str(path),
            (EntryAction::Renamed { from }, true) => write!(formatter, "would rename {from} -> {path}"),
            (EntryAction::Renamed { from }, false) => write!(formatter, "renamed {from} -> {path}"),
            (EntryAction::Deleted, true) => write!(formatter, "would delete {path}"),
            (EntryAction::Deleted, false) => write!(formatter, "deleted {path}"),
            (EntryAction::Replaced { was, by }, dry_run) => {
                let does = if dry_run { "would replace" } else { "replaced" };
                write!(formatter, "{does} {path}: {was} makes room for {by}")
            }
            (EntryAction::Parted, dry_run) => {
                let does = if dry_run { "would part" } else { "parted" };
                write!(formatter, "{does} {path}: its other names at the destination keep the old content")
            }
            (EntryAction::BackedUp { to }, true) => write!(formatter, "would keep {path} as {to}"),
            (EntryAction::BackedUp { to }, false) => write!(formatter, "kept {path} as {to}"),
            (EntryAction::Left { reason }, true) => write!(formatter, "would leave {path}: {reason}"),
            (EntryAction::Left { reason }, false) => write!(formatter, "left {path}: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_object_and_one_line() {
        let path = || "a/b".to_string();
        let ends = || PathEnds { path: 1, local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() };
        for (event, json, line) in [
            (
                Event::EntryDone { path: path(), done: EntryAction::Sent { bytes: 3 }, dry_run: false },
                r#"{"event":"entry_done","path":"a/b","done":"sent","bytes":3,"dry_run":false}"#,
                "a/b",
            ),
            (
                Event::EntryDone { path: path(), done: EntryAction::Deleted, dry_run: true },
                r#"{"event":"entry_done","path":"a/b","done":"deleted","dry_run":true}"#,
                "would delete a/b",
            ),
            (
                Event::EntryDone {
                    path: path(),
                    done: EntryAction::BackedUp { to: "../old/a/b".into() },
                    dry_run: false,
                },
                r#"{"event":"entry_done","path":"a/b","done":"backed_up","to":"../old/a/b","dry_run":false}"#,
                "kept a/b as ../old/a/b",
            ),
            (
                Event::PathDown(ends()),
                r#"{"event":"path_down","path":1,"local":"10.0.0.1","remote":"10.0.0.2"}"#,
                "warning: nothing comes back by the path 10.0.0.1=10.0.0.2; going on without it until something does",
            ),
            (
                Event::Ended { ok: false, error: Some("no way".into()), code: Some(Code::Bug), exit_code: 7 },
                r#"{"event":"ended","ok":false,"error":"no way","code":"FH-BUG","exit_code":7}"#,
                "ended: no way",
            ),
        ] {
            assert_eq!(serde_json::to_string(&event).unwrap(), json);
            assert_eq!(event.to_string(), line);
            assert_eq!(serde_json::from_str::<Event>(json).unwrap(), event);
        }
    }

    #[test]
    fn the_code_of_a_later_version_hides_no_event() {
        let read = |json: &str| serde_json::from_str::<Event>(json).unwrap();
        assert_eq!(
            read(r#"{"event":"entry_failed","path":"a","code":"FH-OF-TOMORROW","reason":"why"}"#),
            Event::EntryFailed { path: "a".into(), code: Code::FilesFailed, reason: "why".into() }
        );
        let ended = Event::Ended { ok: false, error: Some("why".into()), code: None, exit_code: 6 };
        let json = r#"{"event":"ended","ok":false,"error":"why","code":"FH-OF-TOMORROW","exit_code":6}"#;
        assert_eq!(read(json), ended);
    }

    /// The page for authors of programs has every event, and no other.
    #[test]
    fn the_page_has_every_event() {
        let page = include_str!("../../../docs/reference/events.md");
        let table = page.split("| event |").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
        let rows = table.lines().skip(2).filter_map(|line| line.split('`').nth(1));
        let told: Vec<&str> = rows.filter(|name| !["snapshot", "report"].contains(name)).collect();
        let own = include_str!("events.rs");
        let variants =
            own.split("pub enum Event {").nth(1).and_then(|rest| rest.split("\n}\n").next()).unwrap();
        let names: Vec<String> = variants
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
            .map(|line| snake(line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()))
            .collect();
        assert_eq!(told, names);
    }

    fn snake(name: &str) -> String {
        let mut out = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && !out.is_empty() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }
}
