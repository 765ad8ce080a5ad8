//! The rights of a principal at a daemon. They are made once, compared with earlier ones, and judged against
//! a request in one place, before anything is opened for it.
//!
//! Always true: nothing in here looks at a file, a clock or a peer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use farhaul_words::{Cipher, Code};

use super::hello::Refusal;
use super::prefixes::PathPrefixes;
use super::tunnel_rules::TunnelRules;

/// The ways in which files may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Reading and writing.
    #[default]
    ReadWrite,
    /// Only reading: no pushes.
    ReadOnly,
    /// Only writing: no pulls.
    WriteOnly,
}

impl Access {
    fn allows(self, way: ContentDirection) -> bool {
        match self {
            Access::ReadWrite => true,
            Access::ReadOnly => way == ContentDirection::Read,
            Access::WriteOnly => way == ContentDirection::Write,
        }
    }

    /// The access that both allow; `None` if nothing is left.
    pub fn and(self, other: Access) -> Option<Access> {
        match (self, other) {
            (Access::ReadWrite, one) | (one, Access::ReadWrite) => Some(one),
            (one, other) => (one == other).then_some(one),
        }
    }
}

/// The rights of a principal. The default allows everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Its `/`: a directory below the daemon's root, by names alone; empty for the whole root.
    pub root: PathBuf,
    /// The access to files, or with the blocks of a stream.
    pub access: Access,
    /// True if what is there may be replaced or changed.
    pub overwrites: bool,
    /// True if what is there may be removed.
    pub deletes: bool,
    /// True if its contents may travel in the clear.
    pub cipher_none: bool,
    /// Bits a second of all its sessions together, both ways. Default: no limit.
    pub rate_max_bps: Option<u64>,
    /// Bytes of memory of all its sessions together, within what the daemon gives to each principal. Default:
    /// no limit of its own.
    pub memory_max: Option<u64>,
    /// True if it may ask the daemon's doctor, and test the path. Default: it may not.
    pub diagnose: bool,
    /// Where its tunnels may lead, and listen. Default: nowhere.
    pub tunnel: Arc<TunnelRules>,
    /// If set, the rights are for this alone: another key has come with a grant of this principal's.
    pub errand: Option<Arc<Errand>>,
}

/// The errand of a grant: one copy of one path, in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// The direction of the content, seen from the client that comes with the grant.
    pub way: ContentDirection,
    /// The path that the request must name, byte for byte.
    pub path: Vec<u8>,
    /// True if extra entries may be deleted (`sync --delete`).
    pub deletes: bool,
    /// True if links in the path may be followed (`--follow`, `--keep-dirlinks`).
    pub follows: bool,
    /// True if files may be taken from other directories (`--link-dest`, `--compare-dest`).
    pub looks_beside: bool,
    /// True if what is replaced may be kept in another directory (`--backup-dir`).
    pub writes_beside: bool,
    /// The directories that the copy may not leave, below the root of the grant's giver; `None` for all of it.
    pub within: Option<PathPrefixes>,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            root: PathBuf::new(),
            access: Access::default(),
            overwrites: true,
            deletes: true,
            cipher_none: true,
            rate_max_bps: None,
            memory_max: None,
            diagnose: false,
            tunnel: Arc::default(),
            errand: None,
        }
    }
}

/// The direction of the content, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentDirection {
    /// From the daemon: a pull.
    Read,
    /// To the daemon: a push.
    Write,
}

/// The effects of a request here, as far as rights are concerned. Paths are looked up below the allowed root,
/// whatever they are; only a grant is for a certain path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RightsRequest<'a> {
    /// The direction of its content.
    pub way: ContentDirection,
    /// The cipher for it.
    pub cipher: Cipher,
    /// The reach of a copy; `None` for other requests, for which no grant is valid.
    pub copy: Option<CopyReach<'a>>,
}

