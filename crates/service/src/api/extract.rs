//! The extractors of the handlers: [`May`] gives a handler the node and the caller, others give it path,
//! query and body. They answer errors with problem documents.
//!
//! Always true: [`App`] gives the node only to [`May`] and, for logging in, to [`Stranger`], so that a
//! handler without either of them can do nothing. Finding out who somebody is takes no thread.

use crate::access::only_looks;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use axum::RequestExt as _;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use farhaul_words::{Code, Error};
use http_body_util::{BodyExt as _, LengthLimitError};
use serde::de::DeserializeOwned;

use super::deeds::Deeds;
use super::limits::FailedProof;
use super::problem::HandlerFailure;
use super::questions::Questions;
use super::request_rules::RequestRules;
use super::threads::{Threads, Turn};
use crate::access::Caller;
use crate::access::login::{LoginSecret, SecretUse, cookie_name, cookie_value, set_cookie};
use crate::access::token::NewTokenText;
use crate::node::logins::{CallerIdentity, CallerProof, LoginRefusal};
use crate::node::{Node, Question};
use farhaul_api::DeedKind;
use farhaul_http::{BodyTooSlow, Connection, NoPlace, RequestOrigin};

/// When a caller may come again whose connections are all in use.
const RETRY_AFTER_S: u64 = 5;

/// The state that all handlers share.
#[derive(Clone)]
pub(crate) struct App {
    node: Arc<Node>,
    rules: Arc<RequestRules>,
    deeds: Arc<Deeds>,
    threads: Arc<Threads>,
    /// Who reads a body of its caller's has one of the caller's turns here.
    bodies: Arc<Threads>,
    questions: Arc<Questions>,
}

impl App {
    pub(crate) fn new(node: Arc<Node>, rules: Arc<RequestRules>, deeds: Arc<Deeds>) -> App {
        let (threads, bodies, questions) = (Arc::default(), Arc::default(), Arc::default());
        App { node, rules, deeds, threads, bodies, questions }
    }

    /// Identifies the caller by the token or the cookie of the request. From then on its connection counts
    /// for the caller's principal.
    fn identify(&self, parts: &Parts) -> Result<CallerIdentity, HandlerFailure> {
        let origin = RequestOrigin::of(parts);
        if origin == RequestOrigin::OwnUser {
            return Ok(CallerIdentity::own_user());
        }
        let address = origin.address();
        let cookie = Cookie::of(parts);
        let (proof, why_none) = match parts.headers.get(header::AUTHORIZATION) {
            Some(authorization) => {
                let token = authorization.to_str().ok().and_then(bearer).and_then(NewTokenText::read);
                let why_none =
                    "the Authorization header holds no valid token: send 'Authorization: Bearer TOKEN'";
                (token.map(|token| CallerProof::Token(token.hash())), why_none)
            }
            None => match &cookie.value {
                Some(value) => {
                    check_own_page(parts)?;
                    let login = LoginSecret::read(value);
                    let why_none = "the cookie of this request belongs to no log-in: log in again";
                    (login.map(|secret| CallerProof::Login(secret.hash(SecretUse::Login))), why_none)
                }
                None => return Err(refused("the request has no token")),
            },
        };
        let failed = |failing| self.rules.limits.failed(failing).map_err(too_many_failures);
        let guess = FailedProof::Guess(address.into());
        let Some(proof) = proof else {
            failed(guess)?;
            return Err(cookie.removed_with(refused(why_none)));
        };
        let mut identity = match self.node.who(proof) {
            Ok(identity) => identity,
            Err(LoginRefusal::Over(why)) => {
                failed(proof.hash().map_or(guess, FailedProof::Withdrawn))?;
                return Err(cookie.removed_with(refused(&why)));
            }
            Err(LoginRefusal::Unknown) => {
                failed(guess)?;
                return Err(cookie.removed_with(refused("the token is not known")));
            }
        };
        identity.caller.address = address;
        self.count(Connection::of(parts).as_ref(), &identity)?;
        Ok(identity)
    }

    /// The connection of a request counts for its caller from now on.
    fn count(
        &self,
        connection: Option<&Connection>,
        identity: &CallerIdentity,
    ) -> Result<(), HandlerFailure> {
        let shown = connection.map_or(Ok(()), |connection| connection.show(identity.principal()));
        shown.map_err(|NoPlace| {
            let what = "this caller has as many connections as it can get now, all with requests under way";
            HandlerFailure::too_many(what, RETRY_AFTER_S)
        })
    }

    fn may_ask(&self, identity: &CallerIdentity) -> Result<(), HandlerFailure> {
        let may = self.rules.limits.may_ask(identity.principal());
        may.map_err(|wait| HandlerFailure::too_many("this caller asks too often", wait))
    }
}

