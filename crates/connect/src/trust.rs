//! Decides whether a server's key is trusted: known keys, keys named on the command line, and first use.

use std::io::{BufRead as _, BufReader, Write as _};

use farhaul_words::{Code, Error};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::dial::DaemonTarget;
use super::dial_requester::{DialRequester, LOOK_EVERY};
use super::known_hosts::{KeyStanding, KnownHosts};
use super::tls::KeyPin;

/// The decision on a key that the first pin did not accept.
#[derive(Debug)]
pub(crate) enum TrustVerdict {
    Trust,
    Refuse(Error),
}

/// What the user has said to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    Refused,
    /// There is no terminal, or no answer has come.
    NoTerminal,
    /// Prompts are forbidden.
    NobodyAsked,
}

/// The keys that are accepted without a question. A known host must have a known key, whatever the options
/// say.
pub(crate) fn first_pin(known: &[String], target: &DaemonTarget) -> KeyPin {
    let named = target.fingerprint.as_deref().map(normalized);
    match named {
        Some(named) if known.is_empty() || known.contains(&named) => KeyPin::OneOf(vec![named]),
        Some(_) => KeyPin::OneOf(Vec::new()),
        None if !known.is_empty() => KeyPin::OneOf(known.to_vec()),
        None if target.accept_new => KeyPin::Any,
        None => KeyPin::OneOf(Vec::new()),
    }
}

/// Returns whether two texts name the same key.
pub fn is_same_fingerprint(one: &str, other: &str) -> bool {
    normalized(one) == normalized(other)
}

/// The fingerprint with `SHA256:` in front and without padding.
fn normalized(fingerprint: &str) -> String {
    let digest = fingerprint.strip_prefix("SHA256:").unwrap_or(fingerprint);
    format!("SHA256:{}", digest.trim_end_matches('='))
}

/// Judges a key that the server has proved and the pin did not accept.
pub(crate) fn judge(
    known: &KnownHosts,
    host: &str,
    target: &DaemonTarget,
    key: &str,
    ask: &dyn Fn(&str) -> Consent,
) -> TrustVerdict {
    let refuse =
        |code: Code, what: String, hint: String| TrustVerdict::Refuse(Error::new(code, what).with_hint(hint));
    let named = target.fingerprint.as_deref().map(normalized);
    match (known.standing(host, key), named) {
        (KeyStanding::Changed { line }, _) => refuse(
            Code::HostKeyChanged,
            format!("the key of {host} has changed to {key}: somebody may be in between"),
            format!(
                "if its owner says that the change is right, remove line {line} of {}",
                known.path().display()
            ),
        ),
        (KeyStanding::Known | KeyStanding::Unknown, Some(named)) if named != key => refuse(
            Code::HostKeyWrong,
            format!("the key of {host} is {key}, not {named} as `fingerprint` demands"),
            "ask its owner for the fingerprint that `farhaul serve` shows".into(),
        ),
        (KeyStanding::Known, _) | (KeyStanding::Unknown, Some(_)) => TrustVerdict::Trust,
        (KeyStanding::Unknown, None) => {
            let unasked = match ask(&format!(
                "{host} was never seen before, its key is {key}.\nTrust it from now on (yes/no)? "
            )) {
                Consent::Given => return TrustVerdict::Trust,
                Consent::Refused => {
                    return refuse(
                        Code::HostKeyUnknown,
                        format!("the key of {host} was not trusted"),
                        "nothing was sent".into(),
                    );
                }
                Consent::NoTerminal => "there is no terminal to ask on",
                Consent::NobodyAsked => "nobody may be asked",
            };
            refuse(
                Code::HostKeyUnknown,
                format!("{host} was never seen before, and {unasked} (its key is {key})"),
                format!(
                    "compare this key with the daemon's own, then give `fingerprint` {key}; a command, but no job, also takes `accept-new`"
                ),
            )
        }
    }
}

/// Asks on the controlling terminal, as ssh does, because standard input may be data. Stops waiting for an
/// answer once the requester cancels.
pub(crate) fn ask_on_terminal(question: &str, requester: &dyn DialRequester) -> Consent {
    answer_on_terminal(question, requester).unwrap_or(Consent::NoTerminal)
}

fn answer_on_terminal(question: &str, requester: &dyn DialRequester) -> Option<Consent> {
    let mut terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    terminal.write_all(question.as_bytes()).ok()?;
    let time = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
    // A terminal delivers whole lines.
    while !requester.is_cancelled() {
        match poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    if requester.is_cancelled() {
        // The next output must not stand behind the question.
        let _ = terminal.write_all(b"\n");
        return None;
    }
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer).ok()?;
    Some(match answer.trim().eq_ignore_ascii_case("yes") {
        true => Consent::Given,
        false => Consent::Refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(lines: &str) -> (tempfile::TempDir, KnownHosts) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known_hosts");
        std::fs::write(&path, lines).unwrap();
        let known = KnownHosts::load(&path).unwrap();
        (folder, known)
    }

    fn target(fingerprint: Option<&str>, accept_new: bool) -> DaemonTarget {
        DaemonTarget { fingerprint: fingerprint.map(str::to_string), accept_new, ..DaemonTarget::default() }
    }

    /// Returns whether `SHA256:b` is accepted if the user answers `answer`.
    fn is_trusted(lines: &str, target: &DaemonTarget, answer: Consent) -> Result<bool, String> {
        let (_folder, known) = known(lines);
        let key = "SHA256:b".to_string();
        match first_pin(&known.keys_of("h:1"), target) {
            KeyPin::Any => return Ok(true),
            KeyPin::OneOf(keys) if keys.contains(&key) => return Ok(true),
            KeyPin::OneOf(_) => {}
        }
        match judge(&known, "h:1", target, &key, &|_| answer) {
            TrustVerdict::Trust => Ok(true),
            TrustVerdict::Refuse(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn first_use_follows_the_user() {
        assert_eq!(is_trusted("", &target(None, true), Consent::NobodyAsked), Ok(true));
        assert_eq!(is_trusted("", &target(None, false), Consent::Given), Ok(true));
        assert!(is_trusted("", &target(None, false), Consent::Refused).is_err());
        assert!(
            is_trusted("", &target(None, false), Consent::NoTerminal).unwrap_err().contains("no terminal")
        );
        assert_eq!(is_trusted("", &target(Some("SHA256:b"), false), Consent::NobodyAsked), Ok(true));
        assert_eq!(is_trusted("", &target(Some("b="), false), Consent::NobodyAsked), Ok(true));
        let demanded = is_trusted("", &target(Some("SHA256:c"), true), Consent::Given).unwrap_err();
        assert!(demanded.contains("`fingerprint`"), "{demanded}");
    }

    #[test]
    fn a_changed_key_fails_whatever_was_said() {
        for target in [target(None, true), target(None, false), target(Some("SHA256:b"), true)] {
            let error = is_trusted("h:1 SHA256:a\n", &target, Consent::Given).unwrap_err();
            assert!(error.contains("changed"), "{error}");
        }
        assert_eq!(
            is_trusted("h:1 SHA256:a\nh:1 SHA256:b\n", &target(None, false), Consent::NobodyAsked),
            Ok(true)
        );
        assert!(
            is_trusted("h:1 SHA256:b\n", &target(Some("SHA256:c"), false), Consent::NobodyAsked).is_err()
        );
    }
}
