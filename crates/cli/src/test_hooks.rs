//! The test hooks of this process: faults, short key epochs and a clock that is wrong. Only a test can set them:
//! no option and no variable of the environment does.
//!
//! Always true: the hooks come from a descriptor that [`descriptors::test_hooks`] has accepted, once, before anything
//! else runs. This process closes the descriptor, so no program that it starts gets the hooks.

use std::path::PathBuf;
use std::sync::OnceLock;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::TestHooks;
use farhaul_service::Clock;

use crate::descriptors;

/// The first line of the text. No other program has a reason to write it.
const FIRST_LINE: &str = "farhaul test hooks";

/// The hooks of this process. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq)]
struct Hooks {
    sessions: TestHooks,
    /// A file with the seconds to add to the service's clock and, behind them, to the time since boot.
    clock: Option<PathBuf>,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Takes the hooks that the test has handed down, if there are any. `main` has to call this before it opens
/// anything.
pub fn take() -> Result<(), Error> {
    let Some(text) = descriptors::test_hooks() else { return Ok(()) };
    let Some(lines) = text.strip_prefix(FIRST_LINE).and_then(|rest| rest.strip_prefix('\n')) else {
        return Ok(());
    };
    let hooks = parsed(lines).map_err(|what| Error::new(Code::BadConfig, format!("test hooks: {what}")))?;
    let _ = HOOKS.set(hooks);
    Ok(())
}

/// What goes wrong on purpose at this end of a session.
pub fn of_sessions() -> TestHooks {
    HOOKS.get().map(|hooks| hooks.sessions).unwrap_or_default()
}

/// The clock of the service.
pub fn clock() -> Clock {
    HOOKS.get().and_then(|hooks| hooks.clock.clone()).map_or_else(Clock::of_host, Clock::shifted_by)
}

/// Reads lines such as `fault=loss=0.1,seed=7`, `epoch_bits=6` and `clock=/path`.
fn parsed(lines: &str) -> Result<Hooks, String> {
    let mut hooks = Hooks::default();
    for line in lines.lines() {
        match line.split_once('=') {
            Some(("fault", fault)) => {
                hooks.sessions.fault = Some(fault.parse().map_err(|error| format!("{error}"))?);
            }
            Some(("epoch_bits", bits)) => {
                let bits = bits.parse().ok().filter(|bits| (4..=22).contains(bits));
                hooks.sessions.epoch_bits = bits.ok_or_else(|| format!("{line:?} is not 4 to 22"))?;
            }
            Some(("clock", file)) => hooks.clock = Some(file.into()),
            _ => return Err(format!("there is no hook {line:?}")),
        }
    }
    Ok(hooks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hook_is_a_line_of_its_own() {
        let hooks = parsed("fault=loss=0.1,seed=7\nepoch_bits=6\nclock=/tmp/clock\n").unwrap();
        let sessions = TestHooks { fault: Some("loss=0.1,seed=7".parse().unwrap()), epoch_bits: 6 };
        assert_eq!(hooks, Hooks { sessions, clock: Some("/tmp/clock".into()) });
        assert_eq!(parsed(""), Ok(Hooks::default()));
    }

    #[test]
    fn a_line_that_is_no_hook_is_named() {
        for line in ["fault=lass=1", "epoch_bits=3", "epoch_bits=23", "epoch_bits=x", "speed=9", "clock"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