fn too_many_failures(wait_s: u64) -> HandlerFailure {
    HandlerFailure::too_many("too many wrong tokens; a right one is let in at once", wait_s).and_close()
}

fn refused(reason: &str) -> HandlerFailure {
    HandlerFailure::from(Error::new(Code::NoToken, reason))
}

/// A browser sends the cookie by itself, so a request that changes something must also show that it comes
/// from a page of this node. Requests from pages of other sites were refused before.
fn check_own_page(parts: &Parts) -> Result<(), HandlerFailure> {
    if parts.method.is_safe() {
        return Ok(());
    }
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let is_own = match header("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => header("origin").is_some(),
    };
    let what = "a log-in changes something only from the node's own page: elsewhere, send 'Authorization: Bearer TOKEN'";
    if is_own { Ok(()) } else { Err(Error::new(Code::OutOfScope, what).into()) }
}

/// The cookie of a log-in, as this request sent it.
pub(crate) struct Cookie {
    name: String,
    value: Option<String>,
    is_tls: bool,
}

impl Cookie {
    fn of(parts: &Parts) -> Cookie {
        let is_tls = matches!(RequestOrigin::of(parts), RequestOrigin::Tcp { is_tls: true, .. });
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let name = cookie_name(host, is_tls);
        let headers = parts.headers.get_all(header::COOKIE).iter().filter_map(|header| header.to_str().ok());
        let value =
            headers.into_iter().find_map(|header| cookie_value(header, &name)).map(ToString::to_string);
        Cookie { name, value, is_tls }
    }

    /// The `Set-Cookie` header that keeps the cookie for this many seconds; 0 removes it.
    pub(crate) fn set(&self, value: &str, seconds: i64) -> HeaderValue {
        let text = set_cookie(&self.name, value, seconds, self.is_tls);
        // Name and value are letters, digits and a few signs, which a header may hold.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }

    /// Adds a header that removes the cookie, if the browser sent one, so that the browser does not send it
    /// again.
    fn removed_with(&self, failure: HandlerFailure) -> HandlerFailure {
        if self.value.is_some() { failure.with_cookie(self.set("", 0)) } else { failure }
    }
}

/// A caller that is not known yet and wants to log in.
pub(crate) struct Stranger {
    pub(crate) node: Arc<Node>,
    pub(crate) cookie: Cookie,
    pub(crate) address: Option<IpAddr>,
    app: App,
    connection: Option<Connection>,
}

impl FromRequestParts<App> for Stranger {
    type Rejection = HandlerFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Stranger, HandlerFailure> {
        let address = RequestOrigin::of(parts).address();
        let connection = Connection::of(parts);
        Ok(Stranger {
            node: app.node.clone(),
            cookie: Cookie::of(parts),
            address,
            app: app.clone(),
            connection,
        })
    }
}

impl Stranger {
    /// The caller with this token. From now on its connection and what it does count for it.
    pub(crate) fn who(&self, token: &NewTokenText) -> Result<CallerIdentity, HandlerFailure> {
        let proof = CallerProof::Token(token.hash());
        match self.node.who(proof) {
            Ok(identity) => {
                self.app.count(self.connection.as_ref(), &identity)?;
                self.app.may_ask(&identity)?;
                Ok(identity)
            }
            Err(refusal) => {
                let failing = match refusal {
                    LoginRefusal::Over(_) => FailedProof::Withdrawn(token.hash()),
                    LoginRefusal::Unknown => FailedProof::Guess(self.address.into()),
                };
                Err(self.refuse("by token", &refusal, failing))
            }
        }
    }

    /// Refuses a log-in with something that nobody knows.
    pub(crate) fn refuse_unknown(&self, how: &str) -> HandlerFailure {
        self.refuse(how, &LoginRefusal::Unknown, FailedProof::Guess(self.address.into()))
    }

    /// Refuses a log-in. The audit log hears of it as long as that does not happen too often.
    fn refuse(&self, how: &str, refusal: &LoginRefusal, failing: FailedProof) -> HandlerFailure {
        if let Err(wait_s) = self.app.rules.limits.failed(failing) {
            return too_many_failures(wait_s);
        }
        let failure = refused(match refusal {
            LoginRefusal::Over(why) => why.as_str(),
            LoginRefusal::Unknown => "the token or the code is not known",
        });
        self.app.deeds.refused_login(self.address, how, &failure.error);
        failure
    }

    /// Does something with the node on a thread of this principal's.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        principal: &str,
        work: impl FnOnce(&Node) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        let node = self.node.clone();
        self.app.threads.work(principal, move || work(&node)).await
    }

