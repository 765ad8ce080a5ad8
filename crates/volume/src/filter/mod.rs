//! Selects the paths that a transfer takes, by rsync's filter rules. The first rule whose pattern matches
//! decides; a path without a match is taken; an excluded directory is not entered.
//!
//! [`RuleList`] collects rules in the order of the command line, and reads files of rules. Its lines are sent
//! to the end that scans, which makes a [`Filter`] of them. `pattern.rs` matches.
//!
//! Always true: lines of any origin make a filter or an error, never a panic; the memory and time that they
//! can take are bounded.
//! From: rsync's exclude.c. Differs: per-directory rules (`dir-merge`), word lists and CVS rules are refused,
//! not ignored. Globset does not fit: its `**` is special only as a whole component, and its patterns are
//! UTF-8 without classes such as `[:alpha:]`; rsync's patterns are bytes, and `a**b` crosses slashes.

mod pattern;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use farhaul_text::escape;

use crate::rel_path::RelPath;
use pattern::{PATTERN_MAX, Pattern};

/// The most bytes of all rules of a transfer, and the most rules.
pub const RULES_BYTES_MAX: usize = 64 << 10;
pub const RULES_MAX: usize = 4096;
/// How deep merge files may be nested.
const MERGE_DEPTH_MAX: usize = 16;

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    #[error("unknown filter rule: {0}")]
    Unknown(String),
    #[error("filter rule without a pattern: {0}")]
    Unfinished(String),
    #[error("filter rule with something behind its end: {0}")]
    Trailing(String),
    #[error("unknown modifier '{0}' in the filter rule: {1}")]
    Modifier(char, String),
    #[error("rules of directories (dir-merge) are not supported: {0}")]
    PerDirectory(String),
    #[error("a pattern has more than {PATTERN_MAX} bytes: {0}")]
    TooLong(String),
    #[error("more than {RULES_MAX} filter rules, or {} KiB of them", RULES_BYTES_MAX >> 10)]
    TooMany,
    #[error("{0}: merge files are nested too deep")]
    TooDeep(String),
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
}

/// The end for whose files a rule is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSide {
    /// Rules select what is sent.
    Sender,
    /// Rules protect from deletion.
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Include,
    Exclude,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    action: Action,
    /// It applies to paths that do not match.
    is_negated: bool,
    at_sender: bool,
    at_receiver: bool,
    pattern: Vec<u8>,
}

impl Rule {
    /// The rule as a line that [`parse`] reads.
    fn line(&self) -> Vec<u8> {
        let mut line = vec![if self.action == Action::Include { b'+' } else { b'-' }];
        line.extend(self.is_negated.then_some(b'!'));
        if self.at_sender != self.at_receiver {
            line.push(if self.at_sender { b's' } else { b'r' });
        }
        line.push(b' ');
        line.extend_from_slice(&self.pattern);
        line
    }
}

/// The rules of a transfer, as the sender and the receiver apply them.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    rules: Vec<(Rule, Pattern)>,
}

impl Filter {
    /// Makes a filter from lines of any origin, such as `- *.o`; lines that name files to read are refused.
    pub fn new(lines: &[Vec<u8>]) -> Result<Filter, FilterError> {
        if lines.len() > RULES_MAX || lines.iter().map(Vec::len).sum::<usize>() > RULES_BYTES_MAX {
            return Err(FilterError::TooMany);
        }
        let mut rules = Vec::with_capacity(lines.len());
        for line in lines {
            match parse(line)? {
                ParsedLine::Rule(rule) => rules.push((rule.clone(), Pattern::new(&rule.pattern))),
                ParsedLine::Clear => rules.clear(),
                ParsedLine::Merge(..) => return Err(FilterError::Unknown(shown(line))),
            }
        }
        Ok(Filter { rules })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a path below the root of the transfer is excluded. The caller has to know whether a directory
    /// above it is.
    pub fn excludes(&self, path: &[u8], is_dir: bool, side: FilterSide) -> bool {
        let asked = |rule: &Rule| if side == FilterSide::Sender { rule.at_sender } else { rule.at_receiver };
        let mut rules = self.rules.iter().filter(|(rule, _)| asked(rule));
        let first = rules.find(|(rule, pattern)| pattern.matches(path, is_dir) != rule.is_negated);
        first.is_some_and(|(rule, _)| rule.action == Action::Exclude)
    }

    /// The same filter, and before all its rules one that protects the entry at `path`, and what is in it, from
    /// deletion.
    pub fn protecting(mut self, path: &RelPath) -> Filter {
        self.rules.insert(0, protection([b"/", &literal(path.as_bytes(), false)[..]].concat()));
        self
    }

    /// The same filter, and before all its rules one that leaves the entry at `path` out at the sender.
    pub fn hiding(mut self, path: &RelPath) -> Filter {
        let (rule, pattern) = protection([b"/", &literal(path.as_bytes(), false)[..]].concat());
        self.rules.insert(0, (Rule { at_sender: true, at_receiver: false, ..rule }, pattern));
        self
    }

    /// The same filter, and behind all its rules one that protects names with this end from deletion.
    pub fn protecting_suffix(mut self, suffix: &[u8]) -> Filter {
        self.rules.push(protection([b"*", &literal(suffix, true)[..]].concat()));
        self
    }

    /// The same filter, but rules for both ends no longer protect from deletion; rules only for the receiver
    /// still do.
    pub fn unprotecting(mut self) -> Filter {
        for (rule, _) in &mut self.rules {
            rule.at_receiver &= !rule.at_sender;
        }
        self
    }
}

/// A rule that protects what matches from deletion.
fn protection(pattern: Vec<u8>) -> (Rule, Pattern) {
    let rule =
        Rule { action: Action::Exclude, is_negated: false, at_sender: false, at_receiver: true, pattern };
    let pattern = Pattern::new(&rule.pattern);
    (rule, pattern)
}

/// The part of a pattern that matches only `text`. A backslash is one of its own in a pattern without a wildcard;
/// `is_wild`: the rest of the pattern has one.
fn literal(text: &[u8], is_wild: bool) -> Vec<u8> {
    let special = |byte: &u8| b"*?[\\".contains(byte);
    if !is_wild && !text.iter().any(|byte| b"*?[".contains(byte)) {
        return text.to_vec();
    }
    text.iter().flat_map(|byte| special(byte).then_some(b'\\').into_iter().chain([*byte])).collect()
}

// ---- rules as people write them ----------------------------------------------------------------------------------------

/// How the lines of a file of rules are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Separator {
    #[default]
    Newline,
    Nul,
}

