//! Reads files in place, with nothing but the public crate.

use farhaul::errors::Code;
use farhaul::read::{Depth, FileRange, ListItem, Remote};

#[path = "../examples/branches.rs"]
#[allow(dead_code, reason = "its main is the example's")]
mod branches;

#[test]
fn the_example_sums_up_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let bytes: Vec<u8> = (0..3u32 << 20).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &bytes).unwrap();
    let place = Remote::open(&path).unwrap();
    let expected: u64 = (0..bytes.len() as u64)
        .step_by(1000 << 10)
        .flat_map(|offset| offset / 4..(offset / 4 + 256).min(3 << 20))
        .sum();
    let (sum, count) = branches::sum(&place).unwrap();
    assert_eq!((sum, count), (expected, 13 * 256));
}

#[test]
fn a_place_is_looked_at_and_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/file"), b"what is in it").unwrap();
    let place = Remote::open(folder.path()).unwrap();
    let entries: Vec<_> = place.list(b"", Depth::All).unwrap().collect::<Result<_, _>>().unwrap();
    assert!(
        entries.iter().any(|listed| matches!(listed, ListItem::Entry(entry) if entry.path == b"sub/file"))
    );
    assert_eq!(place.file(b"sub/file").unwrap().read_at(5, 2).unwrap(), b"is");
    assert!(place.stat(b"none").is_err_and(|error| error.code() == Code::NotFound));
    let whole = FileRange { offset: 0, len: u64::MAX };
    let mut reader = place.file(b"sub/file").unwrap().reader(whole);
    assert_eq!(std::io::read_to_string(&mut reader).unwrap(), "what is in it");
    assert!(place.finish().is_ok());
    assert!(Remote::open("smtp://host/x").is_err_and(|error| error.code() == Code::BadLocation));
}
