//! Reads a tree of layers into the typed struct, by serde.
//!
//! Always true: an error knows the key and where its value stands. An unknown key is noted and skipped, so
//! that one pass finds all of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::fault::{ConfigFault, nearest, shortened};
use super::keys::SCHEMA;
use super::layer::{LayerNode, LayerValue, ValueOrigin, shown_key};

/// A value that does not fit its key, and where it stands.
#[derive(Debug)]
pub(crate) struct Misfit {
    message: String,
    at: Option<(Vec<String>, ValueOrigin)>,
}

impl Misfit {
    fn placed(mut self, key: &[String], origin: &ValueOrigin) -> Misfit {
        self.at.get_or_insert_with(|| (key.to_vec(), origin.clone()));
        self
    }

    /// The fault, and the key to remove so that the rest can be read.
    pub(crate) fn told(self) -> (ConfigFault, Vec<String>) {
        let (key, origin) = self.at.unwrap_or((Vec::new(), ValueOrigin::Default));
        (ConfigFault::new(&origin, shown_key(&key), self.message), key)
    }
}

impl Display for Misfit {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Misfit {}

/// Says in plain words what serde expected.
fn in_words(expected: &dyn de::Expected) -> String {
    match expected.to_string().as_str() {
        "a boolean" => "true or false".into(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "a whole number, 1 or more".into(),
        "a string" => "a text".into(),
        "a sequence" => "a list".into(),
        "a map" => "a table".into(),
        other => other.into(),
    }
}

fn found(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Str(text) => format!("{:?}", shortened(text)),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a table".into(),
        other => other.to_string(),
    }
}

impl de::Error for Misfit {
    fn custom<T: Display>(message: T) -> Misfit {
        Misfit { message: message.to_string(), at: None }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Misfit {
        Misfit::custom(format_args!("expected {}, found {}", in_words(expected), found(unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Misfit {
        Misfit::invalid_type(unexpected, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Misfit {
        let words = expected.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        let meant = nearest(variant, expected.iter().copied())
            .map_or(String::new(), |word| format!("; did you mean {word:?}?"));
        Misfit::custom(format_args!("expected one of {words}, found {:?}{meant}", shortened(variant)))
    }
}

/// Notes that are made while reading.
#[derive(Debug, Default)]
pub(crate) struct ReadingNotes {
    /// Keys that no struct has.
    pub(crate) unknown: RefCell<Vec<ConfigFault>>,
    /// The keys of each struct that was read.
    pub(crate) fields: RefCell<BTreeMap<Vec<String>, &'static [&'static str]>>,
}

pub(crate) struct ValueDeserializer<'a> {
    node: &'a LayerNode,
    key: Vec<String>,
    notes: &'a ReadingNotes,
}

impl<'a> ValueDeserializer<'a> {
    pub(crate) fn new(node: &'a LayerNode, notes: &'a ReadingNotes) -> ValueDeserializer<'a> {
        ValueDeserializer { node, key: Vec::new(), notes }
    }

    fn is_unknown(&self, name: &str, node: &LayerNode, fields: &[&str]) {
        let mut key = self.key.clone();
        key.push(name.to_string());
        let elsewhere = || SCHEMA.iter().find(|section| section.keys.iter().any(|key| key.name == name));
        let meant = match nearest(name, fields.iter().copied()) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => match elsewhere() {
                Some(section) if section.is_named => format!("; there is one in [{}.NAME]", section.name),
                Some(section) => format!("; there is one in [{}]", section.name),
                None => String::new(),
            },
        };
        let what = if self.key.is_empty() { "there is no such table" } else { "there is no such key" };
        self.notes.unknown.borrow_mut().push(ConfigFault::new(
            &node.origin,
            shown_key(&key),
            format!("{what}{meant}"),
        ));
    }

    fn is_table<E: de::Error>(&self) -> Result<&'a BTreeMap<String, LayerNode>, E> {
        match &self.node.value {
            LayerValue::Table(table) => Ok(table),
            other => {
                let name = match self.key.as_slice() {
                    [section] => format!(" [{section}]"),
                    _ => String::new(),
                };
                Err(E::custom(format_args!("expected a table{name}, found {}", kind(other))))
            }
        }
    }
}

fn kind(value: &LayerValue) -> &'static str {
    match value {
        LayerValue::Table(_) => "a table",
        LayerValue::List(_) => "a list",
        LayerValue::String(_) | LayerValue::Text(_) => "a text",
        LayerValue::Integer(_) | LayerValue::Float(_) => "a number",
        LayerValue::Boolean(_) => "true or false",
        LayerValue::Date => "a date",
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
                match &self.node.value {
                    LayerValue::Text(text) => match text.parse::<i64>() {
                        Ok(number) => visitor.visit_i64(number),
                        Err(_) => Err(de::Error::invalid_value(Unexpected::Str(text), &visitor)),
                    },
                    _ => self.deserialize_any(visitor),
                }
            }
        )*
    };
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.node.value {
            LayerValue::Table(table) => visitor.visit_map(Entries::of(&self, table, None)),
            LayerValue::List(items) => visitor.visit_seq(Items { items: items.iter(), reading: &self }),
            LayerValue::String(text) | LayerValue::Text(text) => visitor.visit_str(text),
            LayerValue::Integer(number) => visitor.visit_i64(*number),
            LayerValue::Float(number) => visitor.visit_f64(*number),
            LayerValue::Boolean(value) => visitor.visit_bool(*value),
            LayerValue::Date => Err(de::Error::invalid_type(Unexpected::Other("a date"), &visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.node.value {
            LayerValue::Text(text) => match text.as_str() {
                "true" | "yes" | "on" | "1" => visitor.visit_bool(true),
                "false" | "no" | "off" | "0" => visitor.visit_bool(false),
                text => Err(de::Error::invalid_value(Unexpected::Str(text), &visitor)),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    numbers!(deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
             deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64);

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    /// A single value stands for a list with one entry. In the environment commas separate the entries.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.node.value {
            LayerValue::List(_) | LayerValue::Table(_) => self.deserialize_any(visitor),
            LayerValue::Text(text) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let of_part = |part: &str| LayerNode {
                    value: LayerValue::Text(part.into()),
                    origin: self.node.origin.clone(),
                };
                let items: Vec<LayerNode> = parts.map(of_part).collect();
                visitor.visit_seq(Items { items: items.iter(), reading: &self })
            }
            _ => visitor.visit_seq(Items { items: std::slice::from_ref(self.node).iter(), reading: &self }),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let table = self.is_table()?;
        visitor.visit_map(Entries::of(&self, table, None))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let table = self.is_table()?;
        self.notes.fields.borrow_mut().insert(self.key.clone(), fields);
        for (name, node) in table.iter().filter(|(name, _)| !fields.contains(&name.as_str())) {
            self.is_unknown(name, node, fields);
        }
        visitor.visit_map(Entries::of(&self, table, Some(fields)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match &self.node.value {
            LayerValue::String(text) | LayerValue::Text(text) => {
                let text: StrDeserializer<'_, Misfit> = text.as_str().into_deserializer();
                visitor.visit_enum(text)
            }
            other => {
                let words = variants.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
                Err(de::Error::custom(format_args!("expected one of {words}, found {}", kind(other))))
            }
        }
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// The entries of a table; if `fields` is given, only those.
struct Entries<'a, 'r> {
    reading: &'r ValueDeserializer<'a>,
    left: std::collections::btree_map::Iter<'a, String, LayerNode>,
    fields: Option<&'static [&'static str]>,
    now: Option<(&'a String, &'a LayerNode)>,
}

impl<'a, 'r> Entries<'a, 'r> {
    fn of(
        reading: &'r ValueDeserializer<'a>,
        table: &'a BTreeMap<String, LayerNode>,
        fields: Option<&'static [&'static str]>,
    ) -> Entries<'a, 'r> {
        Entries { reading, left: table.iter(), fields, now: None }
    }

    fn key(&self, name: &str) -> Vec<String> {
        let mut key = self.reading.key.clone();
        key.push(name.to_string());
        key
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let fields = self.fields;
        let is_known = |name: &str| fields.is_none_or(|fields| fields.contains(&name));
        self.now = self.left.by_ref().find(|(name, _)| is_known(name));
        let Some((name, node)) = self.now else { return Ok(None) };
        let text: StringDeserializer<Misfit> = name.clone().into_deserializer();
        seed.deserialize(text).map(Some).map_err(|misfit| misfit.placed(&self.key(name), &node.origin))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let Some((name, node)) = self.now.take() else {
            return Err(de::Error::custom("a value without a key"));
        };
        let key = self.key(name);
        let reading = ValueDeserializer { node, key: key.clone(), notes: self.reading.notes };
        seed.deserialize(reading).map_err(|misfit| misfit.placed(&key, &node.origin))
    }
}

struct Items<'a, 'r> {
    items: std::slice::Iter<'r, LayerNode>,
    reading: &'r ValueDeserializer<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let reading = ValueDeserializer { node, key: self.reading.key.clone(), notes: self.reading.notes };
        let value = seed.deserialize(reading);
        value.map(Some).map_err(|misfit| misfit.placed(&self.reading.key, &node.origin))
    }
}
