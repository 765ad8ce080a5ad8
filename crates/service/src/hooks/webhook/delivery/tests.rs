use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hooks/webhook/vectors/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("../vectors/server.pem");
const KEY: &[u8] = include_bytes!("../vectors/server.key");

/// Resolves names from a table, and counts look-ups.
#[derive(Clone, Default)]
struct TestResolver {
    table: Arc<Vec<(&'static str, Vec<SocketAddr>)>>,
    asked: Arc<AtomicUsize>,
}

impl Resolve for TestResolver {
    fn resolve<'a>(&'a self, host: &'a str, _port: u16) -> ResolveFuture<'a> {
        self.asked.fetch_add(1, SeqCst);
        let found = self.table.iter().find(|(name, _)| *name == host).map(|(_, found)| found.clone());
        Box::pin(async move { found.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// The behaviour of a server on each connection, once it has read a request.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Sends this answer, and closes.
    Answer(&'static str),
    /// Sends the first text, and then the second one for as long as somebody reads.
    Endless(&'static str, &'static str),
    /// Sends nothing.
    Silent,
}

/// A server on this host. It counts connections, and keeps the last request.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    request: Arc<Mutex<String>>,
}

impl Server {
    async fn start(behaviour: Behaviour, tls: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            request: Arc::default(),
        };
        let it = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                it.connections.fetch_add(1, SeqCst);
                let it = it.clone();
                tokio::spawn(async move {
                    match tls {
                        false => it.serve(stream, behaviour).await,
                        true => match acceptor().accept(stream).await {
                            Ok(stream) => it.serve(stream, behaviour).await,
                            Err(_) => Ok(()),
                        },
                    }
                });
            }
        });
        server
    }

    async fn serve(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        behaviour: Behaviour,
    ) -> io::Result<()> {
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let len = stream.read(&mut piece).await?;
            request.extend_from_slice(&piece[..len]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
            if len == 0 || body.is_some_and(|body| body.ends_with('}')) {
                *self.request.lock().unwrap() = text;
                break;
            }
        }
        match behaviour {
            Behaviour::Answer(answer) => stream.write_all(answer.as_bytes()).await?,
            Behaviour::Endless(begin, more) => {
                stream.write_all(begin.as_bytes()).await?;
                loop {
                    stream.write_all(more.as_bytes()).await?;
                    tokio::task::yield_now().await;
                }
            }
            Behaviour::Silent => std::future::pending().await,
        }
        stream.shutdown().await
    }

    fn request(&self) -> String {
        self.request.lock().unwrap().clone()
    }

    fn header(&self, name: &str) -> Option<String> {
        let request = self.request();
        let (head, _) = request.split_once("\r\n\r\n")?;
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_string())
        })
    }
}

fn acceptor() -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn short() -> DeliveryLimits {
    let of = Duration::from_millis;
    DeliveryLimits { connect: of(500), whole: of(2000), body: of(300) }
}

fn config() -> DeliveryConfig {
    DeliveryConfig {
        addresses: AddressRules { allow: vec!["127.0.0.0/8".parse().unwrap()], deny: Vec::new() },
        roots: CertificateRoots::Bundle(AUTHORITY.into()),
        limits: short(),
    }
}

async fn deliver_by(sender: &WebhookSender, url: &str) -> DeliveryOutcome {
    let url = url.parse().unwrap();
    let secret = WebhookSecret::new("0123456789abcdef").unwrap();
    let delivery = WebhookDelivery {
        url: &url,
        id: "4k2m.1.post",
        event: "post",
        body: b"{\"a\":1}".to_vec(),
        secret: Some(&secret),
        unix_s: 1_764_288_000,
    };
    sender.deliver(&delivery).await
}

async fn deliver(url: &str) -> DeliveryOutcome {
    deliver_by(&WebhookSender::new(config(), Box::new(SystemResolver)).unwrap(), url).await
}

