//! The closed list of ways in which a peer can break the protocol.
//!
//! How to read it: each part that finds some has a file with a table of its own, and `misbehaviours` makes
//! [`Misbehaviour`] of all tables. A row has the variant, whose name reports use, the number on the wire, and the
//! text for cases of which nothing more is known. The hundreds (hexadecimal) of a number name the part: 1 the
//! transport, 2 the session, 3 the hello, 4 a copy, 5 a stream, 6 a measurement, 7 a read, 8 a tunnel.
//!
//! Always true: a number never gets a second meaning; each time a peer is said to have misbehaved, the way is
//! counted once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Error;

#[macro_use]
mod transport;
#[macro_use]
mod session;
#[macro_use]
mod hello;
#[macro_use]
mod copy;
#[macro_use]
mod stream;
#[macro_use]
mod read;
#[macro_use]
mod tunnel;
#[macro_use]
mod bench;

macro_rules! misbehaviours {
    ([] $($variant:ident = $number:literal, $text:literal;)*) => {
        /// How a peer has broken the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Misbehaviour {
            $(#[doc = $text] $variant = $number,)*
        }

        impl Misbehaviour {
            /// The whole list, in the order of the table.
            pub const ALL: &'static [Misbehaviour] = &[$(Misbehaviour::$variant),*];

            /// The name that reports use.
            pub fn name(self) -> &'static str {
                match self {
                    $(Misbehaviour::$variant => stringify!($variant),)*
                }
            }

            /// The text for cases of which nothing more is known.
            pub fn text(self) -> &'static str {
                match self {
                    $(Misbehaviour::$variant => $text,)*
                }
            }
        }
    };
}

rows_of_transport! { [rows_of_session rows_of_hello rows_of_copy rows_of_stream rows_of_read rows_of_tunnel rows_of_bench misbehaviours] }

/// How often this process has found each, in the order of the list.
static COUNTS: [AtomicU64; Misbehaviour::ALL.len()] = [const { AtomicU64::new(0) }; Misbehaviour::ALL.len()];

/// How often this process has found each, without those that it has never found.
pub fn misbehaviour_counts() -> Vec<(Misbehaviour, u64)> {
    let all = Misbehaviour::ALL.iter().map(|&how| (how, how.count()));
    all.filter(|&(_, count)| count > 0).collect()
}

impl Misbehaviour {
    /// The number on the wire, which is never 0.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The misbehaviour of this number.
    pub fn of_number(number: u16) -> Option<Misbehaviour> {
        Misbehaviour::ALL.iter().copied().find(|how| how.number() == number)
    }

    /// The misbehaviour of this name.
    pub fn of_name(name: &str) -> Option<Misbehaviour> {
        Misbehaviour::ALL.iter().copied().find(|how| how.name() == name)
    }

    /// How the peer has misbehaved, if `result` is an error that says so.
    pub fn of<T>(result: &Result<T, Error>) -> Option<Misbehaviour> {
        result.as_ref().err().and_then(Error::misbehaviour)
    }

    /// How often this process has found it.
    pub fn count(self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }

    pub(super) fn add(self) {
        self.counter().fetch_add(1, Ordering::Relaxed);
    }

    fn counter(self) -> &'static AtomicU64 {
        let place = Misbehaviour::ALL.iter().position(|&how| how == self);
        &COUNTS[place.expect("the list has all of them")]
    }
}

impl std::fmt::Display for Misbehaviour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
