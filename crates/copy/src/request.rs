//! The request of a copy: this service's words in the hello, and in the answer to it.
//!
//! Always true: a request from a peer is checked in [`CopyRequest::of`] before anybody acts on it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_connect::features::{Features, WITHIN};
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{
    AdmissionReply, AllowedRequest, ContentDirection, CopyReach, PathPrefixes, Rights, RightsRequest,
    session_needs,
};
use farhaul_session::options::NetworkOptions;
use farhaul_text::printable;
use farhaul_words::{Code, Error};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{NAMES_BYTES_MAX, NAMES_MAX};
use crate::options::{OverwriteMode, TransferOptions, VerifyMode};

/// The name of this service in a hello.
pub(crate) const SERVICE: &str = "copy";
/// The most paths of a pull that the request itself has, and their most bytes. Further paths follow in the
/// running session ([`CopyMessage::Paths`](crate::messages::CopyMessage::Paths)), so that a hello has room
/// for any command line.
const OWN_PATHS_MAX: usize = 1024;
const OWN_PATHS_BYTES_MAX: usize = 16 << 10;

/// Feature: of a large file that is there in another version, only the differences are sent.
pub(crate) const DELTA: &str = "delta";

/// Feature: both ends sign what has been copied.
pub(crate) const RECEIPT: &str = "receipt";

/// Feature: a pull may name further sources in the running session.
pub(crate) const MORE_PATHS: &str = "more-paths";

/// Feature: the receiver tells how many of the directories were not there before.
pub(crate) const NEW_DIRECTORIES: &str = "new-directories";

/// All features of a copy, and whether these options need them. A feature that is not needed is not used if
/// the far end lacks it.
fn features(options: &TransferOptions) -> [(&'static str, bool); 20] {
    let sync = options.sync.unwrap_or_default();
    [
        (DELTA, options.files.in_place || options.files.delta == Some(true)),
        ("readback", options.integrity.verify == VerifyMode::Readback),
        ("sync", options.sync.is_some()),
        ("checksum", options.compares_content()),
        ("detect-renames", sync.detect_renames),
        ("manifest", options.integrity.manifest.is_some()),
        ("follow-growth", options.files.follow_growth_secs.is_some()),
        ("announce", options.files.announce),
        ("spread", !options.spread.source.is_empty() || !options.spread.target.is_empty()),
        ("xattrs", options.files.xattrs),
        ("acls", options.files.acls),
        ("hard-links", options.files.hard_links.is_some()),
        ("earlier", !options.earlier.is_empty()),
        ("backup", options.backup.is_some()),
        ("owners", options.owners.is_any()),
        ("guard", sync.delete.is_some_and(|delete| delete.is_judged()) || !options.select.require.is_empty()),
        // Code that needs one of these says so itself.
        (RECEIPT, false),
        (MORE_PATHS, false),
        (NEW_DIRECTORIES, false),
        (WITHIN, false),
    ]
}

/// The features of this end.
pub(crate) fn own_features() -> Features {
    Features::of(&features(&TransferOptions::default()).map(|feature| feature.0))
}

/// The features that this request needs at the far end.
pub(crate) fn needs(request: &CopyRequest) -> Features {
    let needs = option_needs(&request.options);
    if request.within.is_some() { needs.and(&[WITHIN]) } else { needs }
}

fn option_needs(options: &TransferOptions) -> Features {
    let needed = features(options).into_iter().filter(|feature| feature.1);
    session_needs(&options.network).and(&needed.map(|feature| feature.0).collect::<Vec<_>>())
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// The direction of the content, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyDirection {
    /// From the client.
    Push,
    /// To the client.
    Pull,
}

/// A client's request for a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyRequest {
    /// The direction of the content.
    pub direction: CopyDirection,
    /// Pull: the sources. Push: one destination. Any bytes, as the user typed them.
    #[serde(with = "base64_list")]
    pub paths: Vec<Vec<u8>>,
    /// Pull: the number of further sources, which the receiver names before any other message.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more_paths: u64,
    /// Push: the destination must be or become a directory, as there are several sources or a trailing slash.
    #[serde(default)]
    pub target_is_directory: bool,
    /// Push: the only source is a pipe or a plain file, so the destination is a file's name unless it is a
    /// directory. Pull: the content goes to a pipe.
    #[serde(default)]
    pub single_file: bool,
    /// Push: the destination is the single source's name, even if a directory of that name exists. Pull:
    /// there must be only one source, as there is one name for it.
    #[serde(default)]
    pub target_is_name: bool,
    /// The directories of the far end that this request may not leave, wherever its paths and the links in them
    /// lead; `None` if the client may use everything there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<PathPrefixes>,
    /// The receiver tells how many of the directories are new, as both ends know that word.
    #[serde(skip)]
    pub tells_new: bool,
    /// The copy's options. The session's options travel beside this request.
    #[serde(default)]
    pub options: TransferOptions,
}