fn is_retry(outcome: &DeliveryOutcome, part: &str) -> bool {
    matches!(outcome, DeliveryOutcome::Retry { why, .. } if why.contains(part))
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test]
async fn a_message_arrives_signed_by_one_connection() {
    let server = Server::start(Behaviour::Answer(OK), false).await;
    let names = TestResolver {
        table: Arc::new(vec![("hooks.test", vec![server.address])]),
        ..TestResolver::default()
    };
    let sender = WebhookSender::new(config(), Box::new(names.clone())).unwrap();
    let url = format!("http://hooks.test:{}/in?key=7", server.address.port());
    assert_eq!(deliver_by(&sender, &url).await, DeliveryOutcome::Delivered { status: 204 });

    let request = server.request();
    assert!(
        request.starts_with("POST /in?key=7 HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{\"a\":1}"),
        "{request}"
    );
    for (name, value) in [
        ("Host", format!("hooks.test:{}", server.address.port())),
        ("Content-Type", "application/json".into()),
        ("Content-Length", "7".into()),
        ("User-Agent", format!("farhaul/{}", env!("CARGO_PKG_VERSION"))),
        ("Farhaul-Delivery", "4k2m.1.post".into()),
        ("Farhaul-Event", "post".into()),
        (
            "Farhaul-Signature",
            sign(
                &WebhookSecret::new("0123456789abcdef").unwrap(),
                &url.parse().unwrap(),
                1_764_288_000,
                b"{\"a\":1}",
            ),
        ),
    ] {
        assert_eq!(server.header(name), Some(value), "{name}");
    }
    assert_eq!((server.connections.load(SeqCst), names.asked.load(SeqCst)), (1, 1));
}

