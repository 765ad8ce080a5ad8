//! Makes the seeds anew from real sessions and real files: `cargo test -p farhaul-fuzz -- --ignored`.
//!
//! Inputs that were found by fuzzing stay beside them (`found-...`).

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use farhaul_connect as connect;
use farhaul_connect::features::Features;
use farhaul_connect::hello::{Attach, Hello, HelloReply, HelloSecret, Refusal, encode};
use farhaul_connect::keygen;
use farhaul_copy::fuzzing::{FuzzedEnd, record_session};
use farhaul_copy::{
    CopyDirection, CopyJob, CopyRequest, IntegrityOptions, Location, ManifestOptions, TransferOptions,
};
use farhaul_session::Handle;
use farhaul_volume::{Marks, write_patch};

use crate::scratch;
use crate::session::{FILL, source};

fn put(target: &str, name: &str, bytes: &[u8]) {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("targets/__fuzz__").join(target).join("corpus");
    std::fs::create_dir_all(&folder).expect("it can be made");
    std::fs::write(folder.join(name), bytes).expect("it can be written");
}

#[test]
#[ignore = "writes the seeds into the source tree"]
fn sessions() {
    let plain = [0, 0, 0];
    let kinds: [(&str, [u8; 3]); 8] = [
        ("plain", plain),
        ("transit", [1, 0, 0]),
        ("readback", [2, 0, 0]),
        ("dry-run", [4, 0, 0]),
        ("delta", [8, 0, 0]),
        ("sync-delete", [0x20, 1, 0]),
        ("sync-checksum-renames", [0xe0, 3, 0]),
        ("manifest", [8, 0x1c, 2]),
    ];
    for (name, flags) in kinds {
        for (end, target) in
            [(FuzzedEnd::Receiver, "session__receiver"), (FuzzedEnd::Sender, "session__sender")]
        {
            let (from, to) = (scratch::folder(), scratch::folder());
            let from = from.path().join("there");
            source(&from);
            std::fs::create_dir(to.path().join("surplus")).expect("it can be made");
            std::fs::write(to.path().join("surplus/file"), [FILL; 5]).expect("it can be made");
            if flags[0] & 8 != 0 {
                // Another version of the large file.
                std::fs::create_dir(to.path().join("folder")).expect("it can be made");
                let old = [vec![b'o'; 9000], vec![FILL; 1 << 20]].concat();
                std::fs::write(to.path().join("folder/two"), old).expect("it can be made");
            }
            let (script, bytes) = record_session(end, &flags, FILL, &from, to.path());
            put(target, name, &script);
            put("reading__messages", &format!("{name}-{target}"), &bytes);
        }
    }
}

