//! `farhaul open`: opens the page of this user's service in a browser, logged in by a code that works once.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::plain;
use farhaul_api::{CodeWish, NewCode};
use serde_json::json;

use super::client;
use crate::args::service::OpenArgs;
use crate::ui::printer;

pub fn open(args: &OpenArgs) -> Result<(), Error> {
    let wish = CodeWish { scopes: args.scope.clone() };
    let NewCode { code, expires, pages } = client(&args.answer.api)?.post("/login-codes", &wish)?;
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let has_display = has_display();
    let no_page = || Error::new(Code::NoService, "the service has named no address for its page");
    let page = best(&pages, has_display).ok_or_else(no_page)?;
    let address = format!("{page}#code={code}");
    if args.answer.json {
        return printer::json(&json!({"address": address, "expires": expires}));
    }
    printer::data(format!("{address}\n").as_bytes())?;
    if has_display && !args.print {
        let shown = runtime_folder().map(|folder| show(&folder, &address));
        if !args.answer.quiet
            && let Some(Err(error)) = shown
        {
            printer::line(&format!(
                "cannot open a browser ({}); open the address yourself within a minute",
                plain(&error)
            ));
        }
    }
    Ok(())
}

fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Chooses an address of the page: for a browser on this host one over loopback, else one that other hosts
/// can reach.
fn best<'a>(pages: &[&'a str], is_here: bool) -> Option<&'a str> {
    let is_loopback = |page: &&&str| {
        let host = page.split_once("://").map_or("", |(_, rest)| rest);
        ["127.", "localhost:", "[::1]:"].iter().any(|name| host.starts_with(name))
    };
    let fits = pages.iter().find(|page| is_loopback(page) == is_here);
    fits.or(pages.first()).copied()
}

/// Returns this user's own folder for temporary data. Only this user can read it, and users with a graphical
/// screen have one.
fn runtime_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    folder.is_absolute().then(|| folder.join("farhaul"))
}

/// Opens the address in a browser. Everybody on the host sees the arguments of programs, so the browser gets
/// the name of a private file that redirects to the address.
fn show(folder: &Path, address: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join("open.html");
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let text = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={address}\">\n<title>Farhaul</title>\n<a href=\"{address}\">Farhaul</a>\n"
    );
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
    out.write_all(text.as_bytes())?;
    let mut browser = Command::new("xdg-open");
    browser.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Some browsers stay in the foreground, so nothing waits for the program to end.
    browser.spawn().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_here_goes_over_loopback_and_one_elsewhere_does_not() {
        let both = ["https://dtn1.example.org:443/", "http://127.0.0.1:33080/"];
        assert_eq!(best(&both, true), Some(both[1]));
        assert_eq!(best(&both, false), Some(both[0]));
        assert_eq!(best(&both[..1], true), Some(both[0]));
        assert_eq!(best(&["http://[::1]:80/"], false), Some("http://[::1]:80/"));
        assert_eq!(best(&[], true), None);
    }
}
