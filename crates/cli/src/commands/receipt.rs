//! `farhaul receipt`: prints the receipt of a job, or checks one by the keys of its ends.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use farhaul::Error;
use farhaul::copy::{Receipt, Statement};
use farhaul::errors::{Code, ErrorDetail, ExitCode};
use farhaul::sisters::{CheckedReceipt, manifest_root, plain};
use farhaul::target::PublicKey;
use serde::Serialize;

use crate::args::receipt::{self, ReceiptVerb, ReceiptVerifyArgs};
use crate::ui::{printer, units};

pub fn run(args: &receipt::ReceiptArgs) -> ExitCode {
    match (&args.verb, &args.id) {
        (Some(ReceiptVerb::Verify(args)), _) => verify(args),
        (None, Some(id)) => super::service::receipt(id, args).map_or_else(
            |error| {
                printer::error(&error, None);
                error.exit_code()
            },
            |()| ExitCode::Ok,
        ),
        // The parser shows its help instead.
        (None, None) => ExitCode::Usage,
    }
}

/// The result, as `--json` prints it.
#[derive(Serialize)]
struct ReceiptJson<'a> {
    schema: u32,
    ok: bool,
    error: Option<String>,
    error_detail: Option<ErrorDetail>,
    /// Whether the tree root is that of the manifest that was given.
    manifest: bool,
    sender: Option<Key>,
    receiver: Option<Key>,
    /// The statement that the receiver has signed.
    statement: Option<&'a Statement>,
}

#[derive(Serialize)]
struct Key {
    fingerprint: String,
    /// Whether it is one of the keys that were given.
    is_trusted: bool,
}

impl Key {
    fn of((key, is_trusted): &(PublicKey, bool)) -> Key {
        Key { fingerprint: key.fingerprint(), is_trusted: *is_trusted }
    }
}

fn verify(args: &ReceiptVerifyArgs) -> ExitCode {
    let outcome = check(args);
    let mut code = match &outcome {
        Ok(_) => ExitCode::Ok,
        Err(error) => {
            printer::error(error, None);
            error.exit_code()
        }
    };
    if let (Ok((receipt, checked)), false) = (&outcome, args.quiet) {
        summary(receipt, checked, args.manifest.is_some()).iter().for_each(|line| printer::line(line));
    }
    if args.json {
        let (found, error) = (outcome.as_ref().ok(), outcome.as_ref().err());
        let told = ReceiptJson {
            schema: 1,
            ok: error.is_none(),
            error: error.map(ToString::to_string),
            error_detail: error.map(ErrorDetail::from),
            manifest: args.manifest.is_some() && error.is_none(),
            sender: found.map(|(_, checked)| Key::of(&checked.sender)),
            receiver: found.map(|(_, checked)| Key::of(&checked.receiver)),
            statement: found.map(|(receipt, _)| &receipt.received.statement),
        };
        if let Err(error) = printer::json(&told) {
            printer::error(&error, None);
            code = if code == ExitCode::Ok { error.exit_code() } else { code };
        }
    }
    code
}

fn check(args: &ReceiptVerifyArgs) -> Result<(Receipt, CheckedReceipt), Error> {
    let trusted = args.key.iter().map(|file| PublicKey::load(file)).collect::<Result<Vec<_>, _>>()?;
    let receipt = Receipt::parse(&read(&args.file)?)?;
    let root = args.manifest.as_deref().map(manifest_root).transpose()?;
    let checked = receipt.check(&trusted, root.as_deref())?;
    Ok((receipt, checked))
}

/// The most bytes of a file that are read; any receipt is shorter.
const READ_MAX: u64 = 2 << 20;

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|file| file.take(READ_MAX).read_to_end(&mut text));
    read.map(|_| text).map_err(|error| {
        Error::new(
            Code::of_files(&error),
            format!("cannot read the receipt {}: {}", file.display(), plain(&error)),
        )
    })
}

/// The result in lines for people.
fn summary(receipt: &Receipt, checked: &CheckedReceipt, has_manifest: bool) -> Vec<String> {
    let (sent, received) = (&receipt.sent.statement, &receipt.received.statement);
    let key = |(key, is_trusted): &(PublicKey, bool)| {
        let known = if *is_trusted { "a given key" } else { "not among the given keys" };
        format!("{} ({known})", key.fingerprint())
    };
    let mut lines = vec![
        format!("sent by {}", key(&checked.sender)),
        format!("received and synced by {}", key(&checked.receiver)),
        format!("{} files, {} entries, {}", received.files, received.entries, units::size(received.bytes)),
        format!(
            "tree root {}{}",
            received.tree_root,
            if has_manifest { ", the same as in the manifest" } else { "" }
        ),
    ];
    if received.unread > 0 {
        lines.push(format!(
            "{} files were there already and were not read: only their sizes and times are known",
            received.unread
        ));
    }
    if sent.digests_told > 0 {
        lines.push(format!("the digests of {} files were computed by the receiver only", sent.digests_told));
    }
    if received.failed > 0 {
        lines.push(format!("{} entries failed and are not part of the receipt", received.failed));
    }
    lines
}
