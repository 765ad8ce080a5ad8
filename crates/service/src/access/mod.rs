//! Decides who may do what: a caller is judged once a request, in one place.
//!
//! How to read it: [`Caller`] is who asks, whatever proved it; [`CallerReach`] says which files the caller
//! may have moved; `deeds.rs` says what a caller may do at all, and tells it; `token.rs` makes tokens and
//! recognizes them, `login.rs` does the same for what a browser shows instead; `places.rs` has the form in
//! which the store keeps a job's locations. [`Caller::may`] is the one function that judges.
//!
//! Always true: nothing in here looks at a file, a clock or a peer. A path that lies below a prefix by its
//! name may still lead out of it through a link: so `copy`, too, confines the jobs of callers that have
//! prefixes, at every end ([`CallerReach::confines`]).

mod deeds;
pub(crate) mod login;
mod places;
pub(crate) mod token;

use farhaul_api::{CallerReach, Scope};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use farhaul::copy::{HostSpec, LocationSpec};
use farhaul::sisters::{JobConfines, PathPrefixes};
use farhaul::target::DEFAULT_PORT;
use farhaul_words::{Code, Error};

use crate::job::{OptionRule, UsedOption};
pub(crate) use deeds::only_looks;

/// The sources and the destination of one job. They decide who may see and steer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobPlaces(pub(crate) Vec<LocationSpec>);

/// The caller of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// `local` for the service's own user, otherwise `token:ID`.
    pub(crate) subject: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) reach: CallerReach,
    /// Where the request comes from; `None` over the Unix socket.
    pub(crate) address: Option<IpAddr>,
}

/// The thing that a caller wants to do, as far as rights depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallerDeed<'a> {
    /// Needs a scope; the caller's reach does not matter.
    Any(Scope),
    /// Concerns a job, or files, at these locations.
    At(Scope, &'a JobPlaces),
    /// Submits a job at these locations that uses these options.
    With(Scope, &'a JobPlaces, &'a [UsedOption]),
}

impl Caller {
    /// The user that the service runs as.
    pub(crate) fn local() -> Caller {
        Caller {
            subject: "local".into(),
            scopes: vec![Scope::Admin],
            reach: CallerReach::everything(),
            address: None,
        }
    }

    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// An error if the caller may not do this. No other function judges it.
    pub(crate) fn may(&self, deed: CallerDeed<'_>) -> Result<(), Error> {
        let (CallerDeed::Any(scope) | CallerDeed::At(scope, _) | CallerDeed::With(scope, ..)) = deed;
        if !self.has(scope) {
            let what = format!("this needs the scope {}, which the token does not have", scope.name());
            return Err(Error::new(Code::OutOfScope, what));
        }
        if let CallerDeed::With(_, _, used) = deed
            && let Some((field, _)) = used.iter().find(|(_, option)| option.rule == OptionRule::Admin)
            && !self.has(Scope::Admin)
        {
            let what = format!("{field}: this needs the scope admin, which the token does not have");
            return Err(Error::new(Code::OutOfScope, what));
        }
        match deed {
            CallerDeed::At(_, places) | CallerDeed::With(_, places, _) => {
                match places.0.iter().find(|place| !self.reach.covers(place)) {
                    Some(place) => {
                        let place = farhaul_text::printable(place.path(), 200);
                        Err(Error::new(Code::OutOfScope, format!("{place}: the token does not reach there")))
                    }
                    None => Ok(()),
                }
            }
            CallerDeed::Any(_) => Ok(()),
        }
    }

    /// True if the caller may see every job.
    pub(crate) fn sees_all(&self) -> bool {
        self.has(Scope::Read) && self.reaches_all()
    }

    /// True if nothing lies outside the caller's reach.
    pub(crate) fn reaches_all(&self) -> bool {
        self.reach.everything
    }

    /// True if the caller may see jobs at these locations.
    pub(crate) fn sees(&self, places: &JobPlaces) -> bool {
        self.may(CallerDeed::At(Scope::Read, places)).is_ok()
    }
}

/// The most prefixes that one token may have.
const PREFIXES_MAX: usize = 256;

/// The most identities that one token may name.
const IDENTITIES_MAX: usize = 256;
/// The most bytes of all these names. Each job of the token is kept with them.
const REACH_BYTES_MAX: usize = 64 << 10;

