//! Key files: an Ed25519 key in PKCS#8 PEM, and its public half beside it as one line.
//!
//! Always true: the file of a private key has mode 0600 before it has content, is never overwritten, and is
//! refused if others may read it.
#![deny(missing_docs)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use farhaul_text::plain;
use farhaul_words::{Code, Error};
use rustls::SignatureScheme;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// The first word of a public key's line.
pub(crate) const KEY_TYPE: &str = "farhaul-ed25519";
/// A file of this length or more is no key file.
const KEY_FILE_MAX: u64 = 16 << 10;

/// A private key with which this end proves who it is.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    spki: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

impl Identity {
    /// Reads a key file.
    pub fn load(path: &Path) -> Result<Identity, Error> {
        let file = File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => no_key(path),
            _ => Error::of_host(format!("cannot read the key {}", path.display()), error),
        })?;
        let meta = file.metadata().map_err(Error::io(format!("cannot read the key {}", path.display())))?;
        if meta.mode() & 0o077 != 0 {
            return Err(Error::new(
                Code::KeyExposed,
                format!("the key {} can be read by others", path.display()),
            )
            .with_hint(format!("chmod 600 {}", path.display())));
        }
        // The buffer has room for the whole file, so that it never moves: its old place would not be wiped.
        let mut pem = Zeroizing::new(Vec::with_capacity(KEY_FILE_MAX as usize + 1024));
        file.take(KEY_FILE_MAX)
            .read_to_end(&mut pem)
            .map_err(Error::io(format!("cannot read the key {}", path.display())))?;
        Identity::from_pem(&pem).ok_or_else(|| {
            Error::new(Code::BadKey, format!("{} is not an Ed25519 key in PKCS#8 PEM", path.display()))
                .with_hint("make one with `farhaul keygen`")
        })
    }

    /// Reads a key file; if there is none, makes it first. For a daemon's own key, at a path that was not
    /// typed for this start.
    pub fn load_or_generate(path: &Path, comment: &str) -> Result<Identity, Error> {
        if !path.exists() {
            keygen(path, comment)?;
        }
        Identity::load(path)
    }

    fn from_pem(pem: &[u8]) -> Option<Identity> {
        let key = Zeroizing::new(PrivateKeyDer::from_pem_slice(pem).ok()?);
        let signing = rustls::crypto::aws_lc_rs::sign::any_eddsa_type(match &*key {
            PrivateKeyDer::Pkcs8(pkcs8) => pkcs8,
            _ => return None,
        })
        .ok()?;
        let spki = signing.public_key()?.to_vec();
        let certificate = CertificateDer::from(spki.clone());
        Some(Identity { certified: Arc::new(CertifiedKey::new(vec![certificate], signing)), spki })
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// The fingerprint of the public key, `SHA256:...`.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.spki)
    }

    /// The line for an authorized-keys file.
    pub fn public_line(&self, comment: &str) -> String {
        public_line(&self.spki, comment)
    }

    /// The public half of the key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.spki.clone())
    }

    /// An Ed25519 signature (RFC 8032) of a message, which begins with its purpose.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let broken = |reason: String| Error::of_host("cannot sign", std::io::Error::other(reason));
        let signer = self.certified.key.choose_scheme(&[SignatureScheme::ED25519]);
        let signer = signer.ok_or_else(|| broken("the key is no Ed25519 key".into()))?;
        signer.sign(message).map_err(|error| broken(error.to_string()))
    }
}

/// The error for a key file that does not exist.
pub fn no_key(path: &Path) -> Error {
    let keygen = match path == default_identity_path() {
        true => "farhaul keygen".into(),
        false => format!("farhaul keygen -f {}", path.display()),
    };
    Error::new(Code::NoKey, format!("there is no key in {}", path.display()))
        .with_hint(format!("make one with `{keygen}`, or name another with `identity-file`"))
}

/// The public half of an Ed25519 key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublicKey(Vec<u8>);

/// The bytes in front of the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo, if it is that of an Ed25519 key.
    pub fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        let is_one = spki.len() == SPKI_HEAD.len() + 32 && spki.starts_with(&SPKI_HEAD);
        is_one.then(|| PublicKey(spki.to_vec()))
    }

    /// Reads a line as [`keygen`] writes it; the rest behind the key is a comment.
    pub fn parse(line: &str) -> Option<PublicKey> {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some(KEY_TYPE) {
            return None;
        }
        PublicKey::from_spki(&STANDARD.decode(words.next()?).ok()?)
    }

    /// Reads the file of a public key, which has one line.
    pub fn load(path: &Path) -> Result<PublicKey, Error> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(KEY_FILE_MAX).read_to_string(&mut text));
        read.map_err(|error| {
            let what = format!("cannot read the key {}: {}", path.display(), plain(&error));
            Error::new(Code::of_files(&error), what)
        })?;
        let line = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        line.and_then(PublicKey::parse).ok_or_else(|| {
            let what = format!("{} holds no public key: it begins with {KEY_TYPE}", path.display());
            Error::new(Code::BadKey, what).with_hint("name the .pub file that farhaul keygen has made")
        })
    }

    /// Returns whether this key has signed the message.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0[SPKI_HEAD.len()..]).verify(message, signature).is_ok()
    }

    /// As [`Identity::fingerprint`].
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.0)
    }

    /// The line that [`PublicKey::parse`] reads, without a comment.
    pub fn line(&self) -> String {
        public_line(&self.0, "")
    }
}

/// `SHA256:` and the digest of a SubjectPublicKeyInfo in base64 without padding, as ssh writes it.
pub fn fingerprint(spki: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(spki)))
}

