//! What the two ends of a session say to each other on the control stream, as values and as bytes.
//!
//! Each message is a varint length and its body; the first byte of the body is the message's code. Some codes are
//! the session's own. All others are those of the service that the session is for, a copy or a stream of blocks: of
//! such a message the session knows the length and nothing more. docs/wire.md has the table.
//!
//! Always true: decoding never panics, and a message longer than [`MESSAGE_MAX`] is refused at its length.

use std::net::IpAddr;
use std::ops::Range;

use super::codec::{Malformed, Reader, put_bytes, put_numbers, put_reason, put_varint};
use super::figures::Stage;
use super::options::{FLOWS_MAX, PathAddresses, Policy, RateOptions};
use crate::error::Error;

/// Longest message: its code and its body, without the length before them.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Stages and warnings that one end tells of, at most.
const STAGES_MAX: u64 = 64;
const WARNINGS_MAX: usize = 16;

/// The session's own messages.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The initiator's first word, so that the acceptor has something to wait for.
    Start,
    /// The side has nothing more to do; its figures.
    Finish(EndFigures),
    /// The session ends here; the code is the exit code that the sender of this ends with.
    Abort { code: u8, reason: String, hint: String },
    /// Flow `index` is no longer used by this side; its blocks and control bytes travel elsewhere.
    FlowDown { index: u16 },
    /// Initiator: the stream of this index gets new blocks from now on, or does not; it may not be there yet.
    StreamUse { index: u16, is_used: bool },
    /// Initiator: so do the flows over UDP.
    UdpUse { is_used: bool },
    /// A sender that is the acceptor: UDP looks policed, and streams may bring more.
    WantStreams,
    /// From now on the sender sets its rate so.
    Rate(RateOptions),
    /// The paths, by the bits of their numbers, that get nothing new from now on.
    PathsUnused(u64),
    /// Initiator: further path `path` begins, between these addresses.
    PathAdd { path: u64, addresses: PathAddresses },
    /// Acceptor: it may, to these ports, or to the one that the session began at; or not.
    PathOpen { path: u64, is_open: bool, ports: Vec<u16> },
}

/// What one end knows at the end of a session.
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
    pub(crate) stages: Vec<Stage>,
    pub(crate) warnings: Vec<String>,
    /// What the service that the session is for says of itself. The session does not look into it.
    pub of_service: Vec<u8>,
}

/// The end of a session whose peer has said something that is no message.
pub fn senseless(_: Malformed) -> Error {
    Error::Misbehaved("a control message makes no sense".into())
}

/// The end of a session whose peer has said something at the wrong time.
pub fn unexpected(name: &str) -> Error {
    Error::Misbehaved(format!("unexpected message {name}"))
}

// ---- messages as bytes ------------------------------------------------------------------------------------

/// Appends what `write` writes as one message: behind its length.
pub fn put_message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let end = out.len();
    debug_assert!(end - start <= MESSAGE_MAX, "reasons are cut and paths are bounded");
    put_varint(out, (end - start) as u64);
    let length_bytes = out.len() - end;
    out[start..].rotate_right(length_bytes);
}

impl Message {
    /// Appends the message and the length before it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::Finish(figures) => encode_figures(figures, out),
            Message::Abort { code, reason, hint } => {
                out.extend_from_slice(&[33, *code]);
                put_reason(out, reason);
                put_reason(out, hint);
            }
            Message::FlowDown { index } => put_numbers(out, 34, &[u64::from(*index)]),
            Message::Start => out.push(35),
            Message::Rate(rate) => {
                let policy = match rate.policy {
                    Policy::Fair => 0,
                    Policy::High => 1,
                    Policy::Low => 2,
                    Policy::Fixed => 3,
                };
                put_numbers(out, 36, &[policy, rate.rate_bps.unwrap_or(0), rate.rate_min_bps.unwrap_or(0)]);
            }
            Message::PathsUnused(paths) => put_numbers(out, 48, &[*paths]),
            Message::PathAdd { path, addresses } => {
                put_numbers(out, 52, &[*path]);
                put_address(out, addresses.local);
                put_address(out, addresses.remote);
            }
            Message::PathOpen { path, is_open, ports } => {
                put_numbers(out, 53, &[*path, u64::from(*is_open), ports.len() as u64]);
                ports.iter().for_each(|&port| put_varint(out, port.into()));
            }
            Message::StreamUse { index, is_used } => {
                put_numbers(out, 56, &[u64::from(*index), u64::from(*is_used)]);
            }
            Message::UdpUse { is_used } => put_numbers(out, 57, &[u64::from(*is_used)]),
            Message::WantStreams => out.push(58),
        }
    }
}

