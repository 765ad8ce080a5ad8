//! Makes and revokes tokens, and judges where a token may reach.
//!
//! Always true: a token reaches only what it was made for; one that reaches the account of the service's user
//! was made so in words, or by an earlier version, which is shown.

use crate::access::ReachRules as _;
use farhaul_api::TokenWish;
use farhaul_words::{Code, Error};

use super::Node;
use crate::access::Caller;
use crate::access::token::NewTokenText;
use crate::store::tokens::{self, TokenRow};
use farhaul_api::JobSpan;
use farhaul_api::{CallerReach, Scope};

/// The most bytes of a token's name.
const NAME_MAX: usize = 100;
/// The most tokens that the log names at the start.
const NAMED_MAX: usize = 1000;

/// Why people should replace a token; `None` if they need not.
pub(crate) fn warning_of(row: &TokenRow) -> Option<&'static str> {
    let what = "it was made without a reach, so it is the whole account of the service's user: \
                make a new one with `root`, `peer` or `everything`, and revoke it";
    row.is_whole_by_default.then_some(what)
}

impl Node {
    /// Makes a token. Yields also its text, which nobody can find out later.
    pub(crate) fn make_token(
        &self,
        caller: &Caller,
        wish: TokenWish,
    ) -> Result<(TokenRow, NewTokenText), Error> {
        let TokenWish { name, mut scopes, reach, expires_in } = wish;
        let bad = |what: &str| Err(Error::new(Code::BadOption, what));
        if scopes.is_empty() {
            return bad("a token needs a scope: read, submit, control or admin");
        }
        if name.len() > NAME_MAX || name.chars().any(char::is_control) {
            return bad("the name of a token must have at most 100 bytes, all printable");
        }
        reach.check()?;
        if scopes.contains(&Scope::Admin) && !reach.everything {
            let what = "the scope admin is the whole account of the service's user: say so with `everything`, or leave out the scope";
            return bad(what);
        }
        self.judge_reach(&reach)?;
        let token = NewTokenText::new().map_err(Error::no_random_numbers)?;
        let now = self.moment();
        let for_ms = |span: JobSpan| i64::try_from(span.0).unwrap_or(i64::MAX).saturating_mul(1000);
        scopes.sort();
        scopes.dedup();
        let row = TokenRow {
            id: token.id(),
            hash: token.hash(),
            name,
            scopes,
            reach,
            is_whole_by_default: false,
            created_by: caller.subject.clone(),
            created_ms: now.wall_ms,
            expires_ms: expires_in.map(|span| now.wall_ms.saturating_add(for_ms(span))),
            expires_node_ms: expires_in.map(|span| now.node_ms.saturating_add(for_ms(span))),
            revoked_ms: None,
        };
        self.add_token(row.clone())?;
        Ok((row, token))
    }

    /// Makes a token valid.
    pub(crate) fn add_token(&self, token: TokenRow) -> Result<(), Error> {
        self.proofs.add_token(&self.store, token, self.moment())
    }

    /// Revokes a token: from now on it allows nothing.
    pub(crate) fn revoke_token(&self, id: &str) -> Result<(), Error> {
        let there = self.proofs.revoke_token(&self.store, id, self.clock.now_ms())?;
        self.withdraw();
        let no_such = || {
            let id = farhaul_text::printable(id.as_bytes(), 40);
            Error::new(Code::NoSuchThing, format!("there is no token {id}"))
        };
        there.then_some(()).ok_or_else(no_such)
    }

    /// An error if a directory of this reach contains the account of the service's user, or lies in it. It is
    /// judged when a token is made and again whenever something is done with it, as links and mounts may have
    /// changed.
    pub(crate) fn judge_reach(&self, reach: &CallerReach) -> Result<(), Error> {
        let settings = self.settings();
        if reach.everything {
            return Ok(());
        }
        reach.local.iter().try_for_each(|root| settings.account.judge(root))
    }

    /// Names in the log the tokens that reach everything although nobody has said so.
    pub(crate) fn warn_of_whole_tokens(&self) -> Result<(), Error> {
        let now_ms = self.clock.now_ms();
        let all = self.store.read(|connection| tokens::whole_by_default(connection, now_ms, NAMED_MAX))?;
        for token in all {
            let warning = warning_of(&token).unwrap_or_default();
            tracing::warn!(token = token.id, name = token.name, "{warning}");
        }
        Ok(())
    }
}
