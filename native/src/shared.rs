//! What queries that stand together have in common, found before they run: equal patterns are one, and patterns that
//! begin alike go on from one (prefix.rs) or hold their events together (branches.rs).
//!
//! Two patterns are equal if all that decides what matches is: streams, FILTERs, JOINs, SEQ, WINDOWs, WITHIN, GROUP BY,
//! MATCH, AFTER MATCH and the budget; names of variables, SELECT and HAVING may differ.

use std::collections::HashMap;
use std::sync::Arc;

use crate::branches::{self, Part};
use crate::expr::{Attribute, Expr, Slot};
use crate::matcher::Budget;
use crate::plan::{Head, Join, Output, Plan, Span, Step};
use crate::prefix;

/// A query as it is given.
#[derive(Clone, Debug)]
pub struct Given {
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Its budget.
    pub budget: Option<Budget>,
    /// Whether its matcher is eager.
    pub eager: bool,
}

/// Where a variable's events are in a match of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Bound to this variable of the pattern.
    Own(usize),
    /// This part of the row that the pattern goes on from.
    Part(usize),
}

/// Who reads the matches of a head, and where it finds its variables.
#[derive(Debug)]
pub struct Reads {
    /// The query; None: the patterns that go on from here.
    pub query: Option<usize>,
    /// By variable of the query, or by step of the pattern.
    pub places: Vec<Place>,
}

impl Reads {
    /// Whether it finds each variable where the pattern has it.
    pub fn is_in_order(&self) -> bool {
        let mut places = self.places.iter().enumerate();
        places.all(|(variable, place)| *place == Place::Own(variable))
    }
}

/// Where a pattern gets its first steps from.
#[derive(Debug)]
pub struct Source {
    /// The pattern, before this one.
    pub pattern: usize,
    /// The number of steps that are done there.
    pub steps: usize,
    /// By slot of the inner stream: the output of the source's head for that.
    pub values: Vec<usize>,
    /// By stream of the source: the same one here.
    pub streams: Vec<u16>,
}

/// A pattern, or a moving window, that runs once for all who need it.
#[derive(Debug)]
pub struct Pattern {
    /// Its plan, with a head for each reader.
    pub plan: Plan,
    /// Its budget.
    pub budget: Option<Budget>,
    /// Whether its matcher is eager.
    pub eager: bool,
    /// By head.
    pub reads: Vec<Reads>,
    /// Where its first steps are done, if elsewhere.
    pub source: Option<Source>,
    /// Where its plan has branches: what these have in common.
    pub parts: Vec<Part>,
}

/// The patterns of queries, those that others go on from first.
pub fn patterns(queries: &[Given]) -> Vec<Pattern> {
    let names = Names::of(queries);
    let mut found: Vec<Pattern> = Vec::new();
    let mut places: HashMap<usize, usize> = HashMap::new();
    for ((number, query), first) in queries.iter().enumerate().zip(equal(&names, queries)) {
        match places.get(&first) {
            Some(&place) => found[place].join(number, &query.plan),
            None => {
                places.insert(first, found.len());
                found.push(Pattern::of(number, query));
            }
        }
    }
    let mut found = branches::share(&names, found);
    share_beginnings(&names, &mut found);
    let without_branches = found.iter_mut().filter(|pattern| pattern.plan.branches.is_empty());
    without_branches.for_each(|pattern| pattern.plan.settle());
    in_order(found)
}

/// By query, the first one whose pattern is equal to its own.
pub fn firsts(queries: &[Given]) -> Vec<usize> {
    equal(&Names::of(queries), queries)
}

fn equal(names: &Names, queries: &[Given]) -> Vec<usize> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let text = |number: usize, query: &Given| {
        if query.plan.follows {
            // What is known of events is the query's own, and may change.
            number.to_string()
        } else {
            format!("{:?} {} {}", query.budget, query.eager, names.body(&query.plan, None))
        }
    };
    let numbered = queries.iter().enumerate();
    numbered
        .map(|(number, query)| *known.entry(text(number, query)).or_insert(number))
        .collect()
}

/// Streams and attributes by their names, so that plans compare.
pub(crate) struct Names {
    streams: HashMap<Arc<str>, usize>,
    attributes: HashMap<String, usize>,
}

