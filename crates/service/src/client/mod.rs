//! A blocking client of the API, for the command line.
//!
//! `address.rs` says where the service is. A [`ServiceClient`] opens a connection for each request; events
//! keep theirs open.

mod address;

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::Duration;

use farhaul_words::{Code, Error};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

pub use address::ServiceAddress;

use farhaul_api::Problem;

/// How long the client waits for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// A service that is asked too often says how long to wait. The client waits at most this long, at most this
/// often.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);
const BUSY_TIMES: usize = 8;
/// How long an event stream may be silent: three times the interval in which the service sends something.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// The most bytes of an answer.
const ANSWER_MAX: usize = 256 << 20;
/// The most bytes of one event.
const EVENT_MAX: usize = 16 << 20;

/// A client of one service.
#[derive(Debug)]
pub struct ServiceClient {
    address: ServiceAddress,
    /// The token that is sent over TCP.
    token: Option<String>,
    runtime: tokio::runtime::Runtime,
}

/// One event of the service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceEvent {
    /// The id to resume after.
    pub id: Option<u64>,
    /// `job`, `progress`, `log`, `gap` and so on.
    pub kind: String,
    /// The data, as JSON.
    pub data: String,
}

impl ServiceClient {
    /// A client of the service at this address.
    pub fn new(address: ServiceAddress, token: Option<String>) -> Result<ServiceClient, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(ServiceClient { address, token, runtime: runtime.map_err(Error::no_thread)? })
    }

    /// The address of the service.
    pub fn address(&self) -> &ServiceAddress {
        &self.address
    }

    /// Sends GET and reads the answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        read(&self.ask(Method::GET, path, None, &[])?)
    }

    /// Sends GET and yields the answer as text.
    pub fn get_text(&self, path: &str) -> Result<String, Error> {
        self.ask(Method::GET, path, None, &[])
    }

    /// Sends POST with a body and reads the answer.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        read(&self.ask(Method::POST, path, Some(json(body)?), &[])?)
    }

    /// Sends POST with an idempotency key: the service does it once, however often the request is sent.
    pub fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        key: &str,
    ) -> Result<T, Error> {
        read(&self.ask(Method::POST, path, Some(json(body)?), &[("idempotency-key", key)])?)
    }

    /// Sends POST without a body and reads the answer.
    pub fn act<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        read(&self.ask(Method::POST, path, None, &[])?)
    }

    /// Sends PATCH with a body and reads the answer.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        read(&self.ask(Method::PATCH, path, Some(json(body)?), &[])?)
    }

    /// Sends PUT with a body and reads the answer.
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        read(&self.ask(Method::PUT, path, Some(json(body)?), &[])?)
    }

    /// Sends DELETE.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        self.ask(Method::DELETE, path, None, &[]).map(|_| ())
    }

    /// Sends POST with a body to a route that answers nothing.
    pub fn post_only(&self, path: &str, body: &impl Serialize) -> Result<(), Error> {
        self.ask(Method::POST, path, Some(json(body)?), &[]).map(|_| ())
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        headers: &[(&'static str, &str)],
    ) -> Result<String, Error> {
        let request = self.request(method, path, body, headers)?;
        let ask = async {
            let mut response = self.send(request.clone()).await?;
            for _ in 0..BUSY_TIMES {
                let Some(wait) = busy_wait(&response) else { break };
                tokio::time::sleep(wait).await;
                response = self.send(request.clone()).await?;
            }
            let status = response.status();
            let text = whole(response).await?;
            if status.is_success() { Ok(text) } else { Err(problem(status, &text)) }
        };
        let silent = || no_service(&format!("the service at {} does not answer", self.address));
        // The timeout must be made within the runtime.
        self.runtime.block_on(async { tokio::time::timeout(ANSWER_TIME, ask).await }).map_err(|_| silent())?
    }

    /// Hands each event to `hear` until that breaks, or the service ends the stream. Yields whether the
    /// service has ended it.
    pub fn events(
        &self,
        path: &str,
        last: Option<u64>,
        hear: impl FnMut(ServiceEvent) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        self.follow(path, last, || {}, hear)
    }

    /// The id of the last event. A caller that then asks for the state of things, and follows
    /// [`ServiceClient::events`] from this id, misses nothing.
    pub fn last_event(&self) -> Result<u64, Error> {
        let mut last = None;
        self.hear(
            "/events",
            None,
            || {},
            |told| {
                last = told.id;
                ControlFlow::Break(())
            },
        )?;
        last.ok_or_else(|| no_service(&format!("the service at {} sends no events", self.address)))
    }

    /// As [`ServiceClient::events`], and calls `opened` when the stream begins: from then on nothing is
    /// missed.
    pub fn follow(
        &self,
        path: &str,
        last: Option<u64>,
        opened: impl FnOnce(),
        mut hear: impl FnMut(ServiceEvent) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let is_news = |told: &ServiceEvent| told.kind != "begin";
        self.hear(path, last, opened, |told| match is_news(&told) {
            true => hear(told),
            false => ControlFlow::Continue(()),
        })
    }

    /// Hands every event to `hear`, also `begin`.
    fn hear(
        &self,
        path: &str,
        last: Option<u64>,
        opened: impl FnOnce(),
        mut hear: impl FnMut(ServiceEvent) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let last = last.map(|last| last.to_string());
        let headers: Vec<_> = last.iter().map(|last| ("last-event-id", last.as_str())).collect();
        let request = self.request(Method::GET, path, None, &headers)?;
        self.runtime.block_on(async {
            let mut response = self.send(request).await?;
            if !response.status().is_success() {
                let status = response.status();
                return Err(problem(status, &whole(response).await?));
            }
            opened();
            let mut reader = SseReader::default();
            // If the stream is silent for this long, the service is gone or cannot be reached.
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE_MAX, response.frame()).await {
                let Some(bytes) = frame.data_ref() else { continue };
                for told in reader.take(bytes)? {
                    if hear(told).is_break() {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        headers: &[(&'static str, &str)],
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        request = request.header(header::HOST, self.address.host());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bad =
            |error: hyper::http::Error| Error::new(Code::BadOption, format!("that cannot be asked: {error}"));
        request.body(Full::new(Bytes::from(body.unwrap_or_default()))).map_err(bad)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        match &self.address {
            ServiceAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                        no_service(&format!("no service listens on {}", path.display()))
                    }
                    _ => Error::with_source(
                        Code::NoService,
                        format!("cannot connect to {}", path.display()),
                        error,
                    ),
                })?;
                self.send_over(stream, request).await
            }
            ServiceAddress::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| {
                    Error::with_source(Code::NoService, format!("cannot connect to {}", self.address), error)
                })?;
                let Some(config) = tls else { return self.send_over(stream, request).await };
                let name = rustls::pki_types::ServerName::try_from(host.clone());
                let bad = |error: &dyn std::fmt::Display| {
                    Error::new(Code::HostKeyUnknown, format!("{}: {error}", self.address))
                };
                let name = name.map_err(|error| bad(&error))?;
                let connector = tokio_rustls::TlsConnector::from(config.clone());
                let stream = connector.connect(name, stream).await.map_err(|error| bad(&error))?;
                self.send_over(stream, request).await
            }
        }
    }

    async fn send_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        let broke = |error: hyper::Error| {
            no_service(&format!("the service at {} has closed the connection: {error}", self.address))
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        // The task ends with the response.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(broke)
    }
}

fn no_service(what: &str) -> Error {
    Error::new(Code::NoService, what)
}

async fn whole(response: Response<Incoming>) -> Result<String, Error> {
    let body = http_body_util::Limited::new(response.into_body(), ANSWER_MAX);
    let broke = |error: Box<dyn std::error::Error + Send + Sync>| {
        no_service(&format!("the service's answer has broken off: {error}"))
    };
    let bytes = body.collect().await.map_err(broke)?.to_bytes();
    String::from_utf8(bytes.into()).map_err(|_| no_service("the service's answer is not text"))
}

/// The error that the service has answered with.
fn problem(status: StatusCode, text: &str) -> Error {
    match serde_json::from_str::<Problem>(text) {
        Ok(problem) => {
            let code = Code::of_name(&problem.code).unwrap_or(Code::FilesFailed);
            Error::new(code, problem.detail).with_hint_if(problem.hint)
        }
        Err(_) => no_service(&format!("the answer is not that of a Farhaul service ({status})")),
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let unfit = |error| no_service(&format!("the service's answer cannot be understood: {error}"));
    serde_json::from_str(text).map_err(unfit)
}

fn json(body: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(body).map_err(|error| Error::new(Code::Misuse, error.to_string()))
}

/// Reads server-sent events from bytes in pieces of any size.
///
/// From: HTML, "Server-sent events". Comments are skipped; an event that has not ended yet is kept until more
/// bytes come.
#[derive(Debug, Default)]
struct SseReader {
    line: Vec<u8>,
    told: ServiceEvent,
}

impl SseReader {
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<ServiceEvent>, Error> {
        let mut complete = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                if self.line.len() + self.told.data.len() > EVENT_MAX {
                    return Err(no_service("an event of the service has no end"));
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                let told = std::mem::take(&mut self.told);
                if !told.data.is_empty() {
                    complete.push(told);
                }
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => self.told.id = value.parse().ok(),
                "event" => self.told.kind = value.to_string(),
                "data" => {
                    if !self.told.data.is_empty() {
                        self.told.data.push('\n');
                    }
                    self.told.data.push_str(value);
                }
                _ => {}
            }
        }
        Ok(complete)
    }
}

/// How long to wait before sending the same request again; `None` if the answer is not "too many requests" or
/// the wait is too long.
fn busy_wait(response: &Response<Incoming>) -> Option<Duration> {
    let wait =
        response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)?;
    (response.status() == StatusCode::TOO_MANY_REQUESTS && wait <= BUSY_WAIT_MAX).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = b": hello\n\nid: 7\nevent: job\ndata: {\"a\":\ndata: 1}\n\n:\n\nevent: gap\r\ndata: {}\r\n\r\nevent: none\n\n";
        for size in 1..text.len() {
            let mut reader = SseReader::default();
            let told: Vec<ServiceEvent> =
                text.chunks(size).flat_map(|part| reader.take(part).unwrap()).collect();
            let expected = [
                ServiceEvent { id: Some(7), kind: "job".into(), data: "{\"a\":\n1}".into() },
                ServiceEvent { id: None, kind: "gap".into(), data: "{}".into() },
            ];
            assert_eq!(told, expected, "{size}");
        }
    }

    #[test]
    fn a_problem_is_an_error_with_its_code() {
        let text = r#"{"type":"x","title":"t","status":409,"detail":"no","code":"FH-NOT-NOW","hint":"wait","retryable":false}"#;
        let error = problem(StatusCode::CONFLICT, text);
        assert_eq!((error.code(), error.what(), error.hint()), (Code::NotNow, "no", Some("wait")));
        assert_eq!(problem(StatusCode::BAD_GATEWAY, "<html>").code(), Code::NoService);
    }

    /// A service that gives these answers, one per connection.
    fn service(answers: &'static [&'static str]) -> (ServiceClient, std::thread::JoinHandle<()>) {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address =
            ServiceAddress::parse(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let answer = move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
            }
        };
        (ServiceClient::new(address, None).unwrap(), std::thread::spawn(answer))
    }

    #[test]
    fn a_client_waits_for_a_service_that_has_no_time_but_not_for_long() {
        let (client, service) =
            service(&["429 Busy\r\nretry-after: 0", "429 Busy\r\nretry-after: 0", "200 OK"]);
        client.post_only("/jobs/x/cancel", &()).unwrap();
        service.join().unwrap();
        let (client, service) = self::service(&["429 Busy\r\nretry-after: 600"]);
        assert!(client.get_text("/jobs").is_err());
        service.join().unwrap();
    }
}
