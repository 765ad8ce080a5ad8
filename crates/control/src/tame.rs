//! Bounds what a daemon reports of a copy, so that a client can show it, add it up and keep it.
//!
//! Always true of what has passed: no text could control a terminal, and none is long; each number is finite, not
//! negative, and fits into a signed one of 64 bits; the lists are short, and their counts not smaller; the flags
//! of a report say the same as its lists and the error.

use farhaul_copy::Report;
use farhaul_words::{Error, ExitCode, FIGURE_MAX, Misbehaviour};
use serde::de::Error as _;
use serde_json::{Number, Value};

/// The most characters of a path: the longest one, each byte of it escaped.
const PATH_CHARS: usize = 4 * 4096;
/// The most characters of any other text.
const TEXT_CHARS: usize = 1000;
/// The most bytes of the texts of one list of a report. An honest daemon lists at most 1 MiB of failures, and
/// 4 MiB of each other kind.
const LIST_BYTES: usize = 4 << 20;
/// Bytes that an entry takes besides its text.
const ENTRY_BYTES: usize = 64;
/// The most warnings, stages and paths of a report.
const FEW: usize = 100;

/// Bounds all texts and numbers of a document. Negative numbers make no sense in any.
pub(crate) fn value(value: &mut Value) -> Result<(), serde_json::Error> {
    field("", value)
}

fn field(name: &str, value: &mut Value) -> Result<(), serde_json::Error> {
    match value {
        Value::String(text) => {
            let most = if matches!(name, "path" | "from") { PATH_CHARS } else { TEXT_CHARS };
            if text.len() > most || text.contains(farhaul_text::is_unprintable) {
                let shown = text.chars().filter(|&char| !farhaul_text::is_unprintable(char));
                *text = shown.take(most).collect();
            }
        }
        Value::Number(number) => *number = bounded(number)?,
        Value::Array(values) => values.iter_mut().try_for_each(|value| field(name, value))?,
        Value::Object(fields) => {
            fields.iter_mut().try_for_each(|(name, value)| field(name, value))?;
        }
        Value::Null | Value::Bool(_) => {}
    }
    Ok(())
}

fn bounded(number: &Number) -> Result<Number, serde_json::Error> {
    if let Some(count) = number.as_u64() {
        return Ok(count.min(FIGURE_MAX).into());
    }
    let value = number.as_f64().filter(|value| *value >= 0.0);
    let value = value.ok_or_else(|| serde_json::Error::custom("a number below zero"))?;
    Number::from_f64(value.min(FIGURE_MAX as f64)).ok_or_else(|| serde_json::Error::custom("no number"))
}

/// Bounds the lists of a report. `is_failed` says whether the copy ended with an error.
pub(crate) fn report(mut report: Report, is_failed: bool, is_dry: bool) -> Result<Report, Error> {
    shorten(&mut report.failed, &mut report.failed_count, |entry| entry.path.len() + entry.reason.len());
    shorten(&mut report.vanished, &mut report.vanished_count, |entry| entry.path.len());
    shorten(&mut report.not_set, &mut report.not_set_count, |entry| entry.path.len() + entry.reason.len());
    shorten(&mut report.not_taken, &mut report.not_taken_count, |entry| {
        entry.path.len() + entry.reason.len()
    });
    shorten(&mut report.left, &mut report.left_count, |entry| entry.path.len() + entry.reason.len());
    let session = &mut report.session;
    session.warnings.truncate(FEW);
    session.stages.truncate(FEW);
    session.paths.truncate(FEW);
    // A copy between daemons has no receipt, and no directories to spread over.
    (report.receipt, report.no_receipt) = (None, None);
    report.spread = Vec::new();
    report.tree_root = report.tree_root.filter(|root| is_root(root));
    let is_good = report.exit_code(None) == ExitCode::Ok;
    let is_true = report.complete && report.ok == is_good && report.dry_run == is_dry;
    if !is_failed && !is_true {
        let what = "the report of the copy contradicts itself or the request";
        return Err(Error::misbehaved(Misbehaviour::SenselessMessage, what.to_string()));
    }
    if is_failed {
        (report.ok, report.complete) = (false, false);
    }
    Ok(report)
}

