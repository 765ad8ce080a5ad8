//! Grants: what a principal lets another key do here on its behalf, once.
//!
//! Always true: a grant works once, for the one key that it was given for, before it expires. Only a digest
//! of its token is kept. The number of all grants, and of each principal's, is bounded. Time is an argument.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use sha2::{Digest as _, Sha256};

use super::hello::{HelloSecret, Refusal};
use super::principal::Principal;
use super::rights::{Errand, Rights};

/// How many seconds a grant is valid by default.
pub const GRANT_SECS: u64 = 600;
/// How many seconds a grant is valid at most.
pub const GRANT_SECS_MAX: u64 = 24 * 3600;
/// The most grants that are kept at a time, each with paths of at most 36 KiB, and the most unused grants of
/// one principal.
const GRANTS_MAX: usize = 1024;
const UNUSED_MAX: usize = 64;
/// How long a used or expired grant is remembered, so that whoever shows it is told what is wrong.
const REMEMBERED: Duration = Duration::from_secs(600);

/// A request for a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantWish {
    /// The fingerprint of the key that may use it.
    pub key: String,
    /// The errand that the key may do.
    pub errand: Errand,
    /// How long the grant may be used.
    pub lifetime: Duration,
}

/// The grants of a daemon.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants(Arc<Mutex<Table>>);

/// Grants by the digests of their tokens.
type Table = HashMap<[u8; 32], Grant>;

#[derive(Debug)]
struct Grant {
    by: Principal,
    /// The giver's rights when it gave the grant.
    rights: Rights,
    key: String,
    errand: Arc<Errand>,
    until: Instant,
    state: GrantState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantState {
    Unused,
    /// Somebody has shown it, but that session has not begun.
    Shown,
    Used,
}

/// A grant that somebody has shown. If it is dropped without having been [spent](TakenGrant::spend), it can
/// be shown again.
#[derive(Debug)]
pub(crate) struct TakenGrant {
    grants: Grants,
    digest: [u8; 32],
    /// The giver.
    pub(crate) by: Principal,
    /// The giver's rights when it gave the grant.
    pub(crate) rights: Rights,
    pub(crate) errand: Arc<Errand>,
}

impl Grants {
    /// Keeps a grant that `by` gives, and returns the token to show for it.
    pub(crate) fn give(
        &self,
        by: &Principal,
        rights: &Rights,
        wish: GrantWish,
        now: Instant,
    ) -> Result<HelloSecret, Error> {
        let token = HelloSecret::random()?;
        let mut table = self.table();
        forget_old(&mut table, now);
        let full = |what: String| Err(Error::new(Code::Busy, what).with_hint("try again later"));
        let unused = |grant: &&Grant| grant.by.id == by.id && grant.is_good(now);
        if table.values().filter(unused).count() >= UNUSED_MAX {
            return full(format!("{UNUSED_MAX} grants that you have given here are yet to be used"));
        }
        if table.len() >= GRANTS_MAX {
            let dead = table.iter().filter(|(_, grant)| !grant.is_good(now));
            let Some(oldest) = dead.min_by_key(|(_, grant)| grant.until).map(|(digest, _)| *digest) else {
                return full(format!("{GRANTS_MAX} grants are waiting to be used here"));
            };
            table.remove(&oldest);
        }
        let GrantWish { key, errand, lifetime } = wish;
        let until = now + lifetime.min(Duration::from_secs(GRANT_SECS_MAX));
        let (by, rights, errand) = (by.clone(), rights.clone(), Arc::new(errand));
        let grant = Grant { by, rights, key, errand, until, state: GrantState::Unused };
        table.insert(digest_of(&token), grant);
        Ok(token)
    }

    /// Returns whether there is, or lately was, a grant for this key, so that its owner may send a frame.
    pub(crate) fn knows(&self, key: &str, now: Instant) -> bool {
        let mut table = self.table();
        forget_old(&mut table, now);
        table.values().any(|grant| grant.key == key)
    }

