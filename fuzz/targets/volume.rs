//! Names, patterns, patches and journals that the volume reads.

use farhaul_text::{escape, unescape};
use farhaul_volume::{
    CHUNK, ChunkMap, Filter, FilterSide, GeneratedSource, GlobAllowance, GlobBase, Marks, PIECE, Patch,
    RelPath, Root, RuleList, Selection, Separator, expand, leads_out, stands_for, write_patch,
};

use crate::scratch::Scratch;
use crate::target;

target!(paths, 5000, |bytes: &[u8]| {
    if let Ok(path) = RelPath::from_bytes(bytes) {
        assert_eq!(path.as_bytes(), bytes);
        is_sound(&path);
        assert_eq!(unescape(&path.escape()).as_deref(), Some(bytes));
    }
    if let Ok(path) = RelPath::from_written(bytes) {
        is_sound(&path);
    }
    assert!(!escape(bytes).chars().any(char::is_control));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = unescape(text);
    }
    let _ = GeneratedSource::parse(bytes);
    let middle = bytes.len() / 2;
    let _ = leads_out(&bytes[..middle], &bytes[middle..]);
});

/// Checks that no component leads up or to the root.
fn is_sound(path: &RelPath) {
    let is_name = |name: &[u8]| {
        !name.is_empty()
            && name.len() <= 255
            && name != b"."
            && name != b".."
            && !name.contains(&0)
            && !name.contains(&b'/')
    };
    assert!(path.as_bytes().len() <= 4095);
    assert!(path.is_empty() || path.components().all(is_name), "{path}");
    assert!(!leads_out(path.as_bytes(), b"x"));
}

// Lines of rules; behind an empty line, paths.
target!(filter, 3000, |bytes: &[u8]| {
    let (rules, paths) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&bytes[..at], &bytes[at + 2..]),
        None => (bytes, &b"a/b"[..]),
    };
    let lines: Vec<Vec<u8>> = rules.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let mut list = RuleList::new(Separator::Newline);
    for line in &lines {
        let _ = list.rule(line);
    }
    let _ = Filter::new(&list.lines()).expect("what a client sends is what a far end takes");
    let Ok(filter) = Filter::new(&lines) else { return };
    for path in paths.split(|&byte| byte == b'\n').take(64) {
        for side in [FilterSide::Sender, FilterSide::Receiver] {
            let excluded = filter.excludes(path, false, side);
            assert_eq!(excluded, filter.excludes(path, false, side));
            let _ = filter.excludes(path, true, side);
        }
    }
    let _ = filter.unprotecting();
});

// A pattern, a zero byte and a name; the pattern is also expanded in a folder with some files.
target!(glob, 2000, {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path().join("a/b")).expect("it can be made");
    std::fs::write(scratch.path().join("a/b/[x]"), b"").expect("it can be made");
    let base = GlobBase::Root(Root::open(scratch.path()).expect("it is there"));
    move |bytes: &[u8]| {
        let mut parts = bytes.splitn(2, |&byte| byte == 0);
        let (pattern, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let _ = stands_for(pattern, name);
        if pattern.len() < 200
            && let Ok(found) = expand(&base, pattern, &mut GlobAllowance::default())
        {
            assert!(found.len() <= 64, "more than there is");
        }
    }
});

target!(selection, 3000, |bytes: &[u8]| {
    let names: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let _ = Selection::new(names);
});

target!(ranges, 5000, |bytes: &[u8]| {
    let number = |bytes: &[u8]| u64::from_be_bytes([0, 0, 0, 0, 0, 0, bytes[0], bytes[1]]);
    let far = bytes.first().is_some_and(|&first| first > 250);
    let ranges: Vec<(u64, u64)> = bytes
        .chunks_exact(4)
        .map(|pair| {
            (number(pair) << if far { 48 } else { 0 }, number(&pair[2..]) << if far { 48 } else { 0 })
        })
        .collect();
    let Some(mut map) = ChunkMap::from_ranges(&ranges) else { return };
    assert_eq!(map.count(), ranges.iter().map(|range| range.1).sum::<u64>());
    let back = map.ranges();
    assert!(back.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "ranges that touch");
    if map.count() < 1 << 20 {
        let total = back.last().map_or(0, |last| last.0 + last.1);
        let missing: u64 = map.gaps(total).map(|(first, end)| end - first).sum();
        assert_eq!(map.count() + missing, total);
    }
    if let Some(&(first, _)) = back.first() {
        assert!(map.contains(first) && !map.insert(first) && map.remove(first) && !map.contains(first));
    }
});

// A patch as a peer sends it, and one that is made from two versions by the marks of the old one.
target!(patch, 300, |bytes: &[u8]| {
    let Some((&first, content)) = bytes.split_first() else { return };
    let len = 1 + usize::from(first) * PIECE / 8;
    if let Some(patch) = Patch::parse(content, len) {
        let mut chunk = vec![0; len];
        let mut changed = 0;
        for (at, part) in patch.parts() {
            chunk[at..at + part.len()].copy_from_slice(part);
            changed += part.len();
        }
        assert!(changed <= content.len());
        assert_eq!(patch.is_empty(), changed == 0);
    }
    let middle = content.len() / 2;
    let (old, new) = (&content[..middle], &content[middle..]);
    if new.is_empty() {
        return;
    }
    let new: Vec<u8> = new.iter().copied().cycle().take(len).collect();
    let old: Vec<u8> = old.iter().copied().chain(new.iter().copied()).take(len).collect();
    let (ours, theirs) = (Marks::of(&new), Marks::of(&old));
    let mut out = vec![0; CHUNK as usize];
    // The peer's marks may be of any length.
    let _ = write_patch(&new, &ours, content, &mut out);
    if let Some(written) = write_patch(&new, &ours, &theirs.bytes, &mut out) {
        let patch = Patch::parse(&out[..written], len).expect("what was made is understood");
        let mut patched = old;
        patch.parts().for_each(|(at, part)| patched[at..at + part.len()].copy_from_slice(part));
        assert!(patched == new, "the patch does not make the new version");
    }
});

target!(journal, 1000, {
    let scratch = Scratch::new();
    move |bytes: &[u8]| farhaul_volume::fuzzing::journal(bytes, scratch.path())
});