impl Names {
    fn of(queries: &[Given]) -> Names {
        let mut names = Names {
            streams: HashMap::new(),
            attributes: HashMap::new(),
        };
        for stream in queries.iter().flat_map(|query| &query.plan.streams) {
            let next = names.streams.len();
            names.streams.entry(Arc::clone(&stream.name)).or_insert(next);
            for attribute in &stream.attributes {
                let next = names.attributes.len();
                names.attributes.entry(attribute.clone()).or_insert(next);
            }
        }
        names
    }

    fn stream(&self, plan: &Plan, stream: usize) -> usize {
        self.streams.get(&plan.streams[stream].name).copied().unwrap_or(0)
    }

    /// An expression as text that is the same in every plan.
    fn text(&self, plan: &Plan, order: &[usize], expression: &Expr) -> String {
        let mut expression = expression.clone();
        expression.rewrite(&mut |part| {
            if let Expr::Attribute(attribute) = part {
                *attribute = self.attribute(plan, order, attribute);
            }
        });
        format!("{expression:?}")
    }

    fn attribute(&self, plan: &Plan, order: &[usize], attribute: &Attribute) -> Attribute {
        let mut slots = vec![Slot::Missing; self.streams.len()];
        for (stream, slot) in attribute.slots.iter().enumerate() {
            slots[self.stream(plan, stream)] = match slot {
                Slot::At(slot) => {
                    let name = &plan.streams[stream].attributes[*slot];
                    Slot::At(self.attributes.get(name).copied().unwrap_or(0))
                }
                other => *other,
            };
        }
        let variable = order.iter().position(|v| *v == attribute.variable);
        Attribute {
            variable: variable.unwrap_or(attribute.variable),
            slots: slots.into(),
            float: attribute.float,
        }
    }

    /// What makes an event one of each of a plan's steps, and how it is divided by key: a text a step.
    pub(crate) fn steps(&self, plan: &Plan) -> Vec<String> {
        let variable = |v: &usize| {
            let own = &plan.variables[*v];
            let key = own.key.as_ref();
            let key = key.map(|key| {
                key.iter()
                    .map(|part| self.attribute(plan, &[*v], part))
                    .collect::<Vec<_>>()
            });
            (self.events(plan, &[*v], *v), key)
        };
        let steps = plan.steps.iter();
        let text = |step: &Step| {
            let variables: Vec<_> = step.variables.iter().map(variable).collect();
            format!("{:?}", (step.role, step.least, step.most, variables))
        };
        steps.map(text).collect()
    }

    /// What makes an event one of a variable: streams and conditions.
    fn events(&self, plan: &Plan, order: &[usize], variable: usize) -> (Vec<usize>, Vec<String>) {
        let own = &plan.variables[variable];
        let streams = own.streams.iter().map(|s| self.stream(plan, *s));
        let filters = own.filters.iter().flat_map(Expr::conjuncts);
        (
            sorted(streams),
            sorted(filters.map(|filter| self.text(plan, order, filter))),
        )
    }

    /// All that decides what matches; with a number of steps, for these by themselves.
    fn body(&self, plan: &Plan, steps: Option<usize>) -> String {
        let order = match steps {
            Some(steps) => prefix::beginners(plan, steps),
            None => in_step_order(plan),
        };
        let is_whole = steps.is_none_or(|steps| steps == plan.steps.len());
        let inside = order.iter().fold(0u64, |mask, v| mask | 1 << v);
        let place = |v: &usize| order.iter().position(|own| own == v);
        let taken = &plan.steps[..steps.unwrap_or(plan.steps.len())];
        let taken: Vec<_> = taken
            .iter()
            .map(|step| {
                let variables: Vec<_> = step.variables.iter().map(place).collect();
                (step.role, variables, step.least, step.most)
            })
            .collect();
        let window = |window: Span| {
            let mut variables = window.variables;
            variables.sort_unstable();
            (variables, window.width)
        };
        let windows = prefix::windows_among(plan, &order).into_iter().map(window);
        let judged = |join: &&Join| join.variables & !inside == 0 && (is_whole || join.variables != 0);
        let joins = plan.joins.iter().filter(judged);
        let group = plan.group_by.iter();
        let group: Vec<_> = group.map(|attribute| self.attribute(plan, &order, attribute)).collect();
        format!(
            "{:?}",
            (
                (plan.within, plan.policy, plan.after, plan.moving, group),
                taken,
                sorted(windows),
                sorted(joins.map(|join| self.text(plan, &order, &join.condition))),
                order.iter().map(|v| self.events(plan, &order, *v)).collect::<Vec<_>>(),
            )
        )
    }
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// The variables, those of SEQ first, in its order.
fn in_step_order(plan: &Plan) -> Vec<usize> {
    let outside = (0..plan.variables.len()).filter(|&v| plan.variables[v].step.is_none());
    prefix::beginners(plan, plan.steps.len())
        .into_iter()
        .chain(outside)
        .collect()
}

impl Pattern {
    fn of(number: usize, query: &Given) -> Pattern {
        let places = (0..query.plan.variables.len()).map(Place::Own).collect();
        Pattern {
            plan: Plan::clone(&query.plan),
            budget: query.budget,
            eager: query.eager,
            reads: vec![Reads {
                query: Some(number),
                places,
            }],
            source: None,
            parts: Vec::new(),
        }
    }

