//! Tokens: make them, list them, revoke them.

use axum::Json;
use axum::http::StatusCode;
use farhaul_api::{NewToken, TokenPage, TokenView, Word};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, JsonBody, May, PathParameters, QueryParameters, ToKeepTokens};
use super::jobs::page;
use super::problem::HandlerFailure;
use crate::clock::timestamp;
use crate::node::tokens::warning_of;
use crate::store::tokens::{self, TokenRow};
use farhaul_api::TokenWish;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

impl From<TokenRow> for TokenView {
    fn from(row: TokenRow) -> TokenView {
        TokenView {
            warning: warning_of(&row).map(Into::into),
            id: row.id,
            name: row.name,
            scopes: row.scopes.into_iter().map(Word::Known).collect(),
            reach: row.reach,
            created_by: row.created_by,
            created: timestamp(row.created_ms),
            expires: row.expires_ms.map(timestamp),
            revoked: row.revoked_ms.map(timestamp),
        }
    }
}

/// Makes a token.
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = TokenWish,
    responses((status = 201, description = "The token, with its secret", body = NewToken)))]
async fn create(
    may: May<ToKeepTokens>,
    body: JsonBody,
) -> Result<(StatusCode, Json<NewToken>), HandlerFailure> {
    let wish: TokenWish = body.read()?;
    let target = wish.name.clone();
    let made = may.act("create token", target, move |node, caller| {
        let (row, token) = node.make_token(caller, wish)?;
        Ok(NewToken { about: row.into(), token: token.as_str().to_string() })
    });
    Ok((StatusCode::CREATED, Json(made.await?)))
}

/// Which page of tokens to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TokenQuery {
    /// How many tokens the page has, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the page before this one ended.
    cursor: Option<String>,
}

/// All tokens, also those that have expired or were revoked.
#[utoipa::path(get, path = "/tokens", tag = "tokens", params(TokenQuery),
    responses((status = 200, description = "A page of tokens", body = TokenPage)))]
async fn list(
    may: May<ToKeepTokens>,
    QueryParameters(which): QueryParameters<TokenQuery>,
) -> Result<Json<TokenPage>, HandlerFailure> {
    let limit = page(which.limit)?;
    let after = which.cursor.unwrap_or_default();
    let rows = may.act("list tokens", "", move |node, _| {
        node.store.read(|connection| tokens::list(connection, &after, limit))
    });
    let rows = rows.await?;
    let next_cursor = rows.last().filter(|_| rows.len() == limit).map(|row| row.id.clone());
    Ok(Json(TokenPage { tokens: rows.into_iter().map(TokenView::from).collect(), next_cursor }))
}

/// Revokes a token: it is not valid from now on.
#[utoipa::path(delete, path = "/tokens/{id}", tag = "tokens", params(("id" = String, Path)),
    responses((status = 204, description = "The token is revoked")))]
async fn revoke(
    may: May<ToKeepTokens>,
    PathParameters(id): PathParameters<String>,
) -> Result<StatusCode, HandlerFailure> {
    may.act("revoke token", id.clone(), move |node, _| node.revoke_token(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
