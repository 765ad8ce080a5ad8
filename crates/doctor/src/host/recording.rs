//! A recording: one text file with everything that the checks read of a machine, which stands for the machine.
//!
//! A line is `PLACE = VALUE`, `PLACE -> TARGET` for a link, or `PLACE = !denied`. A text of several lines stands below
//! `PLACE =`, each line behind `| `. Lines that begin with `#` are comments. Directories need no lines: they hold
//! the names of what lies below them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Host, Unseen, scrub, split};
use crate::Error;

/// The name of the file in a recording's directory.
const FILE: &str = "host.txt";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Text(String),
    Link(String),
    Denied,
}

/// A machine as it was recorded.
#[derive(Debug, Default)]
pub struct Recording {
    entries: RefCell<BTreeMap<String, Entry>>,
    comments: Vec<String>,
}

impl Recording {
    /// Reads the recording in a directory.
    pub fn open(directory: &Path) -> Result<Recording, Error> {
        let path = directory.join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| Error::recording(&path, &error))?;
        let mut recording = Recording::default();
        recording
            .add(&text)
            .map_err(|reason| Error::Recording { path: path.display().to_string(), reason })?;
        Ok(recording)
    }

    /// Adds lines; an entry replaces the one that is there, and `PLACE = !absent` takes it away.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let entries = self.entries.get_mut();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            if line.trim().is_empty() {
            } else if let Some(comment) = line.strip_prefix('#') {
                self.comments.push(comment.trim().to_owned());
            } else if let Some((place, target)) = line.split_once(" -> ") {
                entries.insert(place.to_owned(), Entry::Link(target.trim().to_owned()));
            } else if let Some((place, value)) = line.split_once(" =") {
                let entry = match value.trim() {
                    "!denied" => Entry::Denied,
                    "!absent" => {
                        entries.remove(place);
                        continue;
                    }
                    "" => {
                        let mut text = String::new();
                        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with('|')) {
                            text.push_str(line.strip_prefix("| ").unwrap_or(&line[1..]));
                            text.push('\n');
                        }
                        Entry::Text(text)
                    }
                    value => Entry::Text(format!("{value}\n")),
                };
                entries.insert(place.to_owned(), entry);
            } else {
                return Err(format!("line {} is no entry: {line}", number + 1));
            }
        }
        Ok(())
    }

    /// The comments, without their `#`.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }
}

impl Host for Recording {
    fn read(&self, place: &str) -> Result<String, Unseen> {
        match self.entries.borrow().get(place) {
            Some(Entry::Text(text)) => Ok(text.clone()),
            Some(Entry::Denied) => Err(Unseen::Denied),
            Some(Entry::Link(_)) | None => Err(Unseen::Absent),
        }
    }

    fn list(&self, place: &str) -> Vec<String> {
        let below = format!("{place}/");
        let entries = self.entries.borrow();
        let names: BTreeSet<&str> = entries
            .range(below.clone()..)
            .map_while(|(path, _)| path.strip_prefix(&below))
            .filter_map(|rest| rest.split('/').next())
            .collect();
        names.into_iter().map(str::to_owned).collect()
    }

    fn link(&self, place: &str) -> Option<String> {
        match self.entries.borrow().get(place) {
            Some(Entry::Link(target)) => Some(target.clone()),
            _ => None,
        }
    }

    fn write(&self, place: &str, value: &str) -> Result<(), Error> {
        let (file, key) = split(place);
        let mut entries = self.entries.borrow_mut();
        let Some(Entry::Text(text)) = entries.get_mut(file) else {
            return Err(Error::not_set(place, value, "there is no such setting"));
        };
        *text = match key {
            None => format!("{value}\n"),
            Some(key) => text
                .lines()
                .map(|line| match line.split_once(' ') {
                    Some((name, _)) if name == key => format!("{key} {value}\n"),
                    _ => format!("{line}\n"),
                })
                .collect(),
        };
        Ok(())
    }
}

/// Passes everything on to a host, and keeps what it has said.
pub struct Recorder<'a> {
    host: &'a dyn Host,
    entries: RefCell<BTreeMap<String, Entry>>,
    /// What was read, as some answers take the host a while.
    answers: RefCell<BTreeMap<String, Result<String, Unseen>>>,
}