    /// Takes the head of a query with an equal pattern.
    fn join(&mut self, number: usize, query: &Plan) {
        let (own, theirs) = (in_step_order(&self.plan), in_step_order(query));
        let mut variables = vec![0; own.len()];
        own.iter()
            .zip(&theirs)
            .for_each(|(own, theirs)| variables[*theirs] = *own);
        let aggregates: Vec<usize> = query
            .aggregates
            .iter()
            .map(|aggregate| {
                let mut aggregate = aggregate.clone();
                aggregate.variable = variables[aggregate.variable];
                if let Some(argument) = &mut aggregate.argument {
                    self.adopt(query, &variables, &[], argument);
                }
                let same = |known: &_| format!("{known:?}") == format!("{aggregate:?}");
                self.plan.aggregates.iter().position(same).unwrap_or_else(|| {
                    self.plan.aggregates.push(aggregate);
                    self.plan.aggregates.len() - 1
                })
            })
            .collect();
        for head in &query.heads {
            let mut head = head.clone();
            for output in &mut head.outputs {
                self.adopt(query, &variables, &aggregates, &mut output.expression);
                let condition = output.condition.iter_mut();
                condition.for_each(|condition| self.adopt(query, &variables, &aggregates, condition));
            }
            let having = head.having.iter_mut();
            having.for_each(|having| self.adopt(query, &variables, &aggregates, having));
            self.plan.heads.push(head);
        }
        self.reads.push(Reads {
            query: Some(number),
            places: variables.into_iter().map(Place::Own).collect(),
        });
    }

    /// Makes an expression of another plan one of this.
    fn adopt(&mut self, other: &Plan, variables: &[usize], aggregates: &[usize], expression: &mut Expr) {
        expression.rewrite(&mut |part| match part {
            Expr::Attribute(attribute) => *attribute = self.adopted(other, variables, attribute),
            Expr::Aggregate(number) => *number = aggregates.get(*number).copied().unwrap_or(*number),
            _ => {}
        });
    }

    /// An attribute of another plan as one of this: streams and attributes go by their names.
    pub(crate) fn adopted(&mut self, other: &Plan, variables: &[usize], attribute: &Attribute) -> Attribute {
        let mut slots = vec![Slot::Missing; self.plan.streams.len()];
        for (own, slot) in self.plan.streams.iter_mut().zip(&mut slots) {
            let Some(place) = other.streams.iter().position(|stream| stream.name == own.name) else {
                continue;
            };
            *slot = match attribute.slots.get(place) {
                Some(Slot::At(at)) => {
                    let name = &other.streams[place].attributes[*at];
                    let known = own.attributes.iter().position(|known| known == name);
                    Slot::At(known.unwrap_or_else(|| {
                        own.attributes.push(name.clone());
                        own.attributes.len() - 1
                    }))
                }
                Some(other) => *other,
                None => Slot::Missing,
            };
        }
        Attribute {
            variable: variables[attribute.variable],
            slots: slots.into(),
            float: attribute.float,
        }
    }

    /// Its steps, if a beginning can be shared: how many.
    fn shareable(&self) -> usize {
        // A budget counts what a query holds by itself.
        let free = self.budget.is_none() && self.source.is_none() && !self.plan.follows;
        if free { prefix::longest_beginning(&self.plan) } else { 0 }
    }

