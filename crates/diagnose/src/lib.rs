//! Asks the doctor of another host for its findings, and tests the path there, over sessions of their own.
//!
//! How to read it: a client [`examine`]s a host (`remote/mod.rs`). It holds a consultation, the session that has the far
//! end's findings, for as long as it tests the path; each test is a further session, in which one end sends blocks that
//! nobody keeps (`load.rs`). [`serve()`] is the other end (`serve.rs`). What was measured is judged by
//! `farhaul_doctor::path`.
//!
//! Always true: nothing is changed and nothing is written at either end. A finding leaves its host without addresses,
//! serial numbers and rules of firewalls. A daemon has one consultation at a time, and only keys with the right
//! `diagnose` have one; what a test sends counts as any other session's content.
//!
//! Does not know: packets, files, and how the two ends have found each other.
#![forbid(unsafe_code)]

mod findings;
mod load;
mod messages;
mod remote;
mod request;
mod serve;

pub use findings::{PeerDiagnosis, PeerFinding};
pub use remote::{Examination, ExaminedPeer, ExaminedWay, examine};
pub use request::{SERVICE, admit, admit_within};
pub use serve::{ConsultingRoom, DiagnoseOutcome, serve};

#[cfg(test)]
mod tests;