fn encode_figures(figures: &EndFigures, out: &mut Vec<u8>) {
    let numbers = figures_numbers(figures);
    put_numbers(out, 32, &numbers);
    put_varint(out, figures.stages.len() as u64);
    for stage in &figures.stages {
        put_reason(out, &stage.name);
        put_reason(out, &stage.end);
        put_varint(out, (stage.busy * 1e6) as u64);
    }
    let warnings = &figures.warnings[..figures.warnings.len().min(WARNINGS_MAX)];
    put_varint(out, warnings.len() as u64);
    for warning in warnings {
        put_reason(out, warning);
    }
    out.extend_from_slice(&figures.of_service);
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

// ---- bytes as messages ------------------------------------------------------------------------------------

/// What has come on the control stream and was not looked at, and the message that was looked at last.
#[derive(Default)]
pub struct Inbox {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been looked at.
    used: usize,
    last: Range<usize>,
}

/// What came next.
#[derive(Debug, PartialEq)]
pub enum Next {
    Own(Message),
    /// Of the service: [`Inbox::last`] has it.
    OfService,
}

impl Inbox {
    /// Where the control stream's bytes are to be appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.last = 0..0;
        &mut self.buffer
    }

    /// The next whole message, if there is one.
    pub fn take(&mut self) -> Result<Option<Next>, Malformed> {
        let mut reader = Reader(&self.buffer[self.used..]);
        let Ok(len) = reader.varint() else {
            // Either more bytes are needed, or this is no number at all.
            return if self.buffer.len() - self.used >= 10 { Err(Malformed) } else { Ok(None) };
        };
        if len > MESSAGE_MAX as u64 {
            return Err(Malformed);
        }
        let Ok(body) = reader.take(len as usize) else { return Ok(None) };
        let next = decode_body(body)?;
        self.used = self.buffer.len() - reader.0.len();
        self.last = self.used - body.len()..self.used;
        Ok(Some(next))
    }

    /// Code and body of the last message, until further bytes are appended.
    pub fn last(&self) -> &[u8] {
        &self.buffer[self.last.clone()]
    }
}

fn decode_body(body: &[u8]) -> Result<Next, Malformed> {
    let mut reader = Reader(body);
    let message = match reader.byte()? {
        32 => Message::Finish(decode_figures(&mut reader)?),
        33 => Message::Abort { code: reader.byte()?, reason: reader.text()?, hint: reader.text()? },
        34 => Message::FlowDown { index: decode_index(&mut reader)? },
        35 => Message::Start,
        36 => Message::Rate(decode_rate(&mut reader)?),
        48 => Message::PathsUnused(reader.varint()?),
        52 => {
            let path = reader.varint()?;
            let (local, remote) = (decode_address(&mut reader)?, decode_address(&mut reader)?);
            Message::PathAdd { path, addresses: PathAddresses { local, remote } }
        }
        53 => {
            let (path, is_open) = (reader.varint()?, reader.varint()? == 1);
            let count = reader.varint()?;
            if count > FLOWS_MAX as u64 {
                return Err(Malformed);
            }
            let port = |_| u16::try_from(reader.varint()?).map_err(|_| Malformed);
            Message::PathOpen { path, is_open, ports: (0..count).map(port).collect::<Result<_, _>>()? }
        }
        56 => Message::StreamUse { index: decode_index(&mut reader)?, is_used: reader.flag()? },
        57 => Message::UdpUse { is_used: reader.flag()? },
        58 => Message::WantStreams,
        _ => return Ok(Next::OfService),
    };
    if reader.is_empty() { Ok(Next::Own(message)) } else { Err(Malformed) }
}

fn decode_index(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    u16::try_from(reader.varint()?).map_err(|_| Malformed)
}