impl<'a> Recorder<'a> {
    /// Begins a recording of this host.
    pub fn of(host: &'a dyn Host) -> Recorder<'a> {
        Recorder { host, entries: RefCell::default(), answers: RefCell::default() }
    }

    /// Writes what was read to a directory, which is made, without what names the machine or its owner. Returns the
    /// file.
    pub fn save(&self, directory: &Path) -> Result<PathBuf, Error> {
        let path = directory.join(FILE);
        fs::create_dir_all(directory).map_err(|error| Error::recording(directory, &error))?;
        fs::write(&path, self.text()).map_err(|error| Error::recording(&path, &error))?;
        Ok(path)
    }

    fn text(&self) -> String {
        let mut out = String::from(
            "# What: (say in one line what kind of machine this is)\n# Finds: \n# Not: \n\
             # Recorded by `farhaul doctor`, without serial numbers, addresses and names. Read it before you publish it.\n\n",
        );
        for (place, entry) in self.entries.borrow().iter() {
            let place = scrub::text(place);
            match entry {
                Entry::Denied => out.push_str(&format!("{place} = !denied\n")),
                Entry::Link(target) => out.push_str(&format!("{place} -> {}\n", scrub::text(target))),
                Entry::Text(text) => {
                    let text = scrub::content(&place, text);
                    match text.lines().collect::<Vec<_>>()[..] {
                        [] => out.push_str(&format!("{place} =\n")),
                        [line] if !line.trim().is_empty() => out.push_str(&format!("{place} = {line}\n")),
                        ref lines => {
                            out.push_str(&format!("{place} =\n"));
                            lines.iter().for_each(|line| out.push_str(&format!("| {line}\n")));
                        }
                    }
                }
            }
        }
        out
    }
}

impl Host for Recorder<'_> {
    fn read(&self, place: &str) -> Result<String, Unseen> {
        if let Some(answer) = self.answers.borrow().get(place) {
            return answer.clone();
        }
        let answer = self.host.read(place);
        self.answers.borrow_mut().insert(place.to_owned(), answer.clone());
        let entry = match &answer {
            Ok(text) => Entry::Text(text.clone()),
            Err(Unseen::Denied) => Entry::Denied,
            Err(Unseen::Absent) => return answer,
        };
        self.entries.borrow_mut().insert(place.to_owned(), entry);
        answer
    }

    fn list(&self, place: &str) -> Vec<String> {
        let names = self.host.list(place);
        let mut entries = self.entries.borrow_mut();
        for name in &names {
            entries.entry(format!("{place}/{name}")).or_insert(Entry::Text(String::new()));
        }
        names
    }

    fn link(&self, place: &str) -> Option<String> {
        let target = self.host.link(place)?;
        self.entries.borrow_mut().insert(place.to_owned(), Entry::Link(target.clone()));
        Some(target)
    }

    fn write(&self, place: &str, value: &str) -> Result<(), Error> {
        self.host.write(place, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# a machine\nproc/a = 1\nproc/dir/b =\n| x 1\n| y 2 3\nsys/l -> ../t\nproc/secret = !denied\n";

    fn recording() -> Recording {
        let mut recording = Recording::default();
        recording.add(TEXT).unwrap();
        recording
    }

    #[test]
    fn a_recording_reads_like_the_machine() {
        let host = recording();
        assert_eq!(host.read("proc/a"), Ok("1\n".into()));
        assert_eq!(host.read("proc/secret"), Err(Unseen::Denied));
        assert_eq!(host.read("proc/none"), Err(Unseen::Absent));
        assert_eq!(host.list("proc"), ["a", "dir", "secret"]);
        assert_eq!(host.link("sys/l").as_deref(), Some("../t"));
        assert_eq!(super::super::value(&host, "proc/dir/b#y").as_deref(), Some("2 3"));
        host.write("proc/dir/b#y", "4").unwrap();
        assert_eq!(host.read("proc/dir/b"), Ok("x 1\ny 4\n".into()));
        assert!(host.write("proc/none", "4").is_err());
    }

    #[test]
    fn what_a_recorder_saves_is_what_was_read() {
        let host = recording();
        let recorder = Recorder::of(&host);
        recorder.read("proc/dir/b").unwrap();
        recorder.read("proc/secret").unwrap_err();
        recorder.link("sys/l");
        let folder = tempfile::tempdir().unwrap();
        recorder.save(folder.path()).unwrap();
        let again = Recording::open(folder.path()).unwrap();
        assert_eq!(again.read("proc/dir/b"), host.read("proc/dir/b"));
        assert_eq!(again.read("proc/secret"), Err(Unseen::Denied));
        assert_eq!(again.link("sys/l"), host.link("sys/l"));
        assert_eq!(again.read("proc/a"), Err(Unseen::Absent), "it was not read");
    }

    #[test]
    fn a_line_that_is_no_entry_is_named() {
        assert_eq!(Recording::default().add("proc/a 1"), Err("line 1 is no entry: proc/a 1".into()));
    }
}
