//! Matches that are not complete, and what a query selects of those that are.

use crate::event::Handle;
use crate::expr::{Bindings, Expr};
use crate::found::Match;
use crate::plan::{Head, Plan};
use crate::value::{Key, Value};

/// What a variable of a partial match is bound to.
#[derive(Clone, Debug)]
pub enum Part {
    /// Nothing.
    Unbound,
    /// One event.
    One(Handle),
    /// Several, in E2's order.
    Many(Box<[Handle]>),
}

impl Part {
    /// The events.
    pub fn handles(&self) -> &[Handle] {
        match self {
            Part::Unbound => &[],
            Part::One(handle) => std::slice::from_ref(handle),
            Part::Many(handles) => handles,
        }
    }
}

/// A match that waits for its deadline, because its last step is open (rule S4).
#[derive(Clone, Debug)]
pub struct Pending {
    /// What is bound, by variable.
    pub events: Box<[Part]>,
    /// Whether all else holds if the last step, a `?e?`, stays unbound.
    pub holds: bool,
    /// When all that matters is known: the deadline, or the last bound event's time if that is later.
    pub due: i64,
    /// Whether the last step, a `?e?`, has had an event.
    pub found: bool,
    /// Of which branch of the plan it is.
    pub branch: usize,
}

/// Where a judge puts what it finds.
#[derive(Default)]
pub struct Sink {
    /// Matches that are complete.
    pub matches: Vec<Match>,
    /// Those that wait.
    pub pending: Vec<Pending>,
}

impl Plan {
    /// For each head that takes a match: its number, and the selected values.
    pub fn select(&self, scope: &Bindings<'_>) -> impl Iterator<Item = (u32, Vec<Value>)> {
        let mut constant = self.joins.iter().filter(|join| join.variables == 0);
        let heads = if constant.all(|join| join.condition.holds(scope)) {
            self.heads.as_slice()
        } else {
            &[]
        };
        let heads = heads.iter().enumerate();
        heads.filter_map(move |(number, head)| Some((number as u32, head.select(scope)?)))
    }

    /// The values of the PATH variables that are used, in the order of their names.
    pub fn bindings(&self, scope: &Bindings<'_>) -> Vec<Key> {
        self.used
            .iter()
            .map(|(_, value)| Key(value.value(scope).into_value()))
            .collect()
    }
}

impl Head {
    /// The selected values, unless HAVING or a condition in SELECT is against it.
    fn select(&self, scope: &Bindings<'_>) -> Option<Vec<Value>> {
        if self.having.as_ref().is_some_and(|having| !having.holds(scope)) {
            return None;
        }
        let mut selected = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            if output
                .condition
                .as_ref()
                .is_some_and(|condition| !condition.holds(scope))
            {
                return None;
            }
            let value = match &output.expression {
                Expr::Attribute(attribute) => {
                    let event = scope.event(attribute.variable);
                    event.map_or(Value::Null, |event| attribute.kept(event))
                }
                other => other.value(scope).into_value(),
            };
            selected.push(if output.float { value.into_float() } else { value });
        }
        Some(selected)
    }
}
