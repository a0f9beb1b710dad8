//! The parts of a plan, each read from its JSON.

use crate::arrow_build::ColumnType;
use crate::bounds::FOREVER;
use crate::expr::{Attribute, Expr, Named};
use crate::json::{Fault, Json, Reading, fault};
use crate::plan::{
    After, Aggregate, AggregateFunction, Join, KeyPart, Kind, MAX_VARIABLES, Output, Policy, Role, Span, Step, Stream,
    Variable,
};

/// Key part.
pub(crate) fn read_key_part(json: &Json) -> Result<KeyPart, Fault> {
    Ok(KeyPart {
        float: json.member("float")?.bool()?,
        nulls: json.member("nulls")?.bool()?,
        once: false,
    })
}

/// Stream.
pub(crate) fn read_stream(json: &Json, named: Named<'_>) -> Result<Stream, Fault> {
    let key = |item: &Json| item.each(|attribute| read_attribute(attribute, named));
    Ok(Stream {
        name: json.member("name")?.text()?.into(),
        text_id: json.member("id")?.text()? == "string",
        attributes: json.member("attributes")?.each(|item| item.text().map(str::to_owned))?,
        kept: Vec::new(),
        variables: Vec::new(),
        key: json.member("key")?.optional(key)?,
    })
}

/// Attribute.
pub(crate) fn read_attribute(json: &Json, named: Named<'_>) -> Result<Attribute, Fault> {
    match Expr::read(json, named)? {
        Expr::Attribute(attribute) => Ok(attribute),
        _ => fault("expected an attribute"),
    }
}

/// Variable.
pub(crate) fn read_variable(json: &Json, named: Named<'_>) -> Result<Variable, Fault> {
    let key = |item: &Json| item.each(|attribute| read_attribute(attribute, named));
    Ok(Variable {
        name: json.member("name")?.text()?.into(),
        streams: json.member("streams")?.each(Json::index)?,
        role: Role::One,
        step: None,
        filters: Vec::new(),
        late_filters: Vec::new(),
        joins: Vec::new(),
        screened: Vec::new(),
        windows: Vec::new(),
        key: json.member("key")?.optional(key)?,
        probes: Vec::new(),
        ranges: Vec::new(),
        kept: FOREVER,
        home: 0,
    })
}

/// Step.
pub(crate) fn read_step(json: &Json) -> Result<Step, Fault> {
    let role = match json.member("kind")?.text()? {
        "one" | "all" => Role::One,
        "any" => Role::Any,
        "maybe" => Role::Maybe,
        "many" => Role::Many,
        "absent" => Role::Absent,
        other => return fault(format!("unknown step '{other}'")),
    };
    let variables = json.member("variables")?.each(Json::index)?;
    if variables.is_empty() {
        return fault("a step without a variable");
    }
    Ok(Step {
        role,
        mask: variables
            .iter()
            .filter(|&&v| v < MAX_VARIABLES)
            .fold(0, |mask, &v| mask | 1 << v),
        variables,
        least: json.member("least")?.index()?,
        most: json.member("most")?.optional(Json::index)?.unwrap_or(usize::MAX),
        ranged: None,
    })
}

/// Span.
pub(crate) fn read_span(json: &Json) -> Result<Span, Fault> {
    Ok(Span {
        variables: json.member("variables")?.each(Json::index)?,
        width: json.member("width")?.int()?,
        implied: false,
    })
}

/// Moving.
pub(crate) fn read_moving(json: &Json) -> Result<(Kind, i64), Fault> {
    let kind = match json.member("kind")?.text()? {
        "sliding" => Kind::Sliding,
        "batch" => Kind::Batch,
        "session" => Kind::Session,
        "length" => Kind::Length,
        other => return fault(format!("unknown window '{other}'")),
    };
    let size = json.member("size")?.int()?;
    if size < 1 {
        return fault("a window's size is at least 1");
    }
    Ok((kind, size))
}

/// Join.
pub(crate) fn read_join(json: &Json, named: Named<'_>) -> Result<Join, Fault> {
    let condition = Expr::read(json, named)?;
    let variables = condition.variables();
    Ok(Join { condition, variables })
}

/// Output.
pub(crate) fn read_output(json: &Json, named: Named<'_>) -> Result<Output, Fault> {
    Ok(Output {
        expression: Expr::read(json.member("expression")?, named)?,
        condition: json.member("condition")?.optional(|item| Expr::read(item, named))?,
        float: json.member("float")?.bool()?,
        kind: read_column_type(json.member("type")?)?,
    })
}

/// Column type, of a type of the language.
pub(crate) fn read_column_type(json: &Json) -> Result<ColumnType, Fault> {
    Ok(match json.text()? {
        "bool" => ColumnType::Bool,
        "int" | "duration" => ColumnType::Int,
        "float" => ColumnType::Float,
        "timestamp" => ColumnType::Timestamp,
        "bytes" | "array<uint8>" => ColumnType::Bytes,
        "array<float>" => ColumnType::Floats,
        // What has no type of its own is text.
        "string" | "null" | "node" => ColumnType::Text,
        other => return fault(format!("unknown type '{other}'")),
    })
}

/// Aggregate.
pub(crate) fn read_aggregate(json: &Json, named: Named<'_>) -> Result<Aggregate, Fault> {
    use AggregateFunction as A;
    let function = match json.member("function")?.text()? {
        "COUNT" => A::Count,
        "SUM" => A::Sum,
        "AVG" => A::Avg,
        "MIN" => A::Min,
        "MAX" => A::Max,
        "STDDEV" => A::Stddev,
        "FIRST" => A::First,
        "LAST" => A::Last,
        other => return fault(format!("unknown aggregate '{other}'")),
    };
    Ok(Aggregate {
        function,
        variable: json.member("variable")?.index()?,
        argument: json.member("argument")?.optional(|item| Expr::read(item, named))?,
    })
}

/// Policy.
pub(crate) fn read_policy(text: &str) -> Result<Policy, Fault> {
    Ok(match text {
        "ANY" => Policy::Any,
        "NEXT" => Policy::Next,
        "STRICT" => Policy::Strict,
        _ => return fault(format!("unknown policy '{text}'")),
    })
}

/// After.
pub(crate) fn read_after(text: &str) -> Result<After, Fault> {
    Ok(match text {
        "KEEP" => After::Keep,
        "CONSUME" => After::Consume,
        "SKIP PAST LAST" => After::SkipPastLast,
        "SKIP TO NEXT" => After::SkipToNext,
        _ => return fault(format!("unknown AFTER MATCH '{text}'")),
    })
}
