//! Speed of the file operations, for people who change them: `cargo run --release -p farhaul-volume --example
//! volume_speed -- DIRECTORY`. The directory should be on the file system of interest, and is left empty.

use std::path::PathBuf;
use std::time::Instant;

use farhaul_volume::{
    CHUNK, ChunkCv, EntryKind, FileTime, Partial, RelPath, Resume, Root, ScanItem, ScanOptions, Scanner,
    Source, SourceFile, SourceIdentity, SourceState, WriteOptions, chunk_cv, write_whole,
};

const FILES: usize = 100_000;
const LARGE: u64 = 1 << 30;
/// The state of an invented source.
const STATE: SourceState = SourceState { ctime: FileTime { secs: 1, nanos: 0 }, ino: 1, dev: 1 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = PathBuf::from(std::env::args().nth(1).ok_or("which directory?")?);
    let top = base.join("volume_speed");
    std::fs::create_dir(&top)?;
    let root = Root::open(&top)?;
    small_files(&root)?;
    scan_and_read(&top)?;
    large_file(&root)?;
    std::fs::remove_dir_all(&top)?;
    Ok(())
}

fn small_files(root: &Root) -> Result<(), Box<dyn std::error::Error>> {
    let data = [0x5a; 4096];
    let begin = Instant::now();
    for number in 0..FILES {
        if number % 1000 == 0 {
            root.create_dir(&RelPath::from_bytes(format!("d{}", number / 1000).as_bytes())?)?;
        }
        let path = RelPath::from_bytes(format!("d{}/file{number}", number / 1000).as_bytes())?;
        if root.metadata(&path)?.is_none() {
            write_whole(root, &path, &data, &WriteOptions::default())?;
        }
    }
    told("write 4 KiB files", begin, FILES);
    Ok(())
}

fn scan_and_read(top: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let source = || Source {
        path: top.into(),
        also: Vec::new(),
        dest: RelPath::empty(),
        beneath: Vec::new(),
        generated: None,
    };
    let begin = Instant::now();
    let count = Scanner::new(vec![source()], ScanOptions::default()).count();
    told("scan entries", begin, count);
    let begin = Instant::now();
    let mut buffer = [0; 4096];
    let mut files = 0;
    for item in Scanner::new(vec![source()], ScanOptions::default()) {
        if let ScanItem::Entry { entry, handle, .. } = item
            && matches!(entry.kind, EntryKind::File { .. })
        {
            let file = SourceFile::open(&handle, &entry)?;
            files += usize::from(file.read_whole(&mut buffer)? == 4096 && file.unchanged()?);
        }
    }
    told("scan and read 4 KiB files", begin, files);
    Ok(())
}

fn large_file(root: &Root) -> Result<(), Box<dyn std::error::Error>> {
    let path = RelPath::from_bytes(b"large")?;
    let identity = SourceIdentity { size: LARGE, mtime: FileTime::new(1, 0), state: STATE, sparse: false };
    let partial = Partial::open(root, &path, &identity, Resume::Any)?;
    let data = vec![0x5a; CHUNK as usize];
    let mut cv = ChunkCv([0; 32]);
    let begin = Instant::now();
    for _ in 0..LARGE / CHUNK {
        cv = ChunkCv(chunk_cv(&data));
    }
    told("digest MiB", begin, (LARGE / CHUNK) as usize);
    let begin = Instant::now();
    for index in 0..LARGE / CHUNK {
        partial.write_chunk(index, &data)?;
        partial.mark(index, cv)?;
    }
    told("write and book MiB", begin, (LARGE / CHUNK) as usize);
    partial.finish(&WriteOptions::default())?;
    Ok(())
}

fn told(what: &str, begin: Instant, count: usize) {
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what}: {count} in {seconds:.3} s, {:.0} a second", count as f64 / seconds);
}
