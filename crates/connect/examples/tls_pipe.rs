//! The TLS over TCP of a daemon, for a peer that has no TLS of its own: writes the session's secret (32
//! bytes) to standard output, then the connection's plaintext; standard input goes the other way.
//!
//! For tests: it trusts any peer. `tls_pipe connect|listen ADDRESS:PORT KEY-FILE [ALPN]`.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, Connection, DigitallySignedStruct, DistinguishedName, Error as TlsError, ServerConfig,
    SignatureScheme,
};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, address, key, rest @ ..] = &words[..] else {
        return Err("tls_pipe connect|listen ADDRESS:PORT KEY-FILE [ALPN]".into());
    };
    let alpn = rest.first().map_or("farhaul", String::as_str).as_bytes().to_vec();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = load(key)?;
    let (mut socket, mut connection): (TcpStream, Connection) = match role.as_str() {
        "connect" => {
            let config = client(provider, key, alpn)?;
            let name = ServerName::try_from("farhaul.invalid")?;
            (TcpStream::connect(address)?, rustls::ClientConnection::new(config, name)?.into())
        }
        "listen" => {
            let config = server(provider, key, alpn)?;
            let listener = TcpListener::bind(address)?;
            eprintln!("listening");
            (listener.accept()?.0, rustls::ServerConnection::new(config)?.into())
        }
        _ => return Err("connect or listen".into()),
    };
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let secret = connection.export_keying_material([0; 32], b"EXPORTER-farhaul session", None)?;
    let (received, to_write) = mpsc::channel();
    received.send(secret.to_vec())?;
    // A user that only sends for a while must not keep this program from reading what it sends.
    let writer = std::thread::spawn(move || write_out(&to_write));
    let relayed = relay(&mut socket, &mut connection, &received);
    drop(received);
    // What has come is written, also if the connection was cut.
    writer.join().expect("the writer does not panic")?;
    relayed
}

fn write_out(received: &mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    for bytes in received {
        io::stdout().write_all(&bytes)?;
        io::stdout().flush()?;
    }
    Ok(())
}

fn relay(
    socket: &mut TcpStream,
    connection: &mut Connection,
    received: &mpsc::Sender<Vec<u8>>,
) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    let mut has_input = true;
    loop {
        while connection.wants_write() {
            connection.write_tls(socket)?;
        }
        loop {
            match connection.reader().read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => received.send(buffer[..count].to_vec())?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let stdin = io::stdin();
        let mut ready = vec![PollFd::new(&*socket, PollFlags::IN)];
        if has_input {
            ready.push(PollFd::new(&stdin, PollFlags::IN));
        }
        poll(&mut ready, None)?;
        let readable: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
        if readable[0] {
            connection.read_tls(socket)?;
            if let Err(error) = connection.process_new_packets() {
                // The alert says why.
                let _ = connection.write_tls(socket);
                return Err(error.into());
            }
        }
        if readable.get(1) == Some(&true) {
            // Not through the standard library's buffer, as `poll` would not see what is in it.
            let count = rustix::io::read(&stdin, &mut buffer[..16 << 10])?;
            match count {
                0 => {
                    has_input = false;
                    connection.send_close_notify();
                }
                count => connection.writer().write_all(&buffer[..count])?,
            }
        }
    }
}

fn load(path: &str) -> Result<Arc<CertifiedKey>, Failure> {
    let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_file(path)? else {
        return Err("a PKCS#8 key is needed".into());
    };
    let signing = aws_lc_rs::sign::any_eddsa_type(&key)?;
    let public = signing.public_key().ok_or("the key has no public half")?.to_vec();
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signing)))
}

fn client(
    provider: Arc<CryptoProvider>,
    key: Arc<CertifiedKey>,
    alpn: Vec<u8>,
) -> Result<Arc<ClientConfig>, Failure> {
    let anybody = Arc::new(Anybody(provider.clone()));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(anybody)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.alpn_protocols = vec![alpn];
    config.enable_sni = false;
    Ok(Arc::new(config))
}

fn server(
    provider: Arc<CryptoProvider>,
    key: Arc<CertifiedKey>,
    alpn: Vec<u8>,
) -> Result<Arc<ServerConfig>, Failure> {
    let anybody = Arc::new(Anybody(provider.clone()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(anybody)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.alpn_protocols = vec![alpn];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Trusts every key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl Anybody {
    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(
            message,
            &key,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }
}

fn only_tls13() -> TlsError {
    TlsError::General("only TLS 1.3 is spoken here".into())
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