fn shorten<T>(list: &mut Vec<T>, count: &mut u64, text_bytes: impl Fn(&T) -> usize) {
    *count = (*count).max(list.len() as u64);
    let mut left = LIST_BYTES;
    let takes = |entry: &T| {
        left = left.saturating_sub(text_bytes(entry) + ENTRY_BYTES);
        left > 0
    };
    let fits = list.iter().map(takes).take_while(|fits| *fits).count();
    list.truncate(fits);
}

/// Whether a text is written as the root of a digest tree: 64 digits, behind the kind of the tree or by
/// themselves.
fn is_root(text: &str) -> bool {
    let (kind, digits) = text.rsplit_once(':').unwrap_or(("", text));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    kind.bytes().all(is_word) && digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use farhaul_copy::{FailedAction, FailedEntry};
    use farhaul_words::Code;
    use serde_json::json;

    use super::*;

    fn tamed(mut document: Value) -> Option<Value> {
        value(&mut document).ok().map(|()| document)
    }

    fn good() -> Report {
        Report { ok: true, complete: true, ..Report::default() }
    }

    #[test]
    fn numbers_can_be_added_up_and_kept() {
        assert_eq!(tamed(json!({"a": u64::MAX})), Some(json!({"a": i64::MAX})));
        assert_eq!(tamed(json!([1e308, 0.5, 7])), Some(json!([i64::MAX as f64, 0.5, 7])));
        assert_eq!(tamed(json!({"a": -1})), None);
        assert_eq!(tamed(json!({"a": [-0.5]})), None);
    }

    #[test]
    fn texts_are_short_and_steer_nothing() {
        let long = "x".repeat(100_000);
        let tame = tamed(json!({"path": long, "what": long, "list": ["\u{1b}[2J\na\u{202e}"]})).unwrap();
        assert_eq!(tame["path"].as_str().unwrap().len(), PATH_CHARS);
        assert_eq!(tame["what"].as_str().unwrap().len(), TEXT_CHARS);
        assert_eq!(tame["list"], json!(["[2Ja"]));
    }

    #[test]
    fn a_report_that_contradicts_itself_is_misbehaviour() {
        assert!(report(good(), false, false).is_ok());
        for wrong in [
            Report { ok: false, ..good() },
            Report { complete: false, ..good() },
            Report { failed_count: 1, ..good() },
            Report { vanished_count: 1, ..good() },
            Report { dry_run: true, ..good() },
        ] {
            let error = report(wrong.clone(), false, false).unwrap_err();
            assert_eq!(error.code(), Code::Misbehaved, "{wrong:?}");
        }
        assert!(report(good(), false, true).is_err(), "it was no dry run");
        let failed = report(good(), true, false).unwrap();
        assert!(!failed.ok && !failed.complete);
    }

    #[test]
    fn lists_are_bounded_and_counted() {
        let entry = FailedEntry {
            path: "p".into(),
            code: Code::NoSpace,
            reason: "r".repeat(1000),
            action: FailedAction::Copy,
        };
        let long =
            Report { failed: vec![entry; 10_000], ok: false, tree_root: Some("../x".into()), ..good() };
        let short = report(long, false, false).unwrap();
        assert!(short.failed.len() < 5000 && short.failed_count == 10_000, "{}", short.failed.len());
        assert_eq!(short.tree_root, None);
        let root = format!("blake3-tree-1MiB:{}", "0a".repeat(32));
        let kept = report(Report { tree_root: Some(root.clone()), ..good() }, false, false).unwrap();
        assert_eq!(kept.tree_root, Some(root));
    }
}
