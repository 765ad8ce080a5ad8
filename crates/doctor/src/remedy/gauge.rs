//! Measurements of this host alone, in a fraction of a second each.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::Error;
use crate::check::Measurement;

/// Measures what a change may have changed.
pub trait Gauge {
    /// Returns a figure of which more is better.
    fn measure(&self, what: Measurement) -> Result<f64, Error>;
}

/// Measures this host over loopback.
pub struct Loopback;

/// How long a measurement of a rate takes.
const TIME: Duration = Duration::from_millis(200);

impl Gauge for Loopback {
    fn measure(&self, what: Measurement) -> Result<f64, Error> {
        match what {
            Measurement::UdpBurst => udp_burst(),
            Measurement::TcpLoopback => tcp_loopback(),
            Measurement::Core => Ok(core_rate()),
        }
        .map_err(|error| Error::Measurement(error.to_string()))
    }
}

/// Sends a burst to a socket that nobody reads from, and counts what it has kept.
fn udp_burst() -> io::Result<f64> {
    const BURST: usize = 32 << 20;
    const DATAGRAM: usize = 8 << 10;
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    // As much as the kernel allows, which is what a program gets that is not root.
    let _ = set_socket_recv_buffer_size(&receiver, 1 << 30);
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    let datagram = [0u8; DATAGRAM];
    for _ in 0..BURST / DATAGRAM {
        // What does not fit is dropped at the receiver, or refused here: either is lost.
        let _ = sender.send(&datagram);
    }
    receiver.set_nonblocking(true)?;
    let mut buffer = [0u8; DATAGRAM];
    let mut bytes = 0;
    while let Ok(length) = receiver.recv(&mut buffer) {
        bytes += length;
    }
    Ok(bytes as f64)
}

/// Bytes a second through a connection whose buffers are as the kernel makes them.
fn tcp_loopback() -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> io::Result<()> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_write_timeout(Some(TIME))?;
            let block = vec![0u8; 256 << 10];
            let begin = Instant::now();
            while begin.elapsed() < TIME {
                stream.write_all(&block)?;
            }
            Ok(())
        });
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(5 * TIME))?;
        let begin = Instant::now();
        let mut buffer = vec![0u8; 256 << 10];
        let mut bytes = 0;
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            bytes += length;
        }
        let seconds = begin.elapsed().as_secs_f64();
        // A sender that timed out has measured a connection that stands still; what came counts.
        let _ = sender.join();
        Ok(bytes as f64 / seconds.max(1e-9))
    })
}

/// Bytes a second that one core hashes.
fn core_rate() -> f64 {
    let block = vec![7u8; 64 << 10];
    let mut hasher = DefaultHasher::new();
    let (begin, mut bytes) = (Instant::now(), 0);
    while begin.elapsed() < TIME {
        hasher.write(&block);
        bytes += block.len();
    }
    std::hint::black_box(hasher.finish());
    bytes as f64 / begin.elapsed().as_secs_f64()
}
