//! What an intake is told when it starts: JSON, made by src/cepheid/service/intake.py.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::decode::{Decoder, Reading};
use super::ids::IdKind;
use crate::log::{Durability, Options, StreamSchema, schema};

/// Where suppliers connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl Address {
    /// From `unix:path` or `tcp:host:port`.
    pub fn parse(text: &str) -> Option<Address> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Address::Unix(path.into())),
            Some(("tcp", address)) if address.contains(':') => Some(Address::Tcp(address.to_owned())),
            _ => None,
        }
    }
}

/// A stream as the intake is told of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// Its name.
    pub name: String,
    /// Name and type of each attribute.
    pub attributes: Vec<(String, String)>,
    /// Other names of attributes in JSON records.
    #[serde(default)]
    pub spellings: Vec<(String, Vec<String>)>,
    /// The kind of its ids; None: as the first event shows.
    pub id: Option<IdKind>,
    /// Whether attributes that are not declared are passed over.
    #[serde(default)]
    pub extras: bool,
    /// Whether its events can wait a moment to be taken together: nothing of the highest level reads them.
    #[serde(default)]
    pub patient: bool,
    /// How far behind the newest event one may come, microseconds.
    #[serde(default)]
    pub lateness: i64,
}

/// The log as the intake is told of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Its folder.
    pub path: PathBuf,
    /// `each`, `none`, or `interval` and microseconds.
    pub durability: String,
    /// When a segment is closed.
    pub segment_bytes: Option<u64>,
    /// What is kept, by size.
    pub retain_bytes: Option<u64>,
    /// What is kept, by age, microseconds.
    pub retain_age: Option<u64>,
    /// Whose commits retention waits for.
    #[serde(default)]
    pub consumers: Vec<String>,
    /// Whether it waits for what lanes of queries would read again after a crash.
    #[serde(default = "default_lanes")]
    pub lanes: bool,
}

fn default_lanes() -> bool {
    true
}

/// Everything.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `unix:path` and `tcp:host:port`.
    pub listen: Vec<String>,
    /// What suppliers from elsewhere must say.
    pub token: Option<String>,
    /// The log.
    pub log: LogConfig,
    /// The streams, in the order of their names.
    pub streams: Vec<StreamConfig>,
    /// The stream of JSON records that name none.
    pub default_stream: Option<String>,
    /// A file to read the streams from again, when asked to.
    #[serde(default)]
    pub reload: Option<PathBuf>,
    /// The real-time priority of the loop, 1 to 99; None: it is scheduled like any other.
    #[serde(default)]
    pub priority: Option<i32>,
    /// The most connections at a time.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// For so many events an id is remembered, and at most for twice as many.
    #[serde(default = "default_duplicates")]
    pub duplicates: usize,
}

fn default_connections() -> usize {
    4096
}

fn default_duplicates() -> usize {
    1 << 19
}

/// Dead letters are kept in a log of their own, up to this size; then the oldest go.
const DEAD_BYTES: u64 = 256 << 20;

impl Config {
    /// From its text; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = serde_json::from_str(text).map_err(|error| format!("the configuration: {error}"))?;
        if let Some(wrong) = config.listen.iter().find(|text| Address::parse(text).is_none()) {
            return Err(format!("'{wrong}' is no address; write unix:path or tcp:host:port"));
        }
        if config.streams.windows(2).any(|pair| pair[0].name >= pair[1].name) {
            return Err("the streams are not in the order of their names".to_owned());
        }
        schema::layouts(&config.schemas())?;
        config.log_options()?;
        Ok(config)
    }

    /// The streams as the log describes them.
    pub fn schemas(&self) -> Vec<StreamSchema> {
        let schema = |stream: &StreamConfig| StreamSchema {
            name: stream.name.clone(),
            attributes: stream.attributes.clone(),
        };
        self.streams.iter().map(schema).collect()
    }

    /// What reads JSON records.
    pub fn decoder(&self) -> Result<Decoder, String> {
        let layouts = schema::layouts(&self.schemas())?;
        let reading = |(stream, schema): (&StreamConfig, _)| Reading {
            name: stream.name.clone(),
            schema,
            attributes: stream.attributes.iter().map(|(name, _)| name.clone()).collect(),
            spellings: stream.spellings.clone(),
            extras: stream.extras,
        };
        let streams = self.streams.iter().zip(layouts).map(reading).collect();
        Ok(Decoder::new(streams, self.default_stream.as_deref()))
    }

    /// How the log is kept.
    pub fn log_options(&self) -> Result<Options, String> {
        let durability = Durability::parse(&self.log.durability)
            .ok_or_else(|| format!("'{}' is no durability: each, interval or none", self.log.durability))?;
        let standard = Options::default();
        Ok(Options {
            durability,
            segment_bytes: self.log.segment_bytes.unwrap_or(standard.segment_bytes),
            retain_bytes: self.log.retain_bytes,
            retain_age: self.log.retain_age.map(Duration::from_micros),
            consumers: self.log.consumers.clone(),
            lanes: self.log.lanes,
            priority: self.priority.map(|priority| (priority - 1).max(1)),
        })
    }

    /// How the log of dead letters is kept.
    pub fn dead_options(&self) -> Result<Options, String> {
        Ok(Options {
            segment_bytes: 8 << 20,
            retain_bytes: Some(DEAD_BYTES),
            retain_age: None,
            consumers: Vec::new(),
            ..self.log_options()?
        })
    }
}
