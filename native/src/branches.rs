//! Patterns that begin alike and hold events, not partial matches (MATCH ANY): these hold their events together.
//!
//! Each is a branch: a plan over the variables of all of them, in which those that only others have are never bound. The
//! variables of a beginning that several have are the same, so an event that fits there is held, divided by key and
//! indexed once; and an event that several want is one event. What goes together each branch judges by itself, with its
//! own JOINs and WINDOWs. So nothing is held that would not be held apart.
//!
//! (To hold the partial matches of the beginning instead would make every combination an entry for each branch.)

use std::collections::HashMap;

use crate::expr::Attribute;
use crate::plan::{Index, Join, MAX_VARIABLES, Plan, Policy, RangeIndex, Role, Span, Step, Variable};
use crate::prefix::{head_with, mask, with_attributes};
use crate::shared::{Names, Pattern};

/// What branches have in common: the events of their first steps; or what is left of one of them.
#[derive(Clone, Debug)]
pub struct Part {
    /// The queries that read its matches; none where events are held for others.
    pub queries: Vec<usize>,
    /// How many steps it has, those of its parent included.
    pub steps: usize,
    /// The part that holds its first steps, before this one.
    pub parent: Option<usize>,
}

/// Whether a pattern holds events that others could have too.
fn can_branch(pattern: &Pattern) -> bool {
    let plan = &pattern.plan;
    // A budget counts what a query holds by itself, and what is known of events is a query's own.
    let free = pattern.budget.is_none() && plan.lookups.is_empty() && plan.used.is_empty();
    free && plan.policy == Policy::Any && plan.steps.len() > 1
}

/// Puts together the patterns that begin alike.
pub(crate) fn share(names: &Names, patterns: Vec<Pattern>) -> Vec<Pattern> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for pattern in patterns {
        let plan = &pattern.plan;
        let mut place = groups.len();
        let mut steps = Vec::new();
        if can_branch(&pattern) {
            steps = names.steps(plan);
            let streams: Vec<_> = plan.streams.iter().map(|stream| &stream.name).collect();
            let keys: Vec<_> = plan.keys.iter().map(|part| (part.float, part.nulls)).collect();
            let shape = (plan.within, plan.after, pattern.eager, streams, keys, &steps[0]);
            let group = known.entry(format!("{shape:?}")).or_insert(place);
            if groups.get(*group).is_some_and(|group| !group.has_room(plan, &steps)) {
                *group = place;
            }
            place = *group;
        }
        groups.resize_with(groups.len().max(place + 1), Group::default);
        groups[place].add(pattern, steps);
    }
    groups.into_iter().filter_map(Group::pattern).collect()
}

/// Patterns with the same first step, or one that is alone.
#[derive(Default)]
struct Group {
    members: Vec<Member>,
    /// By what a plan's steps are up to one of them: the variables of that step, and how many plans have it.
    beginnings: HashMap<Vec<String>, (Vec<usize>, usize)>,
    /// How many variables there are.
    variables: usize,
}

struct Member {
    pattern: Pattern,
    steps: Vec<String>,
    /// By variable of its plan: which one it is of all.
    places: Vec<usize>,
}

impl Group {
    fn has_room(&self, plan: &Plan, steps: &[String]) -> bool {
        let known = |count: &usize| self.beginnings.contains_key(&steps[..*count]);
        let shared = (1..=steps.len()).take_while(known).count();
        let shared: usize = plan.steps[..shared].iter().map(|step| step.variables.len()).sum();
        self.variables + plan.variables.len() - shared <= MAX_VARIABLES
    }

    fn add(&mut self, pattern: Pattern, steps: Vec<String>) {
        let plan = &pattern.plan;
        let mut places = vec![usize::MAX; plan.variables.len()];
        for (number, step) in plan.steps.iter().enumerate().take(steps.len()) {
            let known = self.beginnings.entry(steps[..=number].to_vec()).or_insert_with(|| {
                let first = self.variables;
                self.variables += step.variables.len();
                ((first..self.variables).collect(), 0)
            });
            known.1 += 1;
            step.variables
                .iter()
                .zip(&known.0)
                .for_each(|(v, place)| places[*v] = *place);
        }
        for place in places.iter_mut().filter(|place| **place == usize::MAX) {
            *place = self.variables;
            self.variables += 1;
        }
        self.members.push(Member { pattern, steps, places });
    }

    /// One pattern for all of them; of one alone, that.
    fn pattern(self) -> Option<Pattern> {
        let parts = self.parts();
        let mut members = self.members.into_iter();
        let first = members.next()?;
        if members.len() == 0 {
            return Some(first.pattern);
        }
        // The first pattern takes in the streams' attributes that the others read.
        let mut whole = first.pattern;
        let whole_plan = whole.plan.clone();
        let reads = std::mem::take(&mut whole.reads);
        let mut variables: Vec<Option<Variable>> = vec![None; self.variables];
        let mut branches = Vec::new();
        let own = [(whole_plan, first.places, reads)];
        let others = members.map(|member| (member.pattern.plan, member.places, member.pattern.reads));
        for (plan, places, reads) in own.into_iter().chain(others) {
            let first_head = whole.reads.len();
            whole.reads.extend(reads);
            let mut branch = adopted(&mut whole, &plan, &places);
            (branch.branch, branch.first_head) = (branches.len(), first_head);
            for (place, variable) in places.iter().zip(branch.variables.drain(..)) {
                variables[*place].get_or_insert(variable);
            }
            branches.push((branch, places));
        }
        let variables: Vec<Variable> = variables.into_iter().flatten().collect();
        let streams = whole.plan.streams.clone();
        let branches = branches.into_iter().map(|(mut branch, places)| {
            branch.variables.clone_from(&variables);
            places.iter().for_each(|&own| branch.variables[own].role = Role::One);
            branch.own = places;
            for (own, whole) in branch.streams.iter_mut().zip(&streams) {
                own.attributes.clone_from(&whole.attributes);
            }
            branch.settle();
            branch
        });
        whole.plan = together(whole.plan.clone(), &variables, branches.collect());
        whole.parts = parts;
        Some(whole)
    }

