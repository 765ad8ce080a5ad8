//! Layers of a configuration: trees of values, each of which knows where it stands.
//!
//! Always true: a value keeps the origin that it was read with; the stronger of two layers wins key by key,
//! and replaces lists as a whole.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::fault::{ConfigFault, shortened};

/// Where a value comes from. Faults are sorted in this order: files come first, in the order in which they
/// are read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueOrigin {
    /// A line of a file; line 0 stands for the whole file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// An option of the command line.
    Flag(String),
    /// Built in.
    Default,
}

impl Display for ValueOrigin {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ValueOrigin::File { path, line: 0 } => write!(formatter, "{}", path.display()),
            ValueOrigin::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            ValueOrigin::Environment(name) => write!(formatter, "environment {name}"),
            ValueOrigin::Flag(name) => write!(formatter, "command line {name}"),
            ValueOrigin::Default => formatter.write_str("default"),
        }
    }
}

/// A value, with where it stands.
#[derive(Debug, Clone)]
pub(crate) struct LayerNode {
    pub(crate) value: LayerValue,
    pub(crate) origin: ValueOrigin,
}

#[derive(Debug, Clone)]
pub(crate) enum LayerValue {
    Table(BTreeMap<String, LayerNode>),
    List(Vec<LayerNode>),
    String(String),
    /// A text of the environment or the command line. The type of the key decides how it is read.
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Date,
}

impl LayerNode {
    pub(crate) fn empty() -> LayerNode {
        LayerNode { value: LayerValue::Table(BTreeMap::new()), origin: ValueOrigin::Default }
    }

    /// Lays a stronger layer over this one.
    pub(crate) fn merge(&mut self, stronger: LayerNode) {
        match (&mut self.value, stronger.value) {
            (LayerValue::Table(own), LayerValue::Table(others)) => {
                for (key, other) in others {
                    match own.get_mut(&key) {
                        Some(node) => node.merge(other),
                        None => drop(own.insert(key, other)),
                    }
                }
            }
            (_, value) => *self = LayerNode { value, origin: stronger.origin },
        }
    }

    /// Puts a value at a key, and makes the tables on the way.
    pub(crate) fn put(&mut self, key: &[&str], node: LayerNode) {
        let mut node = node;
        for part in key.iter().rev() {
            let origin = node.origin.clone();
            node =
                LayerNode { value: LayerValue::Table(BTreeMap::from([((*part).to_string(), node)])), origin };
        }
        self.merge(node);
    }

    pub(crate) fn get(&self, key: &[String]) -> Option<&LayerNode> {
        let Some((first, rest)) = key.split_first() else { return Some(self) };
        match &self.value {
            LayerValue::Table(table) => table.get(first)?.get(rest),
            _ => None,
        }
    }

    /// Removes a key. Yields whether it was there.
    pub(crate) fn remove(&mut self, key: &[String]) -> bool {
        let LayerValue::Table(table) = &mut self.value else { return false };
        match key {
            [] => false,
            [last] => table.remove(last).is_some(),
            [first, rest @ ..] => table.get_mut(first).is_some_and(|node| node.remove(rest)),
        }
    }

    /// Where the value of a key stands, or else the nearest table above it.
    pub(crate) fn origin_of(&self, key: &[String]) -> ValueOrigin {
        let nodes = (1..=key.len()).rev().map(|len| self.get(&key[..len]));
        nodes.flatten().next().map_or(ValueOrigin::Default, |node| node.origin.clone())
    }
}

/// Parses one file. The error has all its faults of syntax.
pub(crate) fn parse(path: &Path, text: &str) -> Result<LayerNode, Vec<ConfigFault>> {
    let path: Arc<Path> = path.into();
    let lines = Lines::of(text);
    let at = |offset: usize| ValueOrigin::File { path: path.clone(), line: lines.of_offset(offset) };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut faults: Vec<ConfigFault> = errors
        .iter()
        .map(|error| {
            let message = format!("this is not TOML: {}", error.message().trim().replace('\n', ", "));
            ConfigFault::new(&at(error.span().map_or(0, |span| span.start)), "", message)
        })
        .collect();
    // Further faults of a line follow from its first one and are dropped.
    faults.dedup_by(|next, first| next.origin == first.origin);
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut reader = Reader { at: &at, faults: Vec::new(), key: Vec::new() };
    let value = reader.table(table.get_ref());
    match reader.faults.is_empty() {
        true => Ok(LayerNode { value, origin: ValueOrigin::File { path, line: 0 } }),
        false => Err(reader.faults),
    }
}

/// The offsets at which the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines(ends.map(|(at, _)| at + 1).collect())
    }

    fn of_offset(&self, offset: usize) -> usize {
        1 + self.0.partition_point(|&start| start <= offset)
    }
}

struct Reader<'a> {
    at: &'a dyn Fn(usize) -> ValueOrigin,
    faults: Vec<ConfigFault>,
    key: Vec<String>,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> LayerValue {
        let mut nodes = BTreeMap::new();
        for (name, value) in table.iter() {
            let origin = (self.at)(name.span().start);
            let name = name.get_ref().to_string();
            self.key.push(name.clone());
            let value = self.value(value.get_ref(), &origin);
            self.key.pop();
            nodes.insert(name, LayerNode { value, origin });
        }
        LayerValue::Table(nodes)
    }

    fn value(&mut self, value: &DeValue<'_>, origin: &ValueOrigin) -> LayerValue {
        match value {
            DeValue::String(text) => LayerValue::String(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => LayerValue::Integer(number),
                Err(_) => self.fault(origin, number.as_str()),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => LayerValue::Float(number),
                Err(_) => self.fault(origin, number.as_str()),
            },
            DeValue::Boolean(value) => LayerValue::Boolean(*value),
            DeValue::Datetime(_) => LayerValue::Date,
            DeValue::Array(items) => {
                let items = items.iter().map(|item| {
                    let origin = (self.at)(item.span().start);
                    LayerNode { value: self.value(item.get_ref(), &origin), origin }
                });
                LayerValue::List(items.collect())
            }
            DeValue::Table(table) => self.table(table),
        }
    }

    fn fault(&mut self, origin: &ValueOrigin, number: &str) -> LayerValue {
        let message = format!("{} is too large a number", shortened(number));
        self.faults.push(ConfigFault::new(origin, shown_key(&self.key), message));
        LayerValue::Integer(0)
    }
}

/// A key in the notation of TOML.
pub(crate) fn shown_key(key: &[String]) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let parts = key.iter().map(|part| match !part.is_empty() && part.bytes().all(is_bare) {
        true => shortened(part),
        false => format!("{:?}", shortened(part)),
    });
    parts.collect::<Vec<_>>().join(".")
}