/// Only what this end's own user could have asked for.
fn decode_rate(reader: &mut Reader<'_>) -> Result<RateOptions, Malformed> {
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

fn decode_address(reader: &mut Reader<'_>) -> Result<IpAddr, Malformed> {
    let bytes = reader.bytes()?;
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).map_err(|_| Malformed)
}

fn decode_figures(reader: &mut Reader<'_>) -> Result<EndFigures, Malformed> {
    let mut numbers = [0; 13];
    for number in &mut numbers {
        *number = reader.varint()?;
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
    for _ in 0..reader.varint()?.min(STAGES_MAX) {
        let (name, end) = (reader.text()?, reader.text()?);
        figures.stages.push(Stage { name, end, busy: reader.varint()? as f64 / 1e6 });
    }
    for _ in 0..reader.varint()?.min(WARNINGS_MAX as u64) {
        figures.warnings.push(reader.text()?);
    }
    figures.of_service = reader.rest().to_vec();
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of no service that there is.
    const CODE: u8 = 200;

    fn all() -> Vec<Message> {
        vec![
            Message::Start,
            Message::Finish(EndFigures {
                cpu_us: 5,
                stages: vec![Stage { name: "read".into(), end: "sender".into(), busy: 0.5 }],
                warnings: vec!["small buffers".into()],
                of_service: vec![1, 2, 3],
                ..EndFigures::default()
            }),
            Message::Abort { code: 6, reason: "no such directory".into(), hint: "make it".into() },
            Message::FlowDown { index: 3 },
            Message::StreamUse { index: 65, is_used: true },
            Message::UdpUse { is_used: false },
            Message::WantStreams,
            Message::PathsUnused(0b101),
            Message::PathAdd {
                path: 1,
                addresses: PathAddresses {
                    local: "192.0.2.1".parse().unwrap(),
                    remote: "2001:db8::1".parse().unwrap(),
                },
            },
            Message::PathOpen { path: 1, is_open: true, ports: vec![33001, 65535] },
            Message::Rate(RateOptions { policy: Policy::Low, rate_bps: Some(1_000_000), rate_min_bps: None }),
        ]
    }

    #[test]
    fn every_message_comes_back_however_the_bytes_are_cut() {
        let messages = all();
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (number, message) in messages.into_iter().enumerate() {
            message.encode(&mut bytes);
            expected.push((Next::Own(message), None));
            // Lengths of one, two and three bytes.
            let of_service = vec![CODE; 1 + number * MESSAGE_MAX / 11];
            put_message(&mut bytes, |out| out.extend_from_slice(&of_service));
            expected.push((Next::OfService, Some(of_service)));
        }
        for step in [1, 3, bytes.len()] {
            let (mut inbox, mut back) = (Inbox::default(), Vec::new());
            for piece in bytes.chunks(step) {
                inbox.buffer().extend_from_slice(piece);
                while let Some(next) = inbox.take().unwrap() {
                    let of_service = (next == Next::OfService).then(|| inbox.last().to_vec());
                    back.push((next, of_service));
                }
            }
            assert!(back == expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_message_too_long_is_refused_at_its_length() {
        let mut inbox = Inbox::default();
        put_varint(inbox.buffer(), MESSAGE_MAX as u64 + 1);
        assert_eq!(inbox.take(), Err(Malformed));
    }

    fn next(body: &[u8]) -> Result<Option<Next>, Malformed> {
        let mut inbox = Inbox::default();
        put_bytes(inbox.buffer(), body);
        inbox.take()
    }

    #[test]
    fn a_message_without_a_code_and_one_that_goes_on_behind_its_end_are_refused() {
        assert_eq!(next(&[]), Err(Malformed));
        assert_eq!(next(&[58]), Ok(Some(Next::Own(Message::WantStreams))));
        assert_eq!(next(&[58, 0]), Err(Malformed));
    }

    #[test]
    fn a_rate_that_a_user_could_not_ask_for_is_refused() {
        for numbers in [[4, 0, 0], [3, 0, 0], [0, 7_999, 0], [0, 10_000, 20_000]] {
            let mut body = Vec::new();
            put_numbers(&mut body, 36, &numbers);
            assert_eq!(next(&body), Err(Malformed), "{numbers:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut inbox = Inbox::default();
            inbox.buffer().extend_from_slice(&bytes);
            while let Ok(Some(_)) = inbox.take() {}
        }
    }
}
