//! Sends detector frames from one process to another; each frame has a header as its metadata.
//!
//! ```text
//! farhaul keygen                                   # once: makes a key for this user
//! frames receive ADDRESS:PORT AUTHORIZED_KEYS      # one process; prints address, fingerprint, result
//! frames send HOST:PORT FINGERPRINT 500            # another process, perhaps far away
//! frames send ssh:HOST /path/to/frames 500         # or over ssh, which starts the receiver there
//! ```
//!
//! The keys are those in `FRAMES_KEYS` (a folder), by default the user's own.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use farhaul::stream::{
    AcceptedStream, ListenOptions, StreamListener, StreamOptions, StreamReceiver, StreamTarget, accept_stdio,
    connect_to_send,
};
use farhaul::target::{DaemonTarget, SshTarget};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const STREAM: &str = "detector frames";
const WIDTH: usize = 640;
const HEIGHT: usize = 512;
/// 16 bits a pixel.
const FRAME_BYTES: usize = WIDTH * HEIGHT * 2;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    exposure: u64,
    /// Microseconds since the run began.
    taken_us: u64,
    /// Sum of all pixels.
    sum: u64,
}

impl Header {
    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.exposure, self.taken_us, self.sum]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Header> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Header { exposure: number(0)?, taken_us: number(8)?, sum: number(16)? })
    }
}

/// Does what a detector would do: writes a frame into `memory` and returns its header.
fn expose(memory: &mut [u8], exposure: u64, run: Instant) -> Header {
    let mut sum = 0;
    let mut noise = exposure.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for pixel in memory.chunks_exact_mut(2) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let value = (noise & 0x0fff) as u16;
        sum += u64::from(value);
        pixel.copy_from_slice(&value.to_le_bytes());
    }
    Header { exposure, taken_us: run.elapsed().as_micros() as u64, sum }
}

/// Sends `frames` frames, or fewer if the receiver says that it has enough.
fn send(target: &StreamTarget, frames: u64) -> Result<()> {
    let sender = connect_to_send(target, StreamOptions::new(STREAM))?;
    let run = Instant::now();
    let mut sent = 0;
    while sent < frames {
        // The frame is made in the memory that it is sealed in, so nothing copies it.
        let mut block = sender.claim()?;
        block.set_len(FRAME_BYTES);
        let header = expose(block.as_mut_slice(), sent, run);
        sender.put(block, &header.to_bytes())?;
        sent += 1;
        if sender.message(Duration::ZERO)?.as_deref() == Some(b"enough") {
            break;
        }
    }
    sender.wait()?;
    let report = sender.finish()?;
    println!("sent {sent} frames, {:.0} Mbit/s, limited by {}", report.goodput_bps / 1e6, report.bottleneck);
    Ok(())
}

/// Takes frames, reads every pixel in place, and returns a summary.
fn receive(receiver: StreamReceiver) -> Result<String> {
    let (mut frames, mut total) = (0_u64, 0_u64);
    while let Some(frame) = receiver.next()? {
        let header = Header::from_bytes(frame.metadata()).ok_or("a frame without a header")?;
        let pixels = frame.chunks_exact(2).map(|pixel| u64::from(u16::from_le_bytes([pixel[0], pixel[1]])));
        if frame.len() != FRAME_BYTES || pixels.sum::<u64>() != header.sum {
            return Err(format!("frame {} is damaged", header.exposure).into());
        }
        frames += 1;
        total += header.sum;
    }
    receiver.finish()?;
    Ok(format!("received {frames} frames, sum of all pixels {total}"))
}

fn listen(address: &str, authorized_keys: &str) -> Result<()> {
    let mut options = ListenOptions {
        listen: vec![address.parse()?],
        authorized_keys: authorized_keys.into(),
        names: vec![STREAM.into()],
        ..ListenOptions::default()
    };
    if let Some(keys) = keys() {
        options.identity = keys.join("receiver");
    }
    let listener = StreamListener::bind(options)?;
    println!("listening {} {}", listener.local_addrs()[0], listener.fingerprint());
    let AcceptedStream::Receiver(receiver) = listener.accept()? else {
        return Err("the peer wants to receive, and not to send".into());
    };
    println!("{}", receive(receiver)?);
    Ok(())
}

/// Receives in a process that ssh has started.
fn endpoint() -> Result<()> {
    let AcceptedStream::Receiver(receiver) = accept_stdio()? else {
        return Err("the peer wants to receive, and not to send".into());
    };
    eprintln!("{}", receive(receiver)?);
    Ok(())
}

fn target(place: &str, second: &str) -> Result<StreamTarget> {
    if let Some(host) = place.strip_prefix("ssh:") {
        let program = std::env::var_os("FRAMES_SSH").unwrap_or_else(|| "ssh".into());
        let target = SshTarget {
            host: host.into(),
            remote_program: second.into(),
            program: program.into(),
            ..SshTarget::default()
        };
        return Ok(StreamTarget::Ssh(target));
    }
    let (host, port) = place.rsplit_once(':').ok_or("HOST:PORT is needed")?;
    Ok(StreamTarget::Daemon(DaemonTarget {
        host: host.into(),
        port: port.parse()?,
        fingerprint: Some(second.into()),
        identity_file: keys().map(|keys| keys.join("sender")),
        known_hosts_file: keys().map(|keys| keys.join("known_hosts")),
        ..DaemonTarget::default()
    }))
}

fn keys() -> Option<PathBuf> {
    std::env::var_os("FRAMES_KEYS").map(PathBuf::from)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["receive", address, authorized_keys] => listen(address, authorized_keys),
        ["send", place, second, frames] => send(&target(place, second)?, frames.parse()?),
        ["endpoint"] => endpoint(),
        _ => Err(
            "usage: frames receive ADDRESS:PORT AUTHORIZED_KEYS | frames send HOST:PORT FINGERPRINT FRAMES"
                .into(),
        ),
    }
}
