use super::super::test_opening;
use super::*;

fn opening() -> SessionOpening {
    let needs = Features::of(&["b"]);
    SessionOpening { needs, ..test_opening(NetworkOptions { flows: 3, ..NetworkOptions::default() }) }
}

fn hello() -> Hello {
    let mut hello = Hello::new(opening(), Features::of(&["a", "b"]), vec![1, 2, 65535], true);
    hello.client_udp_ports = vec![4000, 4001];
    hello.secret_half = Some(HelloSecret([7; 32]));
    hello
}

/// The hello as JSON, changed by hand.
fn changed(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut value = serde_json::to_value(hello()).unwrap();
    change(&mut value);
    serde_json::to_vec(&value).unwrap()
}

#[test]
fn a_hello_survives_the_way_and_nothing_behind_it_is_read() {
    let mut wire = encode(&hello()).unwrap();
    wire.extend_from_slice(b"\x00\x10packets");
    let mut from = &wire[..];
    let read = decode_hello(&read_frame(&mut from).unwrap()).unwrap();
    assert_eq!(from, b"\x00\x10packets");
    assert_eq!(read.opening, opening());
    assert!(read.features.has("a"));
    assert_eq!(read.flow_ids, [1, 2, 65535]);
    assert_eq!(read.client_udp_ports, [4000, 4001]);
    assert_eq!(read.secret_half, Some(HelloSecret([7; 32])));
    assert!(read.udp);
}

#[test]
fn the_first_words_have_the_bytes_of_this_version() {
    let mut reply = HelloReply::accept(vec![9, 10, 11]);
    reply.features = Features::of(&["a"]);
    reply.terms = b"agreed".to_vec();
    reply.ticket = Some(HelloSecret([3; 32]));
    let refusal = Refusal::new(Code::FeatureMissing, "no").with_hint("do this");
    let version = env!("CARGO_PKG_VERSION");
    let bytes = |name: &str, frame: Zeroizing<Vec<u8>>| {
        // Nothing depends on the program's version.
        let text = String::from_utf8_lossy(&frame[4..]).replace(&format!("\"{version}\""), "\"0.0.0\"");
        (name.to_string(), text.into_bytes())
    };
    farhaul_vectors::compare(
        "hello",
        &[
            bytes("Hello", encode(&hello()).unwrap()),
            bytes("ByGrant", encode(&Hello { grant: Some(HelloSecret([5; 32])), ..hello() }).unwrap()),
            bytes("Attach", encode(&Attach::new(HelloSecret([3; 32]), 77, 5)).unwrap()),
            bytes("Reply", encode(&reply).unwrap()),
            bytes("Refusal", encode(&HelloReply::refuse(refusal)).unwrap()),
        ],
    );
}

#[test]
fn first_words_of_releases_are_read() {
    for (release, frames) in farhaul_vectors::of_releases("hello") {
        for (name, bytes) in frames {
            let is_read = match name.as_str() {
                "Hello" | "ByGrant" => decode_hello(&bytes).is_ok(),
                "Attach" => matches!(decode_first(&bytes), Ok(FirstFrame::Attach(_))),
                "Refusal" => decode_reply(&bytes).is_ok_and(|reply| reply.refusal.is_some()),
                _ => decode_reply(&bytes).is_ok_and(|reply| reply.refusal.is_none()),
            };
            assert!(is_read, "{release}: {name}");
        }
    }
}

#[test]
fn a_reply_and_an_attach_survive_the_way() {
    let mut reply = HelloReply::accept(vec![9]);
    reply.ticket = Some(HelloSecret([3; 32]));
    let read = decode_reply(&encode(&reply).unwrap()[4..]).unwrap();
    assert_eq!((read.flow_ids, read.ticket), (vec![9], Some(HelloSecret([3; 32]))));
    let attach = encode(&Attach::new(HelloSecret([3; 32]), 77, 5)).unwrap();
    match decode_first(&attach[4..]).unwrap() {
        FirstFrame::Attach(attach) => assert_eq!((attach.ticket, attach.flow_id), (HelloSecret([3; 32]), 77)),
        FirstFrame::Hello(_) => panic!("an attach was sent"),
    }
    assert!(decode_hello(&attach[4..]).is_err());
    assert!(decode_first(&encode(&reply).unwrap()[4..]).is_err());
}

