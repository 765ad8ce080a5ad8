//! Two threads write one large file: `cargo run --release -p farhaul-volume --example two_writers --
//! DIRECTORY`. First from memory that only the page cache can take, then from memory that direct I/O can take
//! as well.

use std::time::Instant;

use farhaul_blocks::BlockPool;
use farhaul_volume::{CHUNK, FileTime, Partial, RelPath, Resume, Root, SourceIdentity, SourceState};

const CHUNKS: u64 = 2048;
/// The state of an invented source.
const STATE: SourceState = SourceState { ctime: FileTime { secs: 1, nanos: 0 }, ino: 1, dev: 1 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = std::env::args().nth(1).ok_or("which directory?")?;
    let root = Root::open(base)?;
    let pool = BlockPool::new(2, CHUNK as usize + 1)?;
    for (what, shift) in [("page cache only", 1), ("the faster way", 0)].repeat(2) {
        let identity =
            SourceIdentity { size: CHUNKS * CHUNK, mtime: FileTime::new(1, 0), state: STATE, sparse: false };
        let partial = Partial::open(&root, &RelPath::from_bytes(b"two_writers")?, &identity, Resume::Never)?;
        let begin = Instant::now();
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let (partial, pool) = (&partial, &pool);
                scope.spawn(move || {
                    let mut block = pool.take();
                    block.fill(0x5a);
                    for index in (parity..CHUNKS).step_by(2) {
                        let data = &block[shift..][..CHUNK as usize];
                        let written = partial.write_chunk(index, data);
                        assert!(written.expect("room for 2 GiB"));
                    }
                });
            }
        });
        let wall = begin.elapsed().as_secs_f64();
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu = (after.tv_sec - before.tv_sec) as f64 + (after.tv_nsec - before.tv_nsec) as f64 / 1e9;
        println!("{what}: {wall:.2} s, {:.0} MiB/s, {cpu:.2} s of processor", CHUNKS as f64 / wall);
        partial.discard();
    }
    Ok(())
}
