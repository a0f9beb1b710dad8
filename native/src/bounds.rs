//! How far apart the events of a match can lie, and so how long an event has to be kept.
//!
//! SEQ and WINDOW are bounds on differences of times. Their shortest paths bound every pair; a path leads only through
//! variables that are surely bound, because a window says nothing about one that is not.

use crate::plan::{Plan, Role};

/// No bound. A quarter of the range, so that sums of two do not overflow.
pub const FOREVER: i64 = i64::MAX / 4;

/// For variables u, v: the greatest possible `time of v - time of u`. The last row and column are the deadline's.
pub fn furthest(plan: &Plan) -> Vec<Vec<i64>> {
    let count = plan.variables.len();
    let deadline = count;
    let mut bound = vec![vec![FOREVER; count + 1]; count + 1];
    for (place, row) in bound.iter_mut().enumerate() {
        row[place] = 0;
    }
    // A bound holds whenever both ends are bound to events.
    for (one, variable) in plan.variables.iter().enumerate() {
        for (other, later) in plan.variables.iter().enumerate() {
            if variable.step.zip(later.step).is_some_and(|(a, b)| a < b) {
                tighten(&mut bound, other, one, -1);
            }
        }
    }
    for window in &plan.windows {
        for &one in &window.variables {
            for &other in &window.variables {
                // Each of many events is judged with single ones, not with others of its kind.
                let judged = plan.variables[one].role.is_single() || plan.variables[other].role.is_single();
                if one != other && judged {
                    tighten(&mut bound, one, other, window.width);
                }
            }
        }
    }
    for &number in &plan.deadlines {
        let window = &plan.windows[number];
        for &one in &window.variables {
            // An event of an open step matters also where it ends up unbound, and then the deadline is another's.
            if matches!(plan.variables[one].role, Role::One | Role::Any) {
                tighten(&mut bound, one, deadline, window.width);
            }
        }
    }
    let sure = |v: usize| plan.variables[v].role == Role::One;
    for through in (0..count).filter(|&v| sure(v)) {
        for one in 0..=count {
            for other in 0..=count {
                let sum = bound[one][through].saturating_add(bound[through][other]);
                if bound[one][through] < FOREVER && bound[through][other] < FOREVER {
                    tighten(&mut bound, one, other, sum);
                }
            }
        }
    }
    through_any(plan, &mut bound);
    bound
}

/// One member of ANY is surely bound, so the loosest path through any of them is a bound.
fn through_any(plan: &Plan, bound: &mut [Vec<i64>]) {
    for step in plan.steps.iter().filter(|step| step.role == Role::Any) {
        for one in (0..bound.len()).filter(|v| !step.variables.contains(v)) {
            for other in (0..bound.len()).filter(|v| !step.variables.contains(v)) {
                let paths = step.variables.iter().map(|&v| (bound[one][v], bound[v][other]));
                let loosest = paths
                    .map(|(a, b)| if a.max(b) < FOREVER { a + b } else { FOREVER })
                    .max();
                tighten(bound, one, other, loosest.unwrap_or(FOREVER));
            }
        }
    }
}

fn tighten(bound: &mut [Vec<i64>], one: usize, other: usize, limit: i64) {
    let limit = limit.clamp(-FOREVER, FOREVER);
    let entry = &mut bound[one][other];
    *entry = (*entry).min(limit);
}

/// How long after its time an event of this variable can still become part of a match, or prevent one.
pub fn kept(plan: &Plan, variable: usize) -> i64 {
    let deadline = plan.trailing().map(|_| plan.variables.len());
    let own = &plan.variables[variable];
    if own.role == Role::Elsewhere {
        return -1;
    }
    let ends = (0..plan.variables.len()).filter(|&v| {
        let other = &plan.variables[v];
        let alternatives = own.role == Role::Any && own.step == other.step;
        v != variable && matches!(other.role, Role::One | Role::Any) && !alternatives
    });
    ends.chain(deadline)
        .map(|end| plan.furthest[variable][end])
        .max()
        .unwrap_or(-1)
}