    /// Takes the grant of this token for an owner of this proved key.
    pub(crate) fn take(&self, token: &HelloSecret, key: &str, now: Instant) -> Result<TakenGrant, Refusal> {
        let digest = digest_of(token);
        let mut table = self.table();
        forget_old(&mut table, now);
        let refuse = |code: Code, text: &str| Err(Refusal::new(code, text));
        let Some(grant) = table.get_mut(&digest) else {
            let hint =
                "it may have expired long ago, or the daemon has been started anew: ask for another one";
            return Err(
                Refusal::new(Code::GrantRefused, "nobody has given such a grant here").with_hint(hint)
            );
        };
        if grant.key != key {
            return refuse(Code::GrantRefused, "the grant is for another key");
        }
        match grant.state {
            GrantState::Used | GrantState::Shown => {
                return refuse(Code::GrantUsed, "the grant has been used");
            }
            GrantState::Unused if now >= grant.until => {
                return refuse(Code::GrantExpired, "the grant has expired");
            }
            GrantState::Unused => grant.state = GrantState::Shown,
        }
        let (by, rights, errand) = (grant.by.clone(), grant.rights.clone(), grant.errand.clone());
        Ok(TakenGrant { grants: self.clone(), digest, by, rights, errand })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().in_any_case()
    }
}

impl Grant {
    fn is_good(&self, now: Instant) -> bool {
        self.state != GrantState::Used && now < self.until
    }
}

impl TakenGrant {
    /// The session begins: nobody can show the grant again.
    pub(crate) fn spend(self, now: Instant) {
        if let Some(grant) = self.grants.table().get_mut(&self.digest) {
            grant.state = GrantState::Used;
            grant.until = grant.until.min(now);
        }
    }
}

impl Drop for TakenGrant {
    fn drop(&mut self) {
        if let Some(grant) = self.grants.table().get_mut(&self.digest)
            && grant.state == GrantState::Shown
        {
            grant.state = GrantState::Unused;
        }
    }
}

fn digest_of(token: &HelloSecret) -> [u8; 32] {
    Sha256::digest(token.0).into()
}

fn forget_old(table: &mut Table, now: Instant) {
    table.retain(|_, grant| now < grant.until + REMEMBERED);
}

#[cfg(test)]
mod tests {
    use super::super::principal::PrincipalId;
    use super::super::rights::ContentDirection;
    use super::*;

    fn by(name: &str) -> Principal {
        Principal { id: PrincipalId::Ed25519(name.into()), comment: name.into() }
    }

    fn wish(key: &str, secs: u64) -> GrantWish {
        let errand = Errand {
            way: ContentDirection::Write,
            path: b"in".to_vec(),
            deletes: false,
            follows: false,
            looks_beside: false,
            writes_beside: false,
            within: None,
        };
        GrantWish { key: key.into(), errand, lifetime: Duration::from_secs(secs) }
    }

    /// A table and a clock.
    struct Desk {
        grants: Grants,
        now: Instant,
    }

    impl Desk {
        fn new() -> Desk {
            Desk { grants: Grants::default(), now: Instant::now() }
        }

        fn give(&self, name: &str, key: &str, secs: u64) -> Result<HelloSecret, Code> {
            let given = self.grants.give(&by(name), &Rights::default(), wish(key, secs), self.now);
            given.map_err(|error| error.code())
        }

        fn take(&self, token: &HelloSecret, key: &str) -> Result<TakenGrant, String> {
            self.grants.take(token, key, self.now).map_err(|refusal| refusal.code)
        }

        fn refused(&self, token: &HelloSecret, key: &str) -> String {
            self.take(token, key).expect_err("it is refused")
        }
    }