#[test]
fn secrets_do_not_show() {
    let text = format!("{:?}", hello());
    assert!(text.contains("HelloSecret(..)") && !text.contains("7, 7"), "{text}");
}

#[test]
fn another_version_is_named_even_if_its_fields_are_unknown() {
    let future =
        br#"{"magic":"farhaul","kind":"greeting","protocols":[9,12],"version":"3.1.4\u001b[2J","x":[1]}"#;
    for error in [decode_first(future).unwrap_err(), decode_reply(future).unwrap_err()] {
        let text = error.to_string();
        assert!(
            text.contains("farhaul 3.1.4")
                && text.contains("protocols 9 to 12")
                && text.contains("protocol 1"),
            "{text}"
        );
        assert!(text.contains("install the newer version on both ends"), "{text}");
        assert!(!text.contains('\x1b'), "made safe for a terminal");
        assert!(Error::from(error).code() == Code::NoCommonVersion);
    }
}

#[test]
fn a_shells_greeting_is_shown() {
    let error = read_frame(&mut &b"Welcome to \x1b[1mdtn2\nmore"[..]).unwrap_err();
    assert!(matches!(&error, HelloError::Foreign(text) if text == "Welcome to  [1mdtn2"), "{error:?}");
    let error = decode_first(b"{\"no\":1}").unwrap_err();
    assert!(matches!(error, HelloError::Foreign(_)));
    // However short it is, and whatever comes behind it.
    for (said, shown) in [
        (&b"hi\n\0\0\x02\0{"[..], "hi"),
        (b"\n\nready\n\0\0", "ready"),
        (b"> ", ">"),
        (b"\n\0\0\x02", ""),
        ("Gr\u{fc}\u{df}e".as_bytes(), "Gr\u{fc}\u{df}e"),
    ] {
        let error = read_frame(&mut &said[..]).unwrap_err();
        assert!(matches!(&error, HelloError::Foreign(text) if text == shown), "{error:?}");
    }
}

#[test]
fn hostile_frames_end_in_errors_and_allocate_nothing() {
    assert!(matches!(read_frame(&mut &b""[..]), Err(HelloError::Closed)));
    assert!(matches!(read_frame(&mut &[0u8, 0][..]), Err(HelloError::Closed)));
    assert!(matches!(read_frame(&mut &[0u8, 0, 0, 9, 1][..]), Err(HelloError::Closed)));
    assert!(matches!(read_frame(&mut &[255u8, 0, 0, 1][..]), Err(HelloError::ForeignBytes(_))));
    let greeted = frame_len([0xff, 0xfe, 0, 0]).unwrap_err();
    assert!(greeted.to_string().ends_with("it began with the bytes ff fe 00 00"), "{greeted}");
    assert!(matches!(frame_len([0, 8, 0, 1]), Err(HelloError::TooLong(524_289))));
    assert_eq!(frame_len([0, 8, 0, 0]).unwrap(), FRAME_MAX);
    let cases: [(&str, Vec<u8>); 12] = [
        ("no service", changed(|v| v["service"] = "".into())),
        ("long service", changed(|v| v["service"] = "x".repeat(65).into())),
        ("bad base64", changed(|v| v["request"] = "%%".into())),
        ("many features", changed(|v| v["features"] = vec!["x"; 257].into())),
        ("long need", changed(|v| v["needs"] = vec!["x".repeat(65)].into())),
        ("no flow", changed(|v| v["flow_ids"] = serde_json::json!([]))),
        ("many flows", changed(|v| v["flow_ids"] = vec![1; FLOW_IDS_MAX + 2].into())),
        ("big id", changed(|v| v["flow_ids"] = serde_json::json!([65536]))),
        ("many ports", changed(|v| v["client_udp_ports"] = vec![1; FLOWS_MAX + 1].into())),
        ("short secret", changed(|v| v["secret_half"] = "AAAA".into())),
        ("no memory", changed(|v| v["network"]["memory_bytes"] = 1.into())),
        ("no kind", changed(|v| drop(v.as_object_mut().unwrap().remove("kind")))),
    ];
    for (name, body) in cases {
        assert!(matches!(decode_first(&body), Err(HelloError::Malformed(_))), "{name}");
    }
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert!(decode_first(&deep).is_err());
}

