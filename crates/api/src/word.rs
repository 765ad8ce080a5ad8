//! A word of a list that a newer service may have more words of.

use serde::{Deserialize, Serialize};

/// A word that this program knows, or another one that a newer service has said. In JSON it is the word.
///
/// Answers have words in this form, so that one that is not known makes nothing else unreadable. Requests have
/// the words themselves, as nobody can obey a word that he does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    /// The word is known.
    Known(T),
    /// It is not, and kept as it is.
    Other(String),
}

impl<T: Copy> Word<T> {
    /// The word, if it is known.
    pub fn known(&self) -> Option<T> {
        match self {
            Word::Known(word) => Some(*word),
            Word::Other(_) => None,
        }
    }

    /// The text for people: `text` of a word that is known, else the word as it is.
    pub fn text_or(&self, text: impl FnOnce(T) -> &'static str) -> &str {
        match self {
            Word::Known(word) => text(*word),
            Word::Other(word) => word,
        }
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Word<T> {
        Word::Known(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        matches!(self, Word::Known(word) if word == other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobState;

    #[test]
    fn a_word_is_kept_whether_it_is_known_or_not() {
        let read = |text: &str| serde_json::from_str::<Word<JobState>>(text).unwrap();
        assert_eq!(read("\"partly_failed\""), JobState::PartlyFailed);
        assert_eq!(read("\"dreaming\""), Word::Other("dreaming".into()));
        for text in ["\"partly_failed\"", "\"dreaming\""] {
            assert_eq!(serde_json::to_string(&read(text)).unwrap(), text);
        }
        assert_eq!(read("\"dreaming\"").text_or(JobState::words), "dreaming");
        assert_eq!(read("\"partly_failed\"").text_or(JobState::words), "partly failed");
    }
}