#[tokio::test]
async fn answers_say_whether_to_try_again() {
    for (answer, expected) in [
        ("200 OK", "delivered"),
        ("299 Fine", "delivered"),
        ("301 Moved\r\nLocation: http://127.0.0.1:1/", "retry"),
        ("307 Moved\r\nLocation: http://127.0.0.1:1/", "retry"),
        ("400 Bad", "refused"),
        ("404 None", "refused"),
        ("408 Slow", "retry"),
        ("410 Gone", "refused"),
        ("425 Early", "retry"),
        ("429 Much", "retry"),
        ("500 Broken", "retry"),
        ("503 Later", "retry"),
    ] {
        let answer: &'static str = Box::leak(format!("HTTP/1.1 {answer}\r\n\r\n").into_boxed_str());
        let server = Server::start(Behaviour::Answer(answer), false).await;
        let outcome = deliver(&format!("http://{}/", server.address)).await;
        let word = match &outcome {
            DeliveryOutcome::Delivered { .. } => "delivered",
            DeliveryOutcome::Refused { .. } => "refused",
            DeliveryOutcome::Retry { .. } => "retry",
        };
        assert_eq!(word, expected, "{answer}: {outcome:?}");
        assert_eq!(server.connections.load(SeqCst), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::start(Behaviour::Answer(OK), false).await;
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: http://{}/\r\n\r\n", other.address);
    let server = Server::start(Behaviour::Answer(Box::leak(answer.into_boxed_str())), false).await;
    let outcome = deliver(&format!("http://{}/", server.address)).await;
    assert!(is_retry(&outcome, "answers 302"), "{outcome:?}");
    assert_eq!((server.connections.load(SeqCst), other.connections.load(SeqCst)), (1, 0));
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let now = 1_764_288_000;
    for (text, expected) in [
        ("120", Some(120)),
        ("0", Some(0)),
        ("99999999999999999999999", Some(u64::MAX)),
        ("Fri, 28 Nov 2025 00:02:00 GMT", Some(120)),
        ("Thu, 27 Nov 2025 00:00:00 GMT", Some(0)),
        ("-5", None),
        ("soon", None),
        ("", None),
    ] {
        let value = HeaderValue::from_str(text).unwrap();
        assert_eq!(retry_after(Some(&value), now), expected.map(Duration::from_secs), "{text}");
    }
    assert_eq!(retry_after(None, now), None);
}

#[tokio::test]
async fn names_with_an_address_that_is_not_allowed_are_refused() {
    let server = Server::start(Behaviour::Answer(OK), false).await;
    let port = server.address.port();
    let at = |text: &str| SocketAddr::new(text.parse().unwrap(), port);
    let table = vec![
        ("private.test", vec![at("10.0.0.7")]),
        ("metadata.test", vec![at("169.254.169.254")]),
        ("loopback.test", vec![server.address]),
        ("mapped.test", vec![at("::ffff:127.0.0.1")]),
        // An allowed address beside it does not help.
        ("mixed.test", vec![at("1.1.1.1"), server.address]),
    ];
    let names = TestResolver { table: Arc::new(table), ..TestResolver::default() };
    let strict = DeliveryConfig { addresses: AddressRules::default(), ..config() };
    let sender = WebhookSender::new(strict, Box::new(names.clone())).unwrap();
    for host in
        ["private.test", "metadata.test", "loopback.test", "mapped.test", "mixed.test", "127.0.0.1", "[::1]"]
    {
        let outcome = deliver_by(&sender, &format!("http://{host}:{port}/")).await;
        let DeliveryOutcome::Refused { why } = &outcome else { panic!("{host}: {outcome:?}") };
        assert!(why.contains("webhooks may not go there"), "{why}");
    }
    // Spellings that the C library reads as an address are judged as that address.
    let system = WebhookSender::new(
        DeliveryConfig { addresses: AddressRules::default(), ..config() },
        Box::new(SystemResolver),
    )
    .unwrap();
    for host in ["localhost", "2130706433", "0x7f.1", "127.1", "0"] {
        let outcome = deliver_by(&system, &format!("http://{host}:{port}/")).await;
        assert!(!matches!(outcome, DeliveryOutcome::Delivered { .. }), "{host}: {outcome:?}");
    }
    assert_eq!((server.connections.load(SeqCst), names.asked.load(SeqCst)), (0, 5));
}

/// A name whose address changes with each look-up.
struct ChangingName(Mutex<Vec<SocketAddr>>);

impl Resolve for ChangingName {
    fn resolve<'a>(&'a self, _host: &'a str, _port: u16) -> ResolveFuture<'a> {
        let next = self.0.lock().unwrap().pop();
        Box::pin(async move { next.map(|address| vec![address]).ok_or_else(|| io::Error::other("no more")) })
    }
}

#[tokio::test]
async fn a_name_that_moves_between_attempts_is_judged_anew_and_within_one_it_cannot_move() {
    let server = Server::start(Behaviour::Answer("HTTP/1.1 503 Later\r\n\r\n"), false).await;
    let here = server.address;
    let named = |name: &str| SocketAddr::new(name.parse().unwrap(), here.port());
    let addresses = vec![here, named("127.0.0.2"), named("10.0.0.7"), here];
    let allow = vec!["127.0.0.1".parse().unwrap()];
    let config = DeliveryConfig { addresses: AddressRules { allow, deny: Vec::new() }, ..config() };
    let sender = WebhookSender::new(config, Box::new(ChangingName(Mutex::new(addresses)))).unwrap();
    assert!(is_retry(&deliver_by(&sender, "http://moves.test/").await, "answers 503"));
    for moved_to in ["10.0.0.7", "127.0.0.2"] {
        let outcome = deliver_by(&sender, "http://moves.test/").await;
        let DeliveryOutcome::Refused { why } = &outcome else { panic!("{outcome:?}") };
        assert!(why.contains(moved_to), "{why}");
    }
    assert!(is_retry(&deliver_by(&sender, "http://moves.test/").await, "answers 503"));
    assert_eq!(server.connections.load(SeqCst), 2);
}

#[tokio::test]
async fn an_address_that_this_host_gets_while_it_connects_hears_nothing() {
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start(Behaviour::Answer(OK), false).await;
    // As if the address came to this host between the last look before the connection and the one after it.
    let allow = vec!["0.0.0.0/0".parse().unwrap()];
    let strict = DeliveryConfig { addresses: AddressRules { allow, deny: Vec::new() }, ..config() };
    let mut sender = WebhookSender::new(strict, Box::new(SystemResolver)).unwrap();
    sender.is_of_this_host = |_| Ok(LOOKS.fetch_add(1, SeqCst) >= 2);
    let outcome = deliver_by(&sender, &format!("http://{}/", server.address)).await;
    let DeliveryOutcome::Refused { why } = &outcome else { panic!("{outcome:?}") };
    assert!(why.contains("of this host itself"), "{why}");
    assert_eq!((LOOKS.load(SeqCst), server.request()), (3, String::new()));
}

#[tokio::test]
async fn what_fails_on_the_way_is_tried_again() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(is_retry(&deliver(&format!("http://{unused}/")).await, "cannot connect"));
    let nowhere = WebhookSender::new(config(), Box::new(TestResolver::default())).unwrap();
    assert!(is_retry(&deliver_by(&nowhere, "http://none.test/").await, "cannot look up"));
    let server = Server::start(Behaviour::Answer(""), false).await;
    assert!(is_retry(&deliver(&format!("http://{}/", server.address)).await, "does not answer"));
    let server = Server::start(Behaviour::Answer("SSH-2.0-OpenSSH\r\n\r\n"), false).await;
    assert!(is_retry(&deliver(&format!("http://{}/", server.address)).await, "does not answer"));
    let server = Server::start(Behaviour::Silent, false).await;
    assert!(is_retry(&deliver(&format!("http://{}/", server.address)).await, "within"));
}

#[tokio::test]
async fn answers_without_end_are_cut() {
    // Without that, a delivery would never end.
    let endless = [
        // A body without an end; the status has come before it.
        ("HTTP/1.1 200 OK\r\n\r\n", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", true),
        // A body that never comes.
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "", true),
        // Headers without an end.
        ("HTTP/1.1 200 OK\r\n", "A: b\r\n", false),
        ("HTTP/1.1 200 OK\r\nA: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", false),
        // Only interim answers.
        ("", "HTTP/1.1 100 Continue\r\n\r\n", false),
    ];
    for (begin, more, is_delivered) in endless {
        let server = Server::start(Behaviour::Endless(begin, more), false).await;
        let outcome = deliver(&format!("http://{}/", server.address)).await;
        match is_delivered {
            true => assert_eq!(outcome, DeliveryOutcome::Delivered { status: 200 }, "{begin}"),
            false => assert!(matches!(outcome, DeliveryOutcome::Retry { .. }), "{begin}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_large_answer_is_read_in_part_and_shown_without_tricks() {
    let body = format!("\u{1b}[2Jno{}", "x".repeat(1 << 20));
    let answer = format!("HTTP/1.1 400 Bad\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let server = Server::start(Behaviour::Answer(Box::leak(answer.into_boxed_str())), false).await;
    let outcome = deliver(&format!("http://{}/", server.address)).await;
    let DeliveryOutcome::Refused { why } = outcome else { panic!("{outcome:?}") };
    assert!(why.len() < 1000 && !why.contains('\u{1b}') && why.contains("xxx"), "{why}");
}

#[tokio::test]
async fn tls_is_checked() {
    let server = Server::start(Behaviour::Answer(OK), true).await;
    let names = || {
        let table = vec![("hooks.test", vec![server.address]), ("other.test", vec![server.address])];
        Box::new(TestResolver { table: Arc::new(table), ..TestResolver::default() })
    };
    let sender = WebhookSender::new(config(), names()).unwrap();
    assert_eq!(deliver_by(&sender, "https://hooks.test/").await, DeliveryOutcome::Delivered { status: 204 });
    assert_eq!(server.header("Host").as_deref(), Some("hooks.test"));
    // The certificate has neither this name nor the address.
    assert!(is_retry(&deliver_by(&sender, "https://other.test/").await, "TLS failed"));
    let url = format!("https://{}/", server.address);
    assert!(is_retry(&deliver_by(&sender, &url).await, "TLS failed"));
    // The system does not trust the authority.
    let doubtful =
        WebhookSender::new(DeliveryConfig { roots: CertificateRoots::System, ..config() }, names()).unwrap();
    assert!(is_retry(&deliver_by(&doubtful, "https://hooks.test/").await, "TLS failed"));
    // A server without TLS.
    let plain = Server::start(Behaviour::Answer("HTTP/1.1 200 OK\r\n\r\n"), false).await;
    let table = vec![("hooks.test", vec![plain.address])];
    let sender = WebhookSender::new(
        config(),
        Box::new(TestResolver { table: Arc::new(table), ..TestResolver::default() }),
    )
    .unwrap();
    let outcome = deliver_by(&sender, "https://hooks.test/").await;
    assert!(matches!(outcome, DeliveryOutcome::Retry { .. }), "{outcome:?}");
}

#[test]
fn certificates_that_cannot_be_read_are_said() {
    let make = |path: &str| {
        let config = DeliveryConfig { roots: CertificateRoots::Bundle(path.into()), ..config() };
        WebhookSender::new(config, Box::new(SystemResolver)).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(make("/nonexistent.pem").unwrap_err().contains("/nonexistent.pem"));
    assert!(make("/dev/null").unwrap_err().contains("there are none"));
    assert_eq!(make(AUTHORITY), Ok(()));
}