#[test]
fn every_cut_and_every_flipped_byte_is_an_answer_or_an_error() {
    let body = encode(&hello()).unwrap()[4..].to_vec();
    for cut in 0..body.len() {
        assert!(decode_first(&body[..cut]).is_err());
    }
    for position in 0..body.len() {
        let mut flipped = body.clone();
        flipped[position] ^= 0x15;
        let _ = decode_first(&flipped);
        let _ = decode_reply(&flipped);
    }
}

#[test]
fn refusals_become_errors_with_their_exit_codes() {
    for (code, exit) in [
        (Code::NoCommonVersion, ExitCode::Incompatible),
        (Code::Forbidden, ExitCode::Auth),
        (Code::NotFound, ExitCode::Files),
        (Code::BadRequest, ExitCode::Usage),
        (Code::Busy, ExitCode::Connect),
        (Code::PeerEnded, ExitCode::Lost),
    ] {
        let error = Refusal::new(code, "no\x1b[31m").with_hint("do\x07 this").into_error();
        assert_eq!((error.code(), error.exit_code()), (code, exit));
        assert!(!error.to_string().contains('\x1b'));
    }
}

#[test]
fn a_frame_that_makes_no_sense_is_a_misbehaviour() {
    let too_long = Error::from(HelloError::TooLong(1 << 30));
    assert_eq!(too_long.misbehaviour(), Some(Misbehaviour::FrameTooLong));
    let malformed = Error::from(decode_reply(&encode(&hello()).unwrap()[4..]).unwrap_err());
    assert_eq!(malformed.misbehaviour(), Some(Misbehaviour::MalformedHello));
}

#[test]
fn a_refusal_for_what_is_of_no_exit_code_here_tells_that_the_far_end_cannot_start() {
    for code in [Code::NoDescriptors, Code::Misbehaved, Code::ShareUsed, Code::Interrupted] {
        let error = Refusal::from_error(&Error::new(code, "x")).into_error();
        assert_eq!((error.code(), error.blame()), (Code::PeerCannotStart, code.blame()), "{code}");
    }
}

#[test]
fn a_refusal_of_a_later_version_is_understood_by_its_exit_code() {
    for (exit, code) in [
        (2, Code::BadRequest),
        (4, Code::Forbidden),
        (6, Code::FilesFailed),
        (7, Code::PeerEnded),
        (99, Code::PeerCannotStart),
    ] {
        let text = format!(r#"{{"code":"FH-OF-TOMORROW","exit":{exit},"text":"x"}}"#);
        let later: Refusal = serde_json::from_str(&text).unwrap();
        assert_eq!(later.into_error().code(), code);
    }
    let without: Refusal = serde_json::from_str(r#"{"code":"tomorrow","text":"x"}"#).unwrap();
    assert_eq!(without.into_error().code(), Code::PeerCannotStart);
}

#[test]
fn a_hello_of_the_next_version_with_what_is_not_known_yet_is_understood() {
    let next = changed(|hello| {
        hello["protocols"] = serde_json::json!([1, 2]);
        hello["features"] = serde_json::json!(["a", "telepathy"]);
        hello["weather"] = serde_json::json!({"rain": true});
        hello["network"]["colour"] = "green".into();
    });
    let hello = decode_hello(&next).unwrap();
    assert_eq!(hello.opening, opening());
    assert_eq!(hello.features.common(&Features::of(&["a"])), Features::of(&["a"]));
    assert!(matches!(
        decode_hello(&changed(|hello| hello["protocols"] = serde_json::json!([2, 3]))),
        Err(HelloError::Version { protocols: Protocols(2, 3), .. })
    ));
}

#[test]
fn the_newest_common_protocol_is_spoken() {
    for (one, other, common) in
        [((1, 3), (2, 5), Some(3)), ((1, 1), (1, 1), Some(1)), ((1, 2), (3, 4), None), ((4, 2), (1, 9), None)]
    {
        let (one, other) = (Protocols(one.0, one.1), Protocols(other.0, other.1));
        assert_eq!((one.common(other), other.common(one)), (common, common), "{one} {other}");
    }
}