    /// The number of the head that other patterns go on from, made if need be.
    fn feeding_head(&mut self) -> usize {
        let known = self.reads.iter().position(|reads| reads.query.is_none());
        known.unwrap_or_else(|| {
            let places = prefix::beginners(&self.plan, self.plan.steps.len());
            self.reads.push(Reads {
                query: None,
                places: places.into_iter().map(Place::Own).collect(),
            });
            self.plan.heads.push(Head {
                outputs: Vec::new(),
                having: None,
            });
            self.plan.heads.len() - 1
        })
    }
}

/// Lets patterns that begin alike go on from one. The longest beginnings first; what they are then may have a shorter one
/// in common.
fn share_beginnings(names: &Names, patterns: &mut Vec<Pattern>) {
    let longest = patterns.iter().map(Pattern::shareable).max().unwrap_or(0);
    for steps in (2..=longest).rev() {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (number, pattern) in patterns.iter().enumerate() {
            if pattern.shareable() >= steps {
                let text = names.body(&pattern.plan, Some(steps));
                let place = *places.entry(text).or_insert(groups.len());
                groups.resize_with(groups.len().max(place + 1), Vec::new);
                groups[place].push(number);
            }
        }
        for mut group in groups.into_iter().filter(|group| group.len() > 1) {
            // Of equal ones the one that divides its events most.
            group.sort_by_key(|&number| std::cmp::Reverse(patterns[number].plan.keys.len()));
            let is_source = |&number: &usize| patterns[number].plan.steps.len() == steps;
            let source = group.iter().copied().find(is_source).unwrap_or_else(|| {
                let plans: Vec<&Plan> = group.iter().map(|&number| &patterns[number].plan).collect();
                let plan = prefix::beginning(&plans, steps);
                patterns.push(Pattern {
                    plan,
                    budget: None,
                    eager: false,
                    reads: Vec::new(),
                    source: None,
                    parts: Vec::new(),
                });
                patterns.len() - 1
            });
            for number in group.into_iter().filter(|number| *number != source) {
                go_on(patterns, number, source, steps);
            }
        }
    }
}

/// Cuts the first steps off a pattern, which are another's.
fn go_on(patterns: &mut [Pattern], number: usize, source: usize, steps: usize) {
    let whole = patterns[number].plan.clone();
    let cut = prefix::rest(&whole, steps);
    let begins = prefix::beginners(&whole, steps);
    let pattern = &mut patterns[number];
    for place in pattern.reads.iter_mut().flat_map(|reads| &mut reads.places) {
        if let Place::Own(variable) = *place {
            *place = match cut.renumbered[variable] {
                Some(variable) => Place::Own(variable),
                None => Place::Part(begins.iter().position(|v| *v == variable).unwrap_or(0)),
            };
        }
    }
    pattern.plan = cut.plan;
    let from = &mut patterns[source];
    let head = from.feeding_head();
    let mut variables = vec![0; whole.variables.len()];
    let sources = prefix::beginners(&from.plan, steps);
    begins
        .iter()
        .zip(sources)
        .for_each(|(own, theirs)| variables[*own] = theirs);
    let values = cut.needed.iter().map(|attribute| {
        let attribute = from.adopted(&whole, &variables, attribute);
        let outputs = &mut from.plan.heads[head].outputs;
        let same = |output: &Output| matches!(&output.expression, Expr::Attribute(known) if *known == attribute);
        outputs.iter().position(same).unwrap_or_else(|| {
            outputs.push(Output::of(attribute));
            outputs.len() - 1
        })
    });
    let values = values.collect();
    let named = |name: &Arc<str>| whole.streams.iter().position(|stream| stream.name == *name);
    let streams = from.plan.streams.iter();
    let streams = streams.map(|stream| named(&stream.name).unwrap_or(0) as u16).collect();
    patterns[number].source = Some(Source {
        pattern: source,
        steps,
        values,
        streams,
    });
}

/// Sources before those who go on from them.
fn in_order(patterns: Vec<Pattern>) -> Vec<Pattern> {
    let depth = |number: usize| {
        let source = |&number: &usize| patterns[number].source.as_ref().map(|source| source.pattern);
        std::iter::successors(Some(number), source).count()
    };
    let mut order: Vec<usize> = (0..patterns.len()).collect();
    order.sort_by_key(|&number| depth(number));
    let mut places = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(place, &number)| places[number] = place);
    let mut numbered: Vec<(usize, Pattern)> = patterns.into_iter().enumerate().collect();
    numbered.sort_by_key(|(number, _)| places[*number]);
    let mut ordered: Vec<Pattern> = numbered.into_iter().map(|(_, pattern)| pattern).collect();
    for source in ordered.iter_mut().filter_map(|pattern| pattern.source.as_mut()) {
        source.pattern = places[source.pattern];
    }
    ordered
}
