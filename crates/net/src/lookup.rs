//! Why a name was not found.

use std::io;

use crate::sys;

/// Whether the lookup of a name has failed for a reason that passes: no name server has answered, or this host
/// lacks something. Otherwise there is no such name.
pub fn is_name_server_away(error: &io::Error) -> bool {
    // The standard library keeps of the resolver's own errors only the text, and of others the number.
    error.raw_os_error().is_some()
        || sys::passing_lookup_texts().iter().any(|text| error.to_string().ends_with(text))
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    use super::*;

    #[test]
    fn only_an_answer_says_that_there_is_no_such_name() {
        for text in sys::passing_lookup_texts() {
            let error = io::Error::other(format!("failed to lookup address information: {text}"));
            assert!(is_name_server_away(&error), "{text}");
        }
        assert!(is_name_server_away(&io::Error::from_raw_os_error(libc::ENETUNREACH)));
        let no_name = io::Error::other("failed to lookup address information: Name or service not known");
        assert!(!is_name_server_away(&no_name));
        // This needs no name server: a name has no space in it.
        let error = ("no name", 1).to_socket_addrs().unwrap_err();
        assert!(!is_name_server_away(&error), "{error}");
    }
}
