//! What this end says to the script of a far end.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout};

use farhaul_text::printable;
use farhaul_words::{Code, Error, Event};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::script::{FOLDER, MARK};
use super::{Bring, HelloOrError};
use crate::hello::HelloError;
use crate::ssh::answer::{Exchange, Wait};

/// The most bytes of a line.
const LINE_MAX: usize = 4096;
/// The oldest version of a farhaul that talks with this one.
const OLDEST: [u64; 3] = [0, 1, 0];

/// What a far end is and has.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    machine: String,
    system: String,
    is_kept: bool,
    has_gzip: bool,
    /// The version of its own farhaul.
    own: Option<[u64; 3]>,
}

/// What is to be started there.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Own,
    Kept,
    Take,
}

pub(super) fn serve(
    bring: &Bring,
    (stdin, stdout): (&mut ChildStdin, &mut ChildStdout),
    wait: Wait<'_>,
) -> Result<(), HelloOrError> {
    let hear = |stdin: &mut ChildStdin, stdout: &mut ChildStdout, words: &[u8]| {
        let mut exchange = Exchange::new((stdin, stdout), words, wait).map_err(HelloError::Io)?;
        let line = line(&mut exchange);
        match (exchange.ending(), line) {
            (Some(ending), _) => Err(HelloOrError::Unanswered(ending)),
            (None, line) => line.map_err(HelloOrError::Hello),
        }
    };
    let host = Host::read(&hear(stdin, stdout, b"")?, wait.host)?;
    match host.choice(wait.host) {
        Ok(Choice::Own) => Ok(stdin.write_all(b"own\n").map_err(HelloError::Io)?),
        Ok(Choice::Kept) => ready(&hear(stdin, stdout, b"kept\n")?, wait.host),
        Ok(Choice::Take) => {
            let peer = printable(wait.host.as_bytes(), 255);
            wait.requester.tell(Event::Brings { peer, bytes: bring.len });
            let words = bring
                .words(host.has_gzip)
                .map_err(Error::io("cannot read the program that is to be brought"));
            ready(&hear(stdin, stdout, &words.map_err(HelloOrError::Error)?)?, wait.host)
        }
        Err(error) => {
            // It ends by itself when its input ends; a far end that is told need not wait for that.
            let _ = stdin.write_all(b"stop\n");
            Err(HelloOrError::Error(error))
        }
    }
}

impl Bring {
    /// The order to take this program, and its bytes.
    fn words(&self, packed: bool) -> std::io::Result<Vec<u8>> {
        let mut plain = vec![0; usize::try_from(self.len).map_err(std::io::Error::other)?];
        std::os::unix::fs::FileExt::read_exact_at(&self.program, &mut plain, 0)?;
        let (form, content) = match packed {
            true => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&plain)?;
                ("gzip", encoder.finish()?)
            }
            false => ("plain", plain),
        };
        let mut words = format!("take {} {form}\n", content.len()).into_bytes();
        words.extend(content);
        Ok(words)
    }
}

/// Reads a line of the script, without the mark.
fn line(exchange: &mut Exchange<'_>) -> Result<String, HelloError> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match exchange.read(&mut byte)? {
            0 if line.is_empty() => return Err(HelloError::Closed),
            0 => break,
            _ if byte[0] == b'\n' => break,
            _ if line.len() >= LINE_MAX => break,
            _ => line.push(byte[0]),
        }
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    match text.strip_prefix(MARK) {
        Some(words) => Ok(words.trim().to_owned()),
        None => Err(HelloError::Foreign(printable(text.as_bytes(), 120))),
    }
}

impl Host {
    fn read(words: &str, host: &str) -> Result<Host, HelloOrError> {
        let words: Vec<_> = words.split(' ').collect();
        match words[..] {
            ["is", machine, system, kept, gzip, own] => Ok(Host {
                machine: machine.into(),
                system: system.into(),
                is_kept: kept == "yes",
                has_gzip: gzip == "yes",
                own: version(own),
            }),
            _ => Err(refused(&words.join(" "), host)),
        }
    }

