//! The first words: one hello and one reply, JSON in length-prefixed frames, over the ssh channel or inside TLS.
//!
//! Always true: a frame is read by exactly its length, so that what follows on the same channel belongs to whoever
//! reads next; a number read from the peer allocates nothing; who speaks another protocol is told apart from who
//! speaks none. The fields `magic`, `kind`, `protocols` and `version` keep their meaning in every future version.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_session::error::{Code, Error, ExitCode, Misbehaviour};
use farhaul_session::options::{FLOWS_MAX, NetworkOptions, PathAddresses};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::{Zeroize, Zeroizing};

use super::ClientInterface;
use super::features::Features;
pub use farhaul_text::printable;

/// The versions of the session protocol that this program speaks.
pub const PROTOCOLS: Protocols = Protocols(1, 1);
/// Longest frame in bytes.
pub const FRAME_MAX: usize = 512 << 10;
/// Most flow ids of a session: each flow that may run at a time, and those that may take its place.
pub const FLOW_IDS_MAX: usize = FLOWS_MAX * GENERATIONS;
/// A flow whose path has died can be followed by another with ids and keys of its own, so often less one.
pub const GENERATIONS: usize = 4;
/// Longest name of a service.
const SERVICE_LEN_MAX: usize = 64;
/// Bytes of what a far end says in the place of a frame that its user is shown.
const TEXT_MAX: usize = 120;
const MAGIC: &str = "farhaul";

/// The first and the last of the versions that an end speaks; it speaks those between them, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protocols(pub u32, pub u32);

impl Protocols {
    /// The newest that both ends speak.
    pub fn common(self, other: Protocols) -> Option<u32> {
        let newest = self.1.min(other.1);
        (self.0.max(other.0) <= newest).then_some(newest)
    }
}

impl std::fmt::Display for Protocols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Protocols(first, last) if first == last => write!(f, "protocol {first}"),
            Protocols(first, last) => write!(f, "protocols {first} to {last}"),
        }
    }
}

/// What a client opens a session for: a service by its name, and a first request that only the service can read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpening {
    pub service: String,
    /// Features that the far end has to have, because the client's user has asked for what they do.
    #[serde(default)]
    pub needs: Features,
    /// The service's own words.
    #[serde(with = "base64_bytes")]
    pub request: Vec<u8>,
    /// Further requests may follow the first; else the session ends with it.
    #[serde(default)]
    pub many: bool,
    /// How the session is to run.
    pub network: NetworkOptions,
}

/// 32 secret bytes: half of a session secret, or a ticket. Wiped when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HelloSecret(pub [u8; 32]);

impl HelloSecret {
    /// A fresh one from the system's generator.
    pub fn random() -> Result<HelloSecret, Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(Error::no_random_numbers)?;
        Ok(HelloSecret(bytes))
    }
}

impl Drop for HelloSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for HelloSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Serialize for HelloSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(self.0)))
    }
}

impl<'de> Deserialize<'de> for HelloSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        // A little more than fits, which the decoder wants.
        let mut bytes = Zeroizing::new([0; 48]);
        let wrong = || D::Error::custom("a token has 32 bytes");
        let len = STANDARD.decode_slice(text.as_bytes(), &mut bytes[..]).map_err(|_| wrong())?;
        let bytes = bytes[..len].try_into().map_err(|_| wrong())?;
        Ok(HelloSecret(bytes))
    }
}

