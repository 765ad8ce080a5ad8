//! What is to be sent: `show.toml`, and the plan of each stream.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::Code;
use farhaul::options::NetworkOptions;
use farhaul::sisters::{amounts, escape};
use farhaul::target::DaemonTarget;
use serde::Deserialize;

use crate::pace::Pace;
use crate::source::SourceSpec;

/// The most streams of a show.
const STREAMS_MAX: usize = 256;
/// The most bytes of a show.toml.
const DOCUMENT_MAX: u64 = 1 << 20;
const NAME_MAX: usize = 100;
const DEADLINE_LONGEST: Duration = Duration::from_secs(3600);
const FPS_MOST: f64 = 1e6;

/// What is to be sent, and to whom.
#[derive(Debug, Clone)]
pub struct StreamSendPlan {
    /// The stream's name here.
    pub name: String,
    /// The stream's name at the receiver.
    pub far_name: String,
    /// The receiver.
    pub target: DaemonTarget,
    /// Where the frames come from.
    pub source: SourceSpec,
    /// When they are due.
    pub pace: Pace,
    /// The time that a frame has to arrive, from its hand-over; without it, all frames arrive in order.
    pub deadline: Option<Duration>,
    /// The most frames to send.
    pub frames: Option<u64>,
    /// How long to wait for a receiver that is not there, or has gone.
    pub wait: Duration,
    /// Rate, cipher, paths and memory.
    pub network: NetworkOptions,
}

impl StreamSendPlan {
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.deadline.map(|deadline| u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A show.toml.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowDocument {
    /// The show's name; by default that of the file.
    #[serde(default)]
    pub name: String,
    /// The streams.
    #[serde(rename = "stream")]
    pub streams: Vec<StreamEntry>,
}

/// One stream in a show.toml, as it is written. The command line has the same words.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamEntry {
    /// The stream's name.
    pub name: String,
    /// `file:F`, `dir:D`, `pipe:P`, `-` or `test:WIDTHxHEIGHT`.
    pub from: String,
    /// `fh://host[:port][/name]`; the name at the receiver is the stream's own, if it is left out.
    pub to: String,
    /// The size of frames, or `prefixed` for a pipe.
    #[serde(default)]
    pub frame: Option<String>,
    /// Frames a second; without it, as fast as it goes.
    #[serde(default)]
    pub fps: Option<f64>,
    /// A time such as `200ms`.
    #[serde(default)]
    pub deadline: Option<String>,
    /// The most frames to send.
    #[serde(default)]
    pub frames: Option<u64>,
    /// The most bits a second, such as `2G`.
    #[serde(default)]
    pub rate: Option<String>,
    /// Paths to use at once, each `LOCAL=REMOTE`.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The fingerprint that the receiver's key must have.
    #[serde(default)]
    pub fingerprint: Option<String>,
}

impl ShowDocument {
    /// Reads a show.toml.
    pub fn load(path: &Path) -> Result<ShowDocument, Error> {
        let shown = shown_path(path);
        let cannot = |error: std::io::Error| {
            Error::with_source(Code::of_files(&error), format!("cannot read {shown}"), error)
        };
        if std::fs::metadata(path).map_err(cannot)?.len() > DOCUMENT_MAX {
            return Err(Error::new(
                Code::TooLarge,
                format!("{shown} has more than 1 MiB, which is too much for a show"),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        let mut document = ShowDocument::parse(&text).map_err(|error| error.about(&shown))?;
        if document.name.is_empty() {
            document.name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().into();
        }
        is_name(&document.name).map_err(|error| error.about(&shown))?;
        Ok(document)
    }

    fn parse(text: &str) -> Result<ShowDocument, Error> {
        let document: ShowDocument = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            bad(format!("line {line}: {}", error.message().replace('\n', " ")))
        })?;
        if document.streams.is_empty() || document.streams.len() > STREAMS_MAX {
            return Err(bad(format!("a show has 1 to {STREAMS_MAX} streams, each under [[stream]]")));
        }
        for (number, stream) in document.streams.iter().enumerate() {
            if document.streams[..number].iter().any(|other| other.name == stream.name) {
                return Err(bad(format!("two streams have the name {:?}", stream.name)));
            }
        }
        Ok(document)
    }
}

impl StreamEntry {
    /// The plan of this stream. `locate` makes a receiver, and the path behind it, of `to`.
    pub fn plan(
        &self,
        wait: Duration,
        network: NetworkOptions,
        locate: impl FnOnce(&str) -> Result<(DaemonTarget, Vec<u8>), Error>,
    ) -> Result<StreamSendPlan, Error> {
        let plan = || -> Result<StreamSendPlan, Error> {
            is_name(&self.name)?;
            let (mut target, path) = locate(&self.to)?;
            target.fingerprint = self.fingerprint.clone().or(target.fingerprint);
            let path = String::from_utf8(path).unwrap_or_default();
            let far_name = match path.trim_matches('/') {
                "" => self.name.clone(),
                name => name.to_string(),
            };
            is_name(&far_name)?;
            let pace = match self.fps {
                None => Pace::Free,
                Some(fps) if fps > 0.0 && fps <= FPS_MOST => Pace::Fps(fps),
                Some(fps) => {
                    return Err(bad(format!("{fps} frames a second is more or less than can be kept")));
                }
            };
            let rate = |text: &String| {
                amounts::rate(text)
                    .ok_or_else(|| bad(format!("{text:?} is no rate; write bits a second, such as 2G")))
            };
            let rate_bps = self.rate.as_ref().map(rate).transpose()?.or(network.rate_bps);
            let network = NetworkOptions { rate_bps, ..network };
            Ok(StreamSendPlan {
                name: self.name.clone(),
                far_name,
                target,
                source: SourceSpec::parse(&self.from, self.frame.as_deref())?,
                pace,
                deadline: self.deadline.as_deref().map(deadline).transpose()?,
                frames: self.frames,
                wait,
                network,
            })
        };
        plan().map_err(|error| if self.name.is_empty() { error } else { error.about(&self.name) })
    }
}

/// The default place of the sockets by which `farhaul stream stats` asks.
pub(crate) fn runtime_directory() -> PathBuf {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_absolute());
    let user = rustix::process::geteuid().as_raw();
    // One level below /tmp, where nobody else can put another directory in its place.
    of_user.map_or_else(
        || PathBuf::from(format!("/tmp/farhaul-show-{user}")),
        |folder| Path::new(&folder).join("farhaul/show"),
    )
}

/// Judges the name of a show or a stream: it is part of a file's name and of an address.
pub(crate) fn is_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.') {
        true => Ok(()),
        false => {
            let what = format!("{:?} is no name of a stream or a show", escape(name.as_bytes()));
            Err(bad(what)
                .with_hint("a name has 1 to 100 letters, digits, -, _ and ., and does not begin with a dot"))
        }
    }
}