    /// The beginnings that several have, and then what each goes on with.
    fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut known: HashMap<&[String], usize> = HashMap::new();
        let count = |steps: &[String]| self.beginnings.get(steps).map_or(0, |(_, plans)| *plans);
        let mut ends = Vec::new();
        for member in &self.members {
            let mut parent = None;
            for length in 1..=member.steps.len() {
                let steps = &member.steps[..length];
                // Where all go on together there is nothing to tell.
                let goes_on = member
                    .steps
                    .get(..=length)
                    .is_some_and(|next| count(next) == count(steps));
                if count(steps) > 1 && !goes_on {
                    parent = Some(*known.entry(steps).or_insert_with(|| {
                        parts.push(Part {
                            queries: Vec::new(),
                            steps: length,
                            parent,
                        });
                        parts.len() - 1
                    }));
                }
            }
            ends.push(Part {
                queries: member.pattern.reads.iter().filter_map(|reads| reads.query).collect(),
                steps: member.steps.len(),
                parent,
            });
        }
        parts.extend(ends);
        parts
    }
}

/// A plan over the variables of all, and the attributes of the streams as `whole` has them. Its own variables are as they
/// were, in their own order.
fn adopted(whole: &mut Pattern, plan: &Plan, places: &[usize]) -> Plan {
    let mut change = |attribute: &Attribute| whole.adopted(plan, places, attribute);
    let mut branch = plan.clone();
    let every = |numbers: &[usize]| numbers.iter().map(|&v| places[v]).collect::<Vec<_>>();
    for variable in &mut branch.variables {
        for filter in &mut variable.filters {
            *filter = with_attributes(filter, &mut change);
        }
        let key = variable.key.iter_mut().flatten();
        key.for_each(|attribute| *attribute = change(attribute));
        (variable.role, variable.step) = (Role::Elsewhere, None);
    }
    for key in branch.streams.iter_mut().filter_map(|stream| stream.key.as_mut()) {
        key.iter_mut().for_each(|attribute| *attribute = change(attribute));
    }
    let step = |step: &Step| {
        let variables = every(&step.variables);
        let mask = mask(&variables);
        Step {
            variables,
            mask,
            ..step.clone()
        }
    };
    branch.steps = plan.steps.iter().map(step).collect();
    let span = |window: &Span| Span {
        variables: every(&window.variables),
        ..*window
    };
    branch.windows = plan.windows.iter().map(span).collect();
    for join in &mut branch.joins {
        let condition = with_attributes(&join.condition, &mut change);
        *join = Join {
            variables: condition.variables(),
            condition,
        };
    }
    for aggregate in &mut branch.aggregates {
        aggregate.variable = places[aggregate.variable];
        aggregate.argument = aggregate.argument.as_ref().map(|e| with_attributes(e, &mut change));
    }
    branch.heads = plan.heads.iter().map(|head| head_with(head, &mut change)).collect();
    branch
}

/// The plan that holds the events for its branches. What finds them is there once for all.
fn together(mut plan: Plan, variables: &[Variable], mut branches: Vec<Plan>) -> Plan {
    plan.variables = variables.to_vec();
    plan.steps.clear();
    plan.windows.clear();
    plan.joins.clear();
    plan.aggregates.clear();
    plan.heads.clear();
    plan.settle();
    for branch in &mut branches {
        index(&mut plan, branch);
        for (own, theirs) in plan.variables.iter_mut().zip(&branch.variables) {
            own.kept = own.kept.max(theirs.kept);
        }
        for (own, theirs) in plan.streams.iter_mut().zip(&branch.streams) {
            own.kept
                .iter_mut()
                .zip(&theirs.kept)
                .for_each(|(own, theirs)| *own |= theirs);
        }
        plan.horizon = plan.horizon.max(branch.horizon);
        plan.wakes |= branch.wakes;
        for (own, theirs) in plan.completes.iter_mut().zip(&branch.completes) {
            own.extend(theirs);
        }
    }
    for branch in &mut branches {
        branch.indexes.clone_from(&plan.indexes);
        branch.range_indexes.clone_from(&plan.range_indexes);
    }
    plan.branches = branches;
    plan
}

/// Gives a branch the indexes of the whole.
fn index(plan: &mut Plan, branch: &mut Plan) {
    let equality = |index: &Index| {
        let same = |known: &Index| known.variable == index.variable && known.attribute == index.attribute;
        let place = plan.indexes.iter().position(same).unwrap_or_else(|| {
            plan.indexes.push(index.clone());
            plan.indexes.len() - 1
        });
        // As a float a number is found by more than it equals, and that is judged anyway.
        plan.indexes[place].float |= index.float;
        place
    };
    let by_value: Vec<usize> = branch.indexes.iter().map(equality).collect();
    let order = |index: &RangeIndex| {
        let same = |known: &RangeIndex| known.variable == index.variable && known.attribute == index.attribute;
        plan.range_indexes.iter().position(same).unwrap_or_else(|| {
            plan.range_indexes.push(index.clone());
            plan.range_indexes.len() - 1
        })
    };
    let by_number: Vec<usize> = branch.range_indexes.iter().map(order).collect();
    for variable in &mut branch.variables {
        variable
            .probes
            .iter_mut()
            .for_each(|probe| probe.index = by_value[probe.index]);
        variable
            .ranges
            .iter_mut()
            .for_each(|probe| probe.index = by_number[probe.index]);
    }
}