/// The reach of a copy: its paths, and its effects beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyReach<'a> {
    /// The paths as the request names them.
    pub paths: &'a [Vec<u8>],
    /// True if further paths are named once the session is established.
    pub has_more: bool,
    /// True if some paths stand for the same path in further directories.
    pub is_spread: bool,
    /// True if it may replace or change what is there.
    pub overwrites: bool,
    /// As [`Errand::deletes`].
    pub deletes: bool,
    /// As [`Errand::follows`].
    pub follows: bool,
    /// As [`Errand::looks_beside`].
    pub looks_beside: bool,
    /// As [`Errand::writes_beside`].
    pub writes_beside: bool,
}

impl Errand {
    /// Why the grant is not for this request; `None` if it is.
    fn misses(&self, asked: RightsRequest<'_>) -> Option<&'static str> {
        let Some(copy) = asked.copy else { return Some("a grant is for one copy, and for nothing else") };
        if asked.way != self.way {
            return Some(match self.way {
                ContentDirection::Read => "the grant is for reading here, not for writing",
                ContentDirection::Write => "the grant is for writing here, not for reading",
            });
        }
        if copy.paths != std::slice::from_ref(&self.path) || copy.has_more || copy.is_spread {
            return Some("the grant is for another path");
        }
        if copy.deletes && !self.deletes {
            return Some("the grant does not let anything be deleted");
        }
        if copy.looks_beside && !self.looks_beside {
            return Some("the grant does not let files be taken from other directories");
        }
        if copy.writes_beside && !self.writes_beside {
            return Some("the grant does not let old files be kept in another directory");
        }
        (copy.follows && !self.follows).then_some("the grant does not let links be followed")
    }
}

/// The limits of a judged request. Only [`Rights::judge`] and [`Rights::visit`] make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedRequest {
    root: PathBuf,
    within: Option<PathPrefixes>,
    overwrites: bool,
    deletes: bool,
    tunnel: Arc<TunnelRules>,
}

impl AllowedRequest {
    /// The directory below the daemon's root in which its paths are looked up.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directories below that root which it may not leave, if a grant names some.
    pub fn within(&self) -> Option<&PathPrefixes> {
        self.within.as_ref()
    }

    /// Whether it may replace or change what is there.
    pub fn overwrites(&self) -> bool {
        self.overwrites
    }

    /// Whether it may remove what is there.
    pub fn deletes(&self) -> bool {
        self.deletes
    }

    /// Where its tunnels may lead, and listen.
    pub fn tunnel(&self) -> &Arc<TunnelRules> {
        &self.tunnel
    }
}

impl Rights {
    /// Decides whether a request may be served; nothing else does.
    pub fn judge(&self, asked: RightsRequest<'_>) -> Result<AllowedRequest, Refusal> {
        if let Some(missed) = self.errand.as_ref().and_then(|errand| errand.misses(asked)) {
            return Err(Refusal::new(Code::GrantRefused, missed));
        }
        let refuse = |text: &str, hint: &str| Err(Refusal::new(Code::Forbidden, text).with_hint(hint));
        if !self.access.allows(asked.way) {
            let ask = "or ask who runs the far end for more";
            return match asked.way {
                ContentDirection::Read => {
                    refuse("you may only write here, not read", &format!("copy to it, {ask}"))
                }
                ContentDirection::Write => {
                    refuse("you may only read here, not write", &format!("copy from it, {ask}"))
                }
            };
        }
        if asked.cipher == Cipher::None && !self.cipher_none {
            return refuse("you may not use `cipher` none here", "choose another cipher");
        }
        if let (ContentDirection::Write, Some(copy)) = (asked.way, asked.copy) {
            if copy.deletes && !self.deletes {
                return refuse(
                    "you may not delete here",
                    "leave out `delete`, or ask who runs the far end for more",
                );
            }
            if copy.overwrites && !self.overwrites {
                let hint = "copy with `overwrite` never, which keeps what is there; a sync, `inplace` and `backup` change it";
                return refuse("you may not overwrite here", hint);
            }
        }
        let within = self.errand.as_ref().and_then(|errand| errand.within.clone());
        Ok(self.allowed(within))
    }