    /// Notes in the audit log that this caller has logged in.
    pub(crate) fn note(&self, caller: &Caller, how: &str) {
        self.app.deeds.done(caller, "log in", how, None);
    }
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// What a caller must be allowed to do to make a request.
pub(crate) trait Requirement {
    /// A caller that may not do this gets 403; `None` if every known caller may make the request.
    const DEED: Option<DeedKind>;
}

macro_rules! needs {
    ($($name:ident = $deed:expr, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub(crate) struct $name;
            impl Requirement for $name {
                const DEED: Option<DeedKind> = $deed;
            }
        )*
    };
}

needs! {
    ToBeKnown = None, "Asks only about the caller itself.";
    ToRead = Some(DeedKind::See), "Reads something.";
    ToSubmit = Some(DeedKind::Submit), "Submits jobs.";
    ToControl = Some(DeedKind::Control), "Steers jobs and watched folders.";
    ToWatch = Some(DeedKind::Watch), "Watches folders.";
    ToTake = Some(DeedKind::Take), "Takes over what a token has left behind.";
    ToSetCaps = Some(DeedKind::Caps), "Changes caps.";
    ToSumUp = Some(DeedKind::Usage), "Sums up all transfers.";
    ToKeepTokens = Some(DeedKind::Tokens), "Keeps the tokens.";
    ToKeepStore = Some(DeedKind::Store), "Keeps the store.";
    ToMakeCodes = Some(DeedKind::Codes), "Makes one-time codes.";
}

/// A caller that may make this kind of request, and the node to do it with.
pub(crate) struct May<N> {
    pub(crate) node: Arc<Node>,
    pub(crate) caller: Caller,
    /// The caller, with how it has proved its identity.
    pub(crate) identity: CallerIdentity,
    pub(crate) cookie: Cookie,
    app: App,
    needs: PhantomData<N>,
}

impl<N: Requirement> FromRequestParts<App> for May<N> {
    type Rejection = HandlerFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<May<N>, HandlerFailure> {
        let identity = app.identify(parts)?;
        let caller = identity.caller.clone();
        app.may_ask(&identity)?;
        if let Some(kind) = N::DEED
            && let Err(error) = caller.may_do(kind)
        {
            app.deeds.refused(&caller, &parts.method, parts.uri.path(), &error);
            return Err(error.into());
        }
        let turns = BodyTurns { bodies: app.bodies.clone(), principal: identity.principal().to_string() };
        parts.extensions.insert(turns);
        let (node, app) = (app.node.clone(), app.clone());
        Ok(May { node, caller, identity, cookie: Cookie::of(parts), app, needs: PhantomData })
    }
}

impl<N: Requirement + Send + 'static> May<N> {
    /// Does something with the node on a thread of the caller's. A request that changes something, or is
    /// refused, gets a line in the audit log.
    pub(crate) async fn act<T: Send + 'static>(
        self,
        deed: &'static str,
        target: impl Into<String>,
        work: impl FnOnce(&Node, &Caller) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        let (app, target) = (self.app.clone(), target.into());
        let principal = self.identity.principal().to_string();
        let work = move || {
            let result = work(&self.node, &self.caller);
            self.note(deed, &target, result.as_ref().err());
            result
        };
        app.threads.work(&principal, work).await
    }

    /// Asks something that may take as long as somebody outside of this service likes: a far end, a directory
    /// whose server is gone. It is given up after some time, and when the caller has gone.
    pub(crate) async fn ask<T: Send + 'static>(
        self,
        deed: &'static str,
        target: impl Into<String>,
        work: impl FnOnce(&Node, &Caller, &Question) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        let target = target.into();
        let app = self.app.clone();
        let principal = self.identity.principal().to_string();
        let work = move |question: &Question| {
            let result = work(&self.node, &self.caller, question);
            self.note(deed, &target, result.as_ref().err());
            result
        };
        app.questions.ask(&principal, work).await
    }

    fn note(&self, deed: &str, target: &str, error: Option<&Error>) {
        let is_refused =
            error.is_some_and(|error| matches!(error.code(), Code::OutOfScope | Code::Forbidden));
        if !N::DEED.is_some_and(only_looks) || is_refused {
            self.app.deeds.done(&self.caller, deed, target, error);
        }
    }

    /// Does this work on a thread of the caller's, as part of an answer that has begun.
    pub(crate) fn worker(&self) -> Worker {
        Worker { threads: self.app.threads.clone(), principal: self.identity.principal().to_string() }
    }
}

/// The threads of one caller.
#[derive(Clone)]
pub(crate) struct Worker {
    threads: Arc<Threads>,
    principal: String,
}

impl Worker {
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, HandlerFailure> {
        self.threads.work(&self.principal, work).await
    }
}

