//! TLS over TCP: the second road of the handshake, and a carrier of packets ([`TlsStream`]).
//!
//! Always true: bytes that were read from the socket beyond the hello stay in the TLS connection, and move
//! into the carrier with it; buffers are bounded.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use farhaul_net::{NonblockingStream, StreamLink};
use farhaul_session::congestion;
use farhaul_session::secret::Secret;
use farhaul_words::{Code, Error};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, Connection, ServerConfig};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::half_open::HANDSHAKE_BYTES;
use super::hello;
use super::hello::{HelloError, WipedBuffer};
use super::lingering_connections::LingeringConnections;
use super::tls::{EXPORTER_LABEL, SERVER_NAME};

/// The most sealed bytes that wait for the socket once packets flow.
const CARRIER_BYTES: usize = congestion::WAITING_BYTES;

/// A TLS connection on the async runtime.
pub(crate) struct TlsConnection {
    stream: TcpStream,
    connection: Connection,
}

/// Connects and finishes the client's handshake. The server may still refuse the client's key; the first read
/// shows that.
pub(crate) async fn connect(config: Arc<ClientConfig>, remote: SocketAddr) -> io::Result<TlsConnection> {
    over(config, TcpStream::connect(remote).await?).await
}

/// The same on an existing connection.
pub(crate) async fn over(config: Arc<ClientConfig>, stream: TcpStream) -> io::Result<TlsConnection> {
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    let connection = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
    TlsConnection::handshake(stream, connection.into()).await
}

/// Finishes the server's handshake: then the client's key is known and authorized.
pub(crate) async fn accept(config: Arc<ServerConfig>, stream: TcpStream) -> io::Result<TlsConnection> {
    let connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
    TlsConnection::handshake(stream, connection.into()).await
}

/// The fatal alert (RFC 8446, section 6) that a client gets instead of TLS if it cannot be served now; it is
/// in a record of its own.
pub(crate) const BUSY: AlertDescription = AlertDescription::InternalError;

/// Tells a client that there is no place now. A client that has already sent something may lose the alert
/// with the connection; it treats that in the same way.
pub(crate) fn turn_away(stream: &TcpStream) {
    let _ = rustix::net::send(
        stream,
        &[21, 3, 3, 0, 2, 2, u8::from(BUSY)],
        rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
    );
}

impl TlsConnection {
    async fn handshake(stream: TcpStream, mut connection: Connection) -> io::Result<TlsConnection> {
        stream.set_nodelay(true)?;
        connection.set_buffer_limit(Some(HANDSHAKE_BYTES));
        let mut tls = TlsConnection { stream, connection };
        while tls.connection.is_handshaking() {
            tls.flush().await?;
            if tls.connection.is_handshaking() {
                tls.fill().await?;
            }
        }
        tls.flush().await?;
        Ok(tls)
    }

    /// Writes what TLS has ready.
    async fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.stream.writable().await?;
            let connection = &mut self.connection;
            match self
                .stream
                .try_io(tokio::io::Interest::WRITABLE, || connection.write_tls(&mut RawSocket(&self.stream)))
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Reads once from the socket and lets TLS process it.
    async fn fill(&mut self) -> io::Result<()> {
        loop {
            self.stream.readable().await?;
            let connection = &mut self.connection;
            match self
                .stream
                .try_io(tokio::io::Interest::READABLE, || connection.read_tls(&mut RawSocket(&self.stream)))
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => break,
                Err(error) => return Err(error),
            }
        }
        if let Err(error) = self.connection.process_new_packets() {
            // The alert tells the peer why; it does not matter here whether it arrives.
            let _ = self.flush().await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(())
    }