    fn allowed(&self, within: Option<PathPrefixes>) -> AllowedRequest {
        let Rights { overwrites, deletes, .. } = *self;
        AllowedRequest { root: self.root.clone(), within, overwrites, deletes, tunnel: self.tunnel.clone() }
    }

    /// Decides whether the doctor of this host may be asked, and the path tested.
    pub fn consult(&self) -> Result<AllowedRequest, Refusal> {
        let allowed = self.visit()?;
        if !self.diagnose {
            let text = "your key may not ask the doctor of this host";
            let hint = "its administrator can write diagnose before the key in the daemon's list";
            return Err(Refusal::new(Code::Forbidden, text).with_hint(hint));
        }
        Ok(allowed)
    }

    /// Decides whether a session may begin that carries tunnels. Each target is judged when it is asked for.
    pub fn tunnels(&self, cipher: Cipher) -> Result<AllowedRequest, Refusal> {
        let allowed = self.visit()?;
        let refuse = |text: &str, hint: &str| Err(Refusal::new(Code::Forbidden, text).with_hint(hint));
        if self.tunnel.is_empty() {
            let hint = "its administrator can write tunnel=HOST:PORT before the key in the daemon's list";
            return refuse("your key may not have tunnels here", hint);
        }
        if cipher == Cipher::None && !self.cipher_none {
            return refuse("you may not use `cipher` none here", "choose another cipher");
        }
        Ok(allowed)
    }

    /// Decides whether a session may begin whose first request does nothing by itself. The requests in it are
    /// judged when they come.
    pub fn visit(&self) -> Result<AllowedRequest, Refusal> {
        match self.errand {
            None => Ok(self.allowed(None)),
            Some(_) => Err(Refusal::new(Code::GrantRefused, "a grant is for one copy, and for nothing else")),
        }
    }

