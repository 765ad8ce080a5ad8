//! TLS 1.3 with raw public keys (RFC 7250) on both sides: who is trusted is a matter of keys, not of certificates.
//!
//! Always true: no session is resumed and no early data taken, so that every connection proves both keys; a server's
//! key is checked before this end shows its own.

use std::sync::{Arc, Mutex};

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

use super::authorized::AuthorizedKeys;
use super::identity::{Identity, fingerprint};
use crate::error::Error;

const ALPN: &[u8] = b"farhaul/1";
/// Label of the session's secret in the TLS exporter (RFC 8446 section 7.5).
pub(crate) const EXPORTER_LABEL: &[u8] = b"EXPORTER-farhaul session";
/// Raw keys have no names; TLS wants one.
pub(crate) const SERVER_NAME: &str = "farhaul.invalid";

/// Which key a server must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pin {
    /// One of these fingerprints.
    OneOf(Vec<String>),
    /// Any: the first use of a server that the user lets in.
    Any,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn setup_failed(error: TlsError) -> Error {
    Error::Io { what: "cannot set up TLS".into(), source: std::io::Error::other(error) }
}

/// The client's side: `seen` gets the fingerprint of the key that the server showed, accepted or not.
pub(crate) fn client_config(
    identity: &Identity,
    pin: Pin,
    seen: Arc<Mutex<Option<String>>>,
) -> Result<ClientConfig, Error> {
    let provider = provider();
    let signatures = Signatures(provider.signature_verification_algorithms);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup_failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerKey { pin, seen, signatures }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// The daemon's side: clients without an authorized key do not get past the handshake.
pub(crate) fn server_config(
    identity: &Identity,
    authorized: Arc<AuthorizedKeys>,
) -> Result<ServerConfig, Error> {
    let provider = provider();
    let signatures = Signatures(provider.signature_verification_algorithms);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup_failed)?
        .with_client_cert_verifier(Arc::new(ClientKeys { authorized, signatures }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// The fingerprint of the key that a peer showed, out of what TLS calls its certificates.
pub(crate) fn peer_spki<'a>(certificates: Option<&'a [CertificateDer<'_>]>) -> Option<&'a [u8]> {
    certificates.and_then(|list| list.first()).map(|first| first.as_ref())
}

/// How either side's proof that it has its key is judged.
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
    pin: Pin,
    seen: Arc<Mutex<Option<String>>>,
    signatures: Signatures,
}

impl ServerCertVerifier for ServerKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let key = fingerprint(end_entity);
        let fits = match &self.pin {
            Pin::OneOf(keys) => keys.contains(&key),
            Pin::Any => true,
        };
        *self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(key);
        if fits {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
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
        self.signatures.verify(message, cert, dss)
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
    authorized: Arc<AuthorizedKeys>,
    signatures: Signatures,
}

impl ClientCertVerifier for ClientKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        match self.authorized.comment_of(end_entity) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
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
        self.signatures.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Signatures::schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
