//! All tokens and log-ins, in memory: who a caller is costs a look at this table, no thread and no look into
//! the store, however many guess and however busy the disk is.
//!
//! Always true: the table has what the store has. A change is made there first, and here under the same lock,
//! so that both see all changes in one order.

use std::collections::HashMap;
use std::sync::{Mutex, RwLock};

use farhaul_handover::Held as _;
use farhaul_session::Error;

use crate::store::Store;
use crate::store::logins::{self, LoginRow};
use crate::store::tokens::{self, TokenRow};

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

    pub(crate) fn add_token(&self, store: &Store, token: TokenRow) -> Result<(), Error> {
        let _changing = self.changing.lock().in_any_case();
        let written = token.clone();
        store.write(move |transaction| tokens::insert(transaction, &written))?;
        self.table.write().in_any_case().add_token(token);
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
