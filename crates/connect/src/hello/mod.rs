//! The first messages: one hello and one reply, JSON in length-prefixed frames, over the ssh channel or
//! inside TLS.
//!
//! Always true: a frame is read to exactly its length, so that what follows on the channel belongs to the
//! next reader. A number read from the peer allocates nothing. A peer that speaks another version of the
//! protocol is told apart from one that does not speak it at all. The fields `magic`, `kind`, `protocols` and
//! `version` keep their meaning in every future version.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_session::options::{FLOWS_MAX, NetworkOptions, PathAddresses};
use farhaul_words::{Code, Error, ExitCode, Misbehaviour};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::{Zeroize, Zeroizing};

use super::ClientInterface;
use super::features::Features;
pub use farhaul_text::printable;

/// The versions of the session protocol that this program speaks.
pub const PROTOCOLS: Protocols = Protocols(1, 1);
/// The longest frame in bytes.
pub const FRAME_MAX: usize = 512 << 10;
/// The most flow ids of a session: one for each flow that may run at a time, and one for each flow that may
/// replace it.
pub const FLOW_IDS_MAX: usize = FLOWS_MAX * GENERATIONS;
/// How many flows may carry a path's share one after the other: if a path dies, another flow with ids and
/// keys of its own replaces the first.
pub const GENERATIONS: usize = 4;
/// The longest name of a service in bytes.
const SERVICE_LEN_MAX: usize = 64;
/// The most bytes that a user is shown if a far end sends something that is no frame.
const TEXT_MAX: usize = 120;
const MAGIC: &str = "farhaul";

/// The first and the last of the versions that an end speaks; it also speaks those between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protocols(pub u32, pub u32);

impl Protocols {
    /// The newest version that both ends speak.
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

/// The purpose of a client's session: the name of a service, and a first request that only the service can
/// read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpening {
    pub service: String,
    /// The features that the far end must have, because the client's user has asked for what they do.
    #[serde(default)]
    pub needs: Features,
    /// The request, in the service's own encoding.
    #[serde(with = "base64_bytes")]
    pub request: Vec<u8>,
    /// True if further requests may follow the first one; otherwise the session ends with it.
    #[serde(default)]
    pub many: bool,
    /// How the session uses the network.
    pub network: NetworkOptions,
}

impl SessionOpening {
    /// Refuses a session that is not for `service`, the only one at this end.
    pub fn must_be_for(&self, service: &str) -> Result<(), Refusal> {
        if self.service == service {
            return Ok(());
        }
        let asked = printable(self.service.as_bytes(), 64);
        let text = format!("this end has the service '{service}', and no service called '{asked}'");
        Err(Refusal::new(Code::FeatureMissing, text))
    }

    /// The first request, of a session for `service`.
    pub fn request_for<T: DeserializeOwned>(&self, service: &str) -> Result<T, Refusal> {
        self.must_be_for(service)?;
        serde_json::from_slice(&self.request)
            .map_err(|error| Refusal::new(Code::BadRequest, printable(error.to_string().as_bytes(), 120)))
    }
}

/// 32 secret bytes: half of a session's secret, a ticket, or the token of a grant. They are wiped when
/// dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HelloSecret(pub [u8; 32]);

impl HelloSecret {
    /// A new secret from the system's random generator.
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
        f.write_str("HelloSecret(..)")
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
        // A little longer than the secret, as the decoder needs that.
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
    kind: FirstFrameKind,
    pub protocols: Protocols,
    /// The version of the program, for messages to people.
    pub version: String,
    /// The client's features, of the session and of the service.
    #[serde(default)]
    pub features: Features,
    #[serde(flatten)]
    pub opening: SessionOpening,
    /// The ids on which the client wants to receive: one for each flow, then as many rounds of one for each
    /// replacement as the client likes. Over a stream there is one more, for the stream itself.
    pub flow_ids: Vec<u16>,
    /// True if data may go over UDP. If not, flow 0 is the channel that carried this hello.
    pub udp: bool,
    /// Over ssh only: the local ports of the client's sockets, one for each flow.
    #[serde(default)]
    pub client_udp_ports: Vec<u16>,
    /// Over ssh only: the client's half of the session's secret.
    #[serde(default)]
    pub secret_half: Option<HelloSecret>,
    /// The client's interfaces, if the far end is to find the paths.
    #[serde(default)]
    pub interfaces: Vec<ClientInterface>,
    /// For a daemon that is to find the paths: the address that the client has connected to.
    #[serde(default)]
    pub dialled: Option<IpAddr>,
    /// For a daemon: the token of a grant, if the client comes on behalf of its giver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<HelloSecret>,
}