/// What a reach means.
pub(crate) trait ReachRules: Sized {
    /// Judges whether a token may have this reach, as far as its words tell (`Node::judge_reach` judges
    /// where its directories lie).
    fn check(&self) -> Result<(), Error>;

    /// The directories of this host below which everything is within reach.
    fn begins(&self) -> Vec<String>;

    /// True if anything at this peer is within reach; `peer` is its name as jobs show it.
    fn knows(&self, peer: &str) -> bool;

    /// True if a job may name this identity of the configuration.
    fn may_be(&self, identity: &str) -> bool;

    /// What both reach.
    fn and(&self, other: &CallerReach) -> CallerReach;

    /// The directories that a job between these locations may use at each of its ends. A comparison of names, as
    /// [`Caller::may`] makes it, says nothing of links; `copy` keeps the job below the directories.
    fn confines(&self, sources: &[LocationSpec], destination: &LocationSpec) -> Result<JobConfines, Error>;

    /// The directories that may be used on the far host of this location; `None` if that is everything there, or
    /// if the location is on this host.
    fn prefixes_at(&self, place: &LocationSpec) -> Result<Option<PathPrefixes>, Error>;

    fn covers(&self, place: &LocationSpec) -> bool;
}

impl ReachRules for CallerReach {
    fn check(&self) -> Result<(), Error> {
        let bad = |what: String| Err(Error::new(Code::BadOption, what));
        if self.everything && *self != CallerReach::everything() {
            return bad("a token reaches either everything or what is named: leave out one of the two".into());
        }
        let far = self.peers.values().flatten().map(Path::new);
        for (count, prefix) in self.local.iter().map(PathBuf::as_path).chain(far).enumerate() {
            if count >= PREFIXES_MAX {
                return bad(format!("a token has at most {PREFIXES_MAX} prefixes"));
            }
            if !is_below(prefix, Path::new("/")) {
                let prefix = farhaul_text::printable(prefix.as_os_str().as_encoded_bytes(), 200);
                return bad(format!("{prefix}: a prefix is an absolute path without .."));
            }
        }
        // A peer is told those that concern it.
        for prefixes in self.peers.values() {
            if let Err(error) = PathPrefixes::new(prefixes.iter().map(PathBuf::from)) {
                return bad(error.to_string());
            }
        }
        if self.peers.len() > PREFIXES_MAX {
            return bad(format!("a token names at most {PREFIXES_MAX} peers"));
        }
        if let Some(peer) = self.peers.keys().find(|peer| !is_peer(peer)) {
            let peer = farhaul_text::printable(peer.as_bytes(), 80);
            return bad(format!("{peer}: a peer is named as hpc, hpc:4000 or ssh://user@hpc"));
        }
        if self.identities.len() > IDENTITIES_MAX {
            return bad(format!("a token names at most {IDENTITIES_MAX} identities"));
        }
        let local = self.local.iter().map(|prefix| prefix.as_os_str().len());
        let far = self.peers.iter().flat_map(|(peer, prefixes)| prefixes.iter().chain([peer]));
        let bytes = local.chain(far.chain(&self.identities).map(String::len)).sum::<usize>();
        if bytes > REACH_BYTES_MAX {
            return bad(format!("the reach of a token has at most {} KiB", REACH_BYTES_MAX >> 10));
        }
        Ok(())
    }

    fn begins(&self) -> Vec<String> {
        match self.everything {
            true => vec!["/".into()],
            false => self.local.iter().map(|prefix| prefix.display().to_string()).collect(),
        }
    }

    fn knows(&self, peer: &str) -> bool {
        self.everything || names_of(peer).iter().any(|name| self.peers.contains_key(name))
    }

    fn may_be(&self, identity: &str) -> bool {
        self.everything || self.identities.iter().any(|name| name == identity)
    }

    fn and(&self, other: &CallerReach) -> CallerReach {
        if self.everything {
            return other.clone();
        }
        if other.everything {
            return self.clone();
        }
        let mut peers = BTreeMap::new();
        for (name, here) in &self.peers {
            let there = names_of(name).into_iter().filter_map(|name| other.peers.get(&name)).flatten();
            let both = below_both(here, &there.cloned().collect::<Vec<_>>());
            if !both.is_empty() {
                peers.insert(name.clone(), both);
            }
        }
        CallerReach {
            everything: false,
            local: below_both(&self.local, &other.local),
            peers,
            identities: self.identities.iter().filter(|name| other.may_be(name)).cloned().collect(),
        }
    }

