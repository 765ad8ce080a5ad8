//! `--owner`, `--group`, `--chown`, `--usermap` and `--groupmap`: whom what arrives belongs to.
//!
//! The sender tells numbers and names; the receiver maps them. Names that they are mapped to are looked up at the
//! receiver, before anything moves.
//! From: rsync's uidlist.c. Differs: a name that the receiver does not know ends the run, and is not skipped.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_text::escape;
use farhaul_volume::{Filter, FilterSide, Metadata, OwnerWish};
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// Which owners and groups what arrives gets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OwnerOptions {
    /// Keep the owners: by name where the receiver knows it, else by number.
    pub user: bool,
    /// Keep the groups.
    pub group: bool,
    /// Keep numbers, whatever names belong to them.
    pub numeric: bool,
    /// Other owners for some: `FROM:TO,...`, where FROM is a name, a pattern, a number or a range of numbers. The
    /// first match counts. Implies `user`.
    pub user_map: String,
    /// The same for groups.
    pub group_map: String,
}

/// The most bytes of a map, and the most pairs in it.
const MAP_BYTES_MAX: usize = 64 << 10;
const PAIRS_MAX: usize = 4096;

impl OwnerOptions {
    /// Whether something is to be set.
    pub(crate) fn is_any(&self) -> bool {
        self.keeps(IdKind::User) || self.keeps(IdKind::Group)
    }

    fn keeps(&self, kind: IdKind) -> bool {
        match kind {
            IdKind::User => self.user || !self.user_map.is_empty(),
            IdKind::Group => self.group || !self.group_map.is_empty(),
        }
    }

    pub(crate) fn checked(&self) -> Result<(), Error> {
        pairs(&self.user_map, IdKind::User)?;
        pairs(&self.group_map, IdKind::Group).map(drop)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IdKind {
    User,
    Group,
}

impl IdKind {
    fn flag(self) -> &'static str {
        match self {
            IdKind::User => "`usermap`",
            IdKind::Group => "`groupmap`",
        }
    }

    fn word(self) -> &'static str {
        match self {
            IdKind::User => "user",
            IdKind::Group => "group",
        }
    }

    fn number_of(self, name: &[u8]) -> Option<u32> {
        match self {
            IdKind::User => farhaul_volume::user_id(name),
            IdKind::Group => farhaul_volume::group_id(name),
        }
    }

    fn name_of(self, id: u32) -> Option<Vec<u8>> {
        match self {
            IdKind::User => farhaul_volume::user_name(id),
            IdKind::Group => farhaul_volume::group_name(id),
        }
    }
}

/// What a pair of a map applies to.
#[derive(Debug, Clone)]
enum OwnerMatch {
    /// A name; the empty one is for numbers without a name.
    Name(Vec<u8>),
    /// Names that match a pattern.
    Pattern(Filter),
    /// All, those without a name included.
    All,
    Numbers(u32, u32),
}

impl OwnerMatch {
    fn parse(text: &str, kind: IdKind) -> Result<OwnerMatch, Error> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let (low, high) = text.split_once('-').unwrap_or((text, text));
            return match (low.parse(), high.parse()) {
                (Ok(low), Ok(high)) => Ok(OwnerMatch::Numbers(low, high)),
                _ => Err(bad(kind, text, "is no number and no range of numbers such as 0-99")),
            };
        }
        if text == "*" {
            return Ok(OwnerMatch::All);
        }
        if text.contains(['*', '?', '[']) {
            let filter = Filter::new(&[[b"- /", text.as_bytes()].concat()]);
            return Ok(OwnerMatch::Pattern(filter.map_err(|error| bad(kind, text, &error.to_string()))?));
        }
        Ok(OwnerMatch::Name(text.as_bytes().to_vec()))
    }

    fn takes(&self, id: u32, name: &[u8]) -> bool {
        match self {
            OwnerMatch::All => true,
            OwnerMatch::Name(own) => own == name,
            OwnerMatch::Pattern(filter) => {
                !name.is_empty() && filter.excludes(name, false, FilterSide::Sender)
            }
            OwnerMatch::Numbers(low, high) => (*low..=*high).contains(&id),
        }
    }
}

fn bad(kind: IdKind, text: &str, why: &str) -> Error {
    let what = format!("{}: '{}' {why}", kind.flag(), escape(text.as_bytes()));
    Error::new(Code::BadOption, what).with_hint("write FROM:TO,... such as 0-99:nobody,anna:1005,*:guest")
}

