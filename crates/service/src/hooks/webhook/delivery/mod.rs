//! One attempt to deliver: look up the name, judge the addresses, connect, send, and judge the answer.
//!
//! Always true: an attempt sends at most one request; what it reads of the answer is bounded in size and
//! time; it follows no redirects and uses no proxies.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::plain;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::address::{AddressRefusal, AddressRules, OwnAddressCheck};
use super::signature::{WebhookSecret, sign};
use super::url::WebhookUrl;

/// The files of trusted certificates: of Debian and others, then of Fedora, then of SUSE.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the whole attempt may take.
const WHOLE: Duration = Duration::from_secs(30);
/// How long reading the answer's body may take. The body decides nothing.
const BODY: Duration = Duration::from_secs(5);
/// The most bytes of the body that are read, so that the receiver does not fail to write it.
const BODY_MAX: usize = 64 << 10;
/// How many characters of the body the log gets if the message was not accepted.
const EXCERPT_CHARS: usize = 200;
/// The most addresses that a name may have. A name with more is not meant for webhooks.
const ADDRESSES_MAX: usize = 16;
const HEADERS_MAX: usize = 64;
/// The most bytes that the headers of an answer may take in memory.
const HEADERS_BYTES_MAX: usize = 16 << 10;

/// The configuration of all webhooks.
#[derive(Debug, Clone, Default)]
pub struct DeliveryConfig {
    /// The addresses that may be connected to.
    pub addresses: AddressRules,
    /// The certificate authorities to trust.
    pub roots: CertificateRoots,
    /// The time limits; tests make them shorter.
    pub limits: DeliveryLimits,
}

/// Time limits of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryLimits {
    connect: Duration,
    whole: Duration,
    body: Duration,
}

impl Default for DeliveryLimits {
    fn default() -> DeliveryLimits {
        DeliveryLimits { connect: CONNECT, whole: WHOLE, body: BODY }
    }
}

/// The certificate authorities to trust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CertificateRoots {
    /// Those of the system.
    #[default]
    System,
    /// Those in this file of PEM certificates.
    Bundle(PathBuf),
}

/// A message to deliver.
#[derive(Debug, Clone)]
pub struct WebhookDelivery<'a> {
    /// Where to send it.
    pub url: &'a WebhookUrl,
    /// The id of the message, the same in each attempt.
    pub id: &'a str,
    /// The event, such as `post`.
    pub event: &'a str,
    /// The body, as JSON.
    pub body: Vec<u8>,
    /// The secret to sign it with, if the receiver is to check who sent it.
    pub secret: Option<&'a WebhookSecret>,
    /// The time now, in seconds since 1970.
    pub unix_s: i64,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver accepted the message.
    Delivered {
        /// The status, 200 to 299.
        status: u16,
    },
    /// The receiver would not accept it later either.
    Refused {
        /// One line for the log.
        why: String,
    },
    /// The receiver may accept it later.
    Retry {
        /// One line for the log.
        why: String,
        /// How long the receiver asks to wait, if it does.
        after: Option<Duration>,
    },
}

impl DeliveryOutcome {
    fn refused(why: impl Into<String>) -> DeliveryOutcome {
        DeliveryOutcome::Refused { why: why.into() }
    }

    fn retry(why: impl Into<String>) -> DeliveryOutcome {
        DeliveryOutcome::Retry { why: why.into(), after: None }
    }
}

/// A look-up that is running.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Finds the addresses of names.
pub trait Resolve: Send + Sync {
    /// All addresses of a name.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a>;
}

/// Asks the system: files, DNS, and whatever else the host is set up for.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Delivers messages. Making one reads the certificates, so make it once.
pub struct WebhookSender {
    addresses: AddressRules,
    is_of_this_host: OwnAddressCheck,
    limits: DeliveryLimits,
    tls: TlsConnector,
    resolver: Box<dyn Resolve>,
}

