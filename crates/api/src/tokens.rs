//! Tokens: which to make, and which there are.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{CallerReach, JobSpan, Scope, Word};

/// The token to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TokenWish {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its scopes.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub scopes: Vec<Scope>,
    /// Where it reaches: nowhere by default. The scope `admin` needs `everything`.
    #[serde(default)]
    pub reach: CallerReach,
    /// How long it is valid: `30d`. For ever by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub expires_in: Option<JobSpan>,
}

/// A token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TokenView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its scopes.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<Scope>))]
    pub scopes: Vec<Word<Scope>>,
    /// Where it reaches.
    pub reach: CallerReach,
    /// Why it should be replaced, if it should.
    pub warning: Option<String>,
    /// The caller that made it.
    pub created_by: String,
    /// When it was made.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    /// When it expires; null if it never does.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
    /// When it was revoked.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub revoked: Option<Timestamp>,
}

/// A token that was just made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewToken {
    /// The token, without its secret.
    #[serde(flatten)]
    pub about: TokenView,
    /// The secret. It is shown only now.
    pub token: String,
}

/// A page of tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TokenPage {
    /// The tokens.
    pub tokens: Vec<TokenView>,
    /// The cursor for the next page, if there is one.
    pub next_cursor: Option<String>,
}
