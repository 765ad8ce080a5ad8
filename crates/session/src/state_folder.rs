//! Where a user's transfers keep what they remember.

use std::path::PathBuf;

/// The folder for what a user's transfers remember: `$XDG_STATE_HOME/farhaul`, by default below
/// `~/.local/state`.
pub fn state_folder() -> PathBuf {
    let xdg = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = xdg.unwrap_or_else(|| std::env::home_dir().unwrap_or_default().join(".local/state"));
    state.join("farhaul")
}