fn public_line(spki: &[u8], comment: &str) -> String {
    let comment = comment.replace(farhaul_text::is_unprintable, "");
    format!("{KEY_TYPE} {} {comment}", STANDARD.encode(spki)).trim_end().to_string()
}

/// Makes a key at `path` and its public line at `path.pub`; returns the fingerprint.
pub fn keygen(path: &Path, comment: &str) -> Result<String, Error> {
    let broken =
        |_| Error::of_host("cannot make a key", std::io::Error::other("the cryptographic library failed"));
    let pair = Ed25519KeyPair::generate().map_err(broken)?;
    let pkcs8 = pair.to_pkcs8v1().map_err(broken)?;
    let spki = pair.public_key().as_der().map_err(broken)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        create_private_folder(folder)?;
    }
    let pem = Zeroizing::new(private_pem(pkcs8.as_ref()));
    write_new(path, 0o600, pem.as_bytes())?;
    let public = format!("{}\n", public_line(spki.as_ref(), comment));
    let mut public_path = path.as_os_str().to_owned();
    public_path.push(".pub");
    let public_path = PathBuf::from(public_path);
    // A public line of a key that is gone is useless.
    let _ = std::fs::remove_file(&public_path);
    write_new(&public_path, 0o644, public.as_bytes())?;
    Ok(fingerprint(spki.as_ref()))
}

fn private_pem(pkcs8: &[u8]) -> String {
    let body = Zeroizing::new(STANDARD.encode(pkcs8));
    let mut pem = String::with_capacity(2 * body.len() + 128);
    pem.push_str("-----BEGIN PRIVATE KEY-----\n");
    for line in body.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|&byte| char::from(byte)));
        pem.push('\n');
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    pem
}

fn write_new(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Error::new(Code::AlreadyExists, format!("{} exists already", path.display()))
                .with_hint("remove it first, or choose another name")
        }
        _ => Error::of_host(format!("cannot write {}", path.display()), error),
    })?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(Error::io(format!("cannot write {}", path.display())))
}

pub(crate) fn create_private_folder(folder: &Path) -> Result<(), Error> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(Error::io(format!("cannot make the folder {}", folder.display())))
}

/// The folder for configuration: `$XDG_CONFIG_HOME/farhaul`, by default `~/.config/farhaul`.
pub(crate) fn config_folder() -> PathBuf {
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    xdg.unwrap_or_else(|| std::env::home_dir().unwrap_or_default().join(".config")).join("farhaul")
}

/// The default path of a user's key.
pub fn default_identity_path() -> PathBuf {
    config_folder().join("id_ed25519")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_generated_key_loads_and_has_the_fingerprint_that_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/id_ed25519");
        let told = keygen(&path, "me@here").unwrap();
        let identity = Identity::load(&path).unwrap();
        assert_eq!(identity.fingerprint(), told);
        assert!(told.starts_with("SHA256:") && told.len() == 7 + 43, "{told}");
        let public = std::fs::read_to_string(folder.path().join("a/b/id_ed25519.pub")).unwrap();
        assert_eq!(public.trim_end(), identity.public_line("me@here"));
        assert!(public.starts_with("farhaul-ed25519 MCowBQYDK2VwAyEA"), "SPKI of Ed25519: {public}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_missing_key_is_made_by_the_command_that_the_error_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mistyped");
        let error = Identity::load(&path).unwrap_err();
        assert_eq!(error.code(), Code::NoKey);
        assert!(error.what().contains("mistyped"), "{error}");
        let command = format!("`farhaul keygen -f {}`", path.display());
        assert!(error.hint().is_some_and(|hint| hint.contains(&command)), "{error:?}");
        assert!(
            no_key(&default_identity_path()).hint().is_some_and(|hint| hint.contains("`farhaul keygen`"))
        );
    }

    #[test]
    fn what_a_key_has_signed_is_told_by_its_public_half() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        keygen(&path, "me@here").unwrap();
        let identity = Identity::load(&path).unwrap();
        let public = PublicKey::load(&folder.path().join("key.pub")).unwrap();
        assert_eq!((&public, public.fingerprint()), (&identity.public(), identity.fingerprint()));
        assert_eq!(PublicKey::parse(&public.line()), Some(public.clone()));
        let signature = identity.sign(b"message").unwrap();
        assert!(signature.len() == 64 && public.has_signed(b"message", &signature));
        assert!(
            !public.has_signed(b"messagE", &signature) && !public.has_signed(b"message", &signature[1..])
        );
        keygen(&folder.path().join("other"), "").unwrap();
        let other = PublicKey::load(&folder.path().join("other.pub")).unwrap();
        assert!(!other.has_signed(b"message", &signature));
        let wrong = PublicKey::load(&path);
        assert!(matches!(wrong, Err(error) if error.code() == Code::BadKey && error.hint().is_some()));
        assert!(
            matches!(PublicKey::load(&folder.path().join("none")), Err(error) if error.code() == Code::NotFound)
        );
        for line in [
            "",
            "farhaul-ed25519",
            "farhaul-ed25519 AAAA",
            "ssh-ed25519 AAAA",
            "farhaul-ed25519 MCowBQYDK2VwAyEA",
        ] {
            assert_eq!(PublicKey::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_key_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        keygen(&path, "").unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(keygen(&path, ""), Err(error) if error.code() == Code::AlreadyExists));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_and_nonsense_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        keygen(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            matches!(Identity::load(&path), Err(error) if error.code() == Code::KeyExposed && error.hint().is_some())
        );
        let junk = folder.path().join("junk");
        write_new(&junk, 0o600, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        assert!(matches!(Identity::load(&junk), Err(error) if error.code() == Code::BadKey));
        assert!(
            matches!(Identity::load(&folder.path().join("none")), Err(error) if error.code() == Code::NoKey)
        );
    }
}