    async fn read_exact(&mut self, into: &mut [u8]) -> Result<(), HelloError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.connection.reader().read(&mut into[filled..]) {
                Ok(0) => return Err(HelloError::Closed),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.fill().await?,
                Err(error) => return Err(HelloError::Io(error)),
            }
        }
        Ok(())
    }

    /// Reads one frame.
    pub(crate) async fn read_frame(&mut self) -> Result<Zeroizing<Vec<u8>>, HelloError> {
        let mut prefix = [0; 4];
        self.read_exact(&mut prefix).await?;
        let len = hello::frame_len(prefix)?;
        let mut body = WipedBuffer::default();
        let mut chunk = Zeroizing::new([0; 4096]);
        while body.0.len() < len {
            let want = chunk.len().min(len - body.0.len());
            self.read_exact(&mut chunk[..want]).await?;
            body.extend(&chunk[..want]);
        }
        Ok(body.0)
    }

    /// Writes one frame.
    pub(crate) async fn write_frame<T: serde::Serialize>(&mut self, value: &T) -> Result<(), HelloError> {
        let frame = hello::encode(value)?;
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let taken = self.connection.writer().write(rest)?;
            rest = &rest[taken..];
            self.flush().await?;
        }
        Ok(())
    }

    /// The session's secret, which both ends of this connection can derive and nobody else.
    pub(crate) fn export_secret(&self) -> Result<Secret, Error> {
        let exported = self.connection.export_keying_material(Secret::zeros(), EXPORTER_LABEL, None);
        farhaul_proto::wipe_dead_stack();
        exported.map_err(|error| Error::new(Code::NoSecret, format!("TLS gives no key material: {error}")))
    }

    /// The peer's public key.
    pub(crate) fn peer_key(&self) -> Option<Vec<u8>> {
        super::tls::peer_spki(self.connection.peer_certificates()).map(<[u8]>::to_vec)
    }

    pub(crate) fn remote(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Turns the connection into a link that carries packets.
    pub(crate) fn into_link(self, lingering: Option<LingeringConnections>) -> io::Result<StreamLink> {
        let stream = self.stream.into_std()?;
        let mut connection = self.connection;
        connection.set_buffer_limit(Some(CARRIER_BYTES));
        let prepared = congestion::prepare(&stream)?;
        Ok(prepared.carrier(StreamLink::new(Box::new(TlsStream { stream, connection, lingering }))))
    }
}

/// Reads and writes a tokio socket without checking its readiness; `try_io` wraps that.
struct RawSocket<'a>(&'a TcpStream);

impl Read for RawSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for RawSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, rustix::net::SendFlags::NOSIGNAL)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A TLS connection that never blocks.
struct TlsStream {
    stream: std::net::TcpStream,
    connection: Connection,
    /// What takes care of the connection when this end leaves it.
    lingering: Option<LingeringConnections>,
}

impl TlsStream {
    fn send_pending(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}

/// Ignores that a write would block, as its bytes stay in a buffer.
fn unless_blocked(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A connection that was cut counts as ended: packets are authenticated one by one.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.connection.read_tls(&mut self.stream)?;
            let processed = self.connection.process_new_packets();
            // Key updates and alerts are answered.
            unless_blocked(self.send_pending())?;
            // Anybody on the path can break a TLS record: the connection is lost, but the peer is not to
            // blame.
            processed.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_blocked(self.send_pending())?;
        let taken = self.connection.writer().write(bytes)?;
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        unless_blocked(self.send_pending())?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_pending()
    }
}

impl NonblockingStream for TlsStream {
    fn read_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
    fn write_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
    fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }
    fn leave(&mut self, unwritten: &[u8]) {
        let Some(lingering) = &self.lingering else { return };
        let mut rest = Vec::new();
        self.connection.set_buffer_limit(None);
        // Writing into memory does not fail, and a socket that cannot be cloned has nobody to linger for.
        let _ = self.connection.writer().write_all(unwritten);
        self.connection.send_close_notify();
        while self.connection.wants_write() && self.connection.write_tls(&mut rest).is_ok() {}
        if let Ok(stream) = self.stream.try_clone() {
            lingering.take(stream, rest);
        }
    }
}