mod base64_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The client's first frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    magic: String,
    kind: RefusalKind,
    pub protocols: Protocols,
    /// Version of the program, for messages to people.
    pub version: String,
    /// What the client can do, in the session and in the service.
    #[serde(default)]
    pub features: Features,
    #[serde(flatten)]
    pub opening: SessionOpening,
    /// Ids the client wants to receive on: one a flow, then one for each flow that may take its place, as often as the client
    /// likes; over a stream one more, for that itself.
    pub flow_ids: Vec<u16>,
    /// Whether data may go over UDP. Without, flow 0 is the channel that carried this hello.
    pub udp: bool,
    /// Ssh only: local ports of the client's sockets, one a flow.
    #[serde(default)]
    pub client_udp_ports: Vec<u16>,
    /// Ssh only: the client's half of the session secret.
    #[serde(default)]
    pub secret_half: Option<HelloSecret>,
    /// The client's, if the far end is to find the paths.
    #[serde(default)]
    pub interfaces: Vec<ClientInterface>,
    /// Daemon only, and for the same: the address that the client has called.
    #[serde(default)]
    pub dialled: Option<IpAddr>,
    /// Daemon only: who comes does so for another, who has been given this there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<HelloSecret>,
}

impl Hello {
    pub fn new(opening: SessionOpening, features: Features, flow_ids: Vec<u16>, udp: bool) -> Hello {
        Hello {
            magic: MAGIC.into(),
            kind: RefusalKind::Hello,
            protocols: PROTOCOLS,
            version: env!("CARGO_PKG_VERSION").into(),
            features,
            opening,
            flow_ids,
            udp,
            client_udp_ports: Vec::new(),
            secret_half: None,
            interfaces: Vec::new(),
            dialled: None,
            grant: None,
        }
    }
}

/// A client's first frame on a further connection: joins it to a running session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attach {
    magic: String,
    kind: RefusalKind,
    protocols: Protocols,
    version: String,
    /// As the session's [`HelloReply`] gave it.
    pub ticket: HelloSecret,
    /// Id the client wants to receive on.
    pub flow_id: u16,
    /// The index, and with it the keys, of the new flow: one behind those of the hello that this session has not had.
    pub flow_index: u16,
}

impl Attach {
    pub fn new(ticket: HelloSecret, flow_id: u16, flow_index: u16) -> Attach {
        Attach {
            magic: MAGIC.into(),
            kind: RefusalKind::Attach,
            protocols: PROTOCOLS,
            version: env!("CARGO_PKG_VERSION").into(),
            ticket,
            flow_id,
            flow_index,
        }
    }
}

/// The answer to [`Hello`] and [`Attach`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HelloReply {
    magic: String,
    kind: RefusalKind,
    pub protocols: Protocols,
    pub version: String,
    /// What the far end can do, in the session and in the service.
    #[serde(default)]
    pub features: Features,
    /// Why not, if not; the rest is empty then.
    pub refusal: Option<Refusal>,
    /// Ids the far end wants to receive on, in the order of the client's.
    #[serde(default)]
    pub flow_ids: Vec<u16>,
    /// Ssh only: UDP ports of the far end, one a flow. Empty when it could bind none.
    #[serde(default)]
    pub udp_ports: Vec<u16>,
    /// Ssh only: where direct connections are awaited, if they are.
    #[serde(default)]
    pub tcp_port: Option<u16>,
    /// Ssh only: `SSH_CONNECTION` as the far end sees it.
    #[serde(default)]
    pub ssh_connection: Option<String>,
    /// Ssh only: the far end's half of the session secret.
    #[serde(default)]
    pub secret_half: Option<HelloSecret>,
    /// The paths that the far end has found, if it was to and if there is more than one.
    #[serde(default)]
    pub paths: Vec<PathAddresses>,
    /// Daemon only: joins later connections to this session.
    #[serde(default)]
    pub ticket: Option<HelloSecret>,
    /// The service's own words.
    #[serde(default, with = "base64_bytes")]
    pub terms: Vec<u8>,
}

impl HelloReply {
    pub fn accept(flow_ids: Vec<u16>) -> HelloReply {
        HelloReply {
            magic: MAGIC.into(),
            kind: RefusalKind::Reply,
            protocols: PROTOCOLS,
            version: env!("CARGO_PKG_VERSION").into(),
            features: Features::default(),
            refusal: None,
            flow_ids,
            udp_ports: Vec::new(),
            tcp_port: None,
            ssh_connection: None,
            secret_half: None,
            paths: Vec::new(),
            ticket: None,
            terms: Vec::new(),
        }
    }

