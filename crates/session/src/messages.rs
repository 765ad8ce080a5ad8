//! The messages of the control stream, as values and as bytes.
//!
//! The control stream consists of pieces: the number of a request (a varint), a length (a varint), and that
//! many bytes. A piece of request 0 is one message of the session itself; its first byte is the message's
//! code. The pieces of another request are words of its service, which the session does not interpret. Put
//! together, they are messages, each behind its own length; [`RequestFrames`] separates them.
//! docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics. A message longer than [`MESSAGE_MAX`] is refused as soon as its length
//! is read. Words of a request are handed out as they come, so that a large length allocates nothing.

use std::net::IpAddr;
use std::ops::Range;

use farhaul_words::{Blame, Code, Error, ExitCode, FIGURE_MAX, Misbehaviour, Policy, StageFigures};

use super::codec::{ByteReader, Malformed, put_bytes, put_numbers, put_reason, put_varint};
use super::options::{FLOWS_MAX, PathAddresses, RateOptions};

/// The longest message: its code and its body, without the length in front.
pub const MESSAGE_MAX: usize = 64 << 10;
/// The most stages and warnings that one end reports.
const STAGES_MAX: usize = 64;
const WARNINGS_MAX: usize = 16;

/// The session's own messages.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionMessage {
    /// The initiator's first message, for which the acceptor waits.
    Start,
    /// Request `request` begins; `words` is what its service is asked for.
    Open { request: u64, words: Vec<u8> },
    /// This end has nothing more to do in this request; its figures.
    Finish { request: u64, figures: EndFigures },
    /// The request has failed.
    Fail { request: u64, complaint: Complaint },
    /// How busy this end's stages were in the last seconds.
    Stages(Vec<StageFigures>),
    /// The session has failed.
    Abort(Complaint),
    /// This end no longer uses flow `index`; its blocks and control bytes travel on others.
    FlowDown { index: u16 },
    /// From the initiator: the stream of this index gets new blocks from now on, or no longer; it may not
    /// exist yet.
    StreamUse { index: u16, is_used: bool },
    /// From the initiator: the flows over UDP get new blocks from now on, or no longer.
    UdpUse { is_used: bool },
    /// From an acceptor that sends: UDP seems to be policed, and streams may carry more.
    WantStreams,
    /// The sender's rate from now on.
    Rate(RateOptions),
    /// The paths (bits by their numbers) that get nothing new from now on.
    PathsUnused(u64),
    /// From the initiator: further path `path` begins, between these addresses.
    PathAdd { path: u64, addresses: PathAddresses },
    /// From the acceptor: the path may begin or not; `ports` are its ports, or empty for the port at which
    /// the session began.
    PathOpen { path: u64, is_open: bool, ports: Vec<u16> },
}

/// Why an end gives up, as it tells the other end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complaint {
    /// The exit code of a command that ends with this error.
    pub exit: u8,
    /// The number of the error's code; 0 if there is none.
    pub code: u16,
    /// The number of the other end's misbehaviour; 0 if there is none.
    pub misbehaviour: u16,
    pub reason: String,
    pub hint: String,
}

impl Complaint {
    /// The complaint that tells the other end of this error.
    pub(crate) fn of(error: &Error) -> Complaint {
        // Both ends know how to resume, so that hint need not be sent.
        let hint = if error.exit_code() == ExitCode::Lost { error.own_hint() } else { error.hint() };
        Complaint {
            exit: error.exit_code() as u8,
            code: error.code().number(),
            misbehaviour: error.misbehaviour().map_or(0, Misbehaviour::number),
            reason: error.to_string(),
            hint: hint.unwrap_or_default().to_string(),
        }
    }

    /// The error that the far end has ended with, as this end sees it.
    pub(crate) fn into_error(self) -> Error {
        // These words are printed, and must not contain anything that controls the terminal.
        let printable = |text: String| text.replace(farhaul_text::is_unprintable, "");
        let Complaint { exit, code: number, misbehaviour, reason, hint } = self;
        let known = Code::of_number(number);
        let (reason, hint) = (printable(reason), printable(hint));
        Error::of_peer(exit, known, false, reason)
            .with_hint_if((!hint.is_empty()).then_some(hint))
            .blamed_on(if known.is_none() { Blame::of_number(number) } else { None })
            .accused_of(Misbehaviour::of_number(misbehaviour))
    }
}

