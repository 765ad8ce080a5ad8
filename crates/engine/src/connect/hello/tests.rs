use super::*;

fn request() -> Request {
    Request {
        direction: Direction::Pull,
        paths: vec![b"run7/\xff\x00x".to_vec(), b"~/b".to_vec()],
        target_is_directory: true,
        single_file: false,
        stream: None,
        target_is_name: false,
        options: TransferOptions::default(),
    }
}

fn hello() -> Hello {
    let mut hello = Hello::new(request(), vec![1, 2, 65535], true);
    hello.client_udp_ports = vec![4000, 4001];
    hello.secret_half = Some(Token([7; 32]));
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
    assert_eq!(read.request, request());
    assert_eq!(read.flow_ids, [1, 2, 65535]);
    assert_eq!(read.client_udp_ports, [4000, 4001]);
    assert_eq!(read.secret_half, Some(Token([7; 32])));
    assert!(read.udp);
}

#[test]
fn a_reply_and_an_attach_survive_the_way() {
    let mut reply = HelloReply::accept(vec![9]);
    reply.ticket = Some(Token([3; 32]));
    let read = decode_reply(&encode(&reply).unwrap()[4..]).unwrap();
    assert_eq!((read.flow_ids, read.ticket), (vec![9], Some(Token([3; 32]))));
    let attach = encode(&Attach::new(Token([3; 32]), 77, 5)).unwrap();
    match decode_first(&attach[4..]).unwrap() {
        FirstFrame::Attach(attach) => assert_eq!((attach.ticket, attach.flow_id), (Token([3; 32]), 77)),
        FirstFrame::Hello(_) => panic!("an attach was sent"),
    }
    assert!(decode_hello(&attach[4..]).is_err());
    assert!(decode_first(&encode(&reply).unwrap()[4..]).is_err());
}

#[test]
fn secrets_do_not_show() {
    let text = format!("{:?}", hello());
    assert!(text.contains("Token(..)") && !text.contains("7, 7"), "{text}");
}

#[test]
fn another_version_is_named_even_if_its_fields_are_unknown() {
    let future = br#"{"magic":"farhaul","kind":"greeting","protocol":9,"version":"3.1.4\u001b[2J","x":[1]}"#;
    for error in [decode_first(future).unwrap_err(), decode_reply(future).unwrap_err()] {
        let text = error.to_string();
        assert!(
            text.contains("farhaul 3.1.4") && text.contains("protocol 9") && text.contains("protocol 1"),
            "{text}"
        );
        assert!(text.contains("install the same version on both ends"), "{text}");
        assert!(!text.contains('\x1b'), "made safe for a terminal");
        assert!(matches!(Error::from(error), Error::Incompatible(_)));
    }
}

#[test]
fn a_shells_greeting_is_shown() {
    let error = read_frame(&mut &b"Welcome to \x1b[1mdtn2\nmore"[..]).unwrap_err();
    assert!(matches!(&error, HelloError::Foreign(text) if text == "Welcome to  [1mdtn2"), "{error:?}");
    let error = decode_first(b"{\"no\":1}").unwrap_err();
    assert!(matches!(error, HelloError::Foreign(_)));
}

#[test]
fn hostile_frames_end_in_errors_and_allocate_nothing() {
    assert!(matches!(read_frame(&mut &b""[..]), Err(HelloError::Closed)));
    assert!(matches!(read_frame(&mut &[0u8, 0][..]), Err(HelloError::Closed)));
    assert!(matches!(read_frame(&mut &[0u8, 0, 0, 9, 1][..]), Err(HelloError::Closed)));
    assert!(matches!(read_frame(&mut &[255u8, 0, 0, 1][..]), Err(HelloError::TooLong(_))));
    assert!(matches!(frame_len([0, 4, 0, 1]), Err(HelloError::TooLong(262_145))));
    assert_eq!(frame_len([0, 4, 0, 0]).unwrap(), FRAME_MAX);
    let cases: [(&str, Vec<u8>); 12] = [
        ("no path", changed(|v| v["request"]["paths"] = serde_json::json!([]))),
        ("bad base64", changed(|v| v["request"]["paths"] = serde_json::json!(["%%"]))),
        ("many paths", changed(|v| v["request"]["paths"] = vec!["YQ=="; PATHS_MAX + 1].into())),
        ("push to two", changed(|v| v["request"]["direction"] = "push".into())),
        ("no flow", changed(|v| v["flow_ids"] = serde_json::json!([]))),
        ("many flows", changed(|v| v["flow_ids"] = vec![1; FLOW_IDS_MAX + 2].into())),
        ("big id", changed(|v| v["flow_ids"] = serde_json::json!([65536]))),
        ("many ports", changed(|v| v["client_udp_ports"] = vec![1; crate::FLOWS_MAX + 1].into())),
        ("short secret", changed(|v| v["secret_half"] = "AAAA".into())),
        ("unknown direction", changed(|v| v["request"]["direction"] = "sideways".into())),
        ("no memory", changed(|v| v["request"]["options"]["memory_bytes"] = 1.into())),
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
    use crate::error::ExitCode;
    for (code, exit) in [
        (RefusalCode::Version, ExitCode::Incompatible),
        (RefusalCode::Forbidden, ExitCode::Auth),
        (RefusalCode::NoSuchPath, ExitCode::Files),
        (RefusalCode::Usage, ExitCode::Usage),
        (RefusalCode::Busy, ExitCode::Connect),
        (RefusalCode::Ended, ExitCode::Lost),
    ] {
        let error =
            Refusal { hint: Some("do\x07 this".into()), ..Refusal::new(code, "no\x1b[31m") }.into_error();
        assert_eq!(error.exit_code(), exit);
        assert!(!error.to_string().contains('\x1b'));
    }
    let unknown: Refusal = serde_json::from_str(r#"{"code":"tomorrow","text":"x"}"#).unwrap();
    assert_eq!(unknown.code, RefusalCode::Other);
}

#[test]
fn a_choice_of_any_origin_is_judged_with_the_hello() {
    use base64::Engine as _;
    let line = |text: &str| serde_json::Value::from(STANDARD.encode(text));
    let select = |field: &str, value: serde_json::Value| {
        decode_hello(&changed(|hello| hello["request"]["options"]["select"][field] = value))
    };
    let hello = select("rules", vec![line("- *.o"), line("+s a/**")].into()).unwrap();
    assert_eq!(hello.request.options.select.rules, [b"- *.o".to_vec(), b"+s a/**".to_vec()]);
    for hostile in [
        vec![line(". /etc/passwd")].into(),
        vec![line("x")].into(),
        vec![line("")].into(),
        vec![serde_json::Value::from("not base64")].into(),
        vec![line("- x"); 4097].into(),
        vec![line(&format!("- {}", "x".repeat(4096)))].into(),
        vec![line(&format!("- {}", "x".repeat(4000))); 17].into(),
        serde_json::Value::from(7),
    ] {
        assert!(select("rules", hostile).is_err());
    }
    assert!(select("size_min", serde_json::Value::from(-1)).is_err());
    assert!(select("mtime_min", serde_json::Value::from(i64::MIN)).is_ok());
    let sync = |value: serde_json::Value| {
        decode_hello(&changed(|hello| hello["request"]["options"]["sync"] = value))
    };
    let delete = serde_json::json!({"checksum": true, "delete": {"when": "before", "max": 3}});
    assert!(sync(delete).unwrap().request.options.sync.unwrap().delete.is_some());
    assert!(sync(serde_json::json!({"delete": {"when": "never"}})).is_err());
}
