//! The handshake over UDP: QUIC carries the hello and its reply, and ends; data then travel in packets of our
//! own.
//!
//! Always true: QUIC's packets stay at 1200 bytes, so that a path that loses large ones does not hinder the
//! handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farhaul_session::secret::Secret;
use farhaul_words::{Code, Error};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, RecvStream, Runtime as _, SendStream,
    TokioRuntime, TransportConfig, VarInt,
};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::half_open::{HALF_OPEN_MAX, HANDSHAKE_BYTES, HANDSHAKE_TIME};
use super::hello;
use super::hello::{HelloError, WipedBuffer};
use super::race::RaceFailure;
use super::repeating_socket::{HeardFlag, RepeatingSocket, SaidCount};
use super::tls::{EXPORTER_LABEL, SERVER_NAME};

/// The first guess of the round trip, lower than the RFC's 333 ms, so that losses cost less time.
const INITIAL_RTT: Duration = Duration::from_millis(150);

/// How long the closing packet may take to leave.
const CLOSE_TIME: Duration = Duration::from_millis(20);

/// The code with which a daemon closes connections for which it has no place now.
pub(crate) const BUSY: VarInt = VarInt::from_u32(1);
/// CONNECTION_REFUSED (RFC 9000, section 20.1): the same before there is a connection.
const REFUSED: u64 = 2;
/// Sent for an application's close code that could not be sent yet.
const APPLICATION_ERROR: u64 = 0xc;

/// How a server has turned a connection away, if it has.
pub(crate) fn turned_away(error: &ConnectionError) -> Option<QuicRefusal> {
    match error {
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            REFUSED => Some(QuicRefusal::Busy),
            APPLICATION_ERROR => Some(QuicRefusal::Cut),
            _ => None,
        },
        ConnectionError::ApplicationClosed(close) if close.error_code == BUSY => Some(QuicRefusal::Busy),
        ConnectionError::ApplicationClosed(_) | ConnectionError::Reset => Some(QuicRefusal::Cut),
        _ => None,
    }
}

pub(crate) enum QuicRefusal {
    Busy,
    Cut,
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(HANDSHAKE_BYTES as u32))
        .receive_window(VarInt::from_u32(HANDSHAKE_BYTES as u32))
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(None)
        .initial_rtt(INITIAL_RTT)
        .max_idle_timeout(IdleTimeout::try_from(HANDSHAKE_TIME).ok());
    Arc::new(config)
}

fn setup_failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::of_host("cannot set up QUIC", std::io::Error::other(error))
}

pub(crate) fn server_config(tls: rustls::ServerConfig) -> Result<quinn::ServerConfig, Error> {
    let crypto = QuicServerConfig::try_from(tls).map_err(setup_failed)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(transport())
        .migration(false)
        .max_incoming(HALF_OPEN_MAX)
        .incoming_buffer_size(HANDSHAKE_BYTES as u64)
        .incoming_buffer_size_total((HALF_OPEN_MAX * HANDSHAKE_BYTES) as u64);
    Ok(config)
}

/// The same for one connection, with a verifier of its own.
pub(crate) fn with_tls(
    config: &quinn::ServerConfig,
    tls: rustls::ServerConfig,
) -> Result<quinn::ServerConfig, Error> {
    let mut config = config.clone();
    config.crypto = Arc::new(QuicServerConfig::try_from(tls).map_err(setup_failed)?);
    Ok(config)
}

pub(crate) fn client_config(tls: rustls::ClientConfig) -> Result<quinn::ClientConfig, Error> {
    let crypto = QuicClientConfig::try_from(tls).map_err(setup_failed)?;
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport());
    Ok(config)
}

/// A client's connection, and what keeps it alive.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    _endpoint: Endpoint,
    said: SaidCount,
    pub(crate) connection: Connection,
    pub(crate) remote: SocketAddr,
}

impl ClientConnection {
    /// Closes the connection, and waits until the closing packet has left, which takes no time unless the
    /// socket is full. The packet is not acknowledged; a daemon that misses it only waits a little in vain.
    pub(crate) async fn close(mut self) {
        let before = *self.said.borrow();
        self.connection.close(VarInt::from_u32(0), b"");
        let _ = tokio::time::timeout(CLOSE_TIME, self.said.wait_for(|&said| said > before)).await;
    }
}