impl CopyRequest {
    /// A request in which nothing is said about the kind of the destination.
    pub fn new(direction: CopyDirection, paths: Vec<Vec<u8>>, options: TransferOptions) -> CopyRequest {
        CopyRequest {
            direction,
            paths,
            more_paths: 0,
            target_is_directory: false,
            single_file: false,
            target_is_name: false,
            within: None,
            tells_new: false,
            options,
        }
    }

    /// Whether the content has to arrive in order, since it goes to a pipe.
    pub(crate) fn is_in_order(&self) -> bool {
        self.direction == CopyDirection::Pull && self.single_file
    }

    /// Removes and returns the sources that the request has no room for, if any.
    pub(crate) fn take_more_paths(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut bytes = 0;
        let fits = |path: &&Vec<u8>| {
            bytes += path.len();
            bytes <= OWN_PATHS_BYTES_MAX
        };
        let count = self.paths.iter().take(OWN_PATHS_MAX).take_while(fits).count().max(1);
        let more = self.paths.split_off(count.min(self.paths.len()));
        self.more_paths = more.len() as u64;
        (!more.is_empty()).then_some(more)
    }

    /// The request as both ends have agreed on it: with the session's options, and without what one end
    /// lacks.
    pub(crate) fn agreed(mut self, network: NetworkOptions, features: &Features) -> CopyRequest {
        self.options.network = network;
        if !features.has(DELTA) {
            self.options.files.delta = Some(false);
        }
        self.tells_new = features.has(NEW_DIRECTORIES);
        if !features.has(RECEIPT) {
            self.options.integrity.receipt = None;
        }
        self
    }

    /// The request, as the client's rights are judged by it.
    pub fn asked(&self) -> RightsRequest<'_> {
        let way = match self.direction {
            CopyDirection::Pull => ContentDirection::Read,
            CopyDirection::Push => ContentDirection::Write,
        };
        RightsRequest { way, cipher: self.options.network.cipher, copy: Some(self.reach()) }
    }

    /// The request, as a grant is judged by it.
    pub(crate) fn reach(&self) -> CopyReach<'_> {
        let TransferOptions { files, spread, sync, earlier, backup, .. } = &self.options;
        // A sync changes modes and times of what stays, and puts directories in the place of files.
        let keeps =
            files.overwrite == OverwriteMode::Never && !files.in_place && sync.is_none() && backup.is_none();
        CopyReach {
            paths: &self.paths,
            has_more: self.more_paths > 0,
            is_spread: !spread.source.is_empty() || !spread.target.is_empty(),
            overwrites: !keeps,
            // What gets another name loses its old one.
            deletes: sync.is_some_and(|sync| sync.delete.is_some() || sync.detect_renames),
            follows: files.follow || files.keep_dirlinks,
            looks_beside: !earlier.is_empty() && self.direction == CopyDirection::Push,
            writes_beside: backup.as_ref().is_some_and(|backup| !backup.dir.is_empty())
                && self.direction == CopyDirection::Push,
        }
    }

    /// The opening of a session for this request.
    pub fn opening(&self, needs: Features) -> Result<SessionOpening, Error> {
        let network = self.options.network.clone();
        Ok(SessionOpening { service: SERVICE.into(), needs, request: self.words()?, many: false, network })
    }

    /// The request as bytes for the far end.
    pub fn words(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|error| {
            Error::new(Code::Misuse, format!("the options cannot be sent to the far end: {error}"))
        })
    }

    /// The request that a session was opened for.
    pub fn of(opening: &SessionOpening) -> Result<CopyRequest, Error> {
        opening.must_be_for(SERVICE).map_err(Refusal::into_error)?;
        CopyRequest::read(&opening.request, &opening.network)
    }

    /// Parses and checks a request in a session with these options; nothing else judges requests.
    pub fn read(words: &[u8], network: &NetworkOptions) -> Result<CopyRequest, Error> {
        let bad = |what: &str| {
            Err(Error::new(Code::BadRequest, format!("the far end cannot understand the request: {what}")))
        };
        let mut request: CopyRequest = match serde_json::from_slice(words) {
            Ok(request) => request,
            Err(error) => return bad(&printable(error.to_string().as_bytes(), 120)),
        };
        let paths = request.paths.len();
        if paths == 0 || request.more_paths.saturating_add(paths as u64) > NAMES_MAX as u64 {
            return bad("between 1 and 1,048,576 paths are allowed");
        }
        if request.direction == CopyDirection::Push && (paths != 1 || request.more_paths > 0) {
            return bad("a push has one destination");
        }
        request.options.network = network.clone();
        request.options = request.options.checked()?;
        Ok(request)
    }
}

