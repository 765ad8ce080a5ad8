//! Finds out who a caller is: by a token, or by a log-in that was made with a token or a one-time code.
//!
//! Always true: a log-in lasts no longer than the token that made it; a code works once, within a minute;
//! codes are only in memory, and their number is bounded.

use std::net::SocketAddr;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use tokio::sync::watch;

use super::Node;
use super::moments::NodeMoment;
use crate::access::Caller;
use crate::access::login::{LoginSecret, SecretUse};
use crate::access::token::NewTokenText;
use crate::store::logins::LoginRow;
use crate::store::tokens::TokenRow;
use farhaul_api::{DeedKind, Scope};

/// How long a one-time code is valid.
const CODE_MS: i64 = 60_000;
/// The most codes that are valid at a time; a further code replaces the oldest one.
const CODES_MAX: usize = 32;

/// The principal of all callers over the Unix socket.
pub(crate) const SOCKET: &str = "socket";
/// The principal of a browser that has logged in by a one-time code.
pub(crate) const OWN_PAGE: &str = "local";

/// How a caller was recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerProof {
    /// By the Unix socket, which only the service's own user can open.
    Socket,
    /// By the token with this hash.
    Token([u8; 32]),
    /// By the log-in with this hash.
    Login([u8; 32]),
}

impl CallerProof {
    /// The hash of what was shown, if anything was.
    pub(crate) fn hash(self) -> Option<[u8; 32]> {
        match self {
            CallerProof::Socket => None,
            CallerProof::Token(hash) | CallerProof::Login(hash) => Some(hash),
        }
    }
}

/// The identity of a caller.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallerIdentity {
    /// The caller, without an address.
    pub(crate) caller: Caller,
    /// The name that the maker of the token gave it.
    pub(crate) name: String,
    pub(crate) proof: CallerProof,
    /// When the token or log-in expires.
    pub(crate) expires_ms: Option<i64>,
}

impl CallerIdentity {
    /// The principal that connections, requests and threads are counted for. A browser that logged in by a
    /// one-time code is the service's own user, too, but its page must not use up what the socket needs.
    pub(crate) fn principal(&self) -> &str {
        match self.proof {
            CallerProof::Socket => SOCKET,
            // `OWN_PAGE`, or that of a token.
            CallerProof::Token(_) | CallerProof::Login(_) => &self.caller.subject,
        }
    }
}

/// Why a caller is not recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginRefusal {
    /// The token, log-in or code is not known: it may be a guess.
    Unknown,
    /// The token or log-in is no longer valid. The text says why.
    Over(String),
}

/// The codes and log-ins, as far as they are in memory.
#[derive(Debug)]
pub(crate) struct Logins {
    codes: Mutex<Vec<OneTimeCode>>,
    /// Changes when a token or a log-in is withdrawn, so that event streams can end.
    withdrawn: watch::Sender<u64>,
}

impl Default for Logins {
    fn default() -> Logins {
        Logins { codes: Mutex::default(), withdrawn: watch::Sender::new(0) }
    }
}

/// A code that is valid until it is taken.
#[derive(Debug)]
pub(crate) struct OneTimeCode {
    hash: [u8; 32],
    scopes: Vec<Scope>,
    expires_node_ms: i64,
}

impl CallerIdentity {
    /// The caller on the Unix socket.
    pub(crate) fn own_user() -> CallerIdentity {
        CallerIdentity {
            caller: Caller::local(),
            name: String::new(),
            proof: CallerProof::Socket,
            expires_ms: None,
        }
    }

    fn of_token(row: TokenRow, proof: CallerProof) -> CallerIdentity {
        let subject = format!("token:{}", row.id);
        let caller = Caller { subject, scopes: row.scopes, reach: row.reach, address: None };
        CallerIdentity { caller, name: row.name, proof, expires_ms: row.expires_ms }
    }

    fn of_login(login: LoginRow, token: Option<TokenRow>) -> CallerIdentity {
        let proof = CallerProof::Login(login.hash);
        let mut who = match token {
            Some(row) => CallerIdentity::of_token(row, proof),
            None => {
                let caller = Caller { scopes: login.scopes, ..Caller::local() };
                CallerIdentity { caller, name: String::new(), proof, expires_ms: None }
            }
        };
        who.expires_ms = Some(who.expires_ms.map_or(login.expires_ms, |end| end.min(login.expires_ms)));
        who
    }
}