impl WebhookSender {
    /// Reads the certificates. If there are none that can be used, only `https` fails.
    pub fn new(config: DeliveryConfig, resolver: Box<dyn Resolve>) -> Result<WebhookSender, Error> {
        let DeliveryConfig { addresses, roots, limits } = config;
        let tls = TlsConnector::from(Arc::new(tls(&roots)?));
        let is_of_this_host = farhaul::sisters::is_of_this_host;
        Ok(WebhookSender { addresses, is_of_this_host, limits, tls, resolver })
    }

    /// Tries once. Dropping the future ends the attempt.
    pub async fn deliver(&self, delivery: &WebhookDelivery<'_>) -> DeliveryOutcome {
        let deadline = Instant::now() + self.limits.whole;
        let why = || format!("{} has not answered within {:?}", delivery.url.origin(), self.limits.whole);
        match timeout_at(deadline, self.attempt(delivery)).await {
            Ok(Ok(outcome) | Err(outcome)) => outcome,
            Err(_) => DeliveryOutcome::retry(why()),
        }
    }

    async fn attempt(&self, delivery: &WebhookDelivery<'_>) -> Result<DeliveryOutcome, DeliveryOutcome> {
        let addresses = self.addresses(delivery.url).await?;
        let stream = self.connect(delivery.url, &addresses).await?;
        if !delivery.url.is_tls() {
            return self.exchange(delivery, stream).await;
        }
        let name = ServerName::try_from(delivery.url.host().to_string()).map_err(|_| {
            DeliveryOutcome::refused(format!("{} is not a valid name for TLS", delivery.url.host()))
        })?;
        let failed =
            |error| DeliveryOutcome::retry(format!("{}: TLS failed: {error}", delivery.url.origin()));
        let stream = self.tls.connect(name, stream).await.map_err(failed)?;
        self.exchange(delivery, stream).await
    }

    /// The addresses of the name. If webhooks may not go to one of them, the whole name is refused: nobody
    /// can then trick this end into choosing that one.
    async fn addresses(&self, url: &WebhookUrl) -> Result<Vec<SocketAddr>, DeliveryOutcome> {
        let found = match url.host().parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, url.port())],
            Err(_) => {
                let failed = |error: io::Error| {
                    DeliveryOutcome::retry(format!("cannot look up {}: {}", url.host(), plain(&error)))
                };
                self.resolver.resolve(url.host(), url.port()).await.map_err(failed)?
            }
        };
        if found.is_empty() || found.len() > ADDRESSES_MAX {
            return Err(DeliveryOutcome::retry(format!("{} has {} addresses", url.host(), found.len())));
        }
        found.iter().try_for_each(|address| self.judge(url, *address))?;
        Ok(found)
    }

    fn judge(&self, url: &WebhookUrl, address: SocketAddr) -> Result<(), DeliveryOutcome> {
        self.addresses.judge(address, self.is_of_this_host).map_err(|refusal| match refusal {
            AddressRefusal::Forbidden(why) => {
                DeliveryOutcome::refused(format!("{}: {why}; webhooks may not go there", url.host()))
            }
            AddressRefusal::Unknown(why) => DeliveryOutcome::retry(format!("{}: {why}", url.host())),
        })
    }

    async fn connect(
        &self,
        url: &WebhookUrl,
        addresses: &[SocketAddr],
    ) -> Result<TcpStream, DeliveryOutcome> {
        let mut why = String::new();
        for address in addresses {
            // Earlier attempts took time, in which the host may have got this address.
            self.judge(url, *address)?;
            why = match timeout(self.limits.connect, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Nothing was sent yet: the host may have got the address while it connected.
                    self.judge(url, *address)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => plain(&error),
                Err(_) => format!("no answer within {:?}", self.limits.connect),
            };
        }
        Err(DeliveryOutcome::retry(format!("cannot connect to {}: {why}", url.origin())))
    }

    async fn exchange<S>(
        &self,
        delivery: &WebhookDelivery<'_>,
        stream: S,
    ) -> Result<DeliveryOutcome, DeliveryOutcome>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let origin = delivery.url.origin();
        let failed =
            |error: hyper::Error| DeliveryOutcome::retry(format!("{origin} does not answer: {error}"));
        let request =
            request(delivery).map_err(|why| DeliveryOutcome::refused(format!("{origin}: {why}")))?;
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.max_headers(HEADERS_MAX).max_buf_size(HEADERS_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let _driver = Driver(tokio::spawn(async move {
            // The request gets the same error.
            let _ = connection.await;
        }));
        let response = sender.send_request(request).await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let excerpt = timeout(self.limits.body, read_some(response)).await.unwrap_or_default();
        Ok(verdict(&origin, status, &headers, &excerpt, delivery.unix_s))
    }
}