/// The pairs of a map, each with the text of what it maps to.
fn pairs(text: &str, kind: IdKind) -> Result<Vec<(OwnerMatch, &str)>, Error> {
    if text.len() > MAP_BYTES_MAX || text.split(',').count() > PAIRS_MAX {
        let what = format!("{} takes up to 4096 pairs and 64 KiB", kind.flag());
        return Err(Error::new(Code::BadOption, what));
    }
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|pair| match pair.split_once(':') {
            None => Err(bad(kind, pair, "has no colon")),
            Some((_, "")) => Err(bad(kind, pair, "names nothing behind its colon")),
            Some((from, to)) => Ok((OwnerMatch::parse(from, kind)?, to)),
        })
        .collect()
}

/// The owner of an entry at the sender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EntryOwner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The names, if there are any and they count.
    pub(crate) user: Vec<u8>,
    pub(crate) group: Vec<u8>,
}

/// The longest name that is taken from a peer.
pub(crate) const OWNER_NAME_MAX: usize = 256;

/// Looks up the names that the sender tells.
#[derive(Debug)]
pub(crate) struct OwnerNames {
    is_wanted: bool,
    numeric: bool,
    found: Mutex<HashMap<(IdKind, u32), Vec<u8>>>,
}

impl OwnerNames {
    pub(crate) fn new(options: &OwnerOptions) -> OwnerNames {
        OwnerNames { is_wanted: options.is_any(), numeric: options.numeric, found: Mutex::default() }
    }

    /// What the receiver is told of an owner; `None` if it has not asked.
    pub(crate) fn of(&self, uid: u32, gid: u32) -> Option<EntryOwner> {
        let name = |kind: IdKind, id: u32| match self.numeric {
            true => Vec::new(),
            false => {
                let mut found = self.found.lock().whole();
                let look = || {
                    let name = kind.name_of(id).unwrap_or_default();
                    if name.len() > OWNER_NAME_MAX { Vec::new() } else { name }
                };
                found.entry((kind, id)).or_insert_with(look).clone()
            }
        };
        let owner =
            || EntryOwner { uid, gid, user: name(IdKind::User, uid), group: name(IdKind::Group, gid) };
        self.is_wanted.then(owner)
    }
}

/// Decides at the receiver whom an entry is to belong to.
#[derive(Debug, Default)]
pub(crate) struct OwnerRules {
    users: Option<IdRules>,
    groups: Option<IdRules>,
}

#[derive(Debug)]
struct IdRules {
    kind: IdKind,
    pairs: Vec<(OwnerMatch, u32)>,
    /// What was decided, by the sender's numbers. A number has the name with which it came first, as in rsync.
    known: Mutex<HashMap<u32, u32>>,
}

/// The most numbers that are remembered.
const KNOWN_MAX: usize = 1 << 16;

impl OwnerRules {
    /// Looks up the names that others are mapped to. A daemon gives no file away for a client.
    pub(crate) fn new(options: &OwnerOptions, is_daemon: bool) -> Result<OwnerRules, Error> {
        if is_daemon && options.is_any() {
            let what = "a daemon gives files to nobody else: owners and groups cannot be chosen there";
            let hint = "leave out `owner`, `group`, `chown`, `usermap` and `groupmap`, or copy over SSH";
            return Err(Error::new(Code::Forbidden, what).with_hint(hint));
        }
        let rules = |kind, map: &str| match options.keeps(kind) {
            true => IdRules::new(kind, map).map(Some),
            false => Ok(None),
        };
        Ok(OwnerRules {
            users: rules(IdKind::User, &options.user_map)?,
            groups: rules(IdKind::Group, &options.group_map)?,
        })
    }

    /// The owner that an entry gets.
    pub(crate) fn of(&self, owner: Option<&EntryOwner>) -> OwnerWish {
        let Some(owner) = owner else { return OwnerWish::default() };
        OwnerWish {
            uid: self.users.as_ref().map(|rules| rules.of(owner.uid, &owner.user)),
            gid: self.groups.as_ref().map(|rules| rules.of(owner.gid, &owner.group)),
        }
    }

    /// The owner of a copy of the file `there`, which has its owner already.
    pub(crate) fn like(&self, there: &Metadata) -> OwnerWish {
        OwnerWish {
            uid: self.users.as_ref().map(|_| there.uid),
            gid: self.groups.as_ref().map(|_| there.gid),
        }
    }
}