/// The figures that one end has at the end of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndFigures {
    pub(crate) cpu_us: u64,
    pub(crate) peak_rss_bytes: u64,
    pub(crate) segments_duplicate: u64,
    pub(crate) segments_sent: u64,
    pub(crate) segments_retransmitted: u64,
    pub(crate) segments_proactive: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) wire_bytes_sent: u64,
    pub(crate) content_bytes_sent: u64,
    pub(crate) content_bytes_resent: u64,
    pub(crate) rtt_min_us: u64,
    pub(crate) rtt_mean_us: u64,
    pub(crate) stages: Vec<StageFigures>,
    pub(crate) warnings: Vec<String>,
    /// The service's own figures; the session does not interpret them.
    pub of_service: Vec<u8>,
}

impl EndFigures {
    /// The difference to earlier figures, in the fields that count from the beginning of the session.
    pub(crate) fn since(mut self, before: &EndFigures) -> EndFigures {
        for (now, then) in [
            (&mut self.cpu_us, before.cpu_us),
            (&mut self.segments_duplicate, before.segments_duplicate),
            (&mut self.segments_sent, before.segments_sent),
            (&mut self.segments_retransmitted, before.segments_retransmitted),
            (&mut self.segments_proactive, before.segments_proactive),
            (&mut self.packets_sent, before.packets_sent),
            (&mut self.packets_lost, before.packets_lost),
            (&mut self.wire_bytes_sent, before.wire_bytes_sent),
            (&mut self.content_bytes_sent, before.content_bytes_sent),
            (&mut self.content_bytes_resent, before.content_bytes_resent),
        ] {
            *now = now.saturating_sub(then);
        }
        self
    }
}

/// The error for a peer that has sent something that is no message.
pub fn senseless(_: Malformed) -> Error {
    Error::from(Misbehaviour::SenselessMessage)
}

/// The error for a peer that has sent a message at the wrong time.
pub fn unexpected(name: &str) -> Error {
    Error::misbehaved(Misbehaviour::UnexpectedMessage, format!("unexpected message {name}"))
}

// ---- encoding -----------------------------------------------------------------------------------

/// Appends what `write` writes as one message, with its length in front.
pub fn put_message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    debug_assert!(out.len() - start <= MESSAGE_MAX, "reasons are cut and paths are bounded");
    put_before(out, start, &[(out.len() - start) as u64]);
}

/// Appends what `write` writes as a piece of a request's words; if it writes nothing, appends nothing.
pub fn put_words(out: &mut Vec<u8>, request: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    if out.len() > start {
        put_before(out, start, &[request, (out.len() - start) as u64]);
    }
}

/// Inserts numbers at `start`. They are known only once the bytes behind them are written.
fn put_before(out: &mut Vec<u8>, start: usize, numbers: &[u64]) {
    let end = out.len();
    numbers.iter().for_each(|&number| put_varint(out, number));
    let bytes = out.len() - end;
    out[start..].rotate_right(bytes);
}

impl SessionMessage {
    /// Appends the message as a piece of its own.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, SESSION);
        put_message(out, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            SessionMessage::Open { request, words } => {
                put_numbers(out, 59, &[*request]);
                out.extend_from_slice(words);
            }
            SessionMessage::Finish { request, figures } => {
                put_numbers(out, 32, &[*request]);
                encode_figures(figures, out);
            }
            SessionMessage::Fail { request, complaint } => {
                put_numbers(out, 60, &[*request]);
                encode_complaint(complaint, out);
            }
            SessionMessage::Abort(complaint) => {
                out.push(33);
                encode_complaint(complaint, out);
            }
            SessionMessage::FlowDown { index } => put_numbers(out, 34, &[u64::from(*index)]),
            SessionMessage::Start => out.push(35),
            SessionMessage::Rate(rate) => put_rate(out, 36, rate),
            SessionMessage::Stages(stages) => {
                out.push(37);
                put_stages(out, stages);
            }
            SessionMessage::PathsUnused(paths) => put_numbers(out, 48, &[*paths]),
            SessionMessage::PathAdd { path, addresses } => {
                put_numbers(out, 52, &[*path]);
                put_address(out, addresses.local);
                put_address(out, addresses.remote);
            }
            SessionMessage::PathOpen { path, is_open, ports } => {
                put_numbers(out, 53, &[*path, u64::from(*is_open), ports.len() as u64]);
                ports.iter().for_each(|&port| put_varint(out, port.into()));
            }
            SessionMessage::StreamUse { index, is_used } => {
                put_numbers(out, 56, &[u64::from(*index), u64::from(*is_used)]);
            }
            SessionMessage::UdpUse { is_used } => put_numbers(out, 57, &[u64::from(*is_used)]),
            SessionMessage::WantStreams => out.push(58),
        }
    }
}

