//! All tokens and log-ins, in memory: who a caller is costs a look at this table, no thread and no look into
//! the store, however many guess and however busy the disk is.
//!
//! Always true: the table has what the store has. A change is made there first, and here under the same lock,
//! so that both see all changes in one order.

use std::collections::HashMap;
use std::sync::{Mutex, RwLock};

use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};

use super::logins::fault_of;
use super::moments::NodeMoment;
use crate::store::Store;
use crate::store::logins::{self, LoginRow};
use crate::store::tokens::{self, TokenRow};

/// The most tokens that a node keeps, revoked and expired ones included.
const TOKENS_MAX: usize = 10_000;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    table: RwLock<Table>,
    /// Held while something changes.
    changing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    tokens: HashMap<[u8; 32], TokenRow>,
    /// The hashes of the tokens, by id.
    of_id: HashMap<String, [u8; 32]>,
    logins: HashMap<[u8; 32], LoginRow>,
}

impl Table {
    fn add_token(&mut self, token: TokenRow) {
        self.of_id.insert(token.id.clone(), token.hash);
        self.tokens.insert(token.hash, token);
    }

    /// The id of the token that makes room for another one, if one has to. An error if all of them are valid.
    fn to_forget(&self, now: NodeMoment) -> Result<Option<String>, Error> {
        if self.tokens.len() < TOKENS_MAX {
            return Ok(None);
        }
        let useless = self.tokens.values().filter(|token| fault_of(token, now).is_some());
        let since = |token: &&TokenRow| {
            let ends = [token.revoked_ms, token.expires_ms];
            ends.into_iter().flatten().min()
        };
        match useless.min_by_key(since) {
            Some(token) => Ok(Some(token.id.clone())),
            None => {
                let what = format!("the node has {TOKENS_MAX} valid tokens; no further one is made");
                let hint = "revoke those that nobody uses (farhaul token list)";
                Err(Error::new(Code::TooMany, what).with_hint(hint))
            }
        }
    }
}

impl Proofs {
    /// Reads what the store has.
    pub(crate) fn read(store: &Store) -> Result<Proofs, Error> {
        let tokens = store.read(|connection| tokens::list(connection, "", usize::MAX))?;
        let logins = store.read(logins::all)?;
        let logins = logins.into_iter().map(|row| (row.hash, row)).collect();
        let mut table = Table { logins, ..Table::default() };
        tokens.into_iter().for_each(|token| table.add_token(token));
        Ok(Proofs { table: RwLock::new(table), changing: Mutex::default() })
    }

    /// The token with this hash, even if it has expired or was revoked.
    pub(crate) fn token(&self, hash: &[u8; 32]) -> Option<TokenRow> {
        self.table.read().in_any_case().tokens.get(hash).cloned()
    }

    /// The log-in with this hash, and its token, even if one of them has expired or was revoked.
    pub(crate) fn login(&self, hash: &[u8; 32]) -> Option<(LoginRow, Option<TokenRow>)> {
        let table = self.table.read().in_any_case();
        let login = table.logins.get(hash)?.clone();
        let token = login.token.as_ref().and_then(|id| table.tokens.get(table.of_id.get(id)?));
        Some((login, token.cloned()))
    }

    /// Adds a token. If there are as many as a node keeps, the one goes that has been of no use for the longest time.
    pub(crate) fn add_token(&self, store: &Store, token: TokenRow, now: NodeMoment) -> Result<(), Error> {
        let _changing = self.changing.lock().in_any_case();
        let gone = self.table.read().in_any_case().to_forget(now)?;
        let (written, forgotten) = (token.clone(), gone.clone());
        store.write(move |transaction| {
            if let Some(id) = &forgotten {
                tokens::remove(transaction, id)?;
            }
            tokens::insert(transaction, &written)
        })?;
        let mut table = self.table.write().in_any_case();
        if let Some(hash) = gone.and_then(|id| table.of_id.remove(&id)) {
            table.tokens.remove(&hash);
        }
        table.add_token(token);
        Ok(())
    }

    /// Revokes the token with this id. Yields whether there is one.
    pub(crate) fn revoke_token(&self, store: &Store, id: &str, now_ms: i64) -> Result<bool, Error> {
        let _changing = self.changing.lock().in_any_case();
        let name = id.to_string();
        let there = store.write(move |transaction| tokens::revoke(transaction, &name, now_ms))?;
        let mut table = self.table.write().in_any_case();
        if let Some(hash) = table.of_id.get(id).copied()
            && let Some(token) = table.tokens.get_mut(&hash)
        {
            token.revoked_ms.get_or_insert(now_ms);
        }
        Ok(there)
    }

    pub(crate) fn add_login(&self, store: &Store, login: LoginRow) -> Result<(), Error> {
        let _changing = self.changing.lock().in_any_case();
        let written = login.clone();
        let gone = store.write(move |transaction| logins::insert(transaction, &written))?;
        let mut table = self.table.write().in_any_case();
        gone.iter().for_each(|hash| drop(table.logins.remove(hash)));
        table.logins.insert(login.hash, login);
        Ok(())
    }

    pub(crate) fn remove_login(&self, store: &Store, hash: [u8; 32]) -> Result<(), Error> {
        let _changing = self.changing.lock().in_any_case();
        store.write(move |transaction| logins::remove(transaction, &hash))?;
        self.table.write().in_any_case().logins.remove(&hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::token::NewTokenText;
    use farhaul_api::{CallerReach, Scope};

    const NOW: NodeMoment = NodeMoment { wall_ms: 100, node_ms: 100 };

    fn token(revoked_ms: Option<i64>) -> TokenRow {
        let text = NewTokenText::new().unwrap();
        TokenRow {
            id: text.id(),
            hash: text.hash(),
            name: String::new(),
            scopes: vec![Scope::Read],
            reach: CallerReach::default(),
            is_whole_by_default: false,
            created_by: "local".into(),
            created_ms: 0,
            expires_ms: None,
            expires_node_ms: None,
            revoked_ms,
        }
    }

    #[test]
    fn a_node_keeps_so_many_tokens_and_forgets_no_valid_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
        let mut all: Vec<TokenRow> = (0..TOKENS_MAX).map(|_| token(None)).collect();
        (all[7].revoked_ms, all[8].revoked_ms) = (Some(20), Some(10));
        let written = all.clone();
        store
            .write(move |transaction| written.iter().try_for_each(|token| tokens::insert(transaction, token)))
            .unwrap();
        let proofs = Proofs::read(&store).unwrap();
        for gone in [8, 7] {
            assert!(proofs.token(&all[gone].hash).is_some());
            proofs.add_token(&store, token(None), NOW).unwrap();
            assert!(proofs.token(&all[gone].hash).is_none());
        }
        let error = proofs.add_token(&store, token(None), NOW).unwrap_err();
        assert_eq!(error.code(), Code::TooMany);
        assert!(
            all.iter().enumerate().all(|(at, one)| at == 7 || at == 8 || proofs.token(&one.hash).is_some())
        );
        // The store and a new table say the same.
        let stored = store.read(|connection| tokens::list(connection, "", usize::MAX)).unwrap();
        let mut ids: Vec<&str> = stored.iter().map(|token| token.id.as_str()).collect();
        ids.sort_unstable();
        let table = proofs.table.read().unwrap();
        let mut known: Vec<&str> = table.of_id.keys().map(String::as_str).collect();
        known.sort_unstable();
        assert!(ids == known && ids.len() == TOKENS_MAX && table.tokens.len() == TOKENS_MAX);
    }
}