    #[test]
    fn a_grant_is_for_one_key_and_one_use() {
        let desk = Desk::new();
        let token = desk.give("alice", "B", 600).unwrap();
        assert!(desk.grants.knows("B", desk.now) && !desk.grants.knows("C", desk.now));
        assert_eq!(desk.refused(&HelloSecret([7; 32]), "B"), "FH-GRANT-REFUSED");
        assert_eq!(desk.refused(&token, "C"), "FH-GRANT-REFUSED");
        let taken = desk.take(&token, "B").unwrap();
        assert_eq!((&taken.by, &taken.errand.path[..]), (&by("alice"), &b"in"[..]));
        assert_eq!(desk.refused(&token, "B"), "FH-GRANT-USED", "two come at once");
        drop(taken);
        desk.take(&token, "B").unwrap().spend(desk.now);
        assert_eq!(desk.refused(&token, "B"), "FH-GRANT-USED");
        assert_eq!(desk.refused(&token, "C"), "FH-GRANT-REFUSED");
    }

    #[test]
    fn a_grant_expires_and_is_remembered_a_while() {
        let mut desk = Desk::new();
        let (short, used) = (desk.give("alice", "B", 5).unwrap(), desk.give("alice", "U", 3600).unwrap());
        let long = desk.give("alice", "B", u64::MAX >> 32).unwrap();
        desk.take(&used, "U").unwrap().spend(desk.now);
        let begin = desk.now;
        let mut at = |secs: u64| {
            desk.now = begin + Duration::from_secs(secs);
            (desk.take(&short, "B").map(drop), desk.grants.knows("U", desk.now))
        };
        assert_eq!(at(4), (Ok(()), true));
        assert_eq!(at(5), (Err("FH-GRANT-EXPIRED".into()), true));
        assert_eq!(at(599), (Err("FH-GRANT-EXPIRED".into()), true));
        assert_eq!(
            at(604),
            (Err("FH-GRANT-EXPIRED".into()), false),
            "a used grant is remembered from its use on"
        );
        assert_eq!(at(605), (Err("FH-GRANT-REFUSED".into()), false));
        assert_eq!(at(GRANT_SECS_MAX - 1), (Err("FH-GRANT-REFUSED".into()), false));
        assert!(desk.take(&long, "B").is_ok(), "the longest time");
        desk.now += Duration::from_secs(1);
        assert_eq!(desk.refused(&long, "B"), "FH-GRANT-EXPIRED");
        desk.now += REMEMBERED;
        assert!(!desk.grants.knows("B", desk.now) && desk.grants.table().is_empty());
    }

    #[test]
    fn grants_are_bounded_for_each_principal_and_in_all() {
        let mut desk = Desk::new();
        let of_alice: Vec<_> = (0..UNUSED_MAX).map(|_| desk.give("alice", "B", 600).unwrap()).collect();
        assert_eq!(desk.give("alice", "B", 600).unwrap_err(), Code::Busy);
        desk.take(&of_alice[0], "B").unwrap().spend(desk.now);
        assert!(desk.give("alice", "B", 600).is_ok(), "one was used");
        for number in 0.. {
            if desk.grants.table().len() == GRANTS_MAX {
                break;
            }
            desk.give(&format!("user {}", number / 50), "B", 600).unwrap();
        }
        assert!(desk.give("mallory", "B", 600).is_ok(), "a used grant makes room");
        assert_eq!(desk.refused(&of_alice[0], "B"), "FH-GRANT-REFUSED", "and is forgotten");
        assert_eq!(desk.give("mallory", "B", 600).unwrap_err(), Code::Busy);
        assert!(desk.take(&of_alice[1], "B").is_ok(), "no valid grant had to go");
        desk.now += Duration::from_secs(600);
        assert!(desk.give("mallory", "B", 600).is_ok(), "they have expired");
        assert_eq!(desk.grants.table().len(), GRANTS_MAX);
    }

    #[test]
    fn no_token_is_kept() {
        let desk = Desk::new();
        let token = desk.give("alice", "B", 600).unwrap();
        let table = desk.grants.table();
        assert!(table.keys().all(|digest| *digest != token.0) && table.contains_key(&digest_of(&token)));
        drop(table);
        assert!(!format!("{:?}", desk.take(&token, "B").unwrap()).contains(&format!("{:?}", token.0)));
    }
}