/// Rules in the order in which they were given.
#[derive(Debug, Clone, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    bytes: usize,
    separator: Separator,
}

/// How the lines of a file are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineFormat {
    /// As rules, like those of `--filter`.
    Rules,
    /// As patterns of one kind; with `prefixes`, `+ `, `- ` and `!` have their meaning.
    Patterns { action: Action, prefixes: bool },
}

enum ParsedLine {
    Rule(Rule),
    Clear,
    /// A file with further rules.
    Merge(PathBuf, LineFormat),
}

impl RuleList {
    /// `separator` separates the lines of all files.
    pub fn new(separator: Separator) -> RuleList {
        RuleList { separator, ..RuleList::default() }
    }

    /// `--include PATTERN`
    pub fn include(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.pattern(pattern, Action::Include)
    }

    /// `--exclude PATTERN`
    pub fn exclude(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.pattern(pattern, Action::Exclude)
    }

    /// `--include-from FILE`; `-` is standard input.
    pub fn include_from(&mut self, path: &Path) -> Result<(), FilterError> {
        self.file(path, LineFormat::Patterns { action: Action::Include, prefixes: true }, 0)
    }

    /// `--exclude-from FILE`; `-` is standard input.
    pub fn exclude_from(&mut self, path: &Path) -> Result<(), FilterError> {
        self.file(path, LineFormat::Patterns { action: Action::Exclude, prefixes: true }, 0)
    }

    /// `--filter RULE`
    pub fn rule(&mut self, rule: &[u8]) -> Result<(), FilterError> {
        self.rule_at(rule, 0)
    }

    /// The rules as lines for [`Filter::new`].
    pub fn lines(&self) -> Vec<Vec<u8>> {
        self.rules.iter().map(Rule::line).collect()
    }

    fn rule_at(&mut self, rule: &[u8], depth: usize) -> Result<(), FilterError> {
        match parse(rule)? {
            ParsedLine::Rule(rule) => self.push(rule),
            ParsedLine::Clear => {
                self.clear();
                Ok(())
            }
            ParsedLine::Merge(path, lines) => self.file(&path, lines, depth + 1),
        }
    }

    fn pattern(&mut self, text: &[u8], action: Action) -> Result<(), FilterError> {
        let (action, pattern) = match text {
            b"!" => {
                self.clear();
                return Ok(());
            }
            [] => return Ok(()),
            [b'+', b' ', pattern @ ..] => (Action::Include, pattern),
            [b'-', b' ', pattern @ ..] => (Action::Exclude, pattern),
            pattern => (action, pattern),
        };
        self.push(Rule {
            action,
            is_negated: false,
            at_sender: true,
            at_receiver: true,
            pattern: checked(pattern, text)?,
        })
    }

    fn push(&mut self, rule: Rule) -> Result<(), FilterError> {
        self.bytes += rule.line().len();
        if self.rules.len() == RULES_MAX || self.bytes > RULES_BYTES_MAX {
            return Err(FilterError::TooMany);
        }
        self.rules.push(rule);
        Ok(())
    }

    fn clear(&mut self) {
        self.rules.clear();
        self.bytes = 0;
    }

