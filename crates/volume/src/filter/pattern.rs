//! One pattern of a filter rule, and its matcher.
//!
//! A pattern without a wildcard is compared as it is. A pattern with a wildcard is a list of tokens. The fast
//! matcher goes back only to the last `*` and the last `**`. That finds every match (a `*` cannot pass a
//! slash, so nothing before the last slash can help), but may take the cube of the lengths. If it takes too
//! long, the slow matcher decides, whose time is at most the product of the lengths. So a pattern from the
//! network cannot stall a scan.
//!
//! From: rsync's exclude.c (`rule_matches`) and wildmatch.c, as rsync 3.2 to 3.5 behave.

/// The longest pattern, as in rsync (MAXPATHLEN).
pub(super) const PATTERN_MAX: usize = 4096;
/// How many steps the fast matcher may take for each byte of text and token, before the slow one takes over.
const STEPS_EACH: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    body: Body,
    /// The pattern ended with a slash, so it matches only directories.
    only_directories: bool,
    /// The pattern began with a slash, so it must match from the start of the path.
    is_anchored: bool,
    slashes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Literal(Vec<u8>),
    Wild {
        tokens: Vec<Token>,
        /// The same tokens behind anything that ends with a slash; empty if the pattern cannot begin there.
        behind_slash: Vec<Token>,
        /// The pattern contains a `**` (`crosses`), begins with one, ends with `***`.
        crosses: bool,
        begins_crossing: bool,
        takes_directory: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`: any byte but a slash.
    Any,
    /// `[...]`: a bit for each byte; never a slash.
    Set(Box<[u64; 4]>),
    /// `*`: any bytes but slashes.
    Star,
    /// `**`: any bytes.
    Cross,
    /// Matches nothing: a set that is not closed, a class without a name, a backslash at the end.
    Never,
}

impl Token {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Token::Byte(own) => *own == byte,
            Token::Any => byte != b'/',
            Token::Set(bits) => byte != b'/' && bits[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
            Token::Star | Token::Cross | Token::Never => false,
        }
    }
}

impl Pattern {
    /// `text` must not be empty, and at most [`PATTERN_MAX`] bytes long.
    pub(super) fn new(text: &[u8]) -> Pattern {
        let only_directories = text.len() > 1 && text.ends_with(b"/");
        let text = if only_directories { &text[..text.len() - 1] } else { text };
        let slashes = text.iter().filter(|&&byte| byte == b'/').count();
        let is_anchored = text.starts_with(b"/");
        let rest = if is_anchored { &text[1..] } else { text };
        let body = if text.iter().any(|byte| b"*?[".contains(byte)) {
            let tokens = tokens(rest);
            let crosses = text.windows(2).any(|two| two == b"**");
            let begins_crossing = text.starts_with(b"**");
            let behind_slash = match crosses && !begins_crossing && !is_anchored {
                true => [&[Token::Cross, Token::Byte(b'/')], &tokens[..]].concat(),
                false => Vec::new(),
            };
            Body::Wild {
                tokens,
                behind_slash,
                crosses,
                begins_crossing,
                takes_directory: text.ends_with(b"***"),
            }
        } else {
            Body::Literal(rest.to_vec())
        };
        Pattern { body, only_directories, is_anchored, slashes }
    }

    /// Whether the pattern matches a path below the root of the transfer.
    pub(super) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.only_directories && !is_dir {
            return false;
        }
        let crosses = matches!(self.body, Body::Wild { crosses: true, .. });
        // A pattern without a slash is only matched with the last component.
        let text = if self.slashes == 0 && !crosses { last_components(path, 1) } else { Some(path) };
        let Some(text) = text else { return false };
        match &self.body {
            Body::Literal(literal) if self.is_anchored => text == literal,
            Body::Literal(literal) => text
                .strip_suffix(&literal[..])
                .is_some_and(|before| before.is_empty() || before.ends_with(b"/")),
            Body::Wild { tokens, behind_slash, begins_crossing, takes_directory, .. } => {
                let extended;
                let text = match (*begins_crossing, *takes_directory && is_dir) {
                    (false, false) => text,
                    // `**/x` also matches x at the top, and `x/***` the directory x itself.
                    (front, back) => {
                        let mut bytes = Vec::with_capacity(text.len() + 2);
                        bytes.extend(front.then_some(b'/'));
                        bytes.extend_from_slice(text);
                        bytes.extend(back.then_some(b'/'));
                        extended = bytes;
                        &extended
                    }
                };
                if self.is_anchored || *begins_crossing || self.slashes == 0 && !crosses {
                    return is_match(tokens, text);
                }
                if !crosses {
                    // A pattern with slashes is matched with as many components as it has.
                    return last_components(text, self.slashes + 1)
                        .is_some_and(|text| is_match(tokens, text));
                }
                // The match may begin after any slash: `behind_slash` tries all of them at once.
                is_match(tokens, text) || is_match(behind_slash, text)
            }
        }
    }
}

/// The last `count` components; `None` if there are fewer.
fn last_components(path: &[u8], count: usize) -> Option<&[u8]> {
    let mut slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let above = slashes.by_ref().take(count).collect::<Vec<_>>();
    match above.len() {
        found if found == count => Some(&path[above[count - 1] + 1..]),
        found if found + 1 == count => Some(path),
        _ => None,
    }
}

// ---- from text to tokens -----------------------------------------------------------------------------------------------

fn tokens(pattern: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        let (token, left) = match first {
            b'?' => (Token::Any, after),
            b'*' => {
                let more = after.iter().take_while(|&&byte| byte == b'*').count();
                (if more > 0 { Token::Cross } else { Token::Star }, &after[more..])
            }
            b'\\' => match after {
                [escaped, left @ ..] => (Token::Byte(*escaped), left),
                [] => (Token::Never, after),
            },
            b'[' => match set(after) {
                Some((bits, left)) => (Token::Set(Box::new(bits)), left),
                None => (Token::Never, &[][..]),
            },
            byte => (Token::Byte(*byte), after),
        };
        tokens.push(token);
        rest = left;
    }
    tokens
}

/// Parses a bracket expression after its opening bracket; returns its members and the rest. `None` if it is
/// malformed.
fn set(after: &[u8]) -> Option<([u64; 4], &[u8])> {
    let is_negated = matches!(after.first(), Some(b'!' | b'^'));
    let mut rest = &after[usize::from(is_negated)..];
    let mut bits = [0u64; 4];
    let mut add = |byte: u8| bits[usize::from(byte >> 6)] |= 1 << (byte & 63);
    // The member that a range would begin with.
    let mut previous = None;
    loop {
        match rest {
            [] => return None,
            [b'\\', member, left @ ..] => {
                add(*member);
                previous = Some(*member);
                rest = left;
            }
            [b'\\'] => return None,
            [b'-', last, left @ ..] if previous.is_some() && *last != b']' => {
                let (last, left) = match (*last, left) {
                    (b'\\', []) => return None,
                    (b'\\', [escaped, left @ ..]) => (*escaped, left),
                    (last, left) => (last, left),
                };
                (previous.unwrap_or(last)..=last).for_each(&mut add);
                previous = None;
                rest = left;
            }
            [b'[', b':', left @ ..] => {
                let end = left.iter().position(|&byte| byte == b']')?;
                match left[..end].strip_suffix(b":") {
                    Some(name) => {
                        let contains = class(name)?;
                        (0..=u8::MAX).filter(contains).for_each(&mut add);
                        previous = None;
                        rest = &left[end + 1..];
                    }
                    None => {
                        add(b'[');
                        previous = Some(b'[');
                        rest = &rest[1..];
                    }
                }
            }
            [member, left @ ..] => {
                add(*member);
                previous = Some(*member);
                rest = left;
            }
        }
        // Checked last, so that a bracket right at the start is a member.
        if let [b']', left @ ..] = rest {
            return Some((if is_negated { bits.map(|word| !word) } else { bits }, left));
        }
    }
}

fn class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        // C's `isspace` includes the vertical tab, Rust's does not.
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

// ---- matching ----------------------------------------------------------------------------------------------------------

fn is_match(tokens: &[Token], text: &[u8]) -> bool {
    match_fast(tokens, text).unwrap_or_else(|| match_slowly(tokens, text))
}

/// Returns `None` if the match takes too long.
fn match_fast(tokens: &[Token], text: &[u8]) -> Option<bool> {
    let mut steps = (tokens.len() + text.len() + 1) * STEPS_EACH;
    // Where to go on, in tokens and in text, if the last star or crossing takes one more byte.
    let mut star: Option<(usize, usize)> = None;
    let mut cross = None;
    let (mut at, mut byte) = (0, 0);
    loop {
        steps = steps.checked_sub(1)?;
        match tokens.get(at) {
            Some(Token::Cross) => {
                (star, cross) = (None, Some((at + 1, byte)));
                at += 1;
                continue;
            }
            Some(Token::Star) => {
                star = Some((at + 1, byte));
                at += 1;
                continue;
            }
            Some(token) if text.get(byte).is_some_and(|&byte| token.takes(byte)) => {
                (at, byte) = (at + 1, byte + 1);
                continue;
            }
            None if byte == text.len() => return Some(true),
            Some(_) | None => {}
        }
        if let Some((after, from)) =
            star.filter(|&(_, from)| text.get(from).is_some_and(|&byte| byte != b'/'))
        {
            star = Some((after, from + 1));
            (at, byte) = (after, from + 1);
        } else if let Some((after, from)) = cross.filter(|&(_, from)| from < text.len()) {
            (star, cross) = (None, Some((after, from + 1)));
            (at, byte) = (after, from + 1);
        } else {
            return Some(false);
        }
    }
}

/// Matches by keeping all tokens that may come next, byte by byte.
fn match_slowly(tokens: &[Token], text: &[u8]) -> bool {
    let mut open = vec![false; tokens.len() + 1];
    open[0] = true;
    pass_stars(tokens, &mut open);
    for &byte in text {
        // From the back, so that one byte does not pass two tokens.
        open[tokens.len()] = false;
        for at in (0..tokens.len()).rev() {
            if !open[at] {
                continue;
            }
            let stays = match &tokens[at] {
                Token::Cross => true,
                Token::Star => byte != b'/',
                token => {
                    open[at + 1] |= token.takes(byte);
                    false
                }
            };
            open[at] = stays;
        }
        pass_stars(tokens, &mut open);
    }
    open[tokens.len()]
}

/// Opens the tokens behind stars, as stars may match nothing.
fn pass_stars(tokens: &[Token], open: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if open[at] && matches!(token, Token::Star | Token::Cross) {
            open[at + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let is_dir = path.ends_with('/');
        Pattern::new(pattern.as_bytes()).matches(path.trim_end_matches('/').as_bytes(), is_dir)
    }

    #[test]
    fn patterns_and_what_they_match() {
        for (pattern, yes, no) in [
            ("foo", "foo a/foo a/foo/", "foox xfoo foo/x"),
            ("/foo", "foo foo/", "a/foo"),
            ("foo/", "foo/ a/foo/", "foo a/foo"),
            ("a/b", "a/b x/a/b", "xa/b a/b/c b"),
            ("/a/b", "a/b", "x/a/b"),
            ("*.o", "x.o a/x.o .o", "x.oo x.o/y"),
            ("a/*", "a/b x/a/b", "a a/b/c"),
            ("a*/b", "a/b x/ab/b", "a/c/b"),
            ("a/**", "a/b a/b/c x/a/b/", "a a/ ba/x"),
            ("a/***", "a/ a/b a/b/c x/a/", "a ba/x"),
            ("**/b", "b a/b a/c/b", "bb a/bb"),
            ("**b", "b ab a/b a/xb", "ba"),
            ("/**/b", "a/b a/c/b", "b"),
            ("a**b", "ab a/b axb x/a/y/b", "a/bc"),
            ("[a-c]?", "ax a/bx", "a dx"),
            ("[!a]", "b -", "a"),
            ("[]x]", "] x", "a"),
            ("[^]x]", "a", "] x"),
            ("[a-]", "a -", "b"),
            ("[[:digit:]]x", "7x", "ax"),
            ("[[:a]", "[ : a", "b"),
            ("[", "", "[ a"),
            ("[[:nope:]]", "", "a n"),
            ("\\*", "*", "\\* x"),
            ("[\\*]", "*", "\\ x"),
            ("a\\?*", "a?x", "axx"),
            ("a\\b", "a\\b", "ab"),
            ("x\\", "x\\", "x"),
            ("*\\", "", "x\\ x"),
            ("/", "", "a"),
            ("**", "a a/b", ""),
            ("*", "a a/b a/", ""),
            ("a/**/b", "a/x/b y/a/x/z/b", "a/b"),
        ] {
            for path in yes.split_whitespace() {
                assert!(matches(pattern, path), "{pattern} should match {path}");
            }
            for path in no.split_whitespace() {
                assert!(!matches(pattern, path), "{pattern} should not match {path}");
            }
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        let text = [&b"a/"[..]; 2000].concat();
        let pattern = [&b"**a*a*"[..]; 600].concat();
        // A matcher that tries all ways would not end.
        for start in ["", "a", "/"] {
            let pattern = [start.as_bytes(), &pattern[..], b"b"].concat();
            assert!(!Pattern::new(&pattern).matches(&text[..text.len() - 1], false));
        }
    }

    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("a"),
            Just("b"),
            Just("/"),
            Just("*"),
            Just("**"),
            Just("?"),
            Just("[ab]"),
            Just("[^a]"),
            Just("a*")
        ]
        .prop_map(str::to_string)
    }

    proptest! {
        #[test]
        fn both_matchers_agree(parts in proptest::collection::vec(part(), 0..9), text in "[ab/]{0,12}") {
            let tokens = tokens(parts.concat().as_bytes());
            let slow = match_slowly(&tokens, text.as_bytes());
            prop_assert_eq!(match_fast(&tokens, text.as_bytes()).unwrap_or(slow), slow);
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern in proptest::collection::vec(any::<u8>(), 1..60), path in proptest::collection::vec(any::<u8>(), 1..60)) {
            let _ = Pattern::new(&pattern).matches(&path, true);
        }
    }
}
