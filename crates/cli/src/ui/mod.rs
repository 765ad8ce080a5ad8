//! What the user sees: `units.rs`, `summary.rs` and `findings.rs` make text, and `printer.rs` writes it.
//! `progress.rs` draws while a transfer runs, `waiting_line.rs` while a measurement runs. `log.rs` writes the
//! log.

pub mod findings;
pub mod log;
pub mod printer;
pub mod progress;
pub mod summary;
pub mod units;
pub mod waiting_line;