fn encode_complaint(complaint: &Complaint, out: &mut Vec<u8>) {
    let Complaint { exit, code, misbehaviour, reason, hint } = complaint;
    put_varint(out, (*exit).into());
    put_varint(out, (*code).into());
    put_varint(out, (*misbehaviour).into());
    put_reason(out, reason);
    put_reason(out, hint);
}

fn encode_figures(figures: &EndFigures, out: &mut Vec<u8>) {
    figures_numbers(figures).into_iter().for_each(|number| put_varint(out, number));
    put_stages(out, &figures.stages);
    let warnings = &figures.warnings[..figures.warnings.len().min(WARNINGS_MAX)];
    put_varint(out, warnings.len() as u64);
    for warning in warnings {
        put_reason(out, warning);
    }
    out.extend_from_slice(&figures.of_service);
}

/// Writes as many stages as [`decode_stages`] accepts.
fn put_stages(out: &mut Vec<u8>, stages: &[StageFigures]) {
    let stages = &stages[..stages.len().min(STAGES_MAX)];
    put_varint(out, stages.len() as u64);
    for stage in stages {
        put_reason(out, &stage.name);
        put_reason(out, &stage.end);
        put_varint(out, (stage.busy * 1e6) as u64);
    }
}

fn figures_numbers(figures: &EndFigures) -> [u64; 13] {
    [
        figures.cpu_us,
        figures.peak_rss_bytes,
        figures.segments_duplicate,
        figures.segments_sent,
        figures.segments_retransmitted,
        figures.segments_proactive,
        figures.packets_sent,
        figures.packets_lost,
        figures.wire_bytes_sent,
        figures.content_bytes_sent,
        figures.content_bytes_resent,
        figures.rtt_min_us,
        figures.rtt_mean_us,
    ]
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => put_bytes(out, &v4.octets()),
        IpAddr::V6(v6) => put_bytes(out, &v6.octets()),
    }
}

// ---- decoding -----------------------------------------------------------------------------------

/// The number that stands for the session itself, in place of a request.
const SESSION: u64 = 0;

/// Bytes of the control stream that have come and are not decoded yet.
#[derive(Default)]
pub struct MessageInbox {
    buffer: Vec<u8>,
    /// The number of decoded bytes in `buffer`.
    used: usize,
    /// The request whose piece is not finished, and how many of its bytes are still to come.
    piece: Option<(u64, u64)>,
    words: Range<usize>,
}

/// The next item of the control stream.
#[derive(Debug, PartialEq)]
pub enum InboxItem {
    Own(SessionMessage),
    /// Words of a request: [`MessageInbox::words`] has them.
    Words(u64),
}

impl MessageInbox {
    /// The buffer to which the control stream's bytes are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.words = 0..0;
        &mut self.buffer
    }

    /// The next message, or as many words as have come; `None` if more bytes are needed.
    pub fn take(&mut self) -> Result<Option<InboxItem>, Malformed> {
        loop {
            if let Some((request, left)) = self.piece {
                let len = left.min((self.buffer.len() - self.used) as u64);
                if len == 0 {
                    return Ok(None);
                }
                self.piece = (len < left).then_some((request, left - len));
                self.words = self.used..self.used + len as usize;
                self.used = self.words.end;
                return Ok(Some(InboxItem::Words(request)));
            }
            let Some((request, head)) = number_at(&self.buffer[self.used..])? else { return Ok(None) };
            if request == SESSION {
                let Some(body) = message_at(&self.buffer, self.used + head)? else { return Ok(None) };
                let message = SessionMessage::decode(&self.buffer[body.clone()])?;
                self.used = body.end;
                return Ok(Some(InboxItem::Own(message)));
            }
            let Some((len, more)) = number_at(&self.buffer[self.used + head..])? else { return Ok(None) };
            self.used += head + more;
            self.piece = (len > 0).then_some((request, len));
        }
    }

    /// The words that were handed out last; valid until further bytes are appended.
    pub fn words(&self) -> &[u8] {
        &self.buffer[self.words.clone()]
    }
}