    fn choice(&self, host: &str) -> Result<Choice, Error> {
        if self.own.is_some_and(|own| own >= OLDEST) {
            return Ok(Choice::Own);
        }
        let own = (std::env::consts::ARCH, std::env::consts::OS);
        let (machine, system) = (self.machine.as_str(), self.system.to_ascii_lowercase());
        if (architecture(machine), system.as_str()) != own {
            let what = format!(
                "{host} is {} {}, and this farhaul is for {} {}",
                printable(machine.as_bytes(), 40),
                printable(self.system.as_bytes(), 40),
                own.0,
                own.1
            );
            return Err(Error::new(Code::CannotBring, what)
                .with_hint("install the farhaul of that architecture there"));
        }
        Ok(if self.is_kept { Choice::Kept } else { Choice::Take })
    }
}

/// The name that Rust has for what `uname -m` says.
fn architecture(machine: &str) -> &str {
    match machine {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        machine => machine,
    }
}

fn version(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.split(['.', '-', '+']).map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// The line with which a brought program says that it listens.
fn ready(words: &str, host: &str) -> Result<(), HelloOrError> {
    match words {
        "ready" => Ok(()),
        words => Err(refused(words, host)),
    }
}

/// Why the far end does not take the program, from its words.
fn refused(words: &str, host: &str) -> HelloOrError {
    let mut parts = words.splitn(3, ' ');
    let (no, reason, place) = (parts.next(), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    if no != Some("no") {
        return HelloError::Foreign(printable(words.as_bytes(), 120)).into();
    }
    let place = printable(place.as_bytes(), 300);
    let say = |what: &dyn fmt::Display, hint: &str| {
        HelloOrError::Error(Error::new(Code::CannotBring, format!("{host}: {what}")).with_hint(hint))
    };
    const ELSEWHERE: &str = "install farhaul there, or name one with `remote-program`";
    match reason {
        "home" => say(&format!("the home {place} is not there"), ELSEWHERE),
        "folder" => say(&format!("the folder {place} cannot be made"), ELSEWHERE),
        "elsewhere" => say(
            &format!("~/{FOLDER} leads to {place}, which is not in the home"),
            "make it a folder of the home",
        ),
        "owner" => say(&format!("{place} belongs to somebody else"), "it has to belong to the user"),
        "writable" => {
            say(&format!("others may write in {place}"), &format!("`chmod go-w {place}` there changes that"))
        }
        "write" => say(&format!("nothing can be written in {place}"), ELSEWHERE),
        "noexec" => say(&format!("no program may be started in {place} (noexec)"), ELSEWHERE),
        "full" => {
            say(&format!("the program does not fit in {place}"), "make room there, or look at the quota")
        }
        "damaged" => say(&format!("what has arrived in {place} is not what was sent"), "try again"),
        _ => say(&format!("the program was not taken: {}", printable(words.as_bytes(), 200)), ELSEWHERE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(words: &str) -> Host {
        Host::read(words, "there").unwrap_or_else(|_| panic!("{words}"))
    }

    #[test]
    fn what_is_started_depends_on_what_the_host_has() {
        let own = format!("{} Linux", std::env::consts::ARCH);
        let choose = |words: &str| host(words).choice("there");
        assert_eq!(choose(&format!("is {own} no yes 0.1.0")).unwrap(), Choice::Own);
        assert_eq!(choose(&format!("is {own} yes yes 2.0.0-rc1")).unwrap(), Choice::Own);
        assert_eq!(choose(&format!("is {own} no yes 0.0.9")).unwrap(), Choice::Take);
        assert_eq!(choose(&format!("is {own} yes yes -")).unwrap(), Choice::Kept);
        assert_eq!(choose("is sparc64 Linux no no 0.2.0").unwrap(), Choice::Own);
        for other in ["is sparc64 Linux no yes -", &format!("is {} Darwin no yes -", std::env::consts::ARCH)]
        {
            let error = choose(other).unwrap_err();
            assert_eq!(error.code(), Code::CannotBring);
            assert!(error.what().contains("there is "), "{}", error.what());
        }
    }

    #[test]
    fn each_reason_has_its_words() {
        for reason in
            ["home", "folder", "elsewhere", "owner", "writable", "write", "noexec", "full", "damaged", "new"]
        {
            match refused(&format!("no {reason} /home/a b"), "there") {
                HelloOrError::Error(error) => assert_eq!(error.code(), Code::CannotBring, "{reason}"),
                _ => panic!("{reason}"),
            }
        }
        assert!(matches!(refused("something", "there"), HelloOrError::Hello(HelloError::Foreign(_))));
    }
}
