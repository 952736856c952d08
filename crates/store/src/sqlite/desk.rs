//! A connection inside a transaction, with the statements of appends at hand: of a batch, the first
//! fetches them and the last puts them away.

use std::cell::RefCell;
use std::ops::Deref;

use rusqlite::{CachedStatement, Connection, Params, Result};

/// A connection inside a transaction.
pub(super) struct Desk<'db> {
    db: &'db Connection,
    pub(super) moving: AtHand<'db>,
    pub(super) inserting: AtHand<'db>,
}

impl<'db> Desk<'db> {
    pub(super) fn new(db: &'db Connection) -> Self {
        let [moving, inserting] = [(); 2].map(|()| AtHand(RefCell::default()));
        Self { db, moving, inserting }
    }

    /// Runs a statement that changes rows, which is at hand from now on. How many it changed.
    pub(super) fn execute(
        &self,
        at_hand: &AtHand<'db>,
        sql: &str,
        params: impl Params,
    ) -> Result<usize> {
        let mut statement = at_hand.0.borrow_mut();
        match &mut *statement {
            Some(statement) => statement.execute(params),
            none => none.insert(self.db.prepare_cached(sql)?).execute(params),
        }
    }
}

impl Deref for Desk<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.db
    }
}

/// Room for one statement.
pub(super) struct AtHand<'db>(RefCell<Option<CachedStatement<'db>>>);
