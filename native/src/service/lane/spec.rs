//! A level's queries as the lane is told of them.

use crate::json::{self, Fault, Json, Reading};
use crate::service::knowing::Update;
use crate::service::reads::Read;

/// A query of a lane.
#[derive(Debug)]
pub(super) struct QuerySpec {
    pub(super) plan: String,
    pub(super) limit: Option<usize>,
    /// VALID, in microseconds.
    pub(super) valid: Option<i64>,
    pub(super) sheds: bool,
    /// ALIGN: names of variables, and how far apart their events may be, in microseconds.
    pub(super) align: Vec<(Vec<String>, i64)>,
    /// Whether its matches are events of the log too.
    pub(super) is_read: bool,
    /// What it is known by beside the log.
    pub(super) key: String,
    /// What was found up to here was delivered before.
    pub(super) read: Read,
    /// Whether somebody acknowledges what it finds, and all up to there is.
    pub(super) has_acks: bool,
    /// The version of the knowledge by which its PATHs are judged in the beginning; 0: it has none.
    pub(super) knowledge: u64,
    /// By what they are judged later, from offsets of the log on.
    pub(super) later: Vec<(u64, Update)>,
}

#[derive(Clone, Debug)]
pub(super) struct StreamSpec {
    pub(super) name: String,
    pub(super) lateness: i64,
    pub(super) idle: Option<i64>,
    pub(super) valid_for: Option<i64>,
    /// Whether it is derived: then its watermark is announced, and it never follows the clock.
    pub(super) is_derived: bool,
}

/// A level's queries, as src/cepheid/service/lowering.py writes them.
#[derive(Debug)]
pub struct LaneSpec {
    /// The rank of the level.
    pub level: usize,
    /// Under this name it is written down, beside the log, how far its queries have come.
    pub(super) consumer: String,
    /// Whether what the log forgets is in an archive.
    pub(super) is_archived: bool,
    /// Where it can't go on from a point, and the log does not begin with its first event: from when on what happened is
    /// brought back, before it begins. None: it begins with what the log has.
    pub(super) since: Option<i64>,
    pub(super) queries: Vec<QuerySpec>,
    pub(super) streams: Vec<StreamSpec>,
}

impl LaneSpec {
    /// Reads it.
    pub fn read(text: &str) -> Result<LaneSpec, Fault> {
        let json = json::parse(text)?;
        let aligned = |item: &Json| {
            let variables = item.member("variables")?.each(|name| Ok(name.text()?.to_owned()))?;
            Ok((variables, item.member("within")?.int()?))
        };
        let mut number = 0..;
        let query = |item: &Json| {
            let number = number.next().unwrap_or_default();
            Ok(QuerySpec {
                plan: item.member("plan")?.text()?.to_owned(),
                limit: item.member("limit")?.optional(Json::index)?,
                valid: item.member("valid")?.optional(Json::int)?,
                sheds: item.member("stale")?.text()? == "shed",
                align: item.member("align")?.each(aligned)?,
                is_read: item.member("read")?.bool()?,
                key: item.member("key")?.text()?.to_owned(),
                read: Read {
                    offset: item.member("silent")?.member("offset")?.index()? as u64,
                    watermark: item.member("silent")?.member("watermark")?.int()?,
                },
                has_acks: item.member("silent")?.member("acks")?.bool()?,
                knowledge: item.member("knowledge")?.index()? as u64,
                later: item.member("later")?.each(|update| Update::read(number, update))?,
            })
        };
        let stream = |item: &Json| {
            Ok(StreamSpec {
                name: item.member("name")?.text()?.to_owned(),
                lateness: item.member("lateness")?.int()?,
                idle: item.member("idle")?.optional(Json::int)?,
                valid_for: item.member("valid_for")?.optional(Json::int)?,
                is_derived: item.member("derived")?.bool()?,
            })
        };
        Ok(LaneSpec {
            level: json.member("level")?.index()?,
            consumer: json.member("consumer")?.text()?.to_owned(),
            is_archived: json.member("archived")?.bool()?,
            since: json.member("since")?.optional(Json::int)?,
            queries: json.member("queries")?.each(query)?,
            streams: json.member("streams")?.each(stream)?,
        })
    }
}
