//! Who asks: scopes, where a caller reaches, log-ins, and the answer to "who am I".

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Word;

/// A scope allows a caller one kind of thing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See jobs, history, caps, watches and files within its reach.
    Read,
    /// Submit jobs within its reach.
    Submit,
    /// Pause, resume, cancel, retry and change jobs within its reach, and remove watches there. With `submit`,
    /// make watches there.
    Control,
    /// Everything, everywhere: also caps, tokens and the store.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Submit, Scope::Control, Scope::Admin];

    /// The scope's name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The scope of this name.
    pub fn of_name(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// Where a caller may read and write, and as whom. Without any of it, nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CallerReach {
    /// True for the whole account of the service's user: all its files, all peers, all identities. Leave out
    /// the other fields then.
    pub everything: bool,
    /// Directories of this host, as absolute paths.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub local: Vec<PathBuf>,
    /// Directories at each peer, by the peer's name: of a daemon (`hpc`, `hpc:4000`) below its root, of a
    /// host that is reached over SSH (`ssh://user@hpc`) as absolute paths. A daemon and a host over SSH are
    /// two peers, also on the same machine.
    pub peers: BTreeMap<String, Vec<String>>,
    /// Identities of the configuration that a job may name. The identity that the configuration gives to a
    /// peer needs no name here.
    pub identities: Vec<String>,
}

impl CallerReach {
    /// The reach of the service's own user.
    pub fn everything() -> CallerReach {
        CallerReach { everything: true, ..CallerReach::default() }
    }
}

/// A kind of thing that a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeedKind {
    /// See jobs, history, caps, watches, peers and files within its reach.
    See,
    /// Submit jobs within its reach.
    Submit,
    /// Pause, resume, cancel, retry and change jobs within its reach, remove watched folders, and retry their
    /// files.
    Control,
    /// Watch folders within its reach, whose files then become jobs.
    Watch,
    /// Take over jobs and watches whose owner's token is no longer valid.
    Take,
    /// Set and remove caps.
    Caps,
    /// See sums over all transfers.
    Usage,
    /// See, make and revoke tokens.
    Tokens,
    /// Back up and check the store.
    Store,
    /// Make one-time codes for log-ins (`farhaul open`).
    Codes,
}

impl DeedKind {
    /// All kinds.
    pub const ALL: [DeedKind; 10] = [
        DeedKind::See,
        DeedKind::Submit,
        DeedKind::Control,
        DeedKind::Watch,
        DeedKind::Take,
        DeedKind::Caps,
        DeedKind::Usage,
        DeedKind::Tokens,
        DeedKind::Store,
        DeedKind::Codes,
    ];
}

/// The token or code to log in with: give one of the two.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LoginWish {
    /// The token.
    #[serde(default)]
    pub token: Option<String>,
    /// The one-time code (`farhaul open`).
    #[serde(default)]
    pub code: Option<String>,
}

/// How a caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum KnownBy {
    /// By the Unix socket, which only the service's own user can open.
    Socket,
    /// By a token in the request.
    Token,
    /// By a log-in with a browser, which sends a cookie.
    Login,
}

/// The identity of a caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallerView {
    /// `local` for the service's own user, otherwise `token:ID`.
    pub subject: String,
    /// The name of the token.
    pub name: String,
    /// The scopes of the caller. `may` says what they allow.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Scope>))]
    pub scopes: Vec<Word<Scope>>,
    /// The kinds of things that the caller may do.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<DeedKind>))]
    pub may: Vec<Word<DeedKind>>,
    /// Where the caller may read and write.
    pub reach: CallerReach,
    /// The directories of this host below which the caller reaches everything: `/` for the whole host.
    pub begins: Vec<String>,
    /// How the caller is known.
    #[cfg_attr(feature = "schema", schema(value_type = KnownBy))]
    pub known_by: Word<KnownBy>,
    /// When the log-in, or the token, expires.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
}

/// The one-time code to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CodeWish {
    /// The scopes of the log-in that the code makes.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub scopes: Vec<Scope>,
}

/// A one-time code.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewCode {
    /// The code. It is shown only now, and makes one log-in.
    pub code: String,
    /// When the code expires: after a minute.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub expires: Timestamp,
    /// Addresses of the page. Append `#code=CODE` to one of them.
    pub pages: Vec<String>,
}