/// Refuses more sources than a copy can have, before anything begins.
pub(crate) fn are_not_too_many(sources: &[Vec<u8>]) -> Result<(), Error> {
    let bytes: usize = sources.iter().map(Vec::len).sum();
    if sources.len() <= NAMES_MAX && bytes <= NAMES_BYTES_MAX {
        return Ok(());
    }
    let what = "at most 1,048,576 sources and 32 MiB of their names can be copied in one run";
    let hint = "name their directory, and list what is wanted of it with `files-from`";
    Err(Error::new(Code::BadOption, what).with_hint(hint))
}

/// The far end's answer.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Answer {
    /// The mode bits of group and others that are taken off everything there.
    #[serde(default)]
    mask: u32,
}

/// Admits a session that copies files. The bits of `mask` are taken off everything that it creates here.
pub fn admit(opening: &SessionOpening, mask: u32) -> Result<AdmissionReply, Refusal> {
    opening.must_be_for(SERVICE)?;
    let terms = if mask == 0 { Vec::new() } else { serde_json::to_vec(&Answer { mask }).unwrap_or_default() };
    Ok(AdmissionReply { features: own_features(), terms })
}

/// As [`admit`], at a daemon: within the client's rights there.
pub fn admit_within(
    rights: &Rights,
    opening: &SessionOpening,
    mask: u32,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    let admitted = admit(opening, mask)?;
    let request = CopyRequest::of(opening).map_err(|error| Refusal::from_error(&error))?;
    Ok((admitted, rights.judge(request.asked())?))
}

/// The bits that the far end takes off everything, by its answer.
pub(crate) fn mask_of(terms: &[u8]) -> u32 {
    serde_json::from_slice::<Answer>(terms).unwrap_or_default().mask & 0o777
}

pub(crate) mod base64_bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

