//! Turns the options that choose entries into `farhaul::options::SelectOptions`; reads the files with rules and
//! names.
//!
//! Always true: of a file that is longer than the crate `farhaul` accepts only the beginning is read.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul::Error;
use farhaul::errors::Code;
use farhaul::options::SelectOptions;
use farhaul::sisters::{FilterError, RuleList, Separator, plain};

use crate::args::select::{OrderedRules, RuleOption, SelectArgs};
use crate::descriptors;

/// The longest file of names, in bytes: twice what the crate `farhaul` takes, as comments and JSON need room, too.
const NAMES_FILE_MAX: u64 = 64 << 20;

type NameList = Vec<Vec<u8>>;

/// The content of a list of names.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    names: NameList,
    /// Number of lines that were read as comments.
    comments: usize,
}

/// Returns the options and, with `--files-from`, the names. `note` is called with a line for the user if
/// lines of the list were read as comments. rsync leaves such lines out, too, but a file may have such a
/// name.
pub fn read(
    select: &SelectArgs,
    note: impl FnOnce(&str),
) -> Result<(SelectOptions, Option<NameList>), Error> {
    if reads_stdin(select) {
        descriptors::input()?;
    }
    let separator = if select.from0 { Separator::Nul } else { Separator::Newline };
    let rules =
        rules(&select.rules, separator).map_err(|error| Error::new(Code::BadPattern, error.to_string()))?;
    let list = select.files_from.as_deref().map(|path| list(path, separator)).transpose()?;
    if let (Some(path), Some(List { comments: comments @ 1.., .. })) = (&select.files_from, &list) {
        note(&comment_note(path, *comments));
    }
    let names = list.map(|list| list.names);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let ago = |age: u64| i64::try_from(now).unwrap_or(i64::MAX).saturating_sub_unsigned(age);
    let options = SelectOptions {
        rules: rules.lines(),
        size_min: select.min_size,
        size_max: select.max_size,
        mtime_min: select.max_age.map(ago),
        mtime_max: select.min_age.map(ago),
        by_name: names.is_some(),
        one_file_system: select.one_file_system,
        require: select.require.iter().map(|path| path.as_bytes().to_vec()).collect(),
    };
    Ok((options, names))
}

/// Returns whether a list of names or patterns comes from standard input. If that is closed, it looks like an
/// empty list, which is valid: so the caller has to check.
fn reads_stdin(select: &SelectArgs) -> bool {
    let is_read = |(option, value): &(RuleOption, OsString)| match option {
        RuleOption::IncludeFrom | RuleOption::ExcludeFrom => value == "-",
        // A rule that merges a file ends with the name of the file.
        RuleOption::Filter => value.as_bytes().ends_with(b" -"),
        RuleOption::Include | RuleOption::Exclude => false,
    };
    select.files_from.as_deref().is_some_and(|path| path.as_os_str() == "-")
        || select.rules.0.iter().any(is_read)
}

fn rules(rules: &OrderedRules, separator: Separator) -> Result<RuleList, FilterError> {
    let mut list = RuleList::new(separator);
    for (option, value) in &rules.0 {
        match option {
            RuleOption::Include => list.include(value.as_bytes())?,
            RuleOption::Exclude => list.exclude(value.as_bytes())?,
            RuleOption::Filter => list.rule(value.as_bytes())?,
            RuleOption::IncludeFrom => list.include_from(Path::new(value))?,
            RuleOption::ExcludeFrom => list.exclude_from(Path::new(value))?,
        }
    }
    Ok(list)
}

fn comment_note(path: &Path, comments: usize) -> String {
    let lines =
        if comments == 1 { "1 line is a comment".into() } else { format!("{comments} lines are comments") };
    let shown = path.display();
    format!(
        "--files-from {shown}: {lines} (# or ; at the beginning); for a file with such a name write ./#name"
    )
}

fn list(path: &Path, separator: Separator) -> Result<List, Error> {
    let cannot = |why: String| Error::new(Code::BadList, format!("--files-from {}: {why}", path.display()));
    let mut text = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(NAMES_FILE_MAX).read_to_end(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(NAMES_FILE_MAX).read_to_end(&mut text))
    };
    read.map_err(|error| cannot(plain(&error)))?;
    if text.len() as u64 == NAMES_FILE_MAX {
        return Err(cannot("longer than 64 MiB".into()));
    }
    list_in(&text, separator).map_err(cannot)
}