    /// Returns in words what of `before` these rights lack; `None` if nothing. Additional rights do not
    /// matter.
    pub fn lack(&self, before: &Rights) -> Option<&'static str> {
        let has_shrunk =
            |now: Option<u64>, before: Option<u64>| now.unwrap_or(u64::MAX) < before.unwrap_or(u64::MAX);
        let lost = |way| before.access.allows(way) && !self.access.allows(way);
        if !before.root.starts_with(&self.root) {
            Some("it has another root")
        } else if lost(ContentDirection::Write) {
            Some("it may not write any more")
        } else if lost(ContentDirection::Read) {
            Some("it may not read any more")
        } else if before.overwrites && !self.overwrites {
            Some("it may not overwrite any more")
        } else if before.deletes && !self.deletes {
            Some("it may not delete any more")
        } else if before.cipher_none && !self.cipher_none {
            Some("it may not use `cipher` none any more")
        } else if has_shrunk(self.rate_max_bps, before.rate_max_bps) {
            Some("its rate is limited further")
        } else if has_shrunk(self.memory_max, before.memory_max) {
            Some("its memory is limited further")
        } else if before.diagnose && !self.diagnose {
            Some("it may not ask the doctor any more")
        } else if !self.tunnel.cover(&before.tunnel) {
            Some("its tunnels may lead to fewer places")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [ContentDirection; 2] = [ContentDirection::Read, ContentDirection::Write];
    const CIPHERS: [Cipher; 2] = [Cipher::Aes128Gcm, Cipher::None];

    #[test]
    fn each_right_refuses_what_it_is_about_and_nothing_else() {
        let all = Rights::default;
        // Which of these are allowed: reading, writing, reading in the clear, and writing in the clear.
        for (rights, expected) in [
            (all(), [true, true, true, true]),
            (Rights { access: Access::ReadOnly, ..all() }, [true, false, true, false]),
            (Rights { access: Access::WriteOnly, ..all() }, [false, true, false, true]),
            (Rights { cipher_none: false, ..all() }, [true, true, false, false]),
            (Rights { access: Access::ReadOnly, cipher_none: false, ..all() }, [true, false, false, false]),
            (Rights { root: "a".into(), rate_max_bps: Some(1), memory_max: Some(1), ..all() }, [true; 4]),
        ] {
            let asked =
                CIPHERS.iter().flat_map(|&cipher| WAYS.map(|way| RightsRequest { way, cipher, copy: None }));
            for (asked, is_allowed) in asked.zip(expected) {
                let judged = rights.judge(asked);
                assert_eq!(judged.is_ok(), is_allowed, "{rights:?} {asked:?}");
                match judged {
                    Ok(allowed) => assert_eq!(allowed.root(), rights.root),
                    Err(refusal) => {
                        assert!(
                            refusal.is(Code::Forbidden) && !refusal.text.is_empty() && refusal.hint.is_some()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn overwriting_and_deleting_are_a_right_each() {
        let paths = [b"x".to_vec()];
        let copy = |overwrites, deletes| CopyReach {
            paths: &paths,
            has_more: false,
            is_spread: false,
            overwrites,
            deletes,
            follows: false,
            looks_beside: false,
            writes_beside: false,
        };
        for may in [(true, true), (false, true), (true, false), (false, false)] {
            let rights = Rights { overwrites: may.0, deletes: may.1, ..Rights::default() };
            for wants in [(true, true), (false, true), (true, false), (false, false)] {
                let asked = |way, copy| RightsRequest { way, cipher: Cipher::default(), copy };
                let push = rights.judge(asked(ContentDirection::Write, Some(copy(wants.0, wants.1))));
                assert_eq!(push.is_ok(), (may.0 || !wants.0) && (may.1 || !wants.1), "{may:?} {wants:?}");
                assert!(push.map_or_else(|refusal| refusal.is(Code::Forbidden), |_| true));
                // A pull replaces and deletes at the other end, and other services say what they change.
                assert!(rights.judge(asked(ContentDirection::Read, Some(copy(wants.0, wants.1)))).is_ok());
                let allowed = rights.judge(asked(ContentDirection::Write, None)).unwrap();
                assert_eq!((allowed.overwrites(), allowed.deletes()), may);
            }
        }
    }

    #[test]
    fn only_what_was_taken_away_is_missed() {
        let rights = |root: &str, access, cipher_none, rate_max_bps, memory_max| Rights {
            root: root.into(),
            access,
            overwrites: true,
            deletes: true,
            cipher_none,
            rate_max_bps,
            memory_max,
            diagnose: false,
            tunnel: Arc::default(),
            errand: None,
        };
        let (both, read, write) = (Access::ReadWrite, Access::ReadOnly, Access::WriteOnly);
        let before = rights("a/b", read, false, Some(9), Some(9));
        for (now, is_enough) in [
            (before.clone(), true),
            (Rights::default(), true),
            (rights("a", read, false, Some(9), Some(9)), true),
            (rights("a/b", both, true, Some(10), None), true),
            (rights("a/b/c", read, false, Some(9), Some(9)), false),
            (rights("a/bc", read, false, Some(9), Some(9)), false),
            (rights("a/b", write, false, Some(9), Some(9)), false),
            (rights("a/b", read, false, Some(8), Some(9)), false),
            (rights("a/b", read, false, Some(9), Some(8)), false),
        ] {
            assert_eq!(now.lack(&before).is_none(), is_enough, "{now:?}");
        }
        let before = Rights::default();
        for now in [
            rights("", read, true, None, None),
            rights("", write, true, None, None),
            rights("", both, false, None, None),
            rights("", both, true, Some(1_000_000_000), None),
            rights("", both, true, None, Some(1 << 40)),
            rights("a", both, true, None, None),
            Rights { overwrites: false, ..Rights::default() },
            Rights { deletes: false, ..Rights::default() },
        ] {
            assert!(now.lack(&before).is_some() && before.lack(&now).is_none(), "{now:?}");
        }
    }

    #[test]
    fn only_a_key_with_that_right_may_ask_the_doctor() {
        let with = Rights { diagnose: true, ..Rights::default() };
        assert!(with.consult().is_ok());
        assert!(
            Rights { access: Access::ReadOnly, ..with.clone() }.consult().is_ok(),
            "it reads and writes nothing"
        );
        assert!(Rights::default().consult().is_err_and(|refusal| refusal.is(Code::Forbidden)));
        assert_eq!(Rights::default().lack(&with), Some("it may not ask the doctor any more"));
        assert_eq!(with.lack(&Rights::default()), None);
    }

    #[test]
    fn what_two_allow_is_what_each_of_them_does() {
        for one in [Access::ReadWrite, Access::ReadOnly, Access::WriteOnly] {
            for other in [Access::ReadWrite, Access::ReadOnly, Access::WriteOnly] {
                for way in WAYS {
                    let both = one.and(other).is_some_and(|access| access.allows(way));
                    assert_eq!(both, one.allows(way) && other.allows(way), "{one:?} {other:?} {way:?}");
                }
            }
        }
    }

    #[test]
    fn a_grant_is_for_one_copy_of_one_path_one_way() {
        let errand = |deletes, follows| Errand {
            way: ContentDirection::Write,
            path: b"in/x".to_vec(),
            deletes,
            follows,
            looks_beside: false,
            writes_beside: false,
            within: Some(PathPrefixes::new(["/in".into()]).unwrap()),
        };
        let paths = [b"in/x".to_vec()];
        let copy = CopyReach {
            paths: &paths,
            has_more: false,
            is_spread: false,
            overwrites: true,
            deletes: false,
            follows: false,
            looks_beside: false,
            writes_beside: false,
        };
        let asked = |copy| RightsRequest {
            way: ContentDirection::Write,
            cipher: Cipher::Aes128Gcm,
            copy: Some(copy),
        };
        let judge = |errand: Errand, asked| {
            let rights = Rights { root: "a".into(), errand: Some(Arc::new(errand)), ..Rights::default() };
            rights.judge(asked)
        };
        let allowed = judge(errand(false, false), asked(copy)).unwrap();
        assert_eq!(
            (allowed.root(), allowed.within()),
            (Path::new("a"), errand(false, false).within.as_ref())
        );
        let all =
            CopyReach { deletes: true, follows: true, looks_beside: false, writes_beside: false, ..copy };
        assert!(judge(errand(true, true), asked(all)).is_ok());
        let (other, two) = ([b"in/x/".to_vec()], [b"in/x".to_vec(), b"in/x".to_vec()]);
        for (asked, words) in [
            (RightsRequest { copy: None, ..asked(copy) }, "one copy"),
            (
                RightsRequest { way: ContentDirection::Read, ..asked(copy) },
                "for writing here, not for reading",
            ),
            (asked(CopyReach { paths: &other, ..copy }), "another path"),
            (asked(CopyReach { paths: &two, ..copy }), "another path"),
            (asked(CopyReach { paths: &[], ..copy }), "another path"),
            (asked(CopyReach { has_more: true, ..copy }), "another path"),
            (asked(CopyReach { is_spread: true, ..copy }), "another path"),
            (asked(CopyReach { deletes: true, ..copy }), "deleted"),
            (asked(CopyReach { follows: true, ..copy }), "links"),
        ] {
            let refusal = judge(errand(false, false), asked).unwrap_err();
            assert!(refusal.is(Code::GrantRefused) && refusal.text.contains(words), "{refusal:?}");
        }
        // The rights of the grant's giver hold, too.
        let errand = Some(Arc::new(errand(true, true)));
        let read_only = Rights { access: Access::ReadOnly, errand: errand.clone(), ..Rights::default() };
        assert!(read_only.judge(asked(copy)).unwrap_err().is(Code::Forbidden));
        assert!(read_only.visit().unwrap_err().is(Code::GrantRefused));
    }
}
