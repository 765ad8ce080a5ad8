//! Whether a connection may ask the user for something on a terminal.
#![deny(missing_docs)]

use std::process::Command;

/// What a connection does about something that only a user knows: whether the key of a new server is the right
/// one, or the password that `ssh` wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prompts {
    /// Nobody is asked. What would be asked is an error that says so, and `ssh` runs without a terminal.
    #[default]
    Forbidden,
    /// The user is asked on the controlling terminal of this process, as `ssh` does it.
    OnTerminal,
}

impl Prompts {
    /// Lets `ssh`, and the programs that it starts, ask nobody if prompts are forbidden: neither on a terminal
    /// nor by a program with a window.
    pub(crate) fn obey(self, command: &mut Command) {
        match self {
            Prompts::Forbidden => {
                farhaul_child::without_terminal(command).env("SSH_ASKPASS_REQUIRE", "never");
            }
            Prompts::OnTerminal => {}
        }
    }

    /// The option by which `ssh` itself knows that it must not ask.
    pub(crate) fn ssh_option(self) -> Option<&'static str> {
        match self {
            Prompts::Forbidden => Some("-oBatchMode=yes"),
            Prompts::OnTerminal => None,
        }
    }
}