/// Separates the words of a request into messages, each beginning with its code.
#[derive(Default)]
pub struct RequestFrames {
    buffer: Vec<u8>,
    used: usize,
    last: Range<usize>,
}

impl RequestFrames {
    /// The buffer to which the request's words are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.last = 0..0;
        &mut self.buffer
    }

    /// Returns whether a whole message is there; [`RequestFrames::last`] then returns it.
    pub fn take(&mut self) -> Result<bool, Malformed> {
        let Some(body) = message_at(&self.buffer, self.used)? else { return Ok(false) };
        if body.is_empty() {
            return Err(Malformed);
        }
        self.used = body.end;
        self.last = body;
        Ok(true)
    }

    /// Code and body of the last message; valid until further bytes are appended.
    pub fn last(&self) -> &[u8] {
        &self.buffer[self.last.clone()]
    }

    /// The number of bytes that belong to no message taken so far.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.used
    }
}

/// The number at the front of `bytes`, and its length; `None` if more bytes are needed.
fn number_at(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let mut reader = ByteReader(bytes);
    match reader.varint() {
        Ok(number) => Ok(Some((number, bytes.len() - reader.0.len()))),
        // Either more bytes are needed, or this is no valid number.
        Err(Malformed) if bytes.len() >= 10 => Err(Malformed),
        Err(Malformed) => Ok(None),
    }
}

/// The range of the message whose length stands at `at`; `None` if it is not complete.
fn message_at(bytes: &[u8], at: usize) -> Result<Option<Range<usize>>, Malformed> {
    let Some((len, head)) = number_at(&bytes[at..])? else { return Ok(None) };
    if len > MESSAGE_MAX as u64 {
        return Err(Malformed);
    }
    let start = at + head;
    let end = start + len as usize;
    Ok((end <= bytes.len()).then_some(start..end))
}

