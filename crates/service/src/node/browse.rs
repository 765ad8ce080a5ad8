//! Lists a directory, here or at a peer, as far as the caller reaches.

use crate::access::ReachRules as _;
use farhaul::copy::LocationSpec;
use farhaul::options::NetworkOptions;
use farhaul::read::{Depth, ListItem, Remote};
use farhaul::sisters::escape;
use farhaul_api::{DirectoryView, EntryView};
use farhaul_words::{Code, Error};

use super::{Node, Question};
use crate::access::{Caller, CallerDeed, JobPlaces};
use farhaul_api::Scope;

/// The most entries of a directory that are listed.
const ENTRIES_MAX: usize = 10_000;
/// The most bytes of their names.
const NAMES_BYTES_MAX: usize = 4 << 20;
/// The most bytes of a list that may be under way.
const LIST_ROOM_BYTES: u64 = 256 << 10;
/// The memory of the session with a far end: the least that a session takes.
const MEMORY_BYTES: u64 = 16 << 20;

impl Node {
    /// Lists a directory.
    pub(crate) fn browse(
        &self,
        caller: &Caller,
        place: &str,
        question: &Question,
    ) -> Result<DirectoryView, Error> {
        let bad = || {
            Error::new(
                Code::BadLocation,
                format!("{place}: a backslash must be followed by x and two hex digits"),
            )
        };
        let bytes = farhaul::sisters::unescape(place).ok_or_else(bad)?;
        let parsed = {
            use std::os::unix::ffi::OsStringExt as _;
            LocationSpec::parse(&std::ffi::OsString::from_vec(bytes))?
        };
        if parsed.is_input() || parsed.is_made() || parsed.is_sink() {
            return Err(Error::new(Code::BadLocation, format!("{place}: this is not a directory")));
        }
        caller.may(CallerDeed::At(Scope::Read, &JobPlaces(vec![parsed.clone()])))?;
        if let LocationSpec::Local(path) = &parsed
            && !path.is_absolute()
        {
            return Err(Error::new(Code::BadLocation, format!("{place}: write an absolute path")));
        }
        self.judge_reach(&caller.reach)?;
        let remote = match &parsed {
            // A link below a prefix may lead out of it, so the path is resolved below the prefix.
            LocationSpec::Local(path) if !caller.reach.everything => {
                Remote::within(path, &caller.reach.local)?
            }
            LocationSpec::Local(_)
            | LocationSpec::Pipe
            | LocationSpec::Ssh(..)
            | LocationSpec::Daemon(..) => {
                let mut location = parsed.to_location();
                if !caller.reach.everything {
                    super::settings::keep_elsewhere(&mut location);
                }
                self.settings().identify_location(None, None, &mut location)?;
                // At a peer, where a link leads is found out there.
                let within = caller.reach.prefixes_at(&parsed)?;
                let network = NetworkOptions { memory_bytes: MEMORY_BYTES, ..NetworkOptions::default() };
                Remote::kept_within(question, within, &location, network)?
            }
        };
        question.goes_on_in(remote.handle());
        let mut listing = DirectoryView { files: Vec::new(), is_cut: false };
        let mut bytes = 0;
        for listed in remote.list_within(b"", Depth::One, LIST_ROOM_BYTES)? {
            // The first entry is the directory itself.
            let ListItem::Entry(entry) = listed? else { continue };
            if entry.path.is_empty() {
                continue;
            }
            let name = escape(&entry.path);
            bytes += name.len();
            if listing.files.len() >= ENTRIES_MAX || bytes > NAMES_BYTES_MAX {
                listing.is_cut = true;
                break;
            }
            listing.files.push(EntryView {
                name,
                kind: entry.kind.name().into(),
                size: entry.identity.size,
                mtime_s: entry.identity.mtime.secs,
                mode: entry.mode,
            });
        }
        drop(remote);
        listing.files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listing)
    }
}
