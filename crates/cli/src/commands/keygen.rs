//! `farhaul keygen`: makes a key pair and prints its fingerprint.

use std::path::{Path, PathBuf};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::target::default_identity_path;
use farhaul::target::keygen;
use serde::Serialize;

use crate::args::KeygenArgs;
use crate::ui::printer;

#[derive(Serialize)]
struct KeygenJson<'a> {
    schema: u32,
    ok: bool,
    private_key: &'a str,
    public_key: &'a str,
    fingerprint: &'a str,
}

pub fn run(args: &KeygenArgs) -> Result<(), Error> {
    let file = args.file.clone().unwrap_or_else(default_identity_path);
    let comment = args.comment.clone().unwrap_or_else(default_comment);
    if comment.contains(farhaul::sisters::is_unprintable) {
        return Err(Error::new(Code::BadOption, "the comment must be one line of text"));
    }
    let fingerprint = keygen(&file, &comment)?;
    let public = public_name(&file);
    if args.json {
        let (private_key, public_key) = (&*file.to_string_lossy(), &*public.to_string_lossy());
        return printer::json(&KeygenJson {
            schema: 1,
            ok: true,
            private_key,
            public_key,
            fingerprint: &fingerprint,
        });
    }
    if !args.quiet {
        printer::line(&format!("private key: {}", file.display()));
        printer::line(&format!("public key:  {}", public.display()));
        printer::line(&format!("fingerprint: {fingerprint}"));
    }
    Ok(())
}

fn public_name(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(".pub");
    PathBuf::from(name)
}

/// `user@host`, as far as the system says who and where that is.
fn default_comment() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "user".into());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "host" } else { host.trim() };
    format!("{user}@{host}").replace(farhaul::sisters::is_unprintable, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_key_stands_beside_the_private_one() {
        assert_eq!(public_name(Path::new("/a/id.key")), PathBuf::from("/a/id.key.pub"));
    }

    #[test]
    fn the_comment_is_one_line() {
        let comment = default_comment();
        assert!(comment.contains('@') && !comment.contains('\n'), "{comment:?}");
    }
}