/// The parameters in the path of a request.
pub(crate) struct PathParameters<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParameters<T> {
    type Rejection = HandlerFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathParameters<T>, HandlerFailure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(parameters)) => Ok(PathParameters(parameters)),
            Err(rejection) => Err(no_such_path(&rejection)),
        }
    }
}

fn no_such_path(rejection: &PathRejection) -> HandlerFailure {
    // Behind axum's own words stands the reason that the type of the parameter gives.
    let text = rejection.body_text();
    let why = text.rsplit_once("Invalid URL: ").map_or(text.as_str(), |(_, why)| why);
    Error::new(Code::NoSuchThing, format!("nothing has this name: {why}")).into()
}

/// The query of a request; an unknown parameter is an error.
pub(crate) struct QueryParameters<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = HandlerFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryParameters<T>, HandlerFailure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(parameters)) => Ok(QueryParameters(parameters)),
            Err(rejection) => Err(bad_query(&rejection)),
        }
    }
}

fn bad_query(rejection: &QueryRejection) -> HandlerFailure {
    let error = Error::new(Code::BadOption, rejection.body_text());
    HandlerFailure::with_status(error, StatusCode::BAD_REQUEST)
}

/// Whose body it is, for a request whose caller is known.
#[derive(Clone)]
struct BodyTurns {
    bodies: Arc<Threads>,
    principal: String,
}

/// The body of a request, whose content type was checked to be JSON. It is kept in one piece, however small the
/// pieces were in which it came. A caller has as many bodies at a time as it has threads: others wait unread.
pub(crate) struct JsonBody {
    pub(crate) bytes: Vec<u8>,
    _turn: Option<Turn>,
}

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = HandlerFailure;

    async fn from_request(request: Request, _: &S) -> Result<JsonBody, HandlerFailure> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_json = kind.is_some_and(|kind| {
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        });
        if !is_json {
            let error = Error::new(Code::BadOption, "the body must be application/json");
            return Err(HandlerFailure::with_status(error, StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let turn = match request.extensions().get::<BodyTurns>().cloned() {
            Some(BodyTurns { bodies, principal }) => Some(bodies.turn(&principal).await?),
            // A stranger's body has a few KiB at most.
            None => None,
        };
        let (mut body, mut bytes) = (request.into_limited_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| no_body(&error))?;
            if let Some(data) = frame.data_ref() {
                bytes.extend_from_slice(data);
            }
        }
        Ok(JsonBody { bytes, _turn: turn })
    }
}

fn no_body(error: &axum::Error) -> HandlerFailure {
    let first: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let is = |kind: fn(&(dyn std::error::Error + 'static)) -> bool| {
        std::iter::successors(first, |error| error.source()).any(kind)
    };
    if is(|error| error.is::<BodyTooSlow>()) {
        let error = Error::new(Code::PeerSilent, BodyTooSlow.to_string()).with_hint("send the whole body");
        return HandlerFailure::with_status(error, StatusCode::REQUEST_TIMEOUT).and_close();
    }
    if is(|error| error.is::<LengthLimitError>()) {
        return Error::new(Code::TooLarge, "the body is too large").into();
    }
    let what = format!("the body cannot be read: {error}");
    HandlerFailure::with_status(Error::new(Code::BadOption, what), StatusCode::BAD_REQUEST)
}

impl JsonBody {
    /// Parses the body. Text that is not JSON gives 400; a value that does not fit, or an unknown field,
    /// gives 422, with the name of the field.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, HandlerFailure> {
        let mut unknown = None;
        let reader = &mut serde_json::Deserializer::from_slice(&self.bytes);
        let mut field = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(&mut *reader, &mut field);
        let read = serde_ignored::deserialize(tracked, |path| {
            unknown.get_or_insert_with(|| path.to_string());
        });
        let read = read.and_then(|read: T| reader.end().map(|()| read));
        if let (Ok(_), Some(path)) = (&read, unknown) {
            let path = farhaul_text::printable(path.as_bytes(), 80);
            return Err(Error::new(Code::BadOption, format!("the body: there is no field '{path}'")).into());
        }
        read.map_err(|error| {
            let status = match error.classify() {
                serde_json::error::Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            let (text, field) = (error.to_string(), field.path().to_string());
            // A user of a program that writes the JSON knows its fields, and not its lines and columns.
            let what = match text.rsplit_once(" at line ").filter(|_| error.is_data() && field != ".") {
                Some((why, _)) => format!("{}: {why}", farhaul_text::printable(field.as_bytes(), 80)),
                None => format!("the body: {text}"),
            };
            HandlerFailure::with_status(Error::new(Code::BadOption, what), status)
        })
    }
}