    fn confines(&self, sources: &[LocationSpec], destination: &LocationSpec) -> Result<JobConfines, Error> {
        let mut far_sources = None;
        for source in sources {
            far_sources = PathPrefixes::both(far_sources.as_ref(), self.prefixes_at(source)?.as_ref());
        }
        let far_destination = self.prefixes_at(destination)?;
        let local = (!self.everything).then(|| self.local.clone());
        Ok(JobConfines { local, far_sources, far_destination })
    }

    fn prefixes_at(&self, place: &LocationSpec) -> Result<Option<PathPrefixes>, Error> {
        let Some(names) = names_at(place).filter(|_| !self.everything) else { return Ok(None) };
        let prefixes: Vec<_> = names.iter().filter_map(|name| self.peers.get(name)).flatten().collect();
        // Nothing leads out of all that there is.
        let is_all = |prefix: &&String| Path::new(prefix).components().eq([Component::RootDir]);
        match prefixes.iter().any(is_all) {
            true => Ok(None),
            false => PathPrefixes::new(prefixes.into_iter().map(PathBuf::from)).map(Some),
        }
    }

    fn covers(&self, place: &LocationSpec) -> bool {
        match place {
            LocationSpec::Pipe => false,
            LocationSpec::Local(path) if place.is_sink() || place.is_made() => path.components().count() == 1,
            _ if self.everything => true,
            LocationSpec::Local(path) => self.local.iter().any(|prefix| is_below(path, prefix)),
            LocationSpec::Ssh(_, path) | LocationSpec::Daemon(_, path) => {
                let is_daemon = matches!(place, LocationSpec::Daemon(..));
                let names = names_at(place).unwrap_or_default();
                let mut prefixes = names.iter().filter_map(|name| self.peers.get(name)).flatten();
                prefixes.any(|prefix| is_below(&far_path(path, is_daemon), Path::new(prefix)))
            }
        }
    }
}

/// The directories that lie in a directory of each list.
fn below_both<P: AsRef<Path> + Clone + PartialEq>(one: &[P], other: &[P]) -> Vec<P> {
    let lies_in = |path: &P, list: &[P]| list.iter().any(|above| is_below(path.as_ref(), above.as_ref()));
    let mut both: Vec<P> = one.iter().filter(|path| lies_in(path, other)).cloned().collect();
    let further = other.iter().filter(|path| lies_in(path, one) && !lies_in(path, &both));
    both.extend(further.cloned().collect::<Vec<_>>());
    both
}

/// True if a token may call a peer so: then it is the name by which some location is known.
fn is_peer(name: &str) -> bool {
    names_of(name).iter().any(|one| one == name)
}

/// The names by which prefixes may call this peer, which is named as in prefixes (`hpc` is a daemon) or as in
/// jobs (`fh://hpc:33001`).
fn names_of(peer: &str) -> Vec<String> {
    let whole = if peer.contains("://") { peer.to_string() } else { format!("fh://{peer}") };
    LocationSpec::parse_host(whole.as_ref()).ok().and_then(|place| names_at(&place)).unwrap_or_default()
}

/// The names by which prefixes may call the far host of a location; `None` if it is on this host.
fn names_at(place: &LocationSpec) -> Option<Vec<String>> {
    match place {
        LocationSpec::Daemon(host, _) => Some(names_of_daemon(host)),
        LocationSpec::Ssh(host, _) => Some(vec![name_over_ssh(host)]),
        LocationSpec::Local(_) | LocationSpec::Pipe => None,
    }
}

/// The names by which the prefixes of a token may call a daemon: with its port, and also without if it is the
/// usual one.
fn names_of_daemon(HostSpec { user, name, port }: &HostSpec) -> Vec<String> {
    let name = match user {
        Some(user) => format!("{user}@{}", bracketed(name)),
        None => bracketed(name),
    };
    let port = port.unwrap_or(DEFAULT_PORT);
    let with_port = format!("{name}:{port}");
    if port == DEFAULT_PORT { vec![with_port, name] } else { vec![with_port] }
}