impl Hello {
    pub fn new(opening: SessionOpening, features: Features, flow_ids: Vec<u16>, udp: bool) -> Hello {
        Hello {
            magic: MAGIC.into(),
            kind: FirstFrameKind::Hello,
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
    kind: FirstFrameKind,
    protocols: Protocols,
    version: String,
    /// The ticket from the session's [`HelloReply`].
    pub ticket: HelloSecret,
    /// The id on which the client wants to receive.
    pub flow_id: u16,
    /// The index of the new flow, from which its keys derive: one above those of the hello that this session
    /// has not used.
    pub flow_index: u16,
}

impl Attach {
    pub fn new(ticket: HelloSecret, flow_id: u16, flow_index: u16) -> Attach {
        Attach {
            magic: MAGIC.into(),
            kind: FirstFrameKind::Attach,
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
    kind: FirstFrameKind,
    pub protocols: Protocols,
    pub version: String,
    /// The far end's features, of the session and of the service.
    #[serde(default)]
    pub features: Features,
    /// The reason, if the far end refuses; all else is empty then.
    pub refusal: Option<Refusal>,
    /// The ids on which the far end wants to receive, in the order of the client's.
    #[serde(default)]
    pub flow_ids: Vec<u16>,
    /// Over ssh only: the far end's UDP ports, one for each flow. Empty if it could bind none.
    #[serde(default)]
    pub udp_ports: Vec<u16>,
    /// Over ssh only: the port for direct TCP connections, if there is one.
    #[serde(default)]
    pub tcp_port: Option<u16>,
    /// Over ssh only: `SSH_CONNECTION` as the far end sees it.
    #[serde(default)]
    pub ssh_connection: Option<String>,
    /// Over ssh only: the far end's half of the session's secret.
    #[serde(default)]
    pub secret_half: Option<HelloSecret>,
    /// The paths that the far end has found, if it was asked to look and there is more than one.
    #[serde(default)]
    pub paths: Vec<PathAddresses>,
    /// From a daemon only: joins later connections to this session.
    #[serde(default)]
    pub ticket: Option<HelloSecret>,
    /// The answer of the service, in its own encoding.
    #[serde(default, with = "base64_bytes")]
    pub terms: Vec<u8>,
}

impl HelloReply {
    pub fn accept(flow_ids: Vec<u16>) -> HelloReply {
        HelloReply {
            magic: MAGIC.into(),
            kind: FirstFrameKind::Reply,
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

/// Why a far end refuses a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The name of the error's code; a code of a later version may not be known here.
    pub code: String,
    /// The exit code for the client, which says enough if the error's code is not known.
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

    /// Returns whether the refusal has this code.
    pub fn is(&self, code: Code) -> bool {
        self.code == code.name()
    }

    /// The error for the client's user. The text came from the network, so it is made safe for a terminal.
    pub fn into_error(self) -> Error {
        let what = printable(self.text.as_bytes(), 400);
        let hint = self.hint.map(|hint| printable(hint.as_bytes(), 400));
        Error::of_peer(self.exit, Code::of_name(&self.code), true, what).with_hint_if(hint)
    }

    /// The refusal for an `error` that keeps the far end from serving.
    pub fn from_error(error: &Error) -> Refusal {
        Refusal { hint: error.hint().map(str::to_string), ..Refusal::new(error.code(), error.to_string()) }
    }
}

/// The exit code of a client that is refused with `code`: to the client, most faults of the far end mean that
/// it could not be reached.
fn client_exit(code: Code) -> u8 {
    let exit = match code.exit_code() {
        // The session that a further connection is for has ended.
        ExitCode::Lost if code == Code::PeerEnded => ExitCode::Lost,
        exit @ (ExitCode::Usage | ExitCode::Auth | ExitCode::Incompatible | ExitCode::Files) => exit,
        _ => ExitCode::Connect,
    };
    exit as u8
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FirstFrameKind {
    Hello,
    Attach,
    Reply,
    #[serde(other)]
    Unknown,
}

/// The first frame of a connection, as a daemon may read it.
#[derive(Debug)]
pub enum FirstFrame {
    Hello(Box<Hello>),
    Attach(Attach),
}

/// The fields that the frames of every version have.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    magic: String,
    kind: Option<FirstFrameKind>,
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
    /// The first bytes, which are no text and no length of a frame.
    #[error("the far end does not speak farhaul's protocol, it began with the bytes {0}")]
    ForeignBytes(String),
    #[error("the frame has {0} bytes, at most {FRAME_MAX} are allowed")]
    TooLong(usize),
    /// A frame of this end, which was not sent.
    #[error("the request takes {0} bytes, but at most {FRAME_MAX} can be sent when a session begins")]
    Unsendable(usize),
    #[error("the hello is malformed: {0}")]
    Malformed(String),
    #[error(
        "the far end runs farhaul {theirs} ({protocols}), this is farhaul {} ({PROTOCOLS}): \
         install the newer version on both ends",
        env!("CARGO_PKG_VERSION")
    )]
    Version { theirs: String, protocols: Protocols },
    /// TLS could not agree on a protocol, so the far end could not say which versions it speaks.
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
            HelloError::Foreign(_) | HelloError::ForeignBytes(_) => {
                Error::new(Code::NotFarhaul, error.to_string())
            }
            HelloError::TooLong(_) => Error::misbehaved(Misbehaviour::FrameTooLong, error.to_string()),
            HelloError::Unsendable(_) => Error::new(Code::BadOption, error.to_string())
                .with_hint("give fewer or shorter rules and paths; a list of names goes with `files-from`"),
            HelloError::Malformed(_) => Error::misbehaved(Misbehaviour::MalformedHello, error.to_string()),
        }
    }
}

/// Encodes a frame: its length, then JSON. It may hold half a secret or a ticket, and is wiped when dropped.
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

/// Bytes of a frame that grow as they come. They are wiped, also in the places where they lay before they
/// grew.
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

/// A larger length is not one of a frame.
const FRAME_BELIEVED: usize = 1 << 30;

/// Checks a length prefix. If text stands there (such as a shell's greeting), it reads as a huge number.
pub fn frame_len(prefix: [u8; 4]) -> Result<usize, HelloError> {
    let len = u32::from_be_bytes(prefix) as usize;
    match prefix {
        _ if len <= FRAME_MAX => Ok(len),
        [first, ..] if is_text(first) => Err(HelloError::Foreign(printable(up_to_zero(&prefix), 4))),
        // No version has frames of so many bytes: something else has written first.
        _ if len > FRAME_BELIEVED => {
            let bytes: Vec<String> = prefix.iter().map(|byte| format!("{byte:02x}")).collect();
            Err(HelloError::ForeignBytes(bytes.join(" ")))
        }
        _ => Err(HelloError::TooLong(len)),
    }
}

/// Returns whether text can begin with this byte, while a frame cannot: ASCII, including control characters,
/// or UTF-8. The first byte of each frame is 0.
pub(crate) fn is_text(first: u8) -> bool {
    matches!(first, 0x01..=0x7f | 0xc2..=0xf4)
}

/// Reads one frame, and not a byte more.
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

/// Reads a connection's first frame, at a daemon.
pub fn decode_first(body: &[u8]) -> Result<FirstFrame, HelloError> {
    match envelope(body)? {
        FirstFrameKind::Hello => Ok(FirstFrame::Hello(Box::new(checked_hello(parse(body)?)?))),
        FirstFrameKind::Attach => Ok(FirstFrame::Attach(parse(body)?)),
        FirstFrameKind::Reply | FirstFrameKind::Unknown => {
            Err(HelloError::Malformed("a hello was expected".into()))
        }
    }
}

/// Reads the first frame over ssh, at the far end.
pub fn decode_hello(body: &[u8]) -> Result<Hello, HelloError> {
    match decode_first(body)? {
        FirstFrame::Hello(hello) => Ok(*hello),
        FirstFrame::Attach(_) => Err(HelloError::Malformed("a hello was expected".into())),
    }
}

/// Reads the reply, at the client.
pub fn decode_reply(body: &[u8]) -> Result<HelloReply, HelloError> {
    match envelope(body)? {
        FirstFrameKind::Reply => parse(body),
        FirstFrameKind::Hello | FirstFrameKind::Attach | FirstFrameKind::Unknown => {
            Err(HelloError::Malformed("a reply was expected".into()))
        }
    }
}

fn envelope(body: &[u8]) -> Result<FirstFrameKind, HelloError> {
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

/// Checks the lists of a hello and the session's options; nothing else does. The service checks its own
/// request.
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

/// Reads the length. Text is known by its first byte, as it may be shorter than a length.
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

/// Reads a little more of what a shell has printed, so that its user recognizes it: up to the end of the
/// first line that is not empty. If the text has no line end, a frame may follow it, which begins with a
/// zero.
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
mod tests;