/// Connects and finishes the client's handshake. The server may still refuse the client's key; the first read
/// shows that.
pub(crate) async fn connect(
    config: quinn::ClientConfig,
    remote: SocketAddr,
    heard: HeardFlag,
) -> Result<ClientConnection, RaceFailure> {
    let (endpoint, said) = client_endpoint(remote, heard).map_err(|error| RaceFailure::of_io(&error))?;
    let connecting = endpoint
        .connect_with(config, remote, SERVER_NAME)
        .map_err(|error| RaceFailure::Other(error.to_string()))?;
    let connection = connecting.await.map_err(|error| RaceFailure::of_quic(&error))?;
    Ok(ClientConnection { _endpoint: endpoint, said, connection, remote })
}

fn client_endpoint(remote: SocketAddr, heard: HeardFlag) -> std::io::Result<(Endpoint, SaidCount)> {
    let (socket, said) = client_socket(remote, heard)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint =
        Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, Arc::new(socket), runtime)?;
    Ok((endpoint, said))
}

fn client_socket(remote: SocketAddr, heard: HeardFlag) -> std::io::Result<(RepeatingSocket, SaidCount)> {
    let local =
        if remote.is_ipv6() { SocketAddr::from(([0u16; 8], 0)) } else { SocketAddr::from(([0u8; 4], 0)) };
    let socket = std::net::UdpSocket::bind(local)?;
    let same_socket = socket.try_clone()?;
    let socket = TokioRuntime.wrap_udp_socket(socket)?;
    // Quinn has asked the kernel to merge datagrams, and would keep 3 MiB of buffers for that.
    let is_apart = farhaul_net::keep_datagrams_apart(&same_socket).is_ok();
    Ok(RepeatingSocket::new(socket, heard, is_apart))
}

/// The session's secret, which both ends of this connection can derive and nobody else.
pub(crate) fn export_secret(connection: &Connection) -> Result<Secret, Error> {
    let mut secret = Secret::zeros();
    connection
        .export_keying_material(&mut secret[..], EXPORTER_LABEL, b"")
        .map_err(|_| Error::new(Code::NoSecret, "QUIC gives no key material"))?;
    farhaul_proto::wipe_dead_stack();
    Ok(secret)
}

/// The peer's public key.
pub(crate) fn peer_key(connection: &Connection) -> Option<Vec<u8>> {
    let certificates = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    super::tls::peer_spki(Some(&certificates)).map(<[u8]>::to_vec)
}

/// Reads one frame.
pub(crate) async fn read_frame(from: &mut RecvStream) -> Result<Zeroizing<Vec<u8>>, HelloError> {
    let mut prefix = [0; 4];
    read_exact(from, &mut prefix).await?;
    let len = hello::frame_len(prefix)?;
    let mut body = WipedBuffer::default();
    let mut chunk = Zeroizing::new([0; 4096]);
    while body.0.len() < len {
        let want = chunk.len().min(len - body.0.len());
        read_exact(from, &mut chunk[..want]).await?;
        body.extend(&chunk[..want]);
    }
    Ok(body.0)
}

async fn read_exact(from: &mut RecvStream, into: &mut [u8]) -> Result<(), HelloError> {
    from.read_exact(into).await.map_err(|error| match error {
        quinn::ReadExactError::FinishedEarly(_) => HelloError::Closed,
        quinn::ReadExactError::ReadError(error) => HelloError::Io(error.into()),
    })
}

/// The reason that no frame could be read: the connection's own reason says more than the stream's error.
pub(crate) fn cut_off(connection: &Connection, error: HelloError) -> RaceFailure {
    match connection.close_reason() {
        Some(reason) => RaceFailure::of_quic(&reason),
        None => RaceFailure::from(error),
    }
}

/// Writes one frame and ends the stream.
pub(crate) async fn write_frame<T: serde::Serialize>(
    to: &mut SendStream,
    value: &T,
) -> Result<(), HelloError> {
    let frame = hello::encode(value)?;
    to.write_all(&frame).await.map_err(|error| HelloError::Io(error.into()))?;
    // Only a stream that was already finished or reset refuses this; ours is neither.
    let _ = to.finish();
    Ok(())
}

/// The TLS alert with which the peer ended a connection.
pub(crate) fn alert_of(error: &ConnectionError) -> Option<u8> {
    // RFC 9001, section 4.8: the code is 0x100 plus the alert.
    let code = match error {
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        _ => return None,
    };
    code.checked_sub(0x100).and_then(|alert| u8::try_from(alert).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_dials_keeps_room_for_single_datagrams_only() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 9));
        let (socket, _) = client_socket(remote, HeardFlag::default()).unwrap();
        assert_eq!(quinn::AsyncUdpSocket::max_receive_segments(&socket), 1);
    }
}
