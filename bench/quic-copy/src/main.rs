//! A file over QUIC, as plainly as quinn allows: `quic-copy serve ADDRESS CERTIFICATE KEY CONTROL` and
//! `quic-copy send ADDRESS CERTIFICATE FROM TO CONTROL`, where CONTROL is cubic or bbr.
//!
//! One stream carries the name and the size, and back one byte once all is written. The content is in several streams, a
//! slice of the file each, behind its offset: quinn gives up a stream with more than 1024 gaps, which 1 % of loss on a
//! long path makes.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig, TokioRuntime,
    TransportConfig, VarInt, congestion,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::JoinSet;

/// Bytes in flight that the windows allow: 4 Gbit/s at half a second.
const WINDOW: u32 = 256 << 20;
/// Asked of the kernel, which gives at most net.core.rmem_max and wmem_max.
const SOCKET_BUFFER: usize = 16 << 20;
const PIECE: usize = 1 << 18;
const STREAMS: u64 = 16;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match words[..] {
        ["serve", address, certificate, key, control] => {
            runtime.block_on(serve(address.parse()?, certificate, key, control))
        }
        ["send", address, certificate, from, to, control] => {
            runtime.block_on(send(address.parse()?, certificate, from, to, control))
        }
        _ => bail!(
            "usage: quic-copy serve ADDRESS CERTIFICATE KEY CONTROL | send ADDRESS CERTIFICATE FROM TO CONTROL"
        ),
    }
}

fn transport(control: &str) -> Result<Arc<TransportConfig>> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(WINDOW));
    transport.receive_window(VarInt::from_u32(WINDOW));
    transport.send_window(u64::from(WINDOW));
    transport.max_idle_timeout(Some(Duration::from_secs(60).try_into()?));
    match control {
        "cubic" => transport.congestion_controller_factory(Arc::new(congestion::CubicConfig::default())),
        "bbr" => transport.congestion_controller_factory(Arc::new(congestion::BbrConfig::default())),
        _ => bail!("no such congestion control: {control}"),
    };
    Ok(Arc::new(transport))
}

fn socket(address: SocketAddr) -> Result<std::net::UdpSocket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::DGRAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

async fn serve(address: SocketAddr, certificate: &str, key: &str, control: &str) -> Result<()> {
    let chain = vec![CertificateDer::from_pem_file(certificate)?];
    let mut config = ServerConfig::with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.transport_config(transport(control)?);
    let endpoint =
        Endpoint::new(EndpointConfig::default(), Some(config), socket(address)?, Arc::new(TokioRuntime))?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = receive(incoming).await {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

async fn receive(incoming: quinn::Incoming) -> Result<()> {
    let connection = incoming.await?;
    let (mut answer, mut head) = connection.accept_bi().await?;
    let mut size = [0; 8];
    head.read_exact(&mut size).await?;
    let name = String::from_utf8(head.read_to_end(4096).await?)?;
    let file = Arc::new(File::create(&name).with_context(|| name.clone())?);
    let mut slices = JoinSet::new();
    for _ in 0..STREAMS {
        slices.spawn(receive_slice(connection.accept_uni().await?, file.clone()));
    }
    let mut arrived = 0;
    while let Some(slice) = slices.join_next().await {
        arrived += slice??;
    }
    ensure!(arrived == u64::from_be_bytes(size), "{arrived} bytes arrived");
    drop(file);
    answer.write_all(&[1]).await?;
    answer.finish()?;
    connection.closed().await;
    Ok(())
}

async fn receive_slice(mut content: RecvStream, file: Arc<File>) -> Result<u64> {
    let mut offset = [0; 8];
    content.read_exact(&mut offset).await?;
    let begin = u64::from_be_bytes(offset);
    let mut at = begin;
    while let Some(chunk) = content.read_chunk(PIECE, true).await? {
        file.write_all_at(&chunk.bytes, at)?;
        at += chunk.bytes.len() as u64;
    }
    Ok(at - begin)
}

async fn send(address: SocketAddr, certificate: &str, from: &str, to: &str, control: &str) -> Result<()> {
    let file = Arc::new(File::open(from).with_context(|| from.to_owned())?);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport(control)?);
    let own = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let endpoint =
        Endpoint::new(EndpointConfig::default(), None, socket(own.parse()?)?, Arc::new(TokioRuntime))?;
    let connection = endpoint.connect_with(config, address, "beta")?.await?;
    let (mut head, mut answer) = connection.open_bi().await?;
    let size = file.metadata()?.len();
    head.write_all(&size.to_be_bytes()).await?;
    head.write_all(to.as_bytes()).await?;
    head.finish()?;
    let mut slices = JoinSet::new();
    for slice in 0..STREAMS {
        let (begin, end) = (size * slice / STREAMS, size * (slice + 1) / STREAMS);
        slices.spawn(send_slice(connection.open_uni().await?, file.clone(), begin, end));
    }
    while let Some(slice) = slices.join_next().await {
        slice??;
    }
    let mut done = [0];
    answer.read_exact(&mut done).await.context("the receiver did not confirm")?;
    connection.close(0_u32.into(), b"done");
    // All has been confirmed: time to tell the peer, not the three probe timeouts that QUIC would stay.
    tokio::time::timeout(Duration::from_millis(20), endpoint.wait_idle()).await.ok();
    Ok(())
}

async fn send_slice(mut content: SendStream, file: Arc<File>, begin: u64, end: u64) -> Result<()> {
    content.write_all(&begin.to_be_bytes()).await?;
    let mut piece = vec![0; PIECE];
    let mut at = begin;
    while at < end {
        let wanted = PIECE.min(usize::try_from(end - at)?);
        file.read_exact_at(&mut piece[..wanted], at)?;
        content.write_all(&piece[..wanted]).await?;
        at += wanted as u64;
    }
    content.finish()?;
    Ok(())
}