/// Ends the connection when dropped.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn tls(roots: &CertificateRoots) -> Result<ClientConfig, Error> {
    let mut store = RootCertStore::empty();
    let bundle = match roots {
        CertificateRoots::Bundle(path) => Some(path.clone()),
        CertificateRoots::System => BUNDLES.iter().map(PathBuf::from).find(|path| path.exists()),
    };
    if let Some(path) = bundle {
        let cannot = |error: &dyn std::fmt::Display| {
            Error::new(Code::BadOption, format!("cannot read certificates of {}: {error}", path.display()))
        };
        let found = CertificateDer::pem_file_iter(&path).map_err(|error| cannot(&error))?;
        let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| cannot(&error))?;
        let (added, _) = store.add_parsable_certificates(found);
        if added == 0 {
            return Err(cannot(&"there are none in it"));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(format!("webhooks: {error}")))?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn request(delivery: &WebhookDelivery<'_>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(delivery.url.target())
        .header(HOST, delivery.url.authority())
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("farhaul/", env!("CARGO_PKG_VERSION")))
        .header("Farhaul-Delivery", delivery.id)
        .header("Farhaul-Event", delivery.event);
    if let Some(secret) = delivery.secret {
        request =
            request.header("Farhaul-Signature", sign(secret, delivery.url, delivery.unix_s, &delivery.body));
    }
    request.body(Full::new(Bytes::from(delivery.body.clone())))
}

/// Reads the beginning of the body, for the log.
async fn read_some(response: Response<Incoming>) -> String {
    let mut body = response.into_body();
    let mut begin = Vec::new();
    let mut read = 0;
    while read < BODY_MAX {
        let Some(Ok(frame)) = body.frame().await else { break };
        let Some(data) = frame.data_ref() else { continue };
        read += data.len();
        let room = 4 * EXCERPT_CHARS - begin.len();
        begin.extend_from_slice(&data[..data.len().min(room)]);
    }
    farhaul_text::printable(&begin, EXCERPT_CHARS)
}

/// The outcome that an answer stands for.
fn verdict(
    origin: &str,
    status: StatusCode,
    headers: &HeaderMap,
    excerpt: &str,
    unix_s: i64,
) -> DeliveryOutcome {
    let said = if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") };
    let why = format!("{origin} answers {}{said}", status.as_u16());
    match status.as_u16() {
        status @ 200..=299 => DeliveryOutcome::Delivered { status },
        408 | 425 | 429 => {
            DeliveryOutcome::Retry { why, after: retry_after(headers.get(RETRY_AFTER), unix_s) }
        }
        400..=499 => DeliveryOutcome::refused(why),
        _ => DeliveryOutcome::Retry { why, after: retry_after(headers.get(RETRY_AFTER), unix_s) },
    }
}

/// Reads `Retry-After`: seconds or a date.
fn retry_after(value: Option<&HeaderValue>, unix_s: i64) -> Option<Duration> {
    let text = value?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second();
    Some(Duration::from_secs(u64::try_from(then.saturating_sub(unix_s)).unwrap_or(0)))
}

#[cfg(test)]
mod tests;
