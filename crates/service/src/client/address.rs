//! The address of a service: its Unix socket, or a host with a port.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farhaul_words::{Code, Error};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The address of a service.
#[derive(Debug, Clone)]
pub enum ServiceAddress {
    /// A Unix socket. Only the user that the service runs as can open it.
    Unix(PathBuf),
    /// A host, with TLS if there is a configuration for it.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// The certificates to trust; `None` without TLS.
        tls: Option<Arc<rustls::ClientConfig>>,
    },
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceAddress::Unix(path) => path.display().fmt(f),
            ServiceAddress::Tcp { tls, .. } => {
                write!(f, "{}://{}", if tls.is_some() { "https" } else { "http" }, self.host())
            }
        }
    }
}

impl ServiceAddress {
    /// Reads `/path/to/socket`, `http://127.0.0.1:8080` or `https://host[:port]`. Without TLS only this host
    /// is allowed, as others on the way could read the token.
    pub fn parse(text: &str, ca_file: Option<&Path>) -> Result<ServiceAddress, Error> {
        let bad = |what: &str| Error::new(Code::BadOption, format!("{text}: {what}"));
        if text.starts_with('/') {
            let path = PathBuf::from(text);
            // The state directory of a service has its socket, unless the configuration says otherwise.
            return Ok(ServiceAddress::Unix(if path.is_dir() { path.join("api.sock") } else { path }));
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| bad("the address of a service is the path of its socket or of its state directory, or https://host:port"))?;
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| bad("that is not a port"))?))
            }
            _ => (rest, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        if host.is_empty() || host.contains(['/', '@', '?', '#']) {
            return Err(bad("write only a host and a port"));
        }
        match scheme {
            "https" => Ok(ServiceAddress::Tcp { host, port: port.unwrap_or(443), tls: Some(tls(ca_file)?) }),
            "http" => {
                let is_here =
                    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
                if !is_here {
                    return Err(bad("a token is sent to other hosts over https:// only"));
                }
                Ok(ServiceAddress::Tcp { host, port: port.unwrap_or(80), tls: None })
            }
            _ => Err(bad("write https://host:port")),
        }
    }

    /// The value of a request's `Host` header.
    pub(super) fn host(&self) -> String {
        match self {
            ServiceAddress::Unix(_) => "localhost".into(),
            ServiceAddress::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            ServiceAddress::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

/// The files in which Linux distributions keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

fn tls(ca_file: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, Error> {
    let system = || SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.exists());
    let none = || {
        Error::new(Code::BadKey, "this host has no certificates to trust").with_hint("name some with `ca`")
    };
    let file = ca_file.map(Path::to_path_buf).or_else(system).ok_or_else(none)?;
    let bad = |why: String| Error::new(Code::BadKey, format!("{}: {why}", file.display()));
    let mut roots = rustls::RootCertStore::empty();
    let all = CertificateDer::pem_file_iter(&file)
        .map_err(|error| bad(format!("not certificates in PEM: {error}")))?;
    for certificate in all {
        // A certificate of the system that rustls does not understand is left out.
        let _ = roots.add(certificate.map_err(|error| bad(error.to_string()))?);
    }
    if roots.is_empty() {
        return Err(bad("it has no certificate".into()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        builder.map_err(|error| bad(error.to_string()))?.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_hosts() {
        let parse = |text: &str| ServiceAddress::parse(text, None);
        assert!(matches!(parse("/run/x.sock"), Ok(ServiceAddress::Unix(_))));
        for (text, host) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://[::1]:8080/", "[::1]:8080"),
            ("http://localhost", "localhost:80"),
        ] {
            assert_eq!(parse(text).unwrap().host(), host);
        }
        for wrong in [
            "",
            "x.sock",
            "http://example.org",
            "http://10.0.0.1:80",
            "ftp://localhost",
            "http://u@localhost",
            "http://localhost:x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
