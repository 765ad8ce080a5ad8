//! Brings this program to a far end that lacks it, by the one connection that ssh has made.
//!
//! How it goes: ssh starts a small program of the far end's shell (`script.rs`) in place of farhaul. It says
//! what the host is and what it has; this end answers with what is to be started, or sends its own program.
//! That one checks its own digest and its folder ([`kept`]), takes its final name and goes on as any far end.
//!
//! Always true: nothing is sent to a host of another architecture, and nothing is started there that others
//! could have written. What is brought depends on no library of the far end.
#![deny(missing_docs)]

pub mod kept;
mod script;
mod talk;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use farhaul_words::{Code, Error};

use super::answer::Wait;
use super::{HelloOrError, SshTarget};
use crate::dial_requester::DialRequester;
use crate::prompts::Prompts;
use crate::trust::{Consent, ask_on_terminal};

/// Where a package that is not static itself keeps one that is.
const STATIC_PROGRAM: &str = "/usr/lib/farhaul/farhaul-static";
/// The running program.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// A program header that names the loader of libraries (elf(5), PT_INTERP).
const PT_INTERP: u32 = 3;
/// The program headers of a file are looked for in its first bytes, where every linker puts them.
const HEAD_LEN: u64 = 64 << 10;

/// What becomes of a far end without a farhaul, or with one too old to talk.
#[derive(Debug, Clone, Default)]
pub enum Bringing {
    /// It stays as it is, and the connection fails.
    #[default]
    Never,
    /// The user is asked on the terminal whether this program may be sent to a far end that has none, if the
    /// target's prompts allow that.
    Offered,
    /// It gets this program.
    Unasked(Arc<Bring>),
}

impl Bringing {
    /// Talks with the far end's shell until a farhaul has been started there, if one may be brought.
    pub(crate) fn serve(
        &self,
        pipes: (&mut ChildStdin, &mut ChildStdout),
        wait: Wait<'_>,
    ) -> Result<(), HelloOrError> {
        match self {
            Bringing::Unasked(bring) => talk::serve(bring, pipes, wait),
            Bringing::Never | Bringing::Offered => Ok(()),
        }
    }
}

/// The target with a program to be brought, if the user agrees; the far end has none.
pub(super) fn agreed(target: &SshTarget, requester: &dyn DialRequester) -> Option<SshTarget> {
    let may_ask = matches!(target.bring, Bringing::Offered) && target.prompts == Prompts::OnTerminal;
    if !may_ask {
        return None;
    }
    let bring = Bring::of_this_host().ok()?;
    let question = format!(
        "{} has no farhaul. Send it this one ({} MB, kept in ~/{} there; yes/no)? ",
        target.host,
        bring.len.div_ceil(1_000_000),
        script::FOLDER
    );
    match ask_on_terminal(&question, requester) {
        Consent::Given => Some(SshTarget { bring: Bringing::Unasked(Arc::new(bring)), ..target.clone() }),
        Consent::Refused | Consent::NoTerminal | Consent::NobodyAsked => None,
    }
}

/// A program that can be sent to another host and started there.
#[derive(Debug)]
pub struct Bring {
    program: File,
    len: u64,
    /// SHA-256 in hexadecimal digits.
    digest: String,
}

impl Bring {
    /// The program that can be sent: this one if it needs no library, else the one that its package has beside
    /// it.
    pub fn of_this_host() -> Result<Bring, Error> {
        let own = open(Path::new(THIS_PROGRAM))?;
        if needs_no_library(&own).map_err(Error::io("cannot read this program"))? {
            return Bring::of(own);
        }
        match File::open(STATIC_PROGRAM) {
            Ok(program) => Bring::of(program),
            Err(error) => Err(Error::with_source(
                Code::CannotBring,
                format!("this farhaul needs libraries of its host, and {STATIC_PROGRAM} cannot be opened"),
                error,
            )
            .with_hint("take the farhaul of the archive for any Linux, which can be brought")),
        }
    }

    fn of(mut program: File) -> Result<Bring, Error> {
        let read = Error::io("cannot read the program that is to be brought");
        let summed = digest_of(&mut program);
        let (len, digest) = summed.map_err(read)?;
        Ok(Bring { program, len, digest })
    }

    /// What the far end's shell is asked to run so that `remote_program VERB` runs in the end.
    pub(super) fn command(&self, remote_program: &str, verb: &str) -> String {
        script::command(&self.digest, remote_program, verb)
    }
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(Error::io(format!("cannot open {}", path.display())))
}

/// The length of a file and its SHA-256.
fn digest_of(file: &mut File) -> io::Result<(u64, String)> {
    file.seek(SeekFrom::Start(0))?;
    let (mut context, mut len, mut part) = (Context::new(&SHA256), 0, vec![0; 256 << 10]);
    loop {
        let count = file.read(&mut part)?;
        if count == 0 {
            break;
        }
        len += count as u64;
        context.update(&part[..count]);
    }
    let digest = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((len, digest))
}

/// Whether a program of this architecture runs without any library.
fn needs_no_library(mut program: &File) -> io::Result<bool> {
    let mut head = Vec::new();
    program.seek(SeekFrom::Start(0))?;
    program.take(HEAD_LEN).read_to_end(&mut head)?;
    Ok(names_no_loader(&head).unwrap_or(false))
}

/// Whether the beginning of a 64-bit ELF file has no PT_INTERP; `None` if it is no such file.
fn names_no_loader(head: &[u8]) -> Option<bool> {
    let number = |at: usize, len: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(len)?)?;
        let mut whole = [0; 8];
        whole[..len].copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole))
    };
    (head.get(..6)? == b"\x7fELF\x02\x01").then_some(())?;
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut kinds = (0..count).map(|index| {
        let at = usize::try_from(table.checked_add(size.checked_mul(index)?)?).ok()?;
        number(at, 4)
    });
    kinds.try_fold(true, |none, kind| Some(none && kind? != u64::from(PT_INTERP)))
}

#[cfg(test)]
mod tests;
