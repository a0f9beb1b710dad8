//! What runs: streams, operators and consumers as src/cepheid/service/lowering.py writes them, with everything decided.
//!
//! Producers have numbers: the streams in the order of their names, then the operators in the order of the plan.

use crate::json::{Fault, Json, Reading, fault, parse};
use crate::record::{Kind, Schema};

/// What to do with what is no longer, or not together, valid (rule G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Label it and go on.
    Mark,
    /// Let go of it.
    Shed,
}

/// A stream, read by operators or consumers of the service.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// Its name.
    pub name: String,
    /// The rank of its level; 0 is the highest.
    pub level: usize,
    /// How long an event may be used, in microseconds; None is forever.
    pub valid_for: Option<i64>,
    /// The most of its events that can be valid at once.
    pub ring: usize,
    /// Whether an event that was not yet taken gives way to a newer one (rule G5).
    pub replace: bool,
    /// How many events that were not taken can wait.
    pub waiting: usize,
    /// The names of its attributes.
    pub attributes: Vec<String>,
    /// What its records look like.
    pub schema: Schema,
}

/// An operator.
#[derive(Clone, Debug)]
pub struct OperatorSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: String,
    /// The rank of its level.
    pub level: usize,
    /// The numbers of the producers that it reads, in order; one may be there twice.
    pub inputs: Vec<usize>,
    /// Places among the inputs that must have begun so many microseconds apart at most (rule G2).
    pub relative: Vec<(Vec<usize>, i64)>,
    /// Whether each event fires it, instead of all inputs together.
    pub fire_any: bool,
    /// What becomes of inconsistent inputs.
    pub stale: Stale,
    /// The most of its events that can be valid at once.
    pub ring: usize,
    /// How many times it can be ready and not yet have run.
    pub depth: usize,
    /// What is said of it besides.
    pub parameters: Json,
    /// The names of its output's attributes.
    pub attributes: Vec<String>,
    /// What its records look like.
    pub schema: Schema,
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct ConsumerSpec {
    /// Its name.
    pub name: String,
    /// The number of the producer that it reads.
    pub input: usize,
    /// The rank of its level.
    pub level: usize,
    /// What becomes of events that are stale when they are pushed to it.
    pub stale: Stale,
    /// How many events can wait for it; then the oldest goes.
    pub capacity: usize,
}

/// Everything that runs.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The application's name.
    pub name: String,
    /// The levels' names, highest first.
    pub levels: Vec<String>,
    /// The streams, by their numbers.
    pub streams: Vec<StreamSpec>,
    /// The operators, by their positions in the plan.
    pub operators: Vec<OperatorSpec>,
    /// The consumers.
    pub consumers: Vec<ConsumerSpec>,
    /// How many cores processing may use.
    pub cores: usize,
    /// Whether levels preempt each other.
    pub prioritised: bool,
}

fn schema(json: &Json, number: usize) -> Result<(Vec<String>, Schema), Fault> {
    let mut names = Vec::new();
    let mut kinds = Vec::new();
    for attribute in json.member("attributes")?.list()? {
        names.push(attribute.at(0)?.text()?.to_owned());
        let kind = attribute.at(1)?.text()?;
        kinds.push(Kind::parse(kind).map_or_else(|| fault(format!("unknown type '{kind}'")), Ok)?);
    }
    let number = u16::try_from(number).or_else(|_| fault("more than 65,536 streams and operators"))?;
    Ok((names, Schema::new(number, kinds)))
}

fn stale(json: &Json) -> Result<Stale, Fault> {
    match json.member("stale")?.text()? {
        "mark" => Ok(Stale::Mark),
        "shed" => Ok(Stale::Shed),
        other => fault(format!("unknown policy '{other}' for stale events")),
    }
}

fn stream(json: &Json, number: usize) -> Result<StreamSpec, Fault> {
    let (attributes, schema) = schema(json, number)?;
    Ok(StreamSpec {
        name: json.member("name")?.text()?.to_owned(),
        level: json.member("level")?.index()?,
        valid_for: json.member("valid_for")?.optional(Json::int)?,
        ring: json.member("ring")?.index()?.max(1),
        replace: json.member("replace")?.bool()?,
        waiting: json.member("waiting")?.index()?.max(1),
        attributes,
        schema,
    })
}