/// Why a token is not valid now; `None` if it is.
pub(super) fn fault_of(row: &TokenRow, now: NodeMoment) -> Option<String> {
    let is_over = now.is_over(row.expires_ms, row.expires_node_ms);
    match row.revoked_ms {
        Some(_) => Some(format!("the token {} was revoked", row.id)),
        None => is_over.then(|| format!("the token {} has expired", row.id)),
    }
}

impl Node {
    /// Finds the identity of the caller with this proof, as things are now.
    pub(crate) fn who(&self, proof: CallerProof) -> Result<CallerIdentity, LoginRefusal> {
        let now = self.moment();
        match proof {
            CallerProof::Socket => Ok(CallerIdentity::own_user()),
            CallerProof::Token(hash) => {
                let row = self.proofs.token(&hash).ok_or(LoginRefusal::Unknown)?;
                match fault_of(&row, now) {
                    Some(fault) => Err(LoginRefusal::Over(fault)),
                    None => Ok(CallerIdentity::of_token(row, proof)),
                }
            }
            CallerProof::Login(hash) => {
                let (login, token) = self.proofs.login(&hash).ok_or(LoginRefusal::Unknown)?;
                if let Some(fault) = token.as_ref().and_then(|row| fault_of(row, now)) {
                    return Err(LoginRefusal::Over(fault));
                }
                let is_over = now.is_over(Some(login.expires_ms), login.expires_node_ms);
                if is_over || login.token.is_some() != token.is_some() {
                    return Err(LoginRefusal::Over("the log-in has expired".into()));
                }
                Ok(CallerIdentity::of_login(login, token))
            }
        }
    }

    /// Makes a log-in by a token. Yields who it is, and the secret for the cookie.
    pub(crate) fn log_in(
        &self,
        token: &NewTokenText,
    ) -> Result<Result<(CallerIdentity, LoginSecret), LoginRefusal>, Error> {
        let who = match self.who(CallerProof::Token(token.hash())) {
            Ok(who) => who,
            Err(nobody) => return Ok(Err(nobody)),
        };
        let Some(row) = self.proofs.token(&token.hash()) else { return Ok(Err(LoginRefusal::Unknown)) };
        self.begin_login(who.caller.scopes, Some(row)).map(Ok)
    }

    /// Takes a one-time code, which cannot be used again. `None` if there is no such code.
    pub(crate) fn take_code(&self, code: &LoginSecret) -> Option<OneTimeCode> {
        let (hash, now) = (code.hash(SecretUse::Code), self.moment());
        let mut codes = self.logins.codes.lock().in_any_case();
        codes.retain(|code| code.expires_node_ms > now.node_ms);
        codes.iter().position(|code| code.hash == hash).map(|at| codes.swap_remove(at))
    }

    /// Makes a log-in by a one-time code that was taken.
    pub(crate) fn log_in_by_code(&self, code: OneTimeCode) -> Result<(CallerIdentity, LoginSecret), Error> {
        self.begin_login(code.scopes, None)
    }

    fn begin_login(
        &self,
        scopes: Vec<Scope>,
        token: Option<TokenRow>,
    ) -> Result<(CallerIdentity, LoginSecret), Error> {
        let secret = LoginSecret::new().map_err(Error::no_random_numbers)?;
        let now = self.moment();
        let for_ms = i64::try_from(self.settings().login_s).unwrap_or(i64::MAX).saturating_mul(1000);
        let end_ms = now.wall_ms.saturating_add(for_ms);
        let expires_ms = token.as_ref().and_then(|row| row.expires_ms).map_or(end_ms, |end| end.min(end_ms));
        let token_id = token.as_ref().map(|row| row.id.clone());
        let login = LoginRow {
            hash: secret.hash(SecretUse::Login),
            token: token_id,
            scopes,
            created_ms: now.wall_ms,
            expires_ms,
            expires_node_ms: Some(now.node_ms.saturating_add(for_ms)),
        };
        self.proofs.add_login(&self.store, login.clone())?;
        Ok((CallerIdentity::of_login(login, token), secret))
    }

    /// Ends a log-in.
    pub(crate) fn log_out(&self, hash: [u8; 32]) -> Result<(), Error> {
        self.proofs.remove_login(&self.store, hash)?;
        self.withdraw();
        Ok(())
    }

