//! An error as one document, with its line for people.

use serde::{Deserialize, Serialize};

use super::{Error, ErrorDetail};

/// An error for people and for programs: what jobs keep of a failed attempt, and what the API says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = JobFailure))]
pub struct ErrorDocument {
    /// One line that says what happened, and where.
    #[serde(default)]
    pub text: String,
    /// The code, such as `FH-NO-SPACE`.
    pub code: String,
    /// Where the fault lies: `user`, `peer`, `network`, `host` or `us`.
    pub blame: String,
    /// The exit code that `farhaul cp` would have had.
    pub exit_code: u8,
    /// True if another attempt may work although nobody has changed anything.
    pub retryable: bool,
    /// A hint on what to do.
    pub hint: Option<String>,
    /// How the far end has broken the protocol; or, according to the far end, how this end has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<String>,
}

impl From<&Error> for ErrorDocument {
    fn from(error: &Error) -> ErrorDocument {
        let ErrorDetail { code, blame, exit_code, retryable, hint, misbehaviour, .. } = error.into();
        ErrorDocument { text: error.to_string(), code, blame, exit_code, retryable, hint, misbehaviour }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Misbehaviour};

    #[test]
    fn a_document_says_what_the_error_says() {
        let document =
            ErrorDocument::from(&Error::new(Code::NoSpace, "cannot write a").with_hint("make room"));
        let json = r#"{"text":"cannot write a","code":"FH-NO-SPACE","blame":"host","exit_code":6,"retryable":true,"hint":"make room; this may pass by itself: try again later"}"#;
        assert_eq!(serde_json::to_string(&document).unwrap(), json);
        assert_eq!(serde_json::from_str::<ErrorDocument>(json).unwrap(), document);
        let accused = ErrorDocument::from(&Error::from(Misbehaviour::BenchFile));
        assert_eq!(accused.misbehaviour.as_deref(), Some("BenchFile"));
    }
}
