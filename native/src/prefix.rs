//! Plans cut in two: the beginning of a SEQ as a pattern of its own, and the rest, which goes on from its matches.
//!
//! A match of the beginning is a row of an inner stream, which the rest reads as its first step. So the beginning's
//! partial matches are held once, however many queries go on from them. That is exact where each step takes the first
//! event that fits and none of them looks back: MATCH NEXT with steps of one event, and AFTER MATCH KEEP. There an event
//! begins at most one row, so rows are never more than the events that would be held instead. (Under MATCH ANY no
//! partial match is held, and rows would be as many as there are combinations.)

use std::sync::Arc;

use crate::bounds::FOREVER;
use crate::expr::{Attribute, Expr, Operator, Sign, Slot};
use crate::plan::{After, Head, Join, Plan, Policy, Role, Span, Step, Stream, Variable};
use crate::value::Value;

/// Of how many steps a beginning can be; 0 if the plan can't be cut.
pub fn longest_beginning(plan: &Plan) -> usize {
    if plan.policy != Policy::Next || plan.after != After::Keep || !plan.runs_only {
        return 0;
    }
    let is_plain = |step: &&Step| step.role == Role::One && step.variables.len() == 1;
    plan.steps.iter().take_while(is_plain).count()
}

/// The variables of the first steps, in the order of the steps.
pub fn beginners(plan: &Plan, steps: usize) -> Vec<usize> {
    plan.steps[..steps]
        .iter()
        .flat_map(|step| step.variables.iter().copied())
        .collect()
}

/// The query's own WINDOWs among some variables, each as its places among these.
pub fn windows_among(plan: &Plan, variables: &[usize]) -> Vec<Span> {
    let among = |window: &Span| {
        let place = |v: &usize| variables.iter().position(|own| own == v);
        Span {
            variables: window.variables.iter().filter_map(place).collect(),
            ..*window
        }
    };
    let found = plan.windows.iter().filter(|window| !window.implied).map(among);
    found.filter(|window| window.variables.len() > 1).collect()
}

pub(crate) fn mask(variables: &[usize]) -> u64 {
    variables.iter().fold(0, |mask, v| mask | 1 << v)
}

pub(crate) fn with_attributes(expression: &Expr, change: &mut impl FnMut(&Attribute) -> Attribute) -> Expr {
    let mut expression = expression.clone();
    expression.rewrite(&mut |part| {
        if let Expr::Attribute(attribute) = part {
            *attribute = change(attribute);
        }
    });
    expression
}

fn plain_step(variable: usize) -> Step {
    Step {
        role: Role::One,
        variables: vec![variable],
        mask: 1 << variable,
        least: 1,
        most: usize::MAX,
        ranged: None,
    }
}

/// The first steps of plans that begin alike, as a plan without a head; its variables are in the order of its steps. The
/// first of them says how events are divided.
pub fn beginning(plans: &[&Plan], steps: usize) -> Plan {
    let plan = plans[0];
    let inside = beginners(plan, steps);
    let renumbered = |attribute: &Attribute| Attribute {
        variable: inside.iter().position(|v| *v == attribute.variable).unwrap_or(0),
        ..attribute.clone()
    };
    let mut cut = plan.clone();
    cut.variables = inside.iter().map(|&v| plan.variables[v].clone()).collect();
    for variable in &mut cut.variables {
        for filter in &mut variable.filters {
            *filter = with_attributes(filter, &mut |attribute| renumbered(attribute));
        }
        let key = variable.key.iter_mut().flatten();
        key.for_each(|attribute| *attribute = renumbered(attribute));
    }
    cut.own = (0..steps).collect();
    cut.steps = (0..steps).map(plain_step).collect();
    let own = |join: &&Join| join.variables != 0 && join.variables & !mask(&inside) == 0;
    cut.joins = plan.joins.iter().filter(own).cloned().collect();
    for join in &mut cut.joins {
        join.condition = with_attributes(&join.condition, &mut |attribute| renumbered(attribute));
        join.variables = join.condition.variables();
    }
    cut.windows = windows_among(plan, &inside);
    cut.windows.extend(implied_windows(plans, steps));
    cut.aggregates.clear();
    cut.heads.clear();
    cut.settle();
    cut
}

/// How far apart the first steps can lie in a match of any of the plans, where the rest bounds that.
fn implied_windows(plans: &[&Plan], steps: usize) -> Vec<Span> {
    let furthest = |one: usize, other: usize| {
        let of = |plan: &&Plan| {
            let inside = beginners(plan, steps);
            plan.furthest[inside[one]][inside[other]]
        };
        plans.iter().map(of).max().unwrap_or(FOREVER)
    };
    let pairs = (0..steps).flat_map(|one| (one + 1..steps).map(move |other| (one, other)));
    let widths = pairs.map(|(one, other)| (one, other, furthest(one, other)));
    let bounded = widths.filter(|(_, _, width)| *width < FOREVER);
    bounded
        .map(|(one, other, width)| Span {
            variables: vec![one, other],
            width,
            implied: true,
        })
        .collect()
}

/// What is left of a plan when its first steps are a row.
pub struct Rest {
    /// The plan; its last variable is the row, its last stream the inner one.
    pub plan: Plan,
    /// What the row has to have, in the order of its slots: attributes of the plan that was cut.
    pub needed: Vec<Attribute>,
    /// By variable of the plan that was cut: what it is now; None for those of the first steps.
    pub renumbered: Vec<Option<usize>>,
}