pub(crate) mod base64_list {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(list: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|bytes| STANDARD.encode(bytes)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.into_iter().map(|text| STANDARD.decode(text).map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use farhaul_words::ExitCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::options::FileOptions;

    fn request() -> CopyRequest {
        let paths = vec![b"run7/\xff\x00x".to_vec(), b"~/b".to_vec()];
        let options = NetworkOptions { flows: 3, ..NetworkOptions::default() }.into();
        CopyRequest { target_is_directory: true, ..CopyRequest::new(CopyDirection::Pull, paths, options) }
    }

    /// The request as JSON, after a change by hand.
    fn changed(change: impl FnOnce(&mut Value)) -> Result<CopyRequest, Error> {
        let opening = request().opening(Features::default()).unwrap();
        let mut value = serde_json::from_slice(&opening.request).unwrap();
        change(&mut value);
        CopyRequest::of(&SessionOpening { request: serde_json::to_vec(&value).unwrap(), ..opening })
    }

    #[test]
    fn a_request_survives_the_way_and_the_sessions_options_come_beside_it() {
        let opening = request().opening(Features::default()).unwrap();
        assert_eq!(CopyRequest::of(&opening).unwrap(), request());
        assert!(!String::from_utf8_lossy(&opening.request).contains("memory_bytes"));
        assert!(changed(|v| v["tomorrow"] = json!({"x": 1})).is_ok());
        let within = changed(|v| v["within"] = json!([STANDARD.encode("/in")])).unwrap().within;
        assert_eq!(within, PathPrefixes::new(["/in".into()]).ok());
        let nothing = changed(|v| v["within"] = json!([])).unwrap().within;
        assert_eq!(nothing, PathPrefixes::new([]).ok(), "no directory is not the same as no list");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, result) in [
            ("no path", changed(|v| v["paths"] = json!([]))),
            ("bad base64", changed(|v| v["paths"] = json!(["%%"]))),
            ("many paths", changed(|v| v["paths"] = vec!["YQ=="; NAMES_MAX + 1].into())),
            ("push to two", changed(|v| v["direction"] = "push".into())),
            (
                "push to more",
                changed(|v| {
                    v["direction"] = "push".into();
                    v["paths"] = json!(["YQ=="]);
                    v["more_paths"] = 1.into();
                }),
            ),
            ("more than there can be", changed(|v| v["more_paths"] = NAMES_MAX.into())),
            ("within no directory", changed(|v| v["within"] = json!([STANDARD.encode("in")]))),
            ("unknown direction", changed(|v| v["direction"] = "sideways".into())),
        ] {
            assert!(matches!(result, Err(error) if error.exit_code() == ExitCode::Usage), "{name}");
        }
        let opening = request().opening(Features::default()).unwrap();
        for cut in 0..opening.request.len() {
            let opening = SessionOpening { request: opening.request[..cut].to_vec(), ..opening.clone() };
            assert!(CopyRequest::of(&opening).is_err());
        }
    }

    #[test]
    fn a_request_has_as_many_paths_as_it_has_room_for() {
        let of = |count: usize, len: usize| {
            let mut request = CopyRequest { paths: vec![vec![b'x'; len]; count], ..request() };
            let more = request.take_more_paths();
            assert_eq!(request.more_paths, more.as_ref().map_or(0, Vec::len) as u64);
            assert!(request.words().unwrap().len() < 32 << 10);
            (request.paths.len(), more.map_or(0, |more| more.len()))
        };
        assert_eq!(of(1, 4095), (1, 0));
        assert_eq!(of(OWN_PATHS_MAX, 16), (OWN_PATHS_MAX, 0));
        assert_eq!(of(OWN_PATHS_MAX + 7, 1), (OWN_PATHS_MAX, 7));
        assert_eq!(of(5000, 4095), (4, 4996));
        assert_eq!(of(2, OWN_PATHS_BYTES_MAX + 1), (1, 1));
        assert!(are_not_too_many(&vec![Vec::new(); NAMES_MAX]).is_ok());
        for sources in [vec![Vec::new(); NAMES_MAX + 1], vec![vec![b'x'; NAMES_BYTES_MAX + 1]]] {
            let error = are_not_too_many(&sources).unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("`files-from`")), "{error}");
        }
    }

    #[test]
    fn a_choice_of_any_origin_is_judged_with_the_request() {
        let line = |text: &str| Value::from(STANDARD.encode(text));
        let select =
            |field: &str, value: Value| changed(|request| request["options"]["select"][field] = value);
        let read = select("rules", vec![line("- *.o"), line("+s a/**")].into()).unwrap();
        assert_eq!(read.options.select.rules, [b"- *.o".to_vec(), b"+s a/**".to_vec()]);
        for hostile in [
            vec![line(". /etc/passwd")].into(),
            vec![line("x")].into(),
            vec![line("")].into(),
            vec![Value::from("not base64")].into(),
            vec![line("- x"); 4097].into(),
            vec![line(&format!("- {}", "x".repeat(4097)))].into(),
            vec![line(&format!("- {}", "x".repeat(4000))); 17].into(),
            Value::from(7),
        ] {
            assert!(select("rules", hostile).is_err());
        }
        assert!(select("size_min", Value::from(-1)).is_err());
        assert!(select("mtime_min", Value::from(i64::MIN)).is_ok());
        let sync = |value: Value| changed(|request| request["options"]["sync"] = value);
        let delete = json!({"checksum": true, "delete": {"when": "before", "max": 3}});
        assert!(sync(delete).unwrap().options.sync.unwrap().delete.is_some());
        assert!(sync(json!({"delete": {"when": "never"}})).is_err());
    }

    #[test]
    fn only_what_the_user_has_asked_for_is_needed() {
        let request = |options| CopyRequest::new(CopyDirection::Pull, vec![b"x".to_vec()], options);
        assert_eq!(needs(&request(TransferOptions::default())), Features::default());
        let within = PathPrefixes::new(["/in".into()]).ok();
        let confined = CopyRequest { within, ..request(TransferOptions::default()) };
        assert_eq!(needs(&confined), Features::of(&[WITHIN]));
        let files = FileOptions { acls: true, in_place: true, ..FileOptions::default() };
        let options = TransferOptions { files, ..TransferOptions::default() };
        assert_eq!(needs(&request(options)), Features::of(&[DELTA, "acls"]));
        assert_eq!(own_features().satisfy(&Features::of(&[DELTA, "acls"])), Ok(()));
    }

    #[test]
    fn another_service_is_refused_by_its_name() {
        let opening = request().opening(Features::default()).unwrap();
        let admitted = admit(&opening, 0o027).unwrap();
        assert_eq!(mask_of(&admitted.terms), 0o027);
        assert!(admitted.features.has(DELTA));
        assert_eq!(mask_of(b"what a later version says"), 0);
        let refusal = admit(&SessionOpening { service: "juggle".into(), ..opening }, 0).unwrap_err();
        assert!(refusal.text.contains("'juggle'"), "{}", refusal.text);
    }
}
