//! `farhaul cache`: what is kept of far files.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use farhaul::sisters::{escape, unescape};
use farhaul_cache::{Cache, CacheError, CachedFile, HeldPart};
use serde::Serialize;

use crate::args::cache::{
    CacheDirectory, CacheDropArgs, CacheFilesArgs, CachePinArgs, CacheVerb, CacheVerifyArgs,
};
use crate::ui::{printer, units};

pub fn run(verb: &CacheVerb) -> Result<ExitCode, Error> {
    match verb {
        CacheVerb::Ls(args) => ls(args),
        CacheVerb::Stat(args) => stat(&args.directory),
        CacheVerb::Pin(args) => pin(args),
        CacheVerb::Drop(args) => drop_files(args),
        CacheVerb::Verify(args) => verify(args),
    }
}

/// A file, as lists show it.
#[derive(Debug, Serialize)]
struct ShownFile {
    name: String,
    size: u64,
    chunks: u64,
    bytes: u64,
    pinned: bool,
}

#[derive(Debug, Serialize)]
struct ShownFiles {
    files: Vec<ShownFile>,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ShownCache {
    directory: String,
    files: u64,
    chunks: u64,
    bytes: u64,
    pins: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ShownFaults {
    whole_chunks: u64,
    whole_bytes: u64,
    faulty: Vec<String>,
}

fn path(directory: &CacheDirectory) -> PathBuf {
    directory.cache.clone().unwrap_or_else(Cache::default_directory)
}

/// The cache, which has to be there.
fn open(directory: &CacheDirectory) -> Result<Cache, Error> {
    let path = path(directory);
    if !path.join("v1").is_dir() {
        let what = format!("there is no cache in {}", escape(path.as_os_str().as_bytes()));
        return Err(Error::new(Code::NotFound, what).with_hint("name its directory with --cache"));
    }
    // Nothing is put here, so there is no limit to keep.
    Cache::open(&path, u64::MAX).map_err(failed)
}

fn failed(error: CacheError) -> Error {
    let code = match &error {
        CacheError::Io { source, .. } => Code::of_files(source),
        _ => Code::FilesFailed,
    };
    Error::new(code, error.to_string())
}

fn unread(error: std::io::Error) -> Error {
    Error::io("cannot read the cache")(error)
}

/// The bytes of names as lists print them.
fn names(given: &[std::ffi::OsString]) -> Result<Vec<Vec<u8>>, Error> {
    given
        .iter()
        .map(|name| {
            let whole = name.to_str().map_or_else(|| Some(name.as_bytes().to_vec()), unescape);
            whole.filter(|name| !name.is_empty()).ok_or_else(|| {
                Error::new(Code::BadOption, format!("{} is no name of a file", escape(name.as_bytes())))
            })
        })
        .collect()
}

/// The files of these names, or below them; all if there is none.
fn files(cache: &Cache, names: &[Vec<u8>]) -> Result<Vec<(CachedFile, HeldPart)>, Error> {
    let files = cache.files().map_err(unread)?.into_iter();
    let wanted = files.filter(|file| names.is_empty() || names.iter().any(|name| file.is_at(name)));
    let held = wanted.map(|file| {
        let held = cache.held(&file);
        (file, held)
    });
    Ok(held.filter(|(_, held)| held.chunks > 0).collect())
}

fn ls(args: &CacheFilesArgs) -> Result<ExitCode, Error> {
    let cache = open(&args.directory)?;
    let pins = cache.pins().map_err(unread)?;
    let mut shown = ShownFiles { files: Vec::new(), bytes: 0 };
    for (file, held) in files(&cache, &names(&args.names)?)? {
        let pinned = pins.iter().any(|pin| file.is_at(pin));
        let (name, size) = (escape(&file.name()), file.version.size);
        if !args.directory.json {
            let pin = if pinned { "  pinned" } else { "" };
            let (here, all) = (units::size(held.bytes), units::size(size));
            printer::data(format!("{here} of {all}  {name}{pin}\n").as_bytes())?;
        }
        shown.bytes += held.bytes;
        shown.files.push(ShownFile { name, size, chunks: held.chunks, bytes: held.bytes, pinned });
    }
    if args.directory.json {
        printer::json(&shown)?;
    }
    Ok(ExitCode::Ok)
}

fn stat(directory: &CacheDirectory) -> Result<ExitCode, Error> {
    let cache = open(directory)?;
    let usage = cache.usage().map_err(unread)?;
    let pins: Vec<_> = cache.pins().map_err(unread)?.iter().map(|pin| escape(pin)).collect();
    let files = cache.files().map_err(unread)?.len() as u64;
    let at = escape(path(directory).as_os_str().as_bytes());
    if directory.json {
        printer::json(&ShownCache { directory: at, files, chunks: usage.chunks, bytes: usage.bytes, pins })?;
        return Ok(ExitCode::Ok);
    }
    let (bytes, chunks) = (units::size(usage.bytes), units::count(usage.chunks, "chunk"));
    let text = format!(
        "{at}: {bytes} in {chunks} of {}, {}\n",
        units::count(files, "file"),
        units::count(pins.len() as u64, "pin")
    );
    printer::data(text.as_bytes())?;
    Ok(ExitCode::Ok)
}

fn pin(args: &CachePinArgs) -> Result<ExitCode, Error> {
    let cache = open(&args.directory)?;
    let mut outcome = ExitCode::Ok;
    for name in names(&args.names)? {
        if !args.remove {
            cache.pin(&name).map_err(Error::io("cannot write the pin"))?;
        } else if !cache.unpin(&name) {
            printer::line(&format!("{} was not pinned", escape(&name)));
            outcome = ExitCode::SomeFailed;
        }
    }
    let pins: Vec<_> = cache.pins().map_err(unread)?.iter().map(|pin| escape(pin)).collect();
    if args.directory.json {
        printer::json(&serde_json::json!({ "pins": pins }))?;
    } else if args.names.is_empty() {
        pins.iter().try_for_each(|pin| printer::data(format!("{pin}\n").as_bytes()))?;
    }
    Ok(outcome)
}

fn drop_files(args: &CacheDropArgs) -> Result<ExitCode, Error> {
    let cache = open(&args.directory)?;
    let mut shown = ShownFiles { files: Vec::new(), bytes: 0 };
    for (file, held) in files(&cache, &names(&args.names)?)? {
        if !args.dry_run {
            cache.drop_file(&file);
        }
        let name = escape(&file.name());
        if !args.directory.json {
            let does = if args.dry_run { "would remove" } else { "removed" };
            printer::data(format!("{does}: {name}: {}\n", units::size(held.bytes)).as_bytes())?;
        }
        shown.bytes += held.bytes;
        let (size, chunks, bytes) = (file.version.size, held.chunks, held.bytes);
        shown.files.push(ShownFile { name, size, chunks, bytes, pinned: false });
    }
    if args.directory.json {
        printer::json(&shown)?;
    }
    Ok(ExitCode::Ok)
}

fn verify(args: &CacheVerifyArgs) -> Result<ExitCode, Error> {
    let cache = open(&args.directory)?;
    let mut faulty = Vec::new();
    let mut unwritten = None;
    let whole = cache.verify(args.dry_run, &mut |chunk| {
        if !args.directory.json && unwritten.is_none() {
            let does = if args.dry_run { "not whole" } else { "not whole, removed" };
            unwritten = printer::data(format!("{does}: {}\n", chunk.path).as_bytes()).err();
        }
        faulty.push(chunk.path.clone());
    });
    let whole = whole.map_err(unread)?;
    if let Some(error) = unwritten {
        return Err(error);
    }
    let outcome = if faulty.is_empty() { ExitCode::Ok } else { ExitCode::SomeFailed };
    if args.directory.json {
        printer::json(&ShownFaults { whole_chunks: whole.chunks, whole_bytes: whole.bytes, faulty })?;
    } else {
        let (chunks, bytes) = (units::count(whole.chunks, "chunk"), units::size(whole.bytes));
        printer::line(&format!("{chunks} whole, {bytes}; {} not", faulty.len()));
    }
    Ok(outcome)
}
