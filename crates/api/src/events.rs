//! The events of the node: what happens, as it happens.

use serde::{Deserialize, Serialize};

use crate::{JobProgress, JobView, LogLine};

/// The kinds of events.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumString,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The stream begins.
    Begin,
    /// A job is new or has changed.
    Job,
    /// How far the running jobs are, once a second.
    Progress,
    /// A new line in the log of the job that the reader asks for.
    Log,
    /// A cap has changed, or is gone.
    Cap,
    /// Something has happened in a watched folder.
    Watch,
    /// The reader has missed events.
    Gap,
}

impl EventKind {
    /// The word for it in the stream.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An event, with what it says.
#[derive(Debug, Clone)]
pub enum NodeEvent {
    /// The stream begins. A reader that asks for the state of things after this, and follows on from the
    /// event's id, misses nothing.
    Begin,
    /// A job is new or has changed: as it is now.
    Job(Box<JobView>),
    /// How far the running jobs are.
    Progress(Vec<JobProgress>),
    /// A new line in the log of the job that the reader asks for.
    Log(LogLine),
    /// A cap has changed, or is gone.
    Cap(CapEvent),
    /// Something has happened in a watched folder.
    Watch(WatchEvent),
    /// The reader has missed events and has to ask for the state of things again.
    Gap,
    /// An event of a kind, or with a content, that this program does not know.
    Other,
}

/// A cap that has changed, or is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapEvent {
    /// Its name.
    pub name: String,
    /// True if it is gone.
    #[serde(default)]
    pub removed: bool,
}

/// What has happened in a watched folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// The id of the watch.
    pub id: String,
    /// What has happened: `added`, `removed`, `taken`, `notice`, `failing`, `recovered` and so on.
    pub event: String,
    /// It in words, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl NodeEvent {
    /// Reads an event of this kind with this content. An event that is not known harms nobody.
    pub fn read(kind: &str, data: &str) -> NodeEvent {
        fn of<'a, T: Deserialize<'a>>(data: &'a str, event: fn(T) -> NodeEvent) -> NodeEvent {
            serde_json::from_str(data).map_or(NodeEvent::Other, event)
        }
        match kind.parse() {
            Ok(EventKind::Begin) => NodeEvent::Begin,
            Ok(EventKind::Job) => of(data, |job| NodeEvent::Job(Box::new(job))),
            Ok(EventKind::Progress) => of(data, NodeEvent::Progress),
            Ok(EventKind::Log) => of(data, NodeEvent::Log),
            Ok(EventKind::Cap) => of(data, NodeEvent::Cap),
            Ok(EventKind::Watch) => of(data, NodeEvent::Watch),
            Ok(EventKind::Gap) => NodeEvent::Gap,
            Err(_) => NodeEvent::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_not_known_harms_nobody() {
        assert!(matches!(NodeEvent::read("weather", "{}"), NodeEvent::Other));
        assert!(matches!(NodeEvent::read("job", "[]"), NodeEvent::Other));
        assert!(matches!(NodeEvent::read("gap", "{\"since\": 7}"), NodeEvent::Gap));
        let cap = NodeEvent::read("cap", r#"{"name": "uplink", "removed": true}"#);
        assert!(matches!(cap, NodeEvent::Cap(CapEvent { name, removed: true }) if name == "uplink"));
        let watch = NodeEvent::read("watch", r#"{"id": "1", "event": "taken", "job": "x", "files": 3}"#);
        assert!(matches!(watch, NodeEvent::Watch(WatchEvent { event, .. }) if event == "taken"));
        let line =
            r#"{"job": "x", "seq": 1, "at_ms": 2, "level": "info", "text": "t", "event": {"event": "e"}}"#;
        assert!(
            matches!(NodeEvent::read("log", line), NodeEvent::Log(line) if line.event.get().contains("\"e\""))
        );
    }
}