    /// Makes a one-time code with these scopes for the service's own user. Yields also when it expires.
    pub(crate) fn login_code(
        &self,
        caller: &Caller,
        scopes: Vec<Scope>,
    ) -> Result<(LoginSecret, i64), Error> {
        caller.may_do(DeedKind::Codes)?;
        let secret = LoginSecret::new().map_err(Error::no_random_numbers)?;
        let now = self.moment();
        let code = OneTimeCode {
            hash: secret.hash(SecretUse::Code),
            scopes,
            expires_node_ms: now.node_ms.saturating_add(CODE_MS),
        };
        let mut codes = self.logins.codes.lock().in_any_case();
        codes.retain(|code| code.expires_node_ms > now.node_ms);
        if codes.len() >= CODES_MAX {
            codes.remove(0);
        }
        codes.push(code);
        Ok((secret, now.wall_ms.saturating_add(CODE_MS)))
    }

    /// Notes the addresses at which the API listens, and the name by which other hosts call it.
    pub(crate) fn set_pages(&self, listening: &[SocketAddr], is_tls: bool, name: Option<&str>) {
        let pages = listening.iter().map(|address| page_at(*address, is_tls, name));
        let _ = self.pages.set(pages.collect());
    }

    /// The addresses at which a browser finds the page.
    pub(crate) fn pages(&self) -> Result<Vec<String>, Error> {
        let pages = self.pages.get().filter(|pages| !pages.is_empty()).cloned();
        let none = || {
            Error::new(Code::NotNow, "the API does not listen on TCP, so browsers cannot reach it")
                .with_hint(
                    "start the service anew with `api-listen` 127.0.0.1:33080, or with listen = [\"127.0.0.1:33080\"] in [api] of its \
                     configuration",
                )
        };
        pages.ok_or_else(none)
    }

    /// Says that a token or a log-in was withdrawn: callers that follow events are checked again.
    pub(crate) fn withdraw(&self) {
        self.logins.withdrawn.send_modify(|count| *count += 1);
        self.watches.look();
        self.look();
    }

    /// A receiver whose value changes with each [`Self::withdraw`].
    pub(crate) fn withdrawn(&self) -> watch::Receiver<u64> {
        self.logins.withdrawn.subscribe()
    }
}