/// Each line has one name or one JSON object with a `path`. Between zero bytes there can be only names.
fn list_in(text: &[u8], separator: Separator) -> Result<List, String> {
    if separator == Separator::Nul {
        let names = text.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        return Ok(List { names: names.map(<[u8]>::to_vec).collect(), comments: 0 });
    }
    let text = farhaul::sisters::without_mark(text);
    let lines = || text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut numbered = (1..).zip(lines()).filter(|(_, line)| !line.is_empty()).peekable();
    // A file may be called {a}, so a line is JSON only if it parses.
    if numbered.peek().is_some_and(|(_, line)| object(line).is_some()) {
        let path = |(number, line): (usize, &[u8])| {
            let mut object = object(line)?;
            if let Some(serde_json::Value::String(bytes)) = object.remove("path_base64") {
                return Some(STANDARD.decode(bytes).map_err(|error| format!("line {number}: {error}")));
            }
            match object.remove("path")? {
                serde_json::Value::String(path) => Some(Ok(path.into_bytes())),
                _ => Some(Err(format!("line {number}: \"path\" is not a string"))),
            }
        };
        // These lines of a manifest are no names to copy: the first and the last line; directories, as the
        // files in them have lines; and entries that were or should have been deleted, as the source does not
        // have them.
        let is_no_name = |line: &[u8]| {
            let Some(object) = object(line) else { return false };
            let result = object.get("result").and_then(serde_json::Value::as_str);
            let is_directory = || object.get("kind").is_some_and(|kind| kind == "directory");
            object.contains_key("manifest")
                || object.contains_key("end")
                || result.is_some_and(|result| matches!(result, "deleted" | "not-deleted") || is_directory())
        };
        let numbered = numbered.filter(|(_, line)| !is_no_name(line));
        let names = numbered.map(|line| {
            path(line).unwrap_or_else(|| Err(format!("line {}: no JSON object with a \"path\"", line.0)))
        });
        return Ok(List { names: names.collect::<Result<_, _>>()?, comments: 0 });
    }
    let is_comment = |line: &[u8]| matches!(line[0], b'#' | b';');
    let (comments, names): (NameList, NameList) =
        numbered.map(|(_, line)| line.to_vec()).partition(|line| is_comment(line));
    Ok(List { names, comments: comments.len() })
}

fn object(line: &[u8]) -> Option<serde_json::Map<String, serde_json::Value>> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newline(text: &str) -> Result<Vec<String>, String> {
        let list = list_in(text.as_bytes(), Separator::Newline)?;
        Ok(list.names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect())
    }

    #[test]
    fn lists_of_names() {
        assert_eq!(newline("a\n\n# no\n; no\r\nb c\r\n{d}\n").unwrap(), ["a", "b c", "{d}"]);
        assert_eq!(newline("{\"path\":\"a\",\"size\":1}\n\n{\"path\":\"b\\n\"}").unwrap(), ["a", "b\n"]);
        assert!(newline("").unwrap().is_empty());
        assert_eq!(newline("\u{feff}a\r\n\u{feff}b\r\n").unwrap(), ["a", "\u{feff}b"], "a list from Windows");
        let manifest = "{\"manifest\":1}\n{\"path\":\"?\",\"path_base64\":\"/w==\",\"result\":\"failed\"}\n\
                        {\"path\":\".\",\"kind\":\"directory\",\"result\":\"sent\"}\n\
                        {\"path\":\"old\",\"result\":\"deleted\"}\n\
                        {\"path\":\"stays\",\"result\":\"not-deleted\",\"error\":\"why\"}\n{\"end\":true}\n";
        assert_eq!(list_in(manifest.as_bytes(), Separator::Newline).unwrap().names, [b"\xff"]);
        for bad in ["{\"path\":\"a\"}\nb", "{\"name\":\"a\"}", "{\"path\":7}"] {
            assert!(newline(bad).unwrap_err().starts_with("line "), "{bad}");
        }
        let list = list_in(b"a\n\0#b\0\0{}", Separator::Nul).unwrap();
        assert_eq!(
            (&list.names[..], list.comments),
            (&[&b"a\n"[..], b"#b", b"{}"].map(<[u8]>::to_vec)[..], 0)
        );
    }

    #[test]
    fn what_is_taken_for_a_comment_is_counted_and_told() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("names");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let select = SelectArgs { files_from: Some(path.clone()), ..SelectArgs::default() };
            let mut told = String::new();
            let (_, names) = read(&select, |note| told = note.to_string()).unwrap();
            (names.unwrap(), told)
        };
        let (names, note) = told("#a\n./#b\n; c\nd\n");
        assert_eq!(names, [&b"./#b"[..], b"d"]);
        assert!(note.contains("2 lines are comments") && note.contains("./#name"), "{note}");
        assert_eq!(told("./#b\nd#\n").1, "");
    }

    #[test]
    fn what_cannot_be_read_is_wrong_usage() {
        let select =
            |files_from: &str| SelectArgs { files_from: Some(files_from.into()), ..SelectArgs::default() };
        for file in ["/nonexistent", "/", "/dev/zero"] {
            assert!(
                matches!(read(&select(file), |_| {}), Err(error) if error.code() == Code::BadList),
                "{file}"
            );
        }
    }
}