    fn file(&mut self, path: &Path, lines: LineFormat, depth: usize) -> Result<(), FilterError> {
        let shown = || escape(path.as_os_str().as_encoded_bytes());
        if depth > MERGE_DEPTH_MAX {
            return Err(FilterError::TooDeep(shown()));
        }
        let text = read(path).map_err(|source| FilterError::Read { path: shown(), source })?;
        for line in separated(&text, self.separator) {
            if line.is_empty() || matches!(line[0], b'#' | b';') {
                continue;
            }
            match lines {
                LineFormat::Rules => self.rule_at(line, depth)?,
                LineFormat::Patterns { action, prefixes: true } => self.pattern(line, action)?,
                LineFormat::Patterns { action, prefixes: false } => self.push(Rule {
                    action,
                    is_negated: false,
                    at_sender: true,
                    at_receiver: true,
                    pattern: checked(line, line)?,
                })?,
            }
        }
        Ok(())
    }
}

/// Reads a file of rules, but at most twice the bytes that all rules may have, in case it is some large file
/// of data.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = 2 * RULES_BYTES_MAX as u64;
    if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_end(&mut text)?;
    } else {
        File::open(path)?.take(most).read_to_end(&mut text)?;
    }
    if text.len() as u64 == most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long for a file of rules"));
    }
    Ok(text)
}

fn separated(text: &[u8], separator: Separator) -> impl Iterator<Item = &[u8]> {
    let text = if separator == Separator::Newline { farhaul_text::without_mark(text) } else { text };
    text.split(move |&byte| match separator {
        Separator::Newline => matches!(byte, b'\n' | b'\r'),
        Separator::Nul => byte == 0,
    })
}

fn shown(rule: &[u8]) -> String {
    escape(&rule[..rule.len().min(200)])
}

fn checked(pattern: &[u8], rule: &[u8]) -> Result<Vec<u8>, FilterError> {
    match pattern.len() {
        0 => Err(FilterError::Unfinished(shown(rule))),
        len if len > PATTERN_MAX => Err(FilterError::TooLong(shown(rule))),
        _ => Ok(pattern.to_vec()),
    }
}

/// Parses `NAME[,][MODIFIERS] PATTERN`, with a space or an underscore before the pattern.
fn parse(line: &[u8]) -> Result<ParsedLine, FilterError> {
    const NAMES: [(&[u8], u8); 9] = [
        (b"clear", b'!'),
        (b"exclude", b'-'),
        (b"include", b'+'),
        (b"merge", b'.'),
        (b"dir-merge", b':'),
        (b"hide", b'H'),
        (b"show", b'S'),
        (b"protect", b'P'),
        (b"risk", b'R'),
    ];
    let ends = |rest: &[u8]| rest.is_empty() || matches!(rest[0], b' ' | b'_' | b',');
    let long = NAMES
        .iter()
        .find_map(|&(name, code)| line.strip_prefix(name).filter(|rest| ends(rest)).map(|rest| (code, rest)));
    let (code, rest) = match (long, line) {
        (Some(found), _) => found,
        (None, [code @ (b'!' | b'-' | b'+' | b'.' | b':' | b'H' | b'S' | b'P' | b'R'), rest @ ..]) => {
            (*code, rest)
        }
        (None, _) => return Err(FilterError::Unknown(shown(line))),
    };
    if code == b':' {
        return Err(FilterError::PerDirectory(shown(line)));
    }
    if code == b'!' {
        return if rest.is_empty() { Ok(ParsedLine::Clear) } else { Err(FilterError::Trailing(shown(line))) };
    }
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'_')).unwrap_or(rest.len());
    let (modifiers, pattern) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let mut rule = Rule {
        action: if matches!(code, b'+' | b'S' | b'R') { Action::Include } else { Action::Exclude },
        is_negated: false,
        at_sender: !matches!(code, b'P' | b'R'),
        at_receiver: !matches!(code, b'H' | b'S'),
        pattern: Vec::new(),
    };
    let mut lines = LineFormat::Rules;
    let (mut sender, mut receiver) = (false, false);
    for &modifier in modifiers {
        match (modifier, code) {
            (b'!', b'-' | b'+' | b'H' | b'S' | b'P' | b'R') => rule.is_negated = true,
            (b's', b'-' | b'+') => sender = true,
            (b'r', b'-' | b'+') => receiver = true,
            (b'-', b'.') => lines = LineFormat::Patterns { action: Action::Exclude, prefixes: false },
            (b'+', b'.') => lines = LineFormat::Patterns { action: Action::Include, prefixes: false },
            _ => return Err(FilterError::Modifier(char::from(modifier), shown(line))),
        }
    }
    if sender != receiver {
        (rule.at_sender, rule.at_receiver) = (sender, receiver);
    }
    let pattern = checked(pattern, line)?;
    if code == b'.' {
        use std::os::unix::ffi::OsStringExt;
        return Ok(ParsedLine::Merge(PathBuf::from(std::ffi::OsString::from_vec(pattern)), lines));
    }
    Ok(ParsedLine::Rule(Rule { pattern, ..rule }))
}

#[cfg(test)]
mod tests;