/// The address of the page, as a browser needs it.
fn page_at(address: SocketAddr, is_tls: bool, name: Option<&str>) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    let host = match address.ip() {
        ip if ip.is_loopback() => None,
        ip => name.or(ip.is_unspecified().then_some("localhost")),
    };
    match host {
        Some(host) => format!("{scheme}://{host}:{}/", address.port()),
        None => format!("{scheme}://{address}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;
    use farhaul_api::CallerReach;

    fn token(node: &Node, scopes: &[Scope], expires_ms: Option<i64>) -> NewTokenText {
        let token = NewTokenText::new().unwrap();
        let row = TokenRow {
            id: token.id(),
            hash: token.hash(),
            name: "a person".into(),
            scopes: scopes.to_vec(),
            reach: CallerReach::everything(),
            is_whole_by_default: false,
            created_by: "local".into(),
            created_ms: 0,
            expires_ms,
            expires_node_ms: None,
            revoked_ms: None,
        };
        node.add_token(row).unwrap();
        token
    }

    fn proof(secret: &LoginSecret) -> CallerProof {
        CallerProof::Login(secret.hash(SecretUse::Login))
    }

    #[test]
    fn a_log_in_outlives_the_process_and_ends_with_its_time() {
        let mut fixture = Fixture::new();
        let shown = token(fixture.node(), &[Scope::Read], None);
        let (who, secret) = fixture.node().log_in(&shown).unwrap().unwrap();
        assert_eq!((who.caller.subject, who.name), (format!("token:{}", shown.id()), "a person".into()));
        fixture.stop();
        fixture.start();
        let again = fixture.node().who(proof(&secret)).unwrap();
        assert_eq!((again.caller.scopes.as_slice(), again.expires_ms), (&[Scope::Read][..], who.expires_ms));
        // A log-in lasts 12 hours.
        fixture.set_clock_file(12 * 3600 - 60);
        assert!(fixture.node().who(proof(&secret)).is_ok());
        fixture.set_clock_file(12 * 3600 + 60);
        assert!(matches!(fixture.node().who(proof(&secret)), Err(LoginRefusal::Over(_))));
    }

    #[test]
    fn a_log_in_dies_with_its_token_and_by_logging_out() {
        let fixture = Fixture::new();
        let node = fixture.node();
        let ends_ms = node.clock.now_ms() + 60_000;
        let shown = token(node, &[Scope::Read], Some(ends_ms));
        let (who, secret) = node.log_in(&shown).unwrap().unwrap();
        assert_eq!(who.expires_ms, Some(ends_ms));
        let other = node.log_in(&shown).unwrap().unwrap().1;
        let mut seen = node.withdrawn();
        node.log_out(other.hash(SecretUse::Login)).unwrap();
        assert!(seen.has_changed().unwrap());
        seen.mark_unchanged();
        assert_eq!(node.who(proof(&other)), Err(LoginRefusal::Unknown));
        assert!(node.who(proof(&secret)).is_ok());
        node.revoke_token(&shown.id()).unwrap();
        assert!(matches!(node.who(proof(&secret)), Err(LoginRefusal::Over(_))));
        assert!(node.log_in(&shown).unwrap().is_err());
        assert_eq!(node.log_in(&NewTokenText::new().unwrap()).unwrap().unwrap_err(), LoginRefusal::Unknown);
    }

    #[test]
    fn a_code_works_once_within_a_minute_for_who_comes_over_the_socket() {
        let fixture = Fixture::new();
        let node = fixture.node();
        let (code, _) = node.login_code(&Caller::local(), vec![Scope::Read]).unwrap();
        let taken = node.take_code(&code).unwrap();
        let (who, secret) = node.log_in_by_code(taken).unwrap();
        assert_eq!((who.caller.subject.as_str(), &who.caller.scopes[..]), ("local", &[Scope::Read][..]));
        assert!(node.who(proof(&secret)).is_ok());
        assert!(node.take_code(&code).is_none());
        let (late, _) = node.login_code(&Caller::local(), vec![Scope::Admin]).unwrap();
        fixture.set_clock_files(61, 61);
        assert!(node.take_code(&late).is_none());
        let admin = Caller { subject: "token:x".into(), ..Caller::local() };
        assert_eq!(node.login_code(&admin, vec![Scope::Read]).unwrap_err().code(), Code::OutOfScope);
        // A browser is on the network, even if its log-in has the scope admin.
        let far = Caller { address: Some("127.0.0.1".parse().unwrap()), ..Caller::local() };
        assert!(node.login_code(&far, vec![Scope::Admin]).is_err());
        (0..3 * CODES_MAX).for_each(|_| drop(node.login_code(&Caller::local(), vec![Scope::Read]).unwrap()));
        assert!(node.logins.codes.lock().unwrap().len() <= CODES_MAX);
    }

    #[test]
    fn a_browser_is_sent_where_the_node_has_a_name() {
        for (address, is_tls, name, page) in [
            ("127.0.0.1:33080", false, None, "http://127.0.0.1:33080/"),
            ("127.0.0.1:33080", true, Some("dtn1.example.org"), "https://127.0.0.1:33080/"),
            ("[::1]:33080", false, None, "http://[::1]:33080/"),
            ("0.0.0.0:443", true, Some("dtn1.example.org"), "https://dtn1.example.org:443/"),
            ("[::]:443", true, None, "https://localhost:443/"),
            ("192.0.2.1:443", true, None, "https://192.0.2.1:443/"),
        ] {
            assert_eq!(page_at(address.parse().unwrap(), is_tls, name), page);
        }
        let fixture = Fixture::new();
        assert_eq!(fixture.node().pages().unwrap_err().code(), Code::NotNow);
        fixture.node().set_pages(&[], false, None);
        assert!(fixture.node().pages().is_err());
    }

    #[test]
    fn log_ins_are_bounded_and_the_newest_stay() {
        let fixture = Fixture::new();
        let node = fixture.node();
        let shown = token(node, &[Scope::Read], None);
        let other = node.log_in(&token(node, &[Scope::Read], None)).unwrap().unwrap().1;
        let all: Vec<LoginSecret> = (0..40)
            .map(|second| {
                fixture.set_clock_file(second);
                node.log_in(&shown).unwrap().unwrap().1
            })
            .collect();
        let good = |secret: &&LoginSecret| node.who(proof(secret)).is_ok();
        assert_eq!(all.iter().filter(good).count(), 32);
        assert!(good(&all.last().unwrap()) && !good(&&all[0]) && good(&&other));
    }
}