/// The name by which prefixes call a host that ssh reaches. It is never a daemon's name: paths of a daemon
/// begin at its root, paths here at the root of the host.
fn name_over_ssh(HostSpec { user, name, port }: &HostSpec) -> String {
    let user = user.as_ref().map_or(String::new(), |user| format!("{user}@"));
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    format!("ssh://{user}{}{port}", bracketed(name))
}

fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_string() }
}

/// The path that prefixes are compared with. A daemon's paths begin at its root, with or without a slash.
fn far_path(path: &[u8], is_daemon: bool) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    if is_daemon { Path::new("/").join(path) } else { path.to_path_buf() }
}

/// Compares whole components. A path that is relative or has `..` in it lies below nothing.
fn is_below(path: &Path, prefix: &Path) -> bool {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute()
        && path.components().all(is_plain)
        && !path.as_os_str().as_encoded_bytes().contains(&0)
        && path.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_scopes_do_not_change() {
        assert_eq!(Scope::ALL.map(Scope::name), ["read", "submit", "control", "admin"]);
    }

    fn caller(scopes: &[Scope]) -> Caller {
        let peers =
            [("hpc", "/incoming/a"), ("ssh://u@ssh.host", "/data"), ("hpc:4000", "/"), ("[fd00::1]", "/x")];
        let peers = peers.map(|(peer, prefix)| (peer.to_string(), vec![prefix.to_string()]));
        let reach =
            CallerReach { local: vec!["/projects/a".into()], peers: peers.into(), ..CallerReach::default() };
        Caller { subject: "token:x".into(), scopes: scopes.to_vec(), reach, address: None }
    }

    fn places(names: &[&str]) -> JobPlaces {
        JobPlaces(names.iter().map(|name| LocationSpec::parse(name.as_ref()).unwrap()).collect())
    }

    #[test]
    fn a_token_reaches_what_is_below_its_prefixes_and_nothing_else() {
        let caller = caller(&[Scope::Submit]);
        let may = |name: &str| caller.may(CallerDeed::At(Scope::Submit, &places(&[name]))).is_ok();
        for within in [
            "/projects/a",
            "/projects/a/",
            "/projects/a/b c/d",
            "fh://hpc/incoming/a",
            "fh://hpc//incoming/a/x",
            "fh://hpc:33001/incoming/a/x",
            "fh://[fd00::1]/x",
            "fh://hpc:4000/anything",
            "u@ssh.host:/data/x",
            "null:",
            "zero:5",
        ] {
            assert!(may(within), "{within}");
        }
        for outside in [
            "/projects/ab",
            "/projects",
            "/",
            "/projects/a/../b",
            "/projects/a/..",
            "fh://hpc/incoming/ab",
            "fh://hpc/incoming",
            "fh://hpc/incoming/a/../../x",
            "fh://other/incoming/a",
            "fh://hpc:4001/incoming/a",
            "u@hpc:/incoming/a",
            "hpc:/incoming/a",
            "ssh://hpc:4000/etc",
            "fh://u@ssh.host/data",
            "ssh.host:/data/x",
            "v@ssh.host:/data/x",
            "u@ssh.host:data/x",
            "u@ssh.host:/data/../etc",
            "-",
        ] {
            assert!(!may(outside), "{outside}");
        }
        assert!(
            caller.may(CallerDeed::At(Scope::Submit, &places(&["/projects/a/x", "fh://hpc/x"]))).is_err()
        );
    }

    #[test]
    fn a_peer_is_told_the_directories_that_a_token_may_use_there() {
        let reach = caller(&[Scope::Submit]).reach;
        let of = |sources: &[&str], destination: &str| {
            reach.confines(&places(sources).0, &places(&[destination]).0[0]).unwrap()
        };
        let prefixes = |directories: &[&str]| PathPrefixes::new(directories.iter().map(PathBuf::from)).ok();
        let push = of(&["/projects/a/x"], "fh://hpc/incoming/a/x");
        assert_eq!((push.far_sources, push.far_destination), (None, prefixes(&["/incoming/a"])));
        assert_eq!(push.local, Some(vec!["/projects/a".into()]));
        let pull = of(&["u@ssh.host:/data/x"], "/projects/a");
        assert_eq!((pull.far_sources, pull.far_destination), (prefixes(&["/data"]), None));
        let between = of(&["fh://[fd00::1]/x"], "fh://hpc:33001/incoming/a");
        let far = (between.far_sources, between.far_destination);
        assert_eq!(far, (prefixes(&["/x"]), prefixes(&["/incoming/a"])));
        // A daemon's whole root needs no confinement; at a peer that is not named, nothing may be used.
        assert_eq!(of(&["fh://hpc:4000/x"], "/projects/a").far_sources, None);
        assert_eq!(of(&["fh://other/x"], "/projects/a").far_sources, prefixes(&[]));
        let all = CallerReach::everything();
        assert_eq!(
            all.confines(&places(&["fh://hpc/x"]).0, &places(&["/y"]).0[0]).unwrap(),
            JobConfines::default()
        );
    }

    #[test]
    fn the_reach_of_a_token_has_a_limit() {
        let peers = |names: Vec<String>| CallerReach {
            peers: names.into_iter().map(|name| (name, vec!["/x".into()])).collect(),
            ..CallerReach::default()
        };
        let local = |count: usize, len: usize| CallerReach {
            local: (0..count).map(|number| format!("/{number:0>len$}").into()).collect(),
            ..CallerReach::default()
        };
        for good in [
            local(256, 100),
            peers(
                ["hpc", "hpc:4000", "ssh://u@hpc", "ssh://hpc:22", "[fd00::1]", "u@hpc"]
                    .map(String::from)
                    .into(),
            ),
        ] {
            good.check().unwrap();
        }
        let none = |count: usize| CallerReach {
            peers: (0..count).map(|number| (format!("h{number}"), Vec::new())).collect(),
            ..CallerReach::default()
        };
        let long = vec!["x".repeat(10_000); 100];
        for (wrong, part) in [
            (local(257, 10), "256 prefixes"),
            (none(257), "256 peers"),
            (local(100, 1000), "64 KiB"),
            (CallerReach { identities: long, ..CallerReach::default() }, "64 KiB"),
            (peers(vec!["fh://hpc".into()]), "a peer is named"),
            (peers(vec!["-oProxyCommand=x".into()]), "a peer is named"),
            (peers(vec!["a\u{1b}b".into()]), "a b: a peer is named"),
            (peers(vec!["h".repeat(300)]), "a peer is named"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn a_scope_allows_what_it_says_and_admin_everything() {
        for has in Scope::ALL {
            for needed in Scope::ALL {
                let allowed = caller(&[has]).may(CallerDeed::Any(needed)).is_ok();
                assert_eq!(allowed, has == needed || has == Scope::Admin, "{has:?} {needed:?}");
            }
        }
        assert!(caller(&[]).may(CallerDeed::Any(Scope::Read)).is_err());
        assert!(!caller(&[Scope::Submit]).sees(&places(&["/projects/a"])));
        assert!(caller(&[Scope::Read]).sees(&places(&["/projects/a"])));
        assert!(Caller::local().may(CallerDeed::At(Scope::Admin, &places(&["/etc", "fh://x/y"]))).is_ok());
    }

    #[test]
    fn two_reaches_have_in_common_what_lies_in_both() {
        let reach = |local: &[&str], peers: &[(&str, &[&str])], identities: &[&str]| CallerReach {
            everything: false,
            local: local.iter().map(PathBuf::from).collect(),
            peers: peers
                .iter()
                .map(|(name, paths)| (name.to_string(), paths.iter().map(ToString::to_string).collect()))
                .collect(),
            identities: identities.iter().map(ToString::to_string).collect(),
        };
        let one = reach(&["/a/b", "/c", "/same"], &[("hpc", &["/in"]), ("ssh://u@h", &["/x"])], &["p", "q"]);
        let other = reach(
            &["/a", "/c/d", "/cc", "/same"],
            &[("hpc:33001", &["/in/a", "/other"]), ("h", &["/x"])],
            &["q"],
        );
        let both = reach(&["/a/b", "/same", "/c/d"], &[("hpc", &["/in/a"])], &["q"]);
        assert_eq!(one.and(&other), both);
        assert_eq!(CallerReach::everything().and(&one), one);
        assert_eq!(one.and(&CallerReach::everything()), one);
        assert_eq!(one.and(&CallerReach::default()), CallerReach::default());
    }
}