fn deadline(text: &str) -> Result<Duration, Error> {
    let wrong = || bad(format!("{text:?} is no deadline; write a time up to an hour, such as 200ms"));
    time(text).filter(|time| !time.is_zero() && *time <= DEADLINE_LONGEST).ok_or_else(wrong)
}

/// A time such as `200ms`, `1.5s`, `2m` or `3` (seconds); `None` if the text is no time.
pub fn time(text: &str) -> Option<Duration> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.into_iter().find_map(|(name, seconds)| Some((text.strip_suffix(name)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    let is_number = number.starts_with(|first: char| first.is_ascii_digit())
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = number.parse::<f64>().ok().filter(|_| is_number)?;
    Duration::try_from_secs_f64(value * seconds).ok()
}

fn bad(what: String) -> Error {
    Error::new(Code::BadOption, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOW: &str = r#"
[[stream]]
name = "tile-1"
from = "dir:/data/run7"
to = "fh://wall"
fps = 24
deadline = "200ms"

[[stream]]
name = "tile-2"
from = "test:64x48"
to = "fh://wall/left"
rate = "2G"
"#;

    fn plan(entry: &StreamEntry) -> Result<StreamSendPlan, Error> {
        entry.plan(Duration::from_secs(1), NetworkOptions::default(), |to| {
            let rest = to.strip_prefix("fh://").ok_or_else(|| bad(format!("{to:?} is no receiver")))?;
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            Ok((DaemonTarget { host: host.into(), ..DaemonTarget::default() }, path.into()))
        })
    }

    #[test]
    fn a_show_is_a_plan_for_each_stream() {
        let show = ShowDocument::parse(SHOW).unwrap();
        let plans: Vec<_> = show.streams.iter().map(|entry| plan(entry).unwrap()).collect();
        assert_eq!((plans[0].far_name.as_str(), plans[1].far_name.as_str()), ("tile-1", "left"));
        assert_eq!((plans[0].pace, plans[1].pace), (Pace::Fps(24.0), Pace::Free));
        assert_eq!(plans[0].deadline_ns(), Some(200_000_000));
        assert_eq!((plans[1].deadline, plans[1].network.rate_bps), (None, Some(2_000_000_000)));
    }

    #[test]
    fn a_fault_in_a_show_is_one_line_that_says_where() {
        for (from, to, said) in [
            ("fps = 24", "fqs = 24", "line 6: unknown field `fqs`"),
            ("fps = 24", "fps = \"x\"", "line 6: invalid type"),
            ("name = \"tile-2\"", "name = \"tile-1\"", "two streams have the name \"tile-1\""),
        ] {
            let error = ShowDocument::parse(&SHOW.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
        assert!(ShowDocument::parse("name = \"x\"\nstream = []").is_err());
        for (from, to, said) in [
            ("200ms", "2 days", "\"2 days\" is no deadline"),
            ("fps = 24", "fps = 0", "0 frames a second"),
            ("dir:/data", "dyr:/data", "is no source"),
            ("fh://wall\"", "wall\"", "is no receiver"),
            ("tile-1", "tile 1", "\"tile 1\" is no name"),
        ] {
            let show = ShowDocument::parse(&SHOW.replace(from, to)).unwrap();
            let error = plan(&show.streams[0]).unwrap_err();
            assert!(error.code() == Code::BadOption && error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, micros) in
            [("200ms", 200_000), ("1.5s", 1_500_000), ("3", 3_000_000), ("2m", 120_000_000), ("7us", 7)]
        {
            assert_eq!(time(text), Some(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "ms", "-1s", "1x", "inf", "nan", "1e3", ".5"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
