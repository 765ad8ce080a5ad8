//! What a daemon reports of a copy that it makes for a client: events, snapshots, and how it has ended.
//!
//! Always true: everything that a daemon reports passes `tame.rs` before anyone sees it; messages that are not
//! understood are ignored, except for the end. A report that contradicts itself is misbehaviour.

use farhaul_copy::Report;
use farhaul_words::{Code, Error, Event, ExitCode, Snapshot, TransferState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::tame;

/// The most bytes of a document that says how a copy has ended: a daemon lists at most a few mebibytes of
/// entries.
pub(crate) const ENDING_MAX: usize = 16 << 20;

/// Reads an event, if it is one for the client. The beginning and the end of a copy, and where it runs, are reported
/// by the client itself.
pub(crate) fn event(json: &[u8]) -> Option<Event> {
    let told = read::<Event>(json).ok()?;
    let is_own = matches!(
        told,
        Event::Started { .. } | Event::AnswerAwaited { .. } | Event::Placed(_) | Event::Ended { .. }
    );
    (!is_own).then_some(told)
}

/// Reads a snapshot of the copy.
pub(crate) fn snapshot(json: &[u8]) -> Option<Snapshot> {
    let mut snapshot: Snapshot = read(json).ok()?;
    snapshot.facts.is_connected = snapshot.state != TransferState::Starting;
    Some(snapshot)
}

/// How a copy has ended, as the daemon reports it.
#[derive(Debug, Serialize, Deserialize)]
struct CopyEnd {
    report: Report,
    error: Option<EndError>,
}

#[derive(Debug, Serialize, Deserialize)]
struct EndError {
    /// The number of the error's code.
    code: u16,
    what: String,
    hint: Option<String>,
}

/// Makes the document that tells the client how a copy has ended.
pub(crate) fn of_ending(report: &Report, error: Option<&Error>) -> Vec<u8> {
    let error = error.map(|error| EndError {
        code: error.code().number(),
        what: error.to_string(),
        hint: error.hint().map(str::to_string),
    });
    let mut ending = CopyEnd { report: report.clone(), error };
    let bytes = serde_json::to_vec(&ending).unwrap_or_default();
    if bytes.len() <= ENDING_MAX {
        return bytes;
    }
    // The lists are dropped; their counts stay.
    let Report { failed, vanished, not_set, not_taken, left, .. } = &mut ending.report;
    failed.clear();
    vanished.clear();
    not_set.clear();
    not_taken.clear();
    left.clear();
    serde_json::to_vec(&ending).unwrap_or_default()
}

/// Reads the report of a copy that another daemon has made, and why it ended early, if it did. `is_dry` says
/// whether a dry run was asked for.
pub(crate) fn ending(json: &[u8], is_dry: bool) -> Result<(Report, Option<Error>), Error> {
    let senseless = |_| farhaul_session::messages::senseless(farhaul_session::codec::Malformed);
    let CopyEnd { report, error } = read(json).map_err(senseless)?;
    let error = error.map(|EndError { code, what, hint }| {
        let code = as_seen_from_here(Code::of_number(code));
        let what = if what.is_empty() { "it gives no reason".to_string() } else { what };
        Error::new(code, what).with_hint_if(hint.filter(|hint| !hint.is_empty()))
    });
    Ok((tame::report(report, error.is_some(), is_dry)?, error))
}

/// Translates the code of an error at the copying daemon for the client. A command that makes no sense there
/// makes none here, and files that do not exist exist for neither. A problem of the daemon's host itself is a
/// failure of the far end.
fn as_seen_from_here(code: Option<Code>) -> Code {
    let Some(code) = code else { return Code::PeerFailed };
    match code.exit_code() {
        ExitCode::Usage
        | ExitCode::Connect
        | ExitCode::Auth
        | ExitCode::Incompatible
        | ExitCode::Files
        | ExitCode::Lost => code,
        ExitCode::Interrupted => Code::PeerInterrupted,
        ExitCode::Ok
        | ExitCode::SomeFailed
        | ExitCode::Metadata
        | ExitCode::Vanished
        | ExitCode::Protocol
        | ExitCode::Internal => Code::PeerFailed,
    }
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let mut value = serde_json::from_slice(json)?;
    tame::value(&mut value)?;
    serde_json::from_value(value)
}

#[cfg(test)]
mod tests {
    use farhaul_copy::{FailedAction, FailedEntry};
    use farhaul_words::{Carrier, Cipher, EntryAction, PathEnds, Policy};

    use super::*;

    #[test]
    fn each_carrier_and_cipher_is_called_by_its_name() {
        for from in Carrier::ALL {
            for to in Carrier::ALL {
                let changed = Event::CarrierChanged { peer: "c".into(), from, to };
                assert_eq!(event(&serde_json::to_vec(&changed).unwrap()), Some(changed));
            }
            for cipher in Cipher::ALL {
                let connected = Event::Connected { peer: "c".into(), transport: from, cipher, flows: 2 };
                assert_eq!(event(&serde_json::to_vec(&connected).unwrap()), Some(connected));
            }
        }
        let tomorrow = br#"{"event":"carrier_changed","peer":"c","from":"udp","to":"carrier pigeon"}"#;
        assert_eq!(event(tomorrow), None);
    }

    #[test]
    fn events_come_back() {
        let path = || "a/b".to_string();
        let ends = PathEnds { path: 1, local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() };
        for one in [
            Event::Connected {
                peer: "c".into(),
                transport: Carrier::Udp,
                cipher: Cipher::Aes128Gcm,
                flows: 2,
            },
            Event::CarrierChanged { peer: "c".into(), from: Carrier::Udp, to: Carrier::Tcp },
            Event::PathDown(ends.clone()),
            Event::PathUp(ends),
            Event::RateChanged { policy: Policy::Low, rate_bps: Some(1_000_000), rate_min_bps: None },
            Event::StageVerdict { limit: "network".into(), text: "the network".into() },
            Event::Paused { by_peer: true },
            Event::Resumed,
            Event::EntryDone { path: path(), done: EntryAction::Sent { bytes: 7 }, dry_run: false },
            Event::EntryDone { path: path(), done: EntryAction::Deleted, dry_run: true },
            Event::EntryDone {
                path: path(),
                done: EntryAction::Renamed { from: "x".into() },
                dry_run: false,
            },
            Event::EntryFailed { path: path(), code: Code::NoSpace, reason: "full".into() },
            Event::MetadataNotSet { path: path(), reason: "not permitted".into() },
            Event::EntrySkipped { path: path(), reason: "a pipe".into() },
            Event::MoreSkipped,
            Event::NotEntered { path: path(), reason: "mounted".into() },
            Event::EntryAgain { path: path(), reason: "it has changed".into() },
            Event::warning("careful"),
            Event::LeftOut { count: 3 },
        ] {
            assert_eq!(event(&serde_json::to_vec(&one).unwrap()), Some(one));
        }
        let own = Event::Ended { ok: true, error: None, code: None, exit_code: 0 };
        for other in
            [serde_json::to_vec(&own).unwrap(), br#"{"event":"tomorrow","x":1}"#.to_vec(), b"{".to_vec()]
        {
            assert_eq!(event(&other), None);
        }
    }

    #[test]
    fn no_text_steers_a_terminal() {
        let hostile = Event::warning("\u{1b}[2Jall is \u{202e}well\u{7}");
        assert_eq!(event(&serde_json::to_vec(&hostile).unwrap()), Some(Event::warning("[2Jall is well")));
        let failed = FailedEntry {
            path: "a\u{1b}".into(),
            code: Code::NoSpace,
            reason: "\u{9b}full".into(),
            action: FailedAction::Copy,
        };
        let report = Report { failed: vec![failed], failed_count: 1, ..Report::default() };
        let error = Error::new(Code::NoSpace, "\u{1b}no room").with_hint("\u{1b}make some");
        let (report, error) = ending(&of_ending(&report, Some(&error)), false).unwrap();
        assert_eq!((&report.failed[0].path[..], &report.failed[0].reason[..]), ("a", "full"));
        let error = error.unwrap();
        assert_eq!((error.what(), error.hint(), error.code()), ("no room", Some("make some"), Code::NoSpace));
    }

    #[test]
    fn how_it_stands_and_how_it_ended_come_back() {
        let now = Snapshot { bytes_done: 7, state: TransferState::Paused, ..Snapshot::default() };
        let read = snapshot(&serde_json::to_vec(&now).unwrap()).unwrap();
        assert!(read.bytes_done == 7 && read.state == TransferState::Paused && read.facts.is_connected);
        let report = Report { files: 3, ok: true, complete: true, ..Report::default() };
        let (again, error) = ending(&of_ending(&report, None), false).unwrap();
        assert!(error.is_none() && again == report);
        assert!(ending(b"{}", false).is_err() && snapshot(b"[]").is_none());
    }

    #[test]
    fn what_ends_it_there_is_not_laid_to_this_end() {
        for (there, here) in [
            (Code::NotListening, Code::NotListening),
            (Code::GrantUsed, Code::GrantUsed),
            (Code::NoSpace, Code::NoSpace),
            (Code::PeerSilent, Code::PeerSilent),
            (Code::Interrupted, Code::PeerInterrupted),
            (Code::Misbehaved, Code::PeerFailed),
            (Code::Bug, Code::PeerFailed),
            (Code::NoThread, Code::PeerFailed),
        ] {
            let (_, error) =
                ending(&of_ending(&Report::default(), Some(&Error::new(there, "x"))), false).unwrap();
            assert_eq!(error.unwrap().code(), here);
        }
        assert_eq!(as_seen_from_here(None), Code::PeerFailed);
    }
}
