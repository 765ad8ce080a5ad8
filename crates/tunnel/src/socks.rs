//! The first words of a client of SOCKS 5: it names the target of its connection.
//!
//! From: RFC 1928. Only connections are served (no `BIND`, no UDP), and nobody logs in: whoever reaches the port may
//! use it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use farhaul_words::{Code, Failure};

use crate::targets::Target;

/// How long a client may take to name its target.
const WORDS_TIME: Duration = Duration::from_secs(10);
const VERSION: u8 = 5;
const CONNECT: u8 = 1;

/// Numbers of a reply (section 6).
const FAILED: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS_TYPE: u8 = 8;

/// Reads the target that a client wants. A client that wants something else has been told so.
pub(crate) fn target(stream: &TcpStream) -> io::Result<Target> {
    let until = Instant::now() + WORDS_TIME;
    let mut words = Words { stream, until };
    read_target(&mut words)
}

/// The reply for a target that is connected (`None`), or why it is not.
pub(crate) fn reply(failure: Option<&Failure>) -> [u8; 10] {
    let number = match failure.map(|failure| failure.code) {
        None => 0,
        Some(Code::Forbidden) => NOT_ALLOWED,
        Some(Code::TargetRefused) => REFUSED,
        Some(Code::TargetUnreachable | Code::HostUnknown) => HOST_UNREACHABLE,
        Some(_) => FAILED,
    };
    // The address that the far end has bound is nothing that a client uses.
    [VERSION, number, 0, 1, 0, 0, 0, 0, 0, 0]
}

fn read_target(stream: &mut (impl Read + Write)) -> io::Result<Target> {
    let bad = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let [version, methods] = array(stream)?;
    if version != VERSION {
        return Err(bad("this is no client of SOCKS 5"));
    }
    let mut offered = vec![0; usize::from(methods)];
    stream.read_exact(&mut offered)?;
    if !offered.contains(&0) {
        stream.write_all(&[VERSION, 0xff])?;
        return Err(bad("the client wants to log in"));
    }
    stream.write_all(&[VERSION, 0])?;
    let [version, command, _reserved, kind] = array(stream)?;
    if version != VERSION {
        return Err(bad("this is no request of SOCKS 5"));
    }
    let host = match kind {
        1 => IpAddr::from(Ipv4Addr::from(array::<4>(stream)?)).to_string(),
        4 => IpAddr::from(Ipv6Addr::from(array::<16>(stream)?)).to_string(),
        3 => {
            let [len] = array(stream)?;
            let mut name = vec![0; usize::from(len)];
            stream.read_exact(&mut name)?;
            if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
                stream.write_all(&[VERSION, FAILED, 0, 1, 0, 0, 0, 0, 0, 0])?;
                return Err(bad("this is no name of a host"));
            }
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => {
            stream.write_all(&[VERSION, NO_SUCH_ADDRESS_TYPE, 0, 1, 0, 0, 0, 0, 0, 0])?;
            return Err(bad("the client names an address of a kind that is not known"));
        }
    };
    let port = u16::from_be_bytes(array(stream)?);
    if command != CONNECT {
        stream.write_all(&[VERSION, NO_SUCH_COMMAND, 0, 1, 0, 0, 0, 0, 0, 0])?;
        return Err(bad("the client wants something else than a connection"));
    }
    Ok(Target { host, port })
}

fn array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A stream of which all reads together have an end in time.
struct Words<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Words<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Words<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Words<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A client that has said all its words, and what it was told.
    struct Client {
        said: io::Cursor<Vec<u8>>,
        told: Vec<u8>,
    }

    impl Read for Client {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.said.read(buffer)
        }
    }

    impl Write for Client {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            self.told.extend_from_slice(buffer);
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn told(words: &[u8]) -> (Option<Target>, Vec<u8>) {
        let mut client = Client { said: io::Cursor::new(words.to_vec()), told: Vec::new() };
        (read_target(&mut client).ok(), client.told)
    }

    #[test]
    fn names_and_addresses_of_both_families_are_targets() {
        let target = |host: &str, port| Some(Target { host: host.into(), port });
        let v6 = [&[5, 1, 0, 5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat();
        for (words, expected) in [
            (&b"\x05\x01\x00\x05\x01\x00\x03\x02db\x15\x38"[..], target("db", 5432)),
            (b"\x05\x02\x02\x00\x05\x01\x00\x01\x0a\x00\x00\x07\x00\x50", target("10.0.0.7", 80)),
            (&v6, target("::1", 80)),
        ] {
            assert_eq!(told(words), (expected, vec![5, 0]));
        }
    }

    #[test]
    fn a_client_that_wants_something_else_is_told_so() {
        for (words, number) in [
            (&b"\x05\x01\x00\x05\x02\x00\x03\x02db\x15\x38"[..], NO_SUCH_COMMAND),
            (b"\x05\x01\x00\x05\x01\x00\x09", NO_SUCH_ADDRESS_TYPE),
            (b"\x05\x01\x00\x05\x01\x00\x03\x00", FAILED),
            (b"\x05\x01\x00\x05\x01\x00\x03\x02d\n", FAILED),
        ] {
            let (target, told) = told(words);
            assert_eq!((target, told[3]), (None, number));
        }
        assert_eq!(told(b"\x05\x01\x02"), (None, vec![5, 0xff]));
        assert_eq!(told(b"\x04\x01\x00\x50\x0a\x00\x00\x07\x00"), (None, vec![]));
    }

    #[test]
    fn a_failure_has_the_number_of_its_kind() {
        let number = |code| reply(Some(&Failure::new(code, "")))[1];
        assert_eq!(reply(None)[1], 0);
        assert_eq!(number(Code::Forbidden), 2);
        assert_eq!(number(Code::TargetRefused), 5);
        assert_eq!(number(Code::HostUnknown), 4);
        assert_eq!(number(Code::TooMany), 1);
    }

    proptest! {
        #[test]
        fn no_words_panic(words in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = told(&[&[5, 1, 0][..], &words].concat());
            let _ = told(&words);
        }
    }
}