    pub fn refuse(refusal: Refusal) -> HelloReply {
        HelloReply { refusal: Some(refusal), ..HelloReply::accept(Vec::new()) }
    }
}

/// Why a far end does not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The name of the error's code; that of a later version may not be known here.
    pub code: String,
    /// The exit code that the client ends with, which tells enough of a code that is not known.
    #[serde(default)]
    pub exit: u8,
    pub text: String,
    #[serde(default)]
    pub hint: Option<String>,
}

impl Refusal {
    pub fn new(code: Code, text: impl Into<String>) -> Refusal {
        Refusal { code: code.name().into(), exit: client_exit(code), text: text.into(), hint: None }
    }

    pub fn with_hint(self, hint: impl Into<String>) -> Refusal {
        Refusal { hint: Some(hint.into()), ..self }
    }

    /// Whether it is for this.
    pub fn is(&self, code: Code) -> bool {
        self.code == code.name()
    }

    /// What the client's user reads. The text came from the network, so it is made safe for a terminal.
    pub fn into_error(self) -> Error {
        let what = printable(self.text.as_bytes(), 400);
        let hint = self.hint.map(|hint| printable(hint.as_bytes(), 400));
        Error::of_peer(self.exit, Code::of_name(&self.code), true, what).with_hint_if(hint)
    }

    /// What a far end says when `error` keeps it from serving.
    pub fn from_error(error: &Error) -> Refusal {
        Refusal { hint: error.hint().map(str::to_string), ..Refusal::new(error.code(), error.to_string()) }
    }
}

/// What a client ends with that is refused for `code`: whatever is wrong at the far end, to it that could not be reached.
fn client_exit(code: Code) -> u8 {
    let exit = match code.exit_code() {
        // A session has ended that a further carrier is for.
        ExitCode::Lost if code == Code::PeerEnded => ExitCode::Lost,
        exit @ (ExitCode::Usage | ExitCode::Auth | ExitCode::Incompatible | ExitCode::Files) => exit,
        _ => ExitCode::Connect,
    };
    exit as u8
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RefusalKind {
    Hello,
    Attach,
    Reply,
    #[serde(other)]
    Unknown,
}

/// What a daemon may read as the first frame of a connection.
#[derive(Debug)]
pub enum FirstFrame {
    Hello(Box<Hello>),
    Attach(Attach),
}

/// What every version's frames have in common.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    magic: String,
    kind: Option<RefusalKind>,
    protocols: Option<Protocols>,
    #[serde(default)]
    version: String,
}

/// Why a first frame was not understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    #[error("the connection was closed before a hello came")]
    Closed,
    #[error("reading the hello: {0}")]
    Io(#[from] io::Error),
    /// The first bytes, made printable.
    #[error("the far end does not speak farhaul's protocol, it said: {0:?}")]
    Foreign(String),
    #[error("the frame has {0} bytes, at most {FRAME_MAX} are allowed")]
    TooLong(usize),
    /// One of our own, which was not sent.
    #[error("what is asked for takes {0} bytes, and at most {FRAME_MAX} can be said when a session begins")]
    Unsendable(usize),
    #[error("the hello is malformed: {0}")]
    Malformed(String),
    #[error(
        "the far end runs farhaul {theirs} ({protocols}), this is farhaul {} ({PROTOCOLS}): \
         install the newer version on both ends",
        env!("CARGO_PKG_VERSION")
    )]
    Version { theirs: String, protocols: Protocols },
    /// TLS could not agree on a protocol, so the far end could not say which it speaks.
    #[error(
        "the far end speaks none of this program's protocols, this is farhaul {} ({PROTOCOLS}): \
         install the newer version on both ends",
        env!("CARGO_PKG_VERSION")
    )]
    OtherProtocol,
}