/// All messages by which a daemon is steered, and documents of both ends.
#[test]
#[ignore = "writes the seeds into the source tree"]
fn controls() {
    let vectors = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../vectors/control.txt");
    let vectors = std::fs::read_to_string(vectors).expect("it can be read");
    for (number, line) in vectors.lines().enumerate() {
        let (name, digits) = line.split_once(' ').expect("a name and bytes");
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
        // Without the length before it.
        put("reading__control_message", &format!("{number}-{name}"), &bytes[1..]);
    }
    for (name, document) in [
        (
            "asked",
            r#"{"copy":{"direction":"pull","paths":["eA=="],"options":{"sync":{"delete":{}}}},"network":{"flows":2},"far":{"host":"c","addresses":["10.0.0.3"],"port":33001,"key":"SHA256:x","path":"eQ==","grant":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="}}"#,
        ),
        ("event", r#"{"event":"entry_done","path":"a","done":"renamed","from":"b","dry_run":false}"#),
        ("rate", r#"{"event":"rate_changed","policy":"Low","rate_bps":8000,"rate_min_bps":null}"#),
    ] {
        put("reading__control_documents", name, document.as_bytes());
    }
    let snapshot = serde_json::to_vec(&Handle::new().snapshot()).expect("it can be written");
    put("reading__control_documents", "snapshot", &snapshot);
}

/// All messages of a read, a list, and blocks of several pieces and of one.
#[test]
#[ignore = "writes the seeds into the source tree"]
fn reads() {
    let vectors = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../vectors/read.txt");
    let vectors = std::fs::read_to_string(vectors).expect("it can be read");
    for (number, line) in vectors.lines().enumerate() {
        let (name, digits) = line.split_once(' ').expect("a name and bytes");
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
        match name {
            "records" => put("reading__read_records", name, &bytes),
            // Without the length before it.
            _ => put("reading__read_message", &format!("{number}-{name}"), &bytes[1..]),
        }
    }
    put("reading__read_pieces", "one", b"content\x05\x00\x00\x0f\x04\x00\x00\x00");
    put(
        "reading__read_pieces",
        "three",
        b"abcdef\x05\x00\x00\x04\x05\x01\x00\x07\x06\x00\x80\x20\x03\x0d\x00\x00\x00",
    );
}

#[test]
#[ignore = "writes the seeds into the source tree"]
fn tunnels() {
    put("reading__tunnel_pieces", "one", b"content\x02\x00\x0f\x03\x00\x00\x00");
    for line in include_str!("../../vectors/tunnel.txt").lines() {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        // Without its length, as it is decoded.
        put("reading__tunnel_message", name, &bytes[1..]);
    }
}

/// Messages that are rare in real sessions: the content of a pipe, whose size is sent at the end, and a piece
/// that arrived damaged.
#[test]
#[ignore = "writes the seeds into the source tree"]
fn rare_messages() {
    let entry = b"\x01\x00\x00\x04pipe\xa4\x03\x02\x00\x01";
    let whole = |chunk: u8| vec![0, 0, chunk, 16, FILL];
    // Three chunks and 128 bytes, as a varint of seven bits each.
    let size = (3u32 << 20) + 128;
    let mut end = vec![4, 0];
    end.extend([0, 7, 14].map(|shift| (size >> shift) as u8 | 0x80));
    end.extend([(size >> 21) as u8, 4]);
    let mut sections = vec![vec![0; 3], entry.to_vec(), whole(0), whole(1), whole(2), vec![0, 0, 3, 1, 0x80]];
    sections.extend([end, vec![6]]);
    put("session__receiver", "pipe", &sections.join(&b"\xff\xff"[..]));
    // The same with less content: pieces may be short.
    for (section, chunk) in sections[2..5].iter_mut().zip(0..) {
        *section = vec![0, 0, chunk, 1, 9];
    }
    put("session__receiver", "pipe-short", &sections.join(&b"\xff\xff"[..]));

    let folder = scratch::folder();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    source(&from);
    std::fs::create_dir(&to).expect("it can be made");
    let (script, _) = record_session(FuzzedEnd::Receiver, &[0; 3], FILL, &from, &to);
    let name = b"\x00\nfolder/two";
    let at = script.windows(name.len()).position(|bytes| bytes == name).expect("the file was announced");
    let id = script[at - 1];
    put("session__sender", "damaged", &[vec![0; 3], vec![16, id, 0], vec![19, id, 1]].join(&b"\xff\xff"[..]));
}

#[test]
#[ignore = "writes the seeds into the source tree"]
fn frames_and_files() {
    let options = TransferOptions {
        integrity: IntegrityOptions {
            manifest: Some(ManifestOptions::default()),
            ..IntegrityOptions::default()
        },
        ..TransferOptions::default()
    };
    let paths = vec![b"/data/run7".to_vec(), b"x y".to_vec()];
    let request = CopyRequest { single_file: true, ..CopyRequest::new(CopyDirection::Pull, paths, options) };
    let frame = |name: &str, frame: &[u8]| {
        put("reading__hello", name, &frame[4..]);
        put("reading__hello", &format!("{name}-framed"), frame);
    };
    let needs = Features::of(&["manifest"]);
    let opening = request.opening(needs.clone()).expect("the request can be encoded");
    let mut hello = Hello::new(opening, needs.and(&["delta"]), vec![7, 8], true);
    hello.secret_half = Some(HelloSecret([5; 32]));
    frame("hello", &encode(&hello).expect("it fits"));
    frame("attach", &encode(&Attach::new(HelloSecret([6; 32]), 9, 11)).expect("it fits"));
    let mut reply = HelloReply::accept(vec![1]);
    reply.ticket = Some(HelloSecret([7; 32]));
    frame("reply", &encode(&reply).expect("it fits"));
    let refusal = Refusal::new(farhaul_words::Code::NotFound, "no such path");
    frame("refusal", &encode(&HelloReply::refuse(refusal)).expect("it fits"));

    put("reading__stream_message", "confirmed", &[49, 0x85, 1]);
    put("reading__stream_message", "put", &[50, 9, 1]);
    put("reading__stream_message", "word", b"\x33\x05hello");

    let folder = scratch::folder();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    source(&from);
    let manifest = folder.path().join("m.jsonl");
    let job = CopyJob {
        options: TransferOptions {
            integrity: IntegrityOptions {
                manifest: Some(ManifestOptions::default()),
                ..IntegrityOptions::default()
            },
            ..TransferOptions::default()
        },
        manifest: Some(manifest.clone()),
        ..CopyJob::new([Location::Local(from.join(""))], Location::Local(to))
    };
    let (report, error) = farhaul_copy::copy(job, &Handle::new());
    assert!(error.is_none(), "{error:?}");
    put("reading__failed_run", "report", &report_bytes(&report));
    let lines = std::fs::read(&manifest).expect("it was written");
    put("reading__verify_list", "manifest", &lines);
    for (index, line) in lines.split_inclusive(|&byte| byte == b'\n').enumerate().take(12) {
        put("reading__manifest_line", &format!("line-{index}"), line);
    }
    let sums = "dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f  file\n\
                SHA256 (file) = dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f\n\
                \\dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f *a\\nb\n";
    put("reading__verify_list", "sums", sums.as_bytes());

    let key = folder.path().join("key");
    keygen(&key, "fuzz").expect("a key is made");
    let public = std::fs::read(key.with_extension("pub")).expect("it is there");
    put(
        "reading__authorized_keys",
        "keys",
        &[b"# who\n\n".to_vec(), public.clone(), public.clone()].concat(),
    );
    let options = b"root=\"/srv/my \\\"data\\\", all\",read-only,no-cipher-none,max-rate=1.5G,memory=512M ";
    let wrong = b"write-only,root=/etc,read-olny ";
    put("reading__authorized_keys", "options", &[&wrong[..], &public, options, &public].concat());
    put("reading__known_hosts", "hosts", b"# seen\nhost:4000 SHA256:abcdef\n[fd00::2]:4000 SHA256:ghi\n");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let note =
        format!(r#"{{"192.0.2.1":{{"rate_bps":1000000,"rtt_us":100000,"loss_ppm":12,"unix_s":{now}}}}}"#);
    put("reading__path_memory", "paths", note.as_bytes());
    let _ = connect::default_known_hosts_path();
}

fn report_bytes(report: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(report).expect("a report is JSON")
}

#[test]
#[ignore = "writes the seeds into the source tree"]
fn small_things() {
    // Two pieces of 5 bytes in all, and their trailer.
    let mut block = b"aabbb".to_vec();
    let records: Vec<u8> = [&[1, 0, 2][..], &[7; 32], &[0x82, 1, 0, 3], &[9; 32]].concat();
    block.extend_from_slice(&records);
    block.extend_from_slice(&(records.len() as u32).to_le_bytes());
    put("reading__block_trailer", "two-pieces", &block);
    let quic = [0xc3; 30];
    let ours = [&[5, 0, 7][..], &[0; 27]].concat();
    put("reading__first_datagrams", "quic", &[&[0, 30][..], &quic, &quic].concat());
    put("reading__first_datagrams", "ours", &[&[0, 30][..], &ours, &ours[..20]].concat());
    put("reading__stream_frames", "three", b"\x03\x00\xff\x01\x00\x03abc\x00\x01d\x00\x05efghi");

    let feedback =
        crate::flow::feedback_frame([3, 500, 20, 0, 0, 8, 4096, 0], &[0, 1, 0x0f, 0, 0, 0, 0, 0, 0, 0]);
    let segment = [&[2, 0, 0, 0, 0, 1, 0, 0, 0, 16][..], b"payload"].concat();
    put("proto__packet", "feedback-and-segment", &[&feedback[..], &segment].concat());
    put("proto__packet", "frames", b"\x03\x00\x08\x00\x05\x05\x00word\x06\x01\x09\x07\x06\x00\x07over\x09\x0812345678\x0b\x04\x01\x02\x03\x04\xf0\x01x\x00\x00");
    put("proto__packet", "given-up", b"\x0c\x04\x00\x01\x01\x02\x0c\x02\x01\x03\x00");
    put("proto__packet", "header", b"\x05\x12\x34\x00\x00\x00\x00\x01sealed");
    // Blocks are granted and sent, feedback comes, time passes, a timeout, control bytes.
    put("proto__flow", "sends", b"\x00\x0b\x03\x0a\x10\x00\x0a\xff\xff\x02\x07\x00\x00\x0a\x00\x0a\x00\x05\x20\x00\x00\x01\x0f\x00\x00\x00\x00\x00\x00\x00\x02\x00\x10\x00\x02\x0c\xff\x02\x01\x02\x02");
    put("proto__flow", "receives", b"\x02\x0b\x02\x05\x00\x00\x00\x01\x00\x00\x02\x00\x05\x50\x06\x00\x01\x00\x00\x20\x01\x0f\x00\x00\x04word\x0e\x02\x09\x00\x07\x0d\x00\x02");
    put("flow__pair", "loss", b"\x00\x40\x00\x00\x10\x00\x01\xff\x07\x20\x03\x20\x00\x07\x20\x06\x01\x01\x07\x20\x04\x30\x07\x05\x05\x03\x00\x07\x20\x06\x00\x03\x07\x20");
    // Classes of blocks, and blocks that are given up: by a hostile peer, and between two honest ends.
    put("proto__flow", "given-up", b"\x00\x0b\x03\x05\x00\x00\x00\x01\x00\x00\x0d\x09\x01\x01\x11\x05\x00\x00\x20\x01\x00\x01\x07\x00\x00\x00\x00\x00\x00\x00\x09\x00\x0d\x07\x10\x00\x0d\x08\x20\x10\x00\x0d\x06\x00\x02\x00\xff\xff\x02");
    put("flow__pair", "given-up", b"\x07\x20\x07\x20\x00\x40\x00\x08\x50\x08\x90\x07\x20\x06\x01\x00\x07\x20\x08\x00\x07\x02\x06\x00\x01\x04\x30\x07\x20\x08\x60\x08\x03\x07\x20");

    put("volume__paths", "path", b"a/b c/\xff.txt");
    put("volume__paths", "written", b"./a//b/../c/");
    put(
        "volume__filter",
        "rules",
        b"- *.tmp\n+ /a/**/b\n- a/[[:alpha:]x-z]*\nP keep/\n- ***/q?\n\na/b\nx.tmp\na/c/d/b",
    );
    put("volume__glob", "set", b"a/*/[[]x[!y]\0[x]");
    put("volume__selection", "names", b"a/b\na/b/c\n./x\ny/");
    put("volume__ranges", "two", b"\x00\x01\x00\x05\x00\x10\x00\x02");
    let new = [vec![1; 9000], vec![2; 5000]].concat();
    let old = [vec![1; 9000], vec![3; 5000]].concat();
    let mut out = vec![0; 1 << 20];
    let len = write_patch(&new, &Marks::of(&new), &Marks::of(&old).bytes, &mut out)
        .expect("most of both versions is the same, so a patch pays");
    put("volume__patch", "patch", &[&[27][..], &out[..len]].concat());
    put("volume__patch", "versions", b"\x10old and new");
    for cipher in 0..4u8 {
        put("reading__datagram", &format!("forged-{cipher}"), &[&[cipher][..], &[0; 40]].concat());
        put(
            "reading__datagram",
            &format!("sealed-{cipher}"),
            &[&[4 + cipher][..], &feedback, &segment].concat(),
        );
    }
    for (name, place) in [
        ("daemon", "fh://me@[fd00::2]:4000/in/x y"),
        ("ssh", "me@host:/data/*.bam"),
        ("scp", "scp://host:22/below"),
        ("local", "./a:b"),
        ("made", "random:10G"),
    ] {
        put("cli__places", name, place.as_bytes());
    }
    for (name, value) in [
        ("rate", "1.5G"),
        ("size", "64M"),
        ("age", "7d"),
        ("ports", "50000-50010"),
        ("path", "10.0.0.1=10.0.0.2"),
    ] {
        put("cli__values", name, value.as_bytes());
    }
    let folder = scratch::folder();
    put("volume__journal", "left", &farhaul_volume::fuzzing::journal_of(6, 3, folder.path()));

    put("wanem__frame", "tcp4", &tcp_frame());
    put("wanem__frame", "udp6", &udp_frame());
    put("wanem__script", "timeline", br#"[{"at": "10s", "loss": "5%"}, {"at": "20s", "cut": "3s"}, {"at": "30s", "link": 2, "rate": "1g"}]"#);
    put("wanem__script", "settings", b"rtt=100ms/50ms,loss=1%,rate=1g,queue=codel,jitter=5ms,reorder=1%");
    put(
        "wanem__script",
        "moving",
        b"rate=1g,rate-motion=walk:0.1:100/cellular,jitter=walk:5ms:1s/steps:17:15000:100",
    );
}

/// A super-packet of three TCP segments, as a TUN device hands it over.
fn tcp_frame() -> Vec<u8> {
    let mut frame = vec![1, 1, 40, 0, 100, 0, 20, 0, 16, 0];
    let mut packet = vec![0; 40 + 250];
    packet[0] = 0x45;
    packet[6] = 0x40;
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[32..34].copy_from_slice(&[0x50, 0x19]);
    frame.append(&mut packet);
    frame
}

/// Two UDP datagrams over IPv6.
fn udp_frame() -> Vec<u8> {
    let mut frame = vec![1, 5, 48, 0, 90, 0, 40, 0, 6, 0];
    let mut packet = vec![0; 48 + 150];
    packet[0] = 0x60;
    packet[6..8].copy_from_slice(&[17, 64]);
    packet[39] = 2;
    frame.append(&mut packet);
    frame
}

/// Every target has seeds, so that a replay tests something.
#[test]
fn every_target_has_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/__fuzz__");
    for source in ["cli", "flow", "proto", "reading", "session", "volume", "wanem"] {
        let text = std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("targets/{source}.rs")),
        );
        for line in text.expect("it is there").lines() {
            let Some(name) = line.strip_prefix("target!(").and_then(|rest| rest.split(',').next()) else {
                continue;
            };
            let corpus = folder.join(format!("{source}__{name}/corpus"));
            let seeds = std::fs::read_dir(&corpus).map(Iterator::count).unwrap_or(0);
            assert!(seeds > 0, "no seeds in {}", corpus.display());
        }
    }
}
