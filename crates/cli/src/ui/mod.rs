//! What the user sees: `units.rs` and `summary.rs` make text, `printer.rs` writes it, `progress.rs` draws while a
//! transfer runs, `log.rs` is for those who look inside.

pub mod log;
pub mod printer;
pub mod progress;
pub mod summary;
mod units;