fn operator(json: &Json, number: usize) -> Result<OperatorSpec, Fault> {
    let (attributes, schema) = schema(json, number)?;
    let relative = |set: &Json| Ok((set.member("inputs")?.each(Json::index)?, set.member("within")?.int()?));
    Ok(OperatorSpec {
        name: json.member("name")?.text()?.to_owned(),
        kind: json.member("kind")?.text()?.to_owned(),
        level: json.member("level")?.index()?,
        inputs: json.member("inputs")?.each(Json::index)?,
        relative: json.member("relative")?.each(relative)?,
        fire_any: json.member("fire")?.text()? == "any",
        stale: stale(json)?,
        ring: json.member("ring")?.index()?.max(1),
        depth: json.member("depth")?.index()?.max(1),
        parameters: json.member("parameters")?.clone(),
        attributes,
        schema,
    })
}

fn consumer(json: &Json) -> Result<ConsumerSpec, Fault> {
    Ok(ConsumerSpec {
        name: json.member("name")?.text()?.to_owned(),
        input: json.member("input")?.index()?,
        level: json.member("level")?.index()?,
        stale: stale(json)?,
        capacity: json.member("capacity")?.index()?.max(1),
    })
}

fn numbered<T>(json: &Json, first: usize, read: impl Fn(&Json, usize) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    let items = json.list()?.iter().enumerate();
    items.map(|(place, item)| read(item, first + place)).collect()
}

impl Spec {
    /// Reads a whole text.
    pub fn read(text: &str) -> Result<Spec, Fault> {
        let json = parse(text)?;
        let streams = numbered(json.member("streams")?, 0, stream)?;
        let operators = numbered(json.member("operators")?, streams.len(), operator)?;
        let spec = Spec {
            name: json.member("name")?.text()?.to_owned(),
            levels: json.member("levels")?.each(|level| Ok(level.text()?.to_owned()))?,
            consumers: json.member("consumers")?.each(consumer)?,
            cores: json.member("cores")?.index()?.max(1),
            prioritised: json.member("prioritised")?.bool()?,
            streams,
            operators,
        };
        spec.check()?;
        Ok(spec)
    }

    /// That numbers are there, and no operator reads itself through others or one of a lower level.
    fn check(&self) -> Result<(), Fault> {
        let producers = self.streams.len() + self.operators.len();
        let ranks = self.streams.iter().map(|s| s.level);
        let ranks: Vec<usize> = ranks.chain(self.operators.iter().map(|o| o.level)).collect();
        if ranks.iter().any(|rank| *rank >= self.levels.len()) {
            return fault("a level is out of range");
        }
        for (place, operator) in self.operators.iter().enumerate() {
            let name = &operator.name;
            let inputs = &operator.inputs;
            if inputs.is_empty() || inputs.iter().any(|input| *input >= producers) {
                return fault(format!("operator '{name}' reads nothing, or what there is not"));
            }
            if inputs
                .iter()
                .any(|input| ranks[*input] > ranks[self.streams.len() + place])
            {
                return fault(format!("operator '{name}' has a higher level than what it reads"));
            }
            let mut places = operator.relative.iter().flat_map(|(places, _)| places);
            if places.any(|place| *place >= inputs.len()) {
                return fault(format!("a relative set of '{name}' has a place that is no input"));
            }
        }
        if self.has_cycle() {
            return fault("operators read each other in a circle");
        }
        let is_off = |c: &ConsumerSpec| c.input >= producers || c.level >= self.levels.len();
        match self.consumers.iter().find(|c| is_off(c)) {
            Some(c) => fault(format!("consumer '{}' reads what there is not", c.name)),
            None => Ok(()),
        }
    }

    fn has_cycle(&self) -> bool {
        let first = self.streams.len();
        let mut done = vec![false; self.operators.len()];
        let mut left = done.len();
        loop {
            let before = left;
            for (place, operator) in self.operators.iter().enumerate() {
                if !done[place] && operator.inputs.iter().all(|i| *i < first || done[*i - first]) {
                    done[place] = true;
                    left -= 1;
                }
            }
            if left == before {
                return left > 0;
            }
        }
    }

    /// The schema of a producer.
    pub fn schema(&self, producer: usize) -> &Schema {
        match self.streams.get(producer) {
            Some(stream) => &stream.schema,
            None => &self.operators[producer - self.streams.len()].schema,
        }
    }

    /// The attributes' names of a producer.
    pub fn attributes(&self, producer: usize) -> &[String] {
        match self.streams.get(producer) {
            Some(stream) => &stream.attributes,
            None => &self.operators[producer - self.streams.len()].attributes,
        }
    }

    /// The name of a producer.
    pub fn name_of(&self, producer: usize) -> &str {
        match self.streams.get(producer) {
            Some(stream) => &stream.name,
            None => &self.operators[producer - self.streams.len()].name,
        }
    }

    /// The rank of a producer's level.
    pub fn level_of(&self, producer: usize) -> usize {
        match self.streams.get(producer) {
            Some(stream) => stream.level,
            None => self.operators[producer - self.streams.len()].level,
        }
    }
}
