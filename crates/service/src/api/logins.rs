//! Log-ins with a browser: log in with a token or a one-time code, log out, and ask who one is.

use crate::access::ReachRules as _;
use axum::Json;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use farhaul_api::{CallerView, CodeWish, KnownBy, LoginWish, NewCode, Word};
use farhaul_words::{Code, Error};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, JsonBody, May, Stranger, ToBeKnown, ToMakeCodes};
use super::problem::HandlerFailure;
use crate::access::login::LoginSecret;
use crate::access::token::NewTokenText;
use crate::clock::timestamp;
use crate::node::logins::{CallerIdentity, CallerProof, OWN_PAGE};

/// The most bytes of a request to log in.
const LOG_IN_BYTES_MAX: usize = 4 << 10;

pub(super) fn router() -> OpenApiRouter<App> {
    // Who has not said yet who it is gets no more memory than a token takes.
    let for_strangers = DefaultBodyLimit::max(LOG_IN_BYTES_MAX);
    OpenApiRouter::new()
        .routes(routes!(log_in))
        .layer(for_strangers)
        .routes(routes!(log_out))
        .routes(routes!(me))
        .routes(routes!(create_code))
}

impl From<CallerIdentity> for CallerView {
    fn from(identity: CallerIdentity) -> CallerView {
        let known_by = match identity.proof {
            CallerProof::Socket => KnownBy::Socket,
            CallerProof::Token(_) => KnownBy::Token,
            CallerProof::Login(_) => KnownBy::Login,
        };
        CallerView {
            may: identity.caller.deeds().into_iter().map(Word::Known).collect(),
            begins: identity.caller.reach.begins(),
            subject: identity.caller.subject,
            name: identity.name,
            scopes: identity.caller.scopes.into_iter().map(Word::Known).collect(),
            reach: identity.caller.reach,
            known_by: known_by.into(),
            expires: identity.expires_ms.map(timestamp),
        }
    }
}

/// Logs in with a browser: from now on a cookie, which no script can read, stands for the token. The request
/// needs no token but the one in its body.
#[utoipa::path(post, path = "/login", tag = "log-ins", request_body = LoginWish, security(()),
    responses((status = 200, description = "Who has logged in", body = CallerView, headers(("Set-Cookie" = String)))))]
async fn log_in(stranger: Stranger, body: JsonBody) -> Result<Response, HandlerFailure> {
    let LoginWish { token, code } = body.read()?;
    let (how, (mut identity, secret)) = match (token, code) {
        (Some(token), None) => {
            let how = "by token";
            let token = NewTokenText::read(token.trim()).ok_or_else(|| stranger.refuse_unknown(how))?;
            let who = stranger.who(&token)?;
            let made = stranger.work(who.principal(), move |node| node.log_in(&token)).await?;
            (how, made.map_err(|_| stranger.refuse_unknown(how))?)
        }
        (None, Some(code)) => {
            let how = "by code";
            let taken = LoginSecret::read(&code).and_then(|code| stranger.node.take_code(&code));
            let code = taken.ok_or_else(|| stranger.refuse_unknown(how))?;
            (how, stranger.work(OWN_PAGE, move |node| node.log_in_by_code(code)).await?)
        }
        _ => return Err(Error::new(Code::BadOption, "log in with either a token or a code").into()),
    };
    identity.caller.address = stranger.address;
    stranger.note(&identity.caller, how);
    let left_ms = identity.expires_ms.map_or(0, |end| end - stranger.node.clock.now_ms());
    let cookie = stranger.cookie.set(secret.as_str(), left_ms / 1000);
    Ok(([(header::SET_COOKIE, cookie)], Json(CallerView::from(identity))).into_response())
}

/// Ends the log-in that the request was made with.
#[utoipa::path(post, path = "/logout", tag = "log-ins",
    responses((status = 204, description = "The log-in is ended", headers(("Set-Cookie" = String)))))]
async fn log_out(may: May<ToBeKnown>) -> Result<Response, HandlerFailure> {
    let forget = may.cookie.set("", 0);
    let proof = may.identity.proof;
    may.act("log out", "", move |node, _| match proof {
        CallerProof::Login(hash) => node.log_out(hash),
        CallerProof::Socket | CallerProof::Token(_) => {
            Err(Error::new(Code::NotNow, "the request was not made with a log-in, so none can end"))
        }
    })
    .await?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, forget)]).into_response())
}

/// Says who makes this request.
#[utoipa::path(get, path = "/me", tag = "log-ins",
    responses((status = 200, description = "The caller", body = CallerView)))]
async fn me(may: May<ToBeKnown>) -> Json<CallerView> {
    Json(CallerView::from(may.identity))
}

/// Makes a code that logs in once, within a minute, as the service's own user. Only callers on the Unix
/// socket may.
#[utoipa::path(post, path = "/login-codes", tag = "log-ins", request_body = CodeWish,
    responses((status = 201, description = "The code", body = NewCode)))]
async fn create_code(
    may: May<ToMakeCodes>,
    body: JsonBody,
) -> Result<(StatusCode, Json<NewCode>), HandlerFailure> {
    let CodeWish { mut scopes } = body.read()?;
    if scopes.is_empty() {
        return Err(
            Error::new(Code::BadOption, "a log-in needs a scope: read, submit, control or admin").into()
        );
    }
    scopes.sort();
    scopes.dedup();
    let names: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
    let target = names.join(",");
    let made = may.act("make a one-time code", target, move |node, caller| {
        let pages = node.pages()?;
        let (code, expires_ms) = node.login_code(caller, scopes)?;
        Ok(NewCode { code: code.as_str().into(), expires: timestamp(expires_ms), pages })
    });
    Ok((StatusCode::CREATED, Json(made.await?)))
}
