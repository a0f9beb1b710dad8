//! FILTER and MAP: expressions of the query language over the attributes of one input.

use crate::event::Row;
use crate::expr::{Alone, Expr, Named};
use crate::json::{Fault, Json, Reading};
use crate::record::Record;
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;
use crate::zone::read_zones;

/// A record as the expressions see it: slots are places among the attributes that they read.
struct View<'a> {
    record: Record<'a>,
    slots: &'a [usize],
}

impl Row for View<'_> {
    fn time(&self) -> i64 {
        self.record.time()
    }

    fn stream(&self) -> u16 {
        0
    }

    fn id(&self) -> Val<'_> {
        Row::id(&self.record)
    }

    fn value(&self, slot: usize) -> Val<'_> {
        self.slots.get(slot).map_or(Val::Null, |slot| self.record.get(*slot))
    }
}

fn read(parameters: &Json, name: &str) -> Result<Vec<Expr>, Fault> {
    let zones = read_zones(parameters)?;
    let named = Named {
        streams: 1,
        zones: &zones,
    };
    parameters.member(name)?.each(|json| Expr::read(json, named))
}

/// Lets events pass of which all conditions are true.
pub struct Filter {
    slots: Vec<usize>,
    conditions: Vec<Expr>,
}

impl Filter {
    /// As the plan says.
    pub fn new(parameters: &Json) -> Result<Filter, Fault> {
        Ok(Filter {
            slots: parameters.member("slots")?.each(Json::index)?,
            conditions: read(parameters, "where")?,
        })
    }
}

impl Process for Filter {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let Some(record) = inputs.get(0) else { return Ok(()) };
        let view = View {
            record,
            slots: &self.slots,
        };
        if !self.conditions.iter().all(|condition| condition.holds(&Alone(&view))) {
            return Ok(());
        }
        out.emit(&mut |draft| {
            let mut slots = 0..record.schema().kinds.len();
            slots.try_for_each(|slot| draft.set(slot, &record.get(slot)))
        })
    }
}

/// Computes attributes.
pub struct Map {
    slots: Vec<usize>,
    outputs: Vec<Expr>,
}

impl Map {
    /// As the plan says.
    pub fn new(parameters: &Json) -> Result<Map, Fault> {
        Ok(Map {
            slots: parameters.member("slots")?.each(Json::index)?,
            outputs: read(parameters, "select")?,
        })
    }
}

impl Process for Map {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let Some(record) = inputs.get(0) else { return Ok(()) };
        let view = View {
            record,
            slots: &self.slots,
        };
        let scope = Alone(&view);
        out.emit(&mut |draft| {
            let mut outputs = self.outputs.iter().enumerate();
            outputs.try_for_each(|(slot, output)| draft.set(slot, &output.value(&scope)))
        })
    }
}