impl From<HelloError> for Error {
    fn from(error: HelloError) -> Error {
        match error {
            HelloError::Version { .. } | HelloError::OtherProtocol => {
                Error::new(Code::NoCommonVersion, error.to_string())
            }
            HelloError::Closed | HelloError::Io(_) => Error::new(Code::Unreachable, error.to_string()),
            HelloError::Foreign(_) => Error::new(Code::NotFarhaul, error.to_string()),
            HelloError::TooLong(_) => Error::misbehaved(Misbehaviour::FrameTooLong, error.to_string()),
            HelloError::Unsendable(_) => Error::new(Code::BadOption, error.to_string())
                .with_hint("give fewer or shorter rules and paths; a list of names goes with --files-from"),
            HelloError::Malformed(_) => Error::misbehaved(Misbehaviour::MalformedHello, error.to_string()),
        }
    }
}

/// A frame ready to be written: length, then JSON. It may hold half a secret or a ticket, and is wiped.
pub fn encode<T: Serialize>(value: &T) -> Result<Zeroizing<Vec<u8>>, HelloError> {
    let mut frame = WipedBuffer::default();
    frame.extend(&[0; 4]);
    serde_json::to_writer(&mut frame, value).map_err(|error| HelloError::Malformed(error.to_string()))?;
    let mut frame = frame.0;
    let len = frame.len() - 4;
    if len > FRAME_MAX {
        return Err(HelloError::Unsendable(len));
    }
    // FRAME_MAX fits in 32 bits, so the conversion cannot lose anything.
    frame[..4].copy_from_slice(&(len as u32).to_be_bytes());
    Ok(frame)
}

/// Bytes of a frame that grow as they come, and are wiped: also where they lay before they grew.
#[derive(Default)]
pub(crate) struct WipedBuffer(pub(crate) Zeroizing<Vec<u8>>);

