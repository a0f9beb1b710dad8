//! CAT: the arrays of its inputs, one behind another. If one of them is null, so is the whole.

use crate::record::Kind;
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

/// Concatenates.
pub struct Cat {
    payload: Vec<usize>,
    kind: Kind,
    bytes: Vec<u8>,
    floats: Vec<f64>,
}

impl Cat {
    /// Of these attributes of its inputs, into one of that kind.
    pub fn new(payload: Vec<usize>, kind: Kind) -> Cat {
        Cat {
            payload,
            kind,
            bytes: Vec::new(),
            floats: Vec::new(),
        }
    }
}

impl Process for Cat {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        self.bytes.clear();
        self.floats.clear();
        let mut is_null = false;
        for (input, record) in inputs.present() {
            match record.get(self.payload[input]) {
                Val::Bytes(part) => self.bytes.extend_from_slice(part),
                Val::Floats(part) => self.floats.extend_from_slice(part),
                _ => is_null = true,
            }
        }
        let value = match self.kind {
            _ if is_null => Val::Null,
            Kind::FloatArray => Val::Floats(&self.floats),
            _ => Val::Bytes(&self.bytes),
        };
        out.emit(&mut |draft| draft.set(0, &value))
    }
}