impl SessionMessage {
    /// Decodes a code and a body.
    pub fn decode(body: &[u8]) -> Result<SessionMessage, Malformed> {
        let mut reader = ByteReader(body);
        let message = decode_body(&mut reader)?;
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

fn decode_body(reader: &mut ByteReader<'_>) -> Result<SessionMessage, Malformed> {
    Ok(match reader.byte()? {
        32 => SessionMessage::Finish { request: decode_request(reader)?, figures: decode_figures(reader)? },
        59 => SessionMessage::Open { request: decode_request(reader)?, words: reader.rest().to_vec() },
        60 => SessionMessage::Fail { request: decode_request(reader)?, complaint: decode_complaint(reader)? },
        33 => SessionMessage::Abort(decode_complaint(reader)?),
        34 => SessionMessage::FlowDown { index: decode_u16(reader)? },
        35 => SessionMessage::Start,
        36 => SessionMessage::Rate(decode_rate(reader)?),
        37 => SessionMessage::Stages(decode_stages(reader)?),
        48 => SessionMessage::PathsUnused(reader.varint()?),
        52 => {
            let path = reader.varint()?;
            let (local, remote) = (decode_address(reader)?, decode_address(reader)?);
            SessionMessage::PathAdd { path, addresses: PathAddresses::new(local, remote) }
        }
        53 => {
            let (path, is_open) = (reader.varint()?, reader.flag()?);
            let count = decode_count(reader, FLOWS_MAX)?;
            let port = |_| u16::try_from(reader.varint()?).map_err(|_| Malformed);
            SessionMessage::PathOpen { path, is_open, ports: (0..count).map(port).collect::<Result<_, _>>()? }
        }
        56 => SessionMessage::StreamUse { index: decode_u16(reader)?, is_used: reader.flag()? },
        57 => SessionMessage::UdpUse { is_used: reader.flag()? },
        58 => SessionMessage::WantStreams,
        _ => return Err(Malformed),
    })
}

/// Reads the number of a request; 0 is invalid, as it stands for the session.
fn decode_request(reader: &mut ByteReader<'_>) -> Result<u64, Malformed> {
    reader.varint().and_then(|request| if request == SESSION { Err(Malformed) } else { Ok(request) })
}

fn decode_complaint(reader: &mut ByteReader<'_>) -> Result<Complaint, Malformed> {
    let exit = u8::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let (code, misbehaviour) = (decode_u16(reader)?, decode_u16(reader)?);
    Ok(Complaint { exit, code, misbehaviour, reason: reader.text()?, hint: reader.text()? })
}

/// Reads how many items follow. More than `max` are refused: whatever came behind would be read as something
/// else if the rest of them were skipped.
fn decode_count(reader: &mut ByteReader<'_>, max: usize) -> Result<u64, Malformed> {
    reader.varint().and_then(|count| if count > max as u64 { Err(Malformed) } else { Ok(count) })
}

fn decode_u16(reader: &mut ByteReader<'_>) -> Result<u16, Malformed> {
    u16::try_from(reader.varint()?).map_err(|_| Malformed)
}

/// Appends a message whose content is a rate; [`decode_rate`] reads it, without the code.
pub fn put_rate(out: &mut Vec<u8>, code: u8, rate: &RateOptions) {
    let policy = match rate.policy {
        Policy::Fair => 0,
        Policy::High => 1,
        Policy::Low => 2,
        Policy::Fixed => 3,
    };
    let limits = [rate.rate_bps, rate.rate_min_bps].map(|bps| bps.unwrap_or(0));
    put_numbers(out, code, &[policy, limits[0], limits[1]]);
}

/// Reads a rate; only options that a user of this end could set are valid.
pub fn decode_rate(reader: &mut ByteReader<'_>) -> Result<RateOptions, Malformed> {
    let policy = match reader.varint()? {
        0 => Policy::Fair,
        1 => Policy::High,
        2 => Policy::Low,
        3 => Policy::Fixed,
        _ => return Err(Malformed),
    };
    let mut limit = || reader.varint().map(|bps| (bps > 0).then_some(bps));
    RateOptions { policy, rate_bps: limit()?, rate_min_bps: limit()? }.checked().map_err(|_| Malformed)
}

fn decode_address(reader: &mut ByteReader<'_>) -> Result<IpAddr, Malformed> {
    let bytes = reader.bytes()?;
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).map_err(|_| Malformed)
}

fn decode_figures(reader: &mut ByteReader<'_>) -> Result<EndFigures, Malformed> {
    let mut numbers = [0; 13];
    for number in &mut numbers {
        *number = reader.varint()?.min(FIGURE_MAX);
    }
    let mut figures = EndFigures {
        cpu_us: numbers[0],
        peak_rss_bytes: numbers[1],
        segments_duplicate: numbers[2],
        segments_sent: numbers[3],
        segments_retransmitted: numbers[4],
        segments_proactive: numbers[5],
        packets_sent: numbers[6],
        packets_lost: numbers[7],
        wire_bytes_sent: numbers[8],
        content_bytes_sent: numbers[9],
        content_bytes_resent: numbers[10],
        rtt_min_us: numbers[11],
        rtt_mean_us: numbers[12],
        ..EndFigures::default()
    };
    figures.stages = decode_stages(reader)?;
    for _ in 0..decode_count(reader, WARNINGS_MAX)? {
        figures.warnings.push(reader.text()?);
    }
    figures.of_service = reader.rest().to_vec();
    Ok(figures)
}

fn decode_stages(reader: &mut ByteReader<'_>) -> Result<Vec<StageFigures>, Malformed> {
    let mut stages = Vec::new();
    for _ in 0..decode_count(reader, STAGES_MAX)? {
        let (name, end) = (reader.text()?, reader.text()?);
        stages.push(StageFigures { name, end, busy: reader.varint()? as f64 / 1e6 });
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A code that no service uses.
    const CODE: u8 = 200;

    fn all() -> Vec<SessionMessage> {
        vec![
            SessionMessage::Start,
            SessionMessage::Open { request: 3, words: b"list".to_vec() },
            SessionMessage::Finish {
                request: 300,
                figures: EndFigures {
                    cpu_us: 5,
                    stages: vec![StageFigures { name: "read".into(), end: "sender".into(), busy: 0.5 }],
                    warnings: vec!["small buffers".into()],
                    of_service: vec![1, 2, 3],
                    ..EndFigures::default()
                },
            },
            SessionMessage::Stages(vec![StageFigures {
                name: "write".into(),
                end: "receiver".into(),
                busy: 0.25,
            }]),
            SessionMessage::Fail {
                request: 7,
                complaint: Complaint {
                    exit: 8,
                    code: 2013,
                    misbehaviour: 0x20e,
                    reason: "enough".into(),
                    hint: String::new(),
                },
            },
            SessionMessage::Abort(Complaint {
                exit: 6,
                code: 1022,
                misbehaviour: 0,
                reason: "no such directory".into(),
                hint: "make it".into(),
            }),
            SessionMessage::FlowDown { index: 3 },
            SessionMessage::StreamUse { index: 65, is_used: true },
            SessionMessage::UdpUse { is_used: false },
            SessionMessage::WantStreams,
            SessionMessage::PathsUnused(0b101),
            SessionMessage::PathAdd {
                path: 1,
                addresses: PathAddresses::new("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()),
            },
            SessionMessage::PathOpen { path: 1, is_open: true, ports: vec![33001, 65535] },
            SessionMessage::Rate(RateOptions {
                policy: Policy::Low,
                rate_bps: Some(1_000_000),
                rate_min_bps: None,
            }),
        ]
    }

    #[test]
    fn every_message_has_the_bytes_of_this_version() {
        let name = |message: &SessionMessage| {
            let text = format!("{message:?}");
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_string()
        };
        let bytes = |message: &SessionMessage| {
            let mut out = Vec::new();
            message.encode(&mut out);
            (name(message), out)
        };
        let mut messages: Vec<_> = all().iter().map(bytes).collect();
        let mut words = Vec::new();
        put_words(&mut words, 300, |out| {
            put_message(out, |out| out.extend_from_slice(b"\x11what a service says"))
        });
        messages.push(("Words".into(), words));
        farhaul_vectors::compare("session", &messages);
    }

    #[test]
    fn messages_of_releases_are_read() {
        for (release, messages) in farhaul_vectors::of_releases("session") {
            for (name, bytes) in messages {
                let mut inbox = MessageInbox::default();
                inbox.buffer().extend_from_slice(&bytes);
                let read = match inbox.take().unwrap() {
                    Some(InboxItem::Own(message)) => format!("{message:?}"),
                    Some(InboxItem::Words(_)) => "Words".to_string(),
                    None => panic!("{release}: {name} is no whole message"),
                };
                assert!(read.starts_with(&name), "{release}: {name} is read as {read}");
            }
        }
    }

    #[test]
    fn every_message_comes_back_however_the_bytes_are_cut() {
        let messages = all();
        let (mut bytes, mut own, mut of_services) = (Vec::new(), Vec::new(), Vec::new());
        for (number, message) in messages.into_iter().enumerate() {
            message.encode(&mut bytes);
            own.push(message);
            // Lengths of one, two and three bytes, each twice.
            let of_service = vec![CODE; 1 + number * MESSAGE_MAX / 15];
            put_words(&mut bytes, 1, |out| {
                put_message(out, |out| out.extend_from_slice(&of_service));
                put_message(out, |out| out.push(7));
            });
            of_services.extend([of_service, vec![7]]);
        }
        for step in [1, 3, bytes.len()] {
            let (mut inbox, mut frames) = (MessageInbox::default(), RequestFrames::default());
            let (mut own_read, mut of_services_read) = (Vec::new(), Vec::new());
            for piece in bytes.chunks(step) {
                inbox.buffer().extend_from_slice(piece);
                while let Some(next) = inbox.take().unwrap() {
                    match next {
                        InboxItem::Own(message) => own_read.push(message),
                        InboxItem::Words(request) => {
                            assert_eq!(request, 1);
                            frames.buffer().extend_from_slice(inbox.words());
                        }
                    }
                    while frames.take().unwrap() {
                        of_services_read.push(frames.last().to_vec());
                    }
                }
            }
            assert!(own_read == own && of_services_read == of_services, "in pieces of {step}");
            assert_eq!(frames.waiting(), 0);
        }
    }

    #[test]
    fn words_of_several_requests_are_kept_apart_and_empty_words_make_no_piece() {
        let mut bytes = Vec::new();
        put_words(&mut bytes, 5, |_| {});
        put_words(&mut bytes, 2, |out| out.extend_from_slice(b"ab"));
        put_words(&mut bytes, 600, |out| out.extend_from_slice(b"c"));
        bytes.extend_from_slice(&[9, 0]);
        put_words(&mut bytes, 2, |out| out.extend_from_slice(b"d"));
        let mut inbox = MessageInbox::default();
        inbox.buffer().extend_from_slice(&bytes);
        let mut heard = Vec::new();
        while let Some(InboxItem::Words(request)) = inbox.take().unwrap() {
            heard.push((request, inbox.words().to_vec()));
        }
        assert_eq!(heard, [(2, b"ab".to_vec()), (600, b"c".to_vec()), (2, b"d".to_vec())]);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_once_its_length_is_read() {
        let mut inbox = MessageInbox::default();
        put_numbers(inbox.buffer(), 0, &[MESSAGE_MAX as u64 + 1]);
        assert_eq!(inbox.take(), Err(Malformed));
        let mut frames = RequestFrames::default();
        put_varint(frames.buffer(), MESSAGE_MAX as u64 + 1);
        assert_eq!(frames.take(), Err(Malformed));
        // A piece of words may have any length, as they are handed out as they come.
        let mut inbox = MessageInbox::default();
        put_numbers(inbox.buffer(), 1, &[u64::MAX]);
        inbox.buffer().push(b'x');
        assert_eq!(inbox.take(), Ok(Some(InboxItem::Words(1))));
        assert_eq!(inbox.words(), b"x");
        assert_eq!(inbox.take(), Ok(None));
    }

    fn next(body: &[u8]) -> Result<Option<InboxItem>, Malformed> {
        let mut inbox = MessageInbox::default();
        inbox.buffer().push(0);
        put_bytes(inbox.buffer(), body);
        inbox.take()
    }

    #[test]
    fn a_message_without_a_code_or_with_bytes_behind_its_end_is_refused() {
        assert_eq!(next(&[]), Err(Malformed));
        assert_eq!(next(&[CODE]), Err(Malformed));
        assert_eq!(next(&[58]), Ok(Some(InboxItem::Own(SessionMessage::WantStreams))));
        assert_eq!(next(&[58, 0]), Err(Malformed));
        let mut frames = RequestFrames::default();
        put_bytes(frames.buffer(), &[]);
        assert_eq!(frames.take(), Err(Malformed));
    }

    #[test]
    fn the_number_of_the_session_is_refused_as_that_of_a_request() {
        assert_eq!(next(&[59, 0, b'x']), Err(Malformed));
        assert!(next(&[59, 1, b'x']).is_ok());
    }

    #[test]
    fn a_flag_that_is_neither_0_nor_1_is_refused() {
        // Each message with a flag, and where in its body the flag stands.
        for (body, at) in [(&[53, 1, 0, 0][..], 2), (&[56, 65, 0], 2), (&[57, 0], 1)] {
            for (flag, is_valid) in [(0, true), (1, true), (2, false), (0x81, false)] {
                let mut body = body.to_vec();
                body[at] = flag;
                assert_eq!(next(&body).is_ok(), is_valid, "{body:?}");
            }
        }
    }

    #[test]
    fn figures_of_a_far_end_can_be_added_up() {
        let figures = EndFigures { wire_bytes_sent: u64::MAX, packets_lost: 7, ..EndFigures::default() };
        let mut inbox = MessageInbox::default();
        SessionMessage::Finish { request: 1, figures }.encode(inbox.buffer());
        let Ok(Some(InboxItem::Own(SessionMessage::Finish { figures, .. }))) = inbox.take() else {
            panic!("it is a finish")
        };
        assert_eq!((figures.wire_bytes_sent, figures.packets_lost), (FIGURE_MAX, 7));
    }

    #[test]
    fn no_more_stages_and_warnings_are_written_than_are_accepted() {
        let stage =
            |number: usize| StageFigures { name: number.to_string(), end: "sender".into(), busy: 0.0 };
        let of = |stages: usize, warnings: usize| EndFigures {
            stages: (0..stages).map(stage).collect(),
            warnings: (0..warnings).map(|number| number.to_string()).collect(),
            of_service: vec![1, 2, 3],
            ..EndFigures::default()
        };
        let sent = |message: &SessionMessage| {
            let mut inbox = MessageInbox::default();
            message.encode(inbox.buffer());
            inbox.take().unwrap()
        };
        let finish = |figures| SessionMessage::Finish { request: 1, figures };
        let arrived = sent(&finish(of(STAGES_MAX + 1, WARNINGS_MAX + 1)));
        assert_eq!(arrived, Some(InboxItem::Own(finish(of(STAGES_MAX, WARNINGS_MAX)))));
        let stages = |count: usize| SessionMessage::Stages((0..count).map(stage).collect());
        assert_eq!(sent(&stages(STAGES_MAX + 1)), Some(InboxItem::Own(stages(STAGES_MAX))));

        let mut body = vec![37, STAGES_MAX as u8 + 1];
        body.extend([0; 3].repeat(STAGES_MAX + 1));
        assert_eq!(next(&body), Err(Malformed), "a peer that writes more");
    }

    #[test]
    fn a_rate_that_a_user_could_not_ask_for_is_refused() {
        for numbers in [[4, 0, 0], [3, 0, 0], [0, 7_999, 0], [0, 10_000, 20_000]] {
            let mut body = Vec::new();
            put_numbers(&mut body, 36, &numbers);
            assert_eq!(next(&body), Err(Malformed), "{numbers:?}");
        }
    }

    /// An error as the other end sees it.
    fn at_the_other_end(error: &Error) -> Error {
        Complaint::of(error).into_error()
    }

    #[test]
    fn what_ends_a_command_in_the_same_way_at_both_ends_has_the_same_code_at_both() {
        for &code in Code::ALL {
            let error = Error::new(code, "no way").with_hint("do this");
            let told = at_the_other_end(&error);
            match code.exit_code() {
                ExitCode::Usage
                | ExitCode::Auth
                | ExitCode::Incompatible
                | ExitCode::Files
                | ExitCode::Lost => {
                    assert_eq!((told.code(), told.blame()), (code, code.blame()))
                }
                _ => assert_eq!(told.exit_code(), ExitCode::Lost, "{code}"),
            }
            assert!(told.what().contains("no way") && told.hint() == Some("do this"), "{told:?}");
        }
    }

    #[test]
    fn what_happened_at_the_far_end_alone_is_told_as_that() {
        let source = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        for (error, code, blame) in [
            (Error::of_host("no room", source), Code::PeerFailed, Blame::Host),
            (Error::bug("a.rs:7"), Code::PeerFailed, Blame::Us),
            (Error::interrupted(), Code::PeerInterrupted, Blame::User),
            (Error::from(Misbehaviour::Credit), Code::Accused, Blame::Us),
            (Error::new(Code::UdpBlocked, "x"), Code::PeerEnded, Blame::Network),
        ] {
            let told = at_the_other_end(&error);
            assert_eq!((told.code(), told.blame()), (code, blame), "{error:?}");
            assert_eq!(told.misbehaviour(), error.misbehaviour());
        }
    }

    #[test]
    fn a_number_of_a_later_version_is_understood_by_its_exit_code_and_its_thousands() {
        for (exit, number, code, blame) in [
            (2, 1999, Code::BadRequest, Blame::User),
            (4, 2999, Code::Forbidden, Blame::Peer),
            (5, 2999, Code::FeatureMissing, Blame::Peer),
            (6, 4999, Code::FilesFailed, Blame::Host),
            (7, 3999, Code::PeerEnded, Blame::Network),
            (8, 2999, Code::Accused, Blame::Peer),
            (9, 5999, Code::PeerFailed, Blame::Us),
            (130, 1999, Code::PeerInterrupted, Blame::User),
            (250, 9999, Code::PeerEnded, Blame::Peer),
            // The code is known, but came with another exit code than it has here.
            (6, Code::PeerGone.number(), Code::FilesFailed, Blame::Peer),
        ] {
            let told =
                Complaint { exit, code: number, misbehaviour: 0xffff, ..Complaint::default() }.into_error();
            assert_eq!((told.code(), told.blame()), (code, blame), "{exit} {number}");
            assert_eq!(told.misbehaviour(), None);
        }
    }

    #[test]
    fn nothing_in_the_words_of_a_peer_steers_the_terminal() {
        let evil = || "\x1b[2J\r\nevil\u{202e}".to_string();
        let told = Complaint { exit: 6, reason: evil(), hint: evil(), ..Complaint::default() }.into_error();
        for text in [told.what(), told.hint().unwrap()] {
            assert_eq!(text, "[2Jevil");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (mut inbox, mut frames) = (MessageInbox::default(), RequestFrames::default());
            inbox.buffer().extend_from_slice(&bytes);
            while let Ok(Some(_)) = inbox.take() {
                frames.buffer().extend_from_slice(inbox.words());
                while let Ok(true) = frames.take() {}
            }
        }
    }
}
