//! What the user sees: `units.rs`, `summary.rs` and `findings.rs` make text, `printer.rs` writes it, `progress.rs` draws
//! while a transfer runs and `waiting_line.rs` while a measurement does, `log.rs` is for those who look inside.

pub mod findings;
pub mod log;
pub mod printer;
pub mod progress;
pub mod summary;
pub mod units;
pub mod waiting_line;
