//! The clocks of a place: what they are ahead of UTC at every instant, in the table of src/cepheid/model/zones.py.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::digest::{DIGEST, Hash, hex};
use crate::functions::{DAY, SECOND, new_year};
use crate::json::{Fault, Json, Reading, fault};

/// The zones of a plan, by name.
pub type Zones = HashMap<String, Arc<Zone>>;

/// A change within a year: seconds since its beginning in UTC, and the seconds ahead of UTC from then on.
type Change = (i64, i64);

/// A zone.
pub struct Zone {
    name: Box<str>,
    /// Of the table: what a name stands for is not the same in every edition of the database.
    check: [u8; DIGEST],
    /// Seconds since 1970.
    times: Box<[i64]>,
    /// Seconds ahead of UTC: before the first of the times, from it on, and so forth.
    offsets: Box<[i64]>,
    /// From the last of the times on, if there are any: the changes of each of the 14 kinds of year.
    years: Box<[Box<[Change]>]>,
}

/// The name and which table; texts of conditions are compared and kept (lookup.rs).
impl fmt::Debug for Zone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, hex(&self.check))
    }
}

/// The zones that a plan, or an operator of expressions, brings along; most bring none.
pub fn read_zones(json: &Json) -> Result<Zones, Fault> {
    let Some(zones) = json.get("zones").and_then(Json::as_object) else {
        return Ok(Zones::new());
    };
    let read = |(name, table): (&String, &Json)| Ok((name.clone(), Arc::new(Zone::read(name, table)?)));
    zones.iter().map(read).collect()
}

impl Zone {
    fn read(name: &str, json: &Json) -> Result<Zone, Fault> {
        let mut hash = Hash::new(b"cepheid-zone-1");
        hash.update(json.to_string().as_bytes());
        let change = |item: &Json| Ok((item.at(0)?.int()?, item.at(1)?.int()?));
        let zone = Zone {
            name: name.into(),
            check: hash.finish(),
            times: json.member("times")?.each(Json::int)?.into(),
            offsets: json.member("offsets")?.each(Json::int)?.into(),
            years: json
                .member("years")?
                .each(|year| year.each(change).map(Vec::into_boxed_slice))?
                .into(),
        };
        let whole_years = zone.years.is_empty() || zone.years.len() == 14;
        if zone.offsets.len() != zone.times.len() + 1 || !whole_years || zone.years.iter().any(|year| year.is_empty()) {
            return fault(format!("the table of the zone {name} is not whole"));
        }
        Ok(zone)
    }

    /// What the clocks show at an instant, as if it were an instant of UTC; None if there is no number for it.
    pub fn local(&self, time: i64) -> Option<i64> {
        time.checked_add(self.ahead(time.div_euclid(SECOND)) * SECOND)
    }

    fn ahead(&self, seconds: i64) -> i64 {
        let passed = self.times.partition_point(|time| *time <= seconds);
        if self.years.is_empty() || passed < self.times.len() {
            return self.offsets[passed];
        }
        let (first, is_leap) = new_year(seconds.div_euclid(DAY / SECOND));
        // The epoch was a Thursday, and kinds begin with Monday.
        let kind = (first + 3).rem_euclid(7) as usize + if is_leap { 7 } else { 0 };
        let changes = &self.years[kind];
        let into = seconds - first * (DAY / SECOND);
        let made = changes.partition_point(|(from, _)| *from <= into);
        // Before the first, what holds at the end of every year.
        changes[made.checked_sub(1).unwrap_or(changes.len() - 1)].1
    }
}
