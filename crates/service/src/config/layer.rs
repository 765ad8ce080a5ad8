//! Layers of a configuration: trees of values, each of which knows where it stands.
//!
//! Always true: a value keeps the origin that it was read at; of two layers the stronger one has its way key
//! by key, lists as a whole.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::fault::{Fault, shortened};

/// Where a value comes from. The order is that of faults: files first, as they are read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line of a file; 0 is the file as a whole.
    File {
        /// The file.
        path: Arc<Path>,
        /// Counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// An option of the command line.
    Flag(String),
    /// Built in.
    Default,
}

impl Display for Origin {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line: 0 } => write!(formatter, "{}", path.display()),
            Origin::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(formatter, "environment {name}"),
            Origin::Flag(name) => write!(formatter, "command line {name}"),
            Origin::Default => formatter.write_str("default"),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Table(BTreeMap<String, Node>),
    List(Vec<Node>),
    String(String),
    /// Of the environment or the command line: the key's type says how it is read.
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Date,
}

impl Node {
    pub(crate) fn empty() -> Node {
        Node { value: Value::Table(BTreeMap::new()), origin: Origin::Default }
    }

    /// Lays a stronger layer over this one.
    pub(crate) fn merge(&mut self, stronger: Node) {
        match (&mut self.value, stronger.value) {
            (Value::Table(own), Value::Table(others)) => {
                for (key, other) in others {
                    match own.get_mut(&key) {
                        Some(node) => node.merge(other),
                        None => drop(own.insert(key, other)),
                    }
                }
            }
            (_, value) => *self = Node { value, origin: stronger.origin },
        }
    }

    /// Puts a value at a key, with the tables on the way.
    pub(crate) fn put(&mut self, key: &[&str], node: Node) {
        let mut node = node;
        for part in key.iter().rev() {
            let origin = node.origin.clone();
            node = Node { value: Value::Table(BTreeMap::from([((*part).to_string(), node)])), origin };
        }
        self.merge(node);
    }

    pub(crate) fn get(&self, key: &[String]) -> Option<&Node> {
        let Some((first, rest)) = key.split_first() else { return Some(self) };
        match &self.value {
            Value::Table(table) => table.get(first)?.get(rest),
            _ => None,
        }
    }

    /// Takes a key out; says whether it was there.
    pub(crate) fn remove(&mut self, key: &[String]) -> bool {
        let Value::Table(table) = &mut self.value else { return false };
        match key {
            [] => false,
            [last] => table.remove(last).is_some(),
            [first, rest @ ..] => table.get_mut(first).is_some_and(|node| node.remove(rest)),
        }
    }

    /// Where the value of a key stands, or the nearest table on the way that stands anywhere.
    pub(crate) fn origin_of(&self, key: &[String]) -> Origin {
        let nodes = (1..=key.len()).rev().map(|len| self.get(&key[..len]));
        nodes.flatten().next().map_or(Origin::Default, |node| node.origin.clone())
    }
}

/// One file, or all that is wrong with its syntax.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Node, Vec<Fault>> {
    let path: Arc<Path> = path.into();
    let lines = Lines::of(text);
    let at = |offset: usize| Origin::File { path: path.clone(), line: lines.of_offset(offset) };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut faults: Vec<Fault> = errors
        .iter()
        .map(|error| {
            let message = format!("this is no TOML: {}", error.message().trim().replace('\n', ", "));
            Fault::new(&at(error.span().map_or(0, |span| span.start)), "", message)
        })
        .collect();
    // What follows from the first fault of a line says nothing new.
    faults.dedup_by(|next, first| next.origin == first.origin);
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut reader = Reader { at: &at, faults: Vec::new(), key: Vec::new() };
    let value = reader.table(table.get_ref());
    match reader.faults.is_empty() {
        true => Ok(Node { value, origin: Origin::File { path, line: 0 } }),
        false => Err(reader.faults),
    }
}

/// Where the lines of a text begin.
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
    at: &'a dyn Fn(usize) -> Origin,
    faults: Vec<Fault>,
    key: Vec<String>,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> Value {
        let mut nodes = BTreeMap::new();
        for (name, value) in table.iter() {
            let origin = (self.at)(name.span().start);
            let name = name.get_ref().to_string();
            self.key.push(name.clone());
            let value = self.value(value.get_ref(), &origin);
            self.key.pop();
            nodes.insert(name, Node { value, origin });
        }
        Value::Table(nodes)
    }

    fn value(&mut self, value: &DeValue<'_>, origin: &Origin) -> Value {
        match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => self.fault(origin, number.as_str()),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Value::Float(number),
                Err(_) => self.fault(origin, number.as_str()),
            },
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => {
                let items = items.iter().map(|item| {
                    let origin = (self.at)(item.span().start);
                    Node { value: self.value(item.get_ref(), &origin), origin }
                });
                Value::List(items.collect())
            }
            DeValue::Table(table) => self.table(table),
        }
    }

    fn fault(&mut self, origin: &Origin, number: &str) -> Value {
        let message = format!("{} is too large a number", shortened(number));
        self.faults.push(Fault::new(origin, shown_key(&self.key), message));
        Value::Integer(0)
    }
}

/// A key as TOML has it.
pub(crate) fn shown_key(key: &[String]) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let parts = key.iter().map(|part| match !part.is_empty() && part.bytes().all(is_bare) {
        true => shortened(part),
        false => format!("{:?}", shortened(part)),
    });
    parts.collect::<Vec<_>>().join(".")
}