/// Cuts the first steps off.
pub fn rest(plan: &Plan, steps: usize) -> Rest {
    let inside = beginners(plan, steps);
    let mut renumbered = vec![None; plan.variables.len()];
    let outside: Vec<usize> = (0..plan.variables.len()).filter(|v| !inside.contains(v)).collect();
    for (number, &variable) in outside.iter().enumerate() {
        renumbered[variable] = Some(number);
    }
    let row = outside.len();
    let inner = plan.streams.len();
    let mut needed: Vec<Attribute> = Vec::new();
    let mut change = |attribute: &Attribute| match renumbered[attribute.variable] {
        Some(variable) => Attribute {
            variable,
            ..attribute.clone()
        },
        None => {
            let place = needed.iter().position(|known| known == attribute).unwrap_or_else(|| {
                needed.push(attribute.clone());
                needed.len() - 1
            });
            let mut slots = vec![Slot::Missing; inner + 1];
            slots[inner] = Slot::At(place);
            Attribute {
                variable: row,
                slots: slots.into(),
                float: false,
            }
        }
    };
    let mut cut = plan.clone();
    cut.variables = outside.iter().map(|&v| plan.variables[v].clone()).collect();
    for variable in &mut cut.variables {
        for filter in &mut variable.filters {
            *filter = with_attributes(filter, &mut change);
        }
        let key = variable.key.iter_mut().flatten();
        key.for_each(|attribute| *attribute = change(attribute));
    }
    let last = &plan.variables[inside[steps - 1]];
    let key = last.key.as_ref().map(|key| key.iter().map(&mut change).collect());
    cut.variables.push(row_variable(inner, key));
    cut.own = (0..cut.variables.len()).collect();
    cut.steps = std::iter::once(plain_step(row))
        .chain(plan.steps[steps..].iter().map(|step| {
            let variables: Vec<usize> = step.variables.iter().filter_map(|&v| renumbered[v]).collect();
            Step {
                mask: mask(&variables),
                variables,
                ..step.clone()
            }
        }))
        .collect();
    let others = plan.joins.iter();
    let others = others.filter(|join| join.variables == 0 || join.variables & !mask(&inside) != 0);
    let conditions = others.map(|join| join.condition.clone());
    let conditions: Vec<Expr> = conditions.chain(reaching_back(plan, &inside)).collect();
    let joined = conditions
        .iter()
        .map(|condition| with_attributes(condition, &mut change));
    cut.joins = joined
        .map(|condition| Join {
            variables: condition.variables(),
            condition,
        })
        .collect();
    cut.windows = windows_of_rest(plan, &inside, &renumbered, row);
    for aggregate in &mut cut.aggregates {
        aggregate.variable = renumbered[aggregate.variable].unwrap_or(row);
        aggregate.argument = aggregate.argument.as_ref().map(|e| with_attributes(e, &mut change));
    }
    cut.heads = plan.heads.iter().map(|head| head_with(head, &mut change)).collect();
    cut.streams.push(Stream {
        name: Arc::from(""),
        text_id: false,
        attributes: vec![String::new(); needed.len()],
        kept: Vec::new(),
        variables: Vec::new(),
        key: None,
    });
    cut.settle();
    Rest {
        plan: cut,
        needed,
        renumbered,
    }
}

fn row_variable(stream: usize, key: Option<Vec<Attribute>>) -> Variable {
    Variable {
        name: Arc::from(""),
        streams: vec![stream],
        role: Role::One,
        step: None,
        filters: Vec::new(),
        late_filters: Vec::new(),
        joins: Vec::new(),
        screened: Vec::new(),
        windows: Vec::new(),
        key,
        probes: Vec::new(),
        ranges: Vec::new(),
        kept: FOREVER,
        home: 0,
    }
}

pub(crate) fn head_with(head: &Head, change: &mut impl FnMut(&Attribute) -> Attribute) -> Head {
    let mut head = head.clone();
    for output in &mut head.outputs {
        output.expression = with_attributes(&output.expression, change);
        output.condition = output.condition.as_ref().map(|e| with_attributes(e, change));
    }
    head.having = head.having.as_ref().map(|e| with_attributes(e, change));
    head
}

/// A row's time is its last event's. A WINDOW that lists an earlier one is a condition on that one's time; and it holds
/// of the row's time too, which bounds how long the row is held.
fn reaching_back(plan: &Plan, inside: &[usize]) -> Vec<Expr> {
    let time = |variable: usize| {
        Expr::Attribute(Attribute {
            variable,
            slots: vec![Slot::Time; plan.streams.len()].into(),
            float: false,
        })
    };
    let mut found = Vec::new();
    for window in plan.windows.iter().filter(|window| !window.implied) {
        let earliest = inside.iter().find(|v| window.variables.contains(v));
        let Some(&earliest) = earliest.filter(|v| Some(*v) != inside.last()) else {
            continue;
        };
        for &later in window.variables.iter().filter(|v| !inside.contains(v)) {
            let between = Expr::Arithmetic(Operator::Subtract, Box::new((time(later), time(earliest))));
            let width = Expr::Constant(Value::Int(window.width));
            found.push(Expr::Compare(Sign::LessEqual, Box::new((between, width))));
        }
    }
    found
}

fn windows_of_rest(plan: &Plan, inside: &[usize], renumbered: &[Option<usize>], row: usize) -> Vec<Span> {
    let of = |window: &Span| {
        let mut variables: Vec<usize> = window.variables.iter().filter_map(|&v| renumbered[v]).collect();
        if window.variables.iter().any(|v| inside.contains(v)) {
            variables.push(row);
        }
        Span { variables, ..*window }
    };
    let found = plan.windows.iter().map(of);
    found.filter(|window| window.variables.len() > 1).collect()
}
