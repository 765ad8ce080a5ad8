//! How a handler gets what it works with: the node and the caller by [`May`] alone, paths, queries and bodies by extractors
//! whose errors are problems.
//!
//! Always true: [`App`] shows the node to nobody but [`May`], so that a handler without one can do nothing.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use farhaul_session::{Code, Error};
use serde::de::DeserializeOwned;

use super::deeds::Deeds;
use super::gate::Gate;
use super::problem::Failure;
use crate::access::token::Token;
use crate::access::{Caller, Deed, Scope};
use crate::node::Node;
use crate::store::tokens;

/// What all handlers share.
#[derive(Clone)]
pub(crate) struct App {
    node: Arc<Node>,
    gate: Arc<Gate>,
    deeds: Arc<Deeds>,
}

impl App {
    pub(crate) fn new(node: Arc<Node>, gate: Arc<Gate>, deeds: Arc<Deeds>) -> App {
        App { node, gate, deeds }
    }

    /// Who asks, by what the request shows.
    async fn caller(&self, parts: &Parts) -> Result<Caller, Failure> {
        let origin = parts.extensions.get::<Origin>().copied().unwrap_or(Origin::Unknown);
        let address = match origin {
            Origin::OwnUser => return Ok(Caller::local()),
            Origin::Tcp(address) => Some(address),
            Origin::Unknown => None,
        };
        self.gate
            .limits
            .may_show_token(address)
            .map_err(|wait| Failure::too_many("too many wrong tokens", wait))?;
        let refuse = |what: &str| Failure::from(Error::new(Code::NoToken, what));
        let shown =
            parts.headers.get(header::AUTHORIZATION).ok_or_else(|| refuse("the request has no token"))?;
        let token = shown.to_str().ok().and_then(bearer).and_then(Token::read);
        let token = token.ok_or_else(|| {
            self.gate.limits.wrong_token(address);
            refuse("what the request shows is no token")
        })?;
        let (node, hash) = (self.node.clone(), token.hash());
        let found = blocking(move || node.store.read(|connection| tokens::find(connection, &hash))).await?;
        let now_ms = self.node.clock.now_ms();
        let is_worth = |row: &tokens::TokenRow| {
            row.revoked_ms.is_none() && row.expires_ms.is_none_or(|expires| expires > now_ms)
        };
        match found {
            Some(row) if is_worth(&row) => Ok(Caller {
                subject: format!("token:{}", row.id),
                scopes: row.scopes,
                reach: row.reach,
                address,
            }),
            Some(row) => {
                let what = if row.revoked_ms.is_some() { "revoked" } else { "expired" };
                Err(refuse(&format!("the token {} is {what}", row.id)))
            }
            None => {
                self.gate.limits.wrong_token(address);
                Err(refuse("the token is not known"))
            }
        }
    }
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Where a request has come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Over the Unix socket, from the user that the service runs as.
    OwnUser,
    /// Over TCP.
    Tcp(IpAddr),
    /// Nobody has said so.
    Unknown,
}

/// Does what waits for a disk or a peer aside.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(Failure::from),
        Err(panic) => Err(Error::bug(format!("a request: {panic}")).into()),
    }
}

/// What a kind of request needs.
pub(crate) trait Needs {
    /// Without it the caller gets 403.
    const SCOPE: Scope;
}

macro_rules! needs {
    ($($name:ident = $scope:ident: $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub(crate) struct $name;
            impl Needs for $name {
                const SCOPE: Scope = Scope::$scope;
            }
        )*
    };
}

needs! {
    ToRead = Read: "Sees something.";
    ToSubmit = Submit: "Submits jobs.";
    ToControl = Control: "Steers jobs.";
    ToAdmin = Admin: "Changes the node itself.";
}

/// The caller, who may do this kind of thing, and the node to do it with.
pub(crate) struct May<N> {
    pub(crate) node: Arc<Node>,
    pub(crate) caller: Caller,
    deeds: Arc<Deeds>,
    needs: PhantomData<N>,
}

impl<N: Needs> FromRequestParts<App> for May<N> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<May<N>, Failure> {
        let caller = app.caller(parts).await?;
        app.gate
            .limits
            .may_ask(&caller.subject)
            .map_err(|wait| Failure::too_many("this caller asks too often", wait))?;
        if let Err(error) = caller.may(Deed::Any(N::SCOPE)) {
            app.deeds.refused(&caller, &parts.method, parts.uri.path(), &error);
            return Err(error.into());
        }
        Ok(May { node: app.node.clone(), caller, deeds: app.deeds.clone(), needs: PhantomData })
    }
}

impl<N: Needs + Send + 'static> May<N> {
    /// Does something with the node, aside. What changes something, and what is refused, has a line in the audit log.
    pub(crate) async fn act<T: Send + 'static>(
        self,
        deed: &'static str,
        target: impl Into<String>,
        work: impl FnOnce(&Node, &Caller) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let target = target.into();
        blocking(move || {
            let done = work(&self.node, &self.caller);
            let is_refused = |error: &Error| matches!(error.code(), Code::OutOfScope | Code::Forbidden);
            if N::SCOPE != Scope::Read || done.as_ref().is_err_and(is_refused) {
                self.deeds.done(&self.caller, deed, &target, done.as_ref().err());
            }
            done
        })
        .await
    }
}

/// What a path names.
pub(crate) struct At<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<At<T>, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(At(named)),
            Err(rejection) => Err(no_such_path(&rejection)),
        }
    }
}

fn no_such_path(rejection: &PathRejection) -> Failure {
    Error::new(Code::NoSuchThing, format!("there is nothing of this name: {}", rejection.body_text())).into()
}

/// What a query asks for; what is unknown in it is an error.
pub(crate) struct Ask<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Ask<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Ask<T>, Failure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Ask(asked)),
            Err(rejection) => Err(bad_query(&rejection)),
        }
    }
}

fn bad_query(rejection: &QueryRejection) -> Failure {
    let error = Error::new(Code::BadOption, rejection.body_text());
    Failure::with_status(error, StatusCode::BAD_REQUEST)
}

/// A body of JSON as it came, whose type was looked at.
pub(crate) struct Document(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Document {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Document, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_json = kind.is_some_and(|kind| {
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        });
        if !is_json {
            let error = Error::new(Code::BadOption, "the body is to be application/json");
            return Err(Failure::with_status(error, StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        Bytes::from_request(request, state).await.map(Document).map_err(|rejection| no_body(&rejection))
    }
}

fn no_body(rejection: &BytesRejection) -> Failure {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Error::new(Code::TooLarge, "the body is too large").into(),
        _ => {
            Failure::with_status(Error::new(Code::BadOption, rejection.body_text()), StatusCode::BAD_REQUEST)
        }
    }
}

impl Document {
    /// Reads it; what is no JSON is 400, what does not fit, or is unknown, is 422.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let mut unknown = None;
        let reader = &mut serde_json::Deserializer::from_slice(&self.0);
        let read = serde_ignored::deserialize(&mut *reader, |path| {
            unknown.get_or_insert_with(|| path.to_string());
        });
        let read = read.and_then(|read: T| reader.end().map(|()| read));
        if let (Ok(_), Some(path)) = (&read, unknown) {
            let path = farhaul_text::printable(path.as_bytes(), 80);
            return Err(Error::new(Code::BadOption, format!("the body: there is no '{path}'")).into());
        }
        read.map_err(|error| {
            let status = match error.classify() {
                serde_json::error::Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            Failure::with_status(Error::new(Code::BadOption, format!("the body: {error}")), status)
        })
    }
}