impl WipedBuffer {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if self.0.capacity() - self.0.len() < bytes.len() {
            let mut larger = Zeroizing::new(Vec::with_capacity(2 * (self.0.len() + bytes.len())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
    }
}

impl Write for WipedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Judges a length prefix. Text where a length is expected (a shell's greeting) reads as a huge number.
pub fn frame_len(prefix: [u8; 4]) -> Result<usize, HelloError> {
    let len = u32::from_be_bytes(prefix) as usize;
    match prefix {
        _ if len <= FRAME_MAX => Ok(len),
        [first, ..] if is_text(first) => Err(HelloError::Foreign(printable(up_to_zero(&prefix), 4))),
        _ => Err(HelloError::TooLong(len)),
    }
}

/// Whether a frame cannot begin so, but text can: ASCII, also what steers a terminal, or UTF-8. The first byte of
/// each frame is 0.
pub(crate) fn is_text(first: u8) -> bool {
    matches!(first, 0x01..=0x7f | 0xc2..=0xf4)
}

/// Reads one frame and not a byte more.
pub fn read_frame(from: &mut impl Read) -> Result<Zeroizing<Vec<u8>>, HelloError> {
    let mut prefix = [0; 4];
    read_prefix(from, &mut prefix)?;
    let len = frame_len(prefix)?;
    let mut body = WipedBuffer::default();
    let mut chunk = Zeroizing::new([0; 4096]);
    while body.0.len() < len {
        let want = chunk.len().min(len - body.0.len());
        match from.read(&mut chunk[..want]) {
            Ok(0) => return Err(HelloError::Closed),
            Ok(count) => body.extend(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(body.0)
}

/// Writes one frame.
pub fn write_frame<T: Serialize>(to: &mut impl Write, value: &T) -> Result<(), HelloError> {
    let frame = encode(value)?;
    to.write_all(&frame)?;
    to.flush()?;
    Ok(())
}

/// A daemon's reading of a connection's first frame.
pub fn decode_first(body: &[u8]) -> Result<FirstFrame, HelloError> {
    match envelope(body)? {
        RefusalKind::Hello => Ok(FirstFrame::Hello(Box::new(checked_hello(parse(body)?)?))),
        RefusalKind::Attach => Ok(FirstFrame::Attach(parse(body)?)),
        RefusalKind::Reply | RefusalKind::Unknown => {
            Err(HelloError::Malformed("a hello was expected".into()))
        }
    }
}

/// The far end's reading over ssh.
pub fn decode_hello(body: &[u8]) -> Result<Hello, HelloError> {
    match decode_first(body)? {
        FirstFrame::Hello(hello) => Ok(*hello),
        FirstFrame::Attach(_) => Err(HelloError::Malformed("a hello was expected".into())),
    }
}

/// The client's reading of the answer.
pub fn decode_reply(body: &[u8]) -> Result<HelloReply, HelloError> {
    match envelope(body)? {
        RefusalKind::Reply => parse(body),
        RefusalKind::Hello | RefusalKind::Attach | RefusalKind::Unknown => {
            Err(HelloError::Malformed("a reply was expected".into()))
        }
    }
}

fn envelope(body: &[u8]) -> Result<RefusalKind, HelloError> {
    let envelope: Envelope =
        serde_json::from_slice(body).map_err(|_| HelloError::Foreign(printable(body, 80)))?;
    if envelope.magic != MAGIC {
        return Err(HelloError::Foreign(printable(body, 80)));
    }
    let Some(protocols) = envelope.protocols else {
        return Err(HelloError::Malformed("a frame without its protocols".into()));
    };
    if PROTOCOLS.common(protocols).is_none() {
        let theirs = printable(envelope.version.as_bytes(), 40);
        return Err(HelloError::Version { theirs, protocols });
    }
    envelope.kind.ok_or_else(|| HelloError::Malformed("a frame without a kind".into()))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, HelloError> {
    serde_json::from_slice(body)
        .map_err(|error| HelloError::Malformed(printable(error.to_string().as_bytes(), 120)))
}

/// The one place that judges a hello's lists and the options of the session; what the service is told, it judges
/// itself.
fn checked_hello(mut hello: Hello) -> Result<Hello, HelloError> {
    let bad = |what: &str| Err(HelloError::Malformed(what.into()));
    if hello.opening.service.is_empty() || hello.opening.service.len() > SERVICE_LEN_MAX {
        return bad("the name of a service has 1 to 64 bytes");
    }
    if hello.flow_ids.is_empty() || hello.flow_ids.len() > FLOW_IDS_MAX + 1 {
        return bad("between 1 and 64 flow ids are allowed");
    }
    if hello.client_udp_ports.len() > FLOWS_MAX {
        return bad("more UDP ports than flows");
    }
    let network = hello.opening.network;
    hello.opening.network = network.checked().map_err(|error| HelloError::Malformed(error.to_string()))?;
    Ok(hello)
}

/// Text is known by its first byte: there may be less of it than a prefix has.
fn read_prefix(from: &mut impl Read, prefix: &mut [u8; 4]) -> Result<(), HelloError> {
    let mut have = 0;
    while have < prefix.len() {
        match from.read(&mut prefix[have..]) {
            Ok(0) => return Err(HelloError::Closed),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        if is_text(prefix[0]) {
            return Err(HelloError::Foreign(rest_of_text(&prefix[..have], from)));
        }
    }
    Ok(())
}

/// Some more of what a shell has printed, so that its user recognises it: its first line that is not empty. Behind
/// text that has no line end a frame may come, which begins with a zero.
fn rest_of_text(start: &[u8], from: &mut impl Read) -> String {
    let mut text = start.to_vec();
    let mut byte = [0];
    let is_whole =
        |text: &[u8]| text.contains(&0) || text.trim_ascii_start().contains(&b'\n') || text.len() >= TEXT_MAX;
    while !is_whole(&text) && matches!(from.read(&mut byte), Ok(1)) {
        text.push(byte[0]);
    }
    let line = up_to_zero(&text).trim_ascii_start();
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    printable(line, TEXT_MAX)
}

fn up_to_zero(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "hello/tests.rs"]
mod tests;
