//! TLS 1.3 with raw public keys (RFC 7250) at both ends: trust is in keys, not in certificates.
//!
//! Always true: no session is resumed and no early data is accepted, so that every connection proves both
//! keys. A server's key is checked before this end shows its own. A key is judged when its owner has proved
//! it, and the judgement belongs to that one connection.

use std::sync::{Arc, OnceLock};

use farhaul_words::Error;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError,
    ServerConfig, SignatureScheme,
};

use super::client_tables::{ClientTables, ProvenClient};
use super::identity::{Identity, fingerprint};

const ALPN: &[u8] = b"farhaul";
/// The label of the session's secret in the TLS exporter (RFC 8446, section 7.5).
pub(crate) const EXPORTER_LABEL: &[u8] = b"EXPORTER-farhaul session";
/// Raw keys have no names, but TLS wants one.
pub(crate) const SERVER_NAME: &str = "farhaul.invalid";

/// Which key a server must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyPin {
    /// A key with one of these fingerprints.
    OneOf(Vec<String>),
    /// Any key: the first use of a server, if the user accepts new ones.
    Any,
}

impl KeyPin {
    pub(crate) fn lets_in(&self, key: &str) -> bool {
        match self {
            KeyPin::OneOf(keys) => keys.iter().any(|known| known == key),
            KeyPin::Any => true,
        }
    }
}

/// The fingerprint of a key that the peer of one connection has proved, and that was not accepted.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusedKey(Arc<OnceLock<String>>);

impl RefusedKey {
    pub(crate) fn key(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn refuse(&self, key: String) -> TlsError {
        // A connection has one handshake, so this is its first key.
        let _ = self.0.set(key);
        CertificateError::ApplicationVerificationFailure.into()
    }
}

/// The client of one connection, once it has proved its key.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProvenClientCell(Arc<OnceLock<Result<ProvenClient, String>>>);

impl ProvenClientCell {
    /// The client, if it may send its first frame.
    pub(crate) fn proven(&self) -> Option<&ProvenClient> {
        self.0.get()?.as_ref().ok()
    }

    /// The fingerprint of the client's key, if it may not.
    pub(crate) fn stranger(&self) -> Option<&str> {
        self.0.get()?.as_ref().err().map(String::as_str)
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}

fn setup_failed(error: TlsError) -> Error {
    Error::of_host("cannot set up TLS", std::io::Error::other(error))
}

/// The client's side of one connection, and the server's key if that is not accepted.
pub(crate) fn client_config(identity: &Identity, pin: KeyPin) -> Result<(ClientConfig, RefusedKey), Error> {
    let provider = provider();
    let signatures = Signatures(provider.signature_verification_algorithms);
    let refused = RefusedKey::default();
    let verifier = ServerKey { pin, refused: refused.clone(), signatures };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup_failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok((config, refused))
}

/// The daemon's side of one connection: a client that is not let in does not get past the handshake.
pub(crate) fn server_config(
    identity: &Identity,
    tables: ClientTables,
) -> Result<(ServerConfig, ProvenClientCell), Error> {
    let provider = provider();
    let signatures = Signatures(provider.signature_verification_algorithms);
    let shown = ProvenClientCell::default();
    let verifier = ClientKeys { tables, shown: shown.clone(), signatures };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup_failed)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok((config, shown))
}

/// The public key that a peer showed, taken from what TLS calls its certificates.
pub(crate) fn peer_spki<'a>(certificates: Option<&'a [CertificateDer<'_>]>) -> Option<&'a [u8]> {
    certificates.and_then(|list| list.first()).map(|first| first.as_ref())
}

/// Judges the signature with which either end proves its key.
#[derive(Debug)]
struct Signatures(WebPkiSupportedAlgorithms);

impl Signatures {
    fn schemes() -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn refuse_tls12() -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.0)
    }
}

#[derive(Debug)]
struct ServerKey {
    pin: KeyPin,
    refused: RefusedKey,
    signatures: Signatures,
}

impl ServerCertVerifier for ServerKey {
    /// Anybody can show a key; it is judged together with the signature that proves it.
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
        Signatures::refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let proved = self.signatures.verify(message, cert, dss)?;
        let key = fingerprint(cert);
        if self.pin.lets_in(&key) { Ok(proved) } else { Err(self.refused.refuse(key)) }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Signatures::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct ClientKeys {
    tables: ClientTables,
    shown: ProvenClientCell,
    signatures: Signatures,
}

impl ClientCertVerifier for ClientKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// As for a server's key.
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
        Signatures::refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let proved = self.signatures.verify(message, cert, dss)?;
        let who = self.tables.proven(cert);
        // A connection has one handshake, so this is its first key.
        let is_known = self.shown.0.get_or_init(|| who).is_ok();
        if is_known { Ok(proved) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Signatures::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
