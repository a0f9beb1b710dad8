//! Matches as columns: id, time, then events and selected values; for batch and session windows, window and group.

use crate::arrow_build::{Builder, ColumnType};
use crate::digest::hex;
use crate::event::{Id, Name};
use crate::found::{Bound, Match};
use crate::plan::{Kind, Plan, Role};

/// Of so many matches a batch is made, or of fewer with much text: offsets end at 2^31.
const BATCH: usize = 16_384;
const TEXT: usize = 1 << 28;

/// The names that the output has.
pub struct Names {
    /// Of the selected values.
    pub outputs: Vec<String>,
    /// Of the group's values.
    pub groups: Vec<String>,
}

/// Batches of matches, in their order.
pub fn batches(plan: &Plan, names: &Names, matches: &[Match]) -> Vec<Builder> {
    let mut batches = Vec::new();
    let mut batch = Columns::new(plan, names);
    for found in matches {
        batch.add(plan, found);
        if batch.time.len() == BATCH || batch.text_bytes() > TEXT {
            batches.push(std::mem::replace(&mut batch, Columns::new(plan, names)).finish());
        }
    }
    if !batch.time.is_empty() {
        batches.push(batch.finish());
    }
    batches
}

struct Columns {
    id: Builder,
    time: Builder,
    /// None where no variable is shown.
    events: Option<Builder>,
    select: Builder,
    window: Option<Builder>,
    group: Option<Builder>,
    shown: Vec<usize>,
}

impl Columns {
    fn new(plan: &Plan, names: &Names) -> Self {
        let spans = matches!(plan.moving, Some((Kind::Batch | Kind::Session, _)));
        let shown: Vec<usize> = if spans { Vec::new() } else { plan.shown().collect() };
        let column = |&variable: &usize| {
            let own = &plan.variables[variable];
            let text = own.streams.len() > 1 || own.streams.iter().any(|s| plan.streams[*s].text_id);
            let one = Builder::new(if text { ColumnType::Text } else { ColumnType::Int });
            let bound = if own.role == Role::Many {
                Builder::list(one)
            } else {
                one
            };
            (own.name.to_string(), bound)
        };
        let named = |names: &[String], kinds: &mut dyn Iterator<Item = ColumnType>| {
            Builder::of(names.iter().cloned().zip(kinds.map(Builder::new)).collect())
        };
        let end = |name: &str| (name.to_string(), Builder::new(ColumnType::Timestamp));
        Columns {
            id: Builder::new(ColumnType::Text),
            time: Builder::new(ColumnType::Timestamp),
            events: (!shown.is_empty()).then(|| Builder::of(shown.iter().map(column).collect())),
            select: named(
                &names.outputs,
                &mut plan.heads[0].outputs.iter().map(|output| output.kind),
            ),
            window: spans.then(|| Builder::of(vec![end("start"), end("end")])),
            group: (spans && !names.groups.is_empty())
                .then(|| named(&names.groups, &mut plan.group_types.iter().copied())),
            shown,
        }
    }

    fn text_bytes(&self) -> usize {
        let parts = [Some(&self.select), self.events.as_ref(), self.group.as_ref()];
        parts.into_iter().flatten().map(Builder::text_bytes).max().unwrap_or(0)
    }

    fn add(&mut self, plan: &Plan, found: &Match) {
        self.id.text(hex(&found.id(plan)).as_bytes());
        self.time.int(found.time);
        let shown = &self.shown;
        if let Some(events) = &mut self.events {
            events.parts(|place, part| {
                let several = plan.variables[shown[place]].streams.len() > 1;
                match &found.events[shown[place]] {
                    Bound::Unbound => part.null(),
                    Bound::One(event) => put(plan, part, event, several),
                    Bound::Many(events) => part.items(|part| {
                        events.iter().for_each(|event| put(plan, part, event, several));
                    }),
                }
            });
        }
        self.select.parts(|place, part| part.value(&found.select[place]));
        if let Some(row) = &found.row {
            if let Some(window) = &mut self.window {
                window.parts(|place, part| part.int([row.start, row.end][place]));
            }
            if let Some(group) = &mut self.group {
                group.parts(|place, part| part.value(&row.group[place].0));
            }
        }
    }

    fn finish(self) -> Builder {
        let mut parts = vec![("id".to_string(), self.id), ("time".to_string(), self.time)];
        parts.extend(self.events.map(|events| ("events".to_string(), events)));
        parts.push(("select".to_string(), self.select));
        parts.extend(self.window.map(|window| ("window".to_string(), window)));
        parts.extend(self.group.map(|group| ("group".to_string(), group)));
        Builder::of_rows(parts)
    }
}

/// An event's id; with its stream where the variable ranges over several (rule O1).
fn put(plan: &Plan, part: &mut Builder, event: &Name, several: bool) {
    match &event.id {
        id if several => {
            let id = match id {
                Id::Int(id) => id.to_string(),
                Id::Str(id) => id.to_string(),
            };
            let stream = &plan.streams[usize::from(event.stream)].name;
            part.text(format!("{stream}/{id}").as_bytes());
        }
        Id::Int(id) => part.int(*id),
        Id::Str(id) => part.text(id.as_bytes()),
    }
}
