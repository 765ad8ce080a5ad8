//! Paths of the far end, as they stand in an address: each byte that is not plain stands as `%XX`, so that names of
//! any bytes survive the way there and back.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::failure::Refusal;

/// What stands as `%XX` in a name: all that ends a name, a path or an attribute of HTML, or means something there.
const SPECIAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'+')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The longest path at a far end.
const PATH_MAX: usize = 4095;

/// A path below the place that is served. It has no leading slash, and names neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FarPath {
    pub(crate) bytes: Vec<u8>,
    /// The address ended in a slash: what is meant is a directory.
    pub(crate) is_directory: bool,
}

impl FarPath {
    /// The path that the path of an address names.
    pub(crate) fn of_address(address: &str) -> Result<FarPath, Refusal> {
        let bad = |why: &str| Refusal::bad_request(format!("the address {why}"));
        let Some(rest) = address.strip_prefix('/') else { return Err(bad("has no path")) };
        let mut bytes = Vec::new();
        for name in rest.split('/').filter(|name| !name.is_empty()) {
            let name = decoded(name).ok_or_else(|| bad("has a % without two digits"))?;
            if name == b"." || name == b".." {
                return Err(bad("has . or .. for a name"));
            }
            if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                return Err(bad("has a byte that no name has"));
            }
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(&name);
        }
        if bytes.len() > PATH_MAX {
            return Err(bad("has a path of more than 4095 bytes"));
        }
        Ok(FarPath { is_directory: rest.is_empty() || rest.ends_with('/'), bytes })
    }

    /// The path of an address that names this path.
    pub(crate) fn address(&self) -> String {
        let mut address = String::new();
        for name in self.bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            address.push('/');
            address.push_str(&encoded(name));
        }
        if self.is_directory || address.is_empty() {
            address.push('/');
        }
        address
    }

    /// The path of an entry of this directory.
    pub(crate) fn entry(&self, name: &[u8]) -> Vec<u8> {
        match self.bytes.is_empty() {
            true => name.to_vec(),
            false => [&self.bytes, &b"/"[..], name].concat(),
        }
    }
}

/// A name as it stands in an address.
pub(crate) fn encoded(name: &[u8]) -> String {
    percent_encode(name, SPECIAL).to_string()
}

/// The bytes of a name in an address; `None` if a `%` has not two digits behind it.
fn decoded(name: &str) -> Option<Vec<u8>> {
    let bytes = name.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_whole =
        bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || is_digit(at + 1) && is_digit(at + 2));
    is_whole.then(|| percent_decode(bytes).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(address: &str) -> Option<(Vec<u8>, bool)> {
        FarPath::of_address(address).ok().map(|path| (path.bytes, path.is_directory))
    }

    #[test]
    fn no_address_names_what_is_above() {
        for address in
            ["/..", "/a/../b", "/%2e%2e/x", "/%2E./x", "/a/.", "/a/%2e", "x", "", "*", "/a%2fb", "/a%00"]
        {
            assert_eq!(path(address), None, "{address}");
        }
        for address in ["/%", "/%4", "/a%zz", "/%%41"] {
            assert_eq!(path(address), None, "{address}");
        }
        assert!(path(&format!("/{}", "a".repeat(5000))).is_none());
    }

    #[test]
    fn slashes_say_what_is_meant_and_no_more() {
        let of = |bytes: &[u8], is_directory| Some((bytes.to_vec(), is_directory));
        assert_eq!(path("/"), of(b"", true));
        assert_eq!(path("//a//b"), of(b"a/b", false));
        assert_eq!(path("/a/"), of(b"a", true));
        assert_eq!(path("/a%20b/%ff%F0"), of(b"a b/\xff\xf0", false));
        assert_eq!(path("/...."), of(b"....", false));
    }

    proptest! {
        #[test]
        fn any_name_survives(names in prop::collection::vec(prop::collection::vec(1_u8..=255, 1..40), 1..4), is_directory: bool) {
            let names: Vec<Vec<u8>> = names
                .into_iter()
                .map(|name| name.into_iter().filter(|byte| *byte != b'/').collect::<Vec<u8>>())
                .filter(|name| !matches!(&name[..], b"" | b"." | b".."))
                .collect();
            prop_assume!(!names.is_empty());
            let path = FarPath { bytes: names.join(&b'/'), is_directory };
            let address = path.address();
            prop_assert!(address.is_ascii() && !address.contains(['"', '<', '&', ' ', '?', '#']));
            prop_assert_eq!(FarPath::of_address(&address).unwrap(), path);
        }
    }
}