impl IdRules {
    fn new(kind: IdKind, map: &str) -> Result<IdRules, Error> {
        let resolved = |(from, to): (OwnerMatch, &str)| {
            let number = match to.starts_with(|first: char| first.is_ascii_digit()) {
                true => to.parse().map_err(|_| bad(kind, to, "is no number"))?,
                false => kind.number_of(to.as_bytes()).ok_or_else(|| {
                    let (word, to) = (kind.word(), escape(to.as_bytes()));
                    let what = format!("{}: the receiving host knows no {word} '{to}'", kind.flag());
                    Error::new(Code::BadOption, what)
                        .with_hint(format!("name a {word} of that host, or its number"))
                })?,
            };
            // The system takes this number for "leave it as it is".
            match number == u32::MAX {
                true => Err(bad(kind, to, "is no number that anybody can have")),
                false => Ok((from, number)),
            }
        };
        let pairs = pairs(map, kind)?.into_iter().map(resolved).collect::<Result<_, _>>()?;
        Ok(IdRules { kind, pairs, known: Mutex::default() })
    }

    fn of(&self, id: u32, name: &[u8]) -> u32 {
        let mut known = self.known.lock().whole();
        if let Some(known) = known.get(&id) {
            return *known;
        }
        let mapped = self.pairs.iter().find(|(from, _)| from.takes(id, name)).map(|(_, to)| *to);
        let by_name = || if name.is_empty() || id == 0 { None } else { self.kind.number_of(name) };
        let mapped = mapped.or_else(by_name).unwrap_or(id);
        if known.len() < KNOWN_MAX {
            known.insert(id, mapped);
        }
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(map: &str) -> Result<OwnerRules, Error> {
        let options = OwnerOptions { user_map: map.into(), ..OwnerOptions::default() };
        options.checked()?;
        OwnerRules::new(&options, false)
    }

    fn mapped(map: &str, uid: u32, user: &str) -> u32 {
        let owner = EntryOwner { uid, user: user.into(), ..EntryOwner::default() };
        rules(map).unwrap().of(Some(&owner)).uid.unwrap()
    }

    #[test]
    fn the_first_match_counts_by_name_pattern_or_number() {
        for (map, uid, user, to) in [
            ("0-99:7,anna:8,*:9", 5, "games", 7),
            ("0-99:7,anna:8,*:9", 1005, "anna", 8),
            ("0-99:7,anna:8,*:9", 1006, "bob", 9),
            ("0-99:7,anna:8,*:9", 1007, "", 9),
            ("anna:8,1005:9", 1005, "anna", 8),
            ("1005:9,anna:8", 1005, "anna", 9),
            ("an*:8", 1005, "anna", 8),
            ("[ab]n?a:8", 1005, "anna", 8),
            ("an*:8", 1005, "", 1005),
            (":8", 1005, "", 8),
            (":8", 77, "no such user here", 77),
            ("*:root", 1005, "anna", 0),
            ("x:8", 1005, "no such user here", 1005),
            ("x:8", 1005, "root", 0),
            ("x:8", 0, "anna", 0),
        ] {
            assert_eq!(mapped(map, uid, user), to, "{map} {uid} {user}");
        }
    }

    #[test]
    fn a_map_that_makes_no_sense_is_refused() {
        for map in ["anna", "anna:", "1-:2", "1-2-3:4", "1x:2", "anna:5,", "anna:4294967295", "anna:5x"] {
            assert!(rules(map).is_err_and(|error| error.code() == Code::BadOption), "{map}");
        }
        let unknown = rules("anna:no such user here").unwrap_err().to_string();
        assert!(unknown.contains("knows no user"), "{unknown}");
        assert!(rules(&"a:1,".repeat(5000)).is_err());
        let options = OwnerOptions { group: true, ..OwnerOptions::default() };
        assert!(OwnerRules::new(&options, true).is_err_and(|error| error.code() == Code::Forbidden));
    }

    #[test]
    fn only_what_was_asked_for_is_set() {
        let owner = EntryOwner { uid: 4_200_001, gid: 4_200_002, ..EntryOwner::default() };
        let of = |options: OwnerOptions| OwnerRules::new(&options, false).unwrap().of(Some(&owner));
        assert!(of(OwnerOptions::default()).is_none());
        let group = of(OwnerOptions { group: true, ..OwnerOptions::default() });
        assert_eq!(group, OwnerWish { uid: None, gid: Some(4_200_002) });
        assert!(OwnerNames::new(&OwnerOptions::default()).of(1, 1).is_none());
        let numeric = OwnerOptions { user: true, numeric: true, ..OwnerOptions::default() };
        assert_eq!(OwnerNames::new(&numeric).of(0, 0).unwrap().user, b"");
    }
}
