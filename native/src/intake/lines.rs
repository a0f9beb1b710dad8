//! Lines of JSON, for a person with a terminal and for whoever has no library at hand.

use super::acks::Due;
use super::batches::is_token;
use super::connection::{Connection, Mode};
use super::dead::{OVERHEAD, Place};
use super::decode::{MAX_LINE, Misfit, too_long};
use super::server::Server;
use super::text::{Json, parse};
use super::turns::Taken;
use super::wire::{Frame, Refusal};
use crate::log::{Error, frame};
use crate::record::{self, COUNTED_ID, DUPLICATE, ENDS, LATE, TEXT_ID};

/// So many lines are taken together.
const LINES: usize = 256;
/// And of so many bytes; a longer line is taken alone.
const BYTES: usize = 64 << 10;
/// Who sends so many lines in a row that are no records does not send records.
const MAX_DEAD_IN_A_ROW: u64 = 1000;

impl Server {
    /// Takes the whole lines of the input, and at its end the last one, whole or not.
    pub(super) fn take_lines(
        &mut self,
        _at: usize,
        connection: &mut Connection,
        input: &[u8],
    ) -> Result<(usize, Taken), Error> {
        let mut used = 0;
        while used < input.len() && !connection.closing {
            let rest = &input[used..];
            if let Mode::Text {
                allowed,
                skipping: Some(length),
            } = connection.mode
            {
                let end = rest.iter().position(|byte| *byte == b'\n');
                let length = length + end.unwrap_or(rest.len());
                let skipping = if end.is_some() { None } else { Some(length) };
                connection.mode = Mode::Text { allowed, skipping };
                used += end.map_or(rest.len(), |end| end + 1);
                continue;
            }
            let (lines, length) = lines_of(rest, connection.ended);
            if lines.is_empty() {
                if rest.len() <= MAX_LINE {
                    break;
                }
                // What came of the line is kept as a dead letter; the rest of it is skipped.
                if !self.take_chunk(connection, &[&rest[..=MAX_LINE]])? {
                    return Ok((used, Taken::NotNow));
                }
                let Mode::Text { allowed, .. } = connection.mode else {
                    break;
                };
                connection.mode = Mode::Text {
                    allowed,
                    skipping: Some(rest.len()),
                };
                used = input.len();
                break;
            }
            if let Mode::Text { allowed: false, .. } = connection.mode {
                if !says_token(lines[0], self.config.token.as_deref()) {
                    let reason = "the first line has to be {\"token\": \"...\"} from there".to_owned();
                    connection.refuse(1, &Refusal::fatal("token", reason));
                    break;
                }
                connection.mode = Mode::Text {
                    allowed: true,
                    skipping: None,
                };
                used = input.len().min(used + lines[0].len() + 1);
                continue;
            }
            if !self.take_chunk(connection, &lines)? {
                return Ok((used, Taken::NotNow));
            }
            used += length;
        }
        Ok((used, Taken::Yes))
    }

    /// Takes some lines as one batch; false if there is no room.
    fn take_chunk(&mut self, connection: &mut Connection, lines: &[&[u8]]) -> Result<bool, Error> {
        let events: usize = lines.iter().map(|line| self.decoder.most_bytes(line.len())).sum();
        let letters: usize = lines.iter().map(|line| line.len().min(MAX_LINE) + OVERHEAD).sum();
        if !self.room(connection, events + 2 * frame::HEAD, letters)? {
            return Ok(false);
        }
        self.encoder.clear();
        for line in lines {
            connection.lines += 1;
            if !is_blank(line) {
                self.decode_line(connection, line, connection.lines);
            }
        }
        self.append_encoded(None);
        if connection.dead_in_a_row >= MAX_DEAD_IN_A_ROW {
            let reason = format!("{MAX_DEAD_IN_A_ROW} lines in a row were no records");
            connection.refuse(connection.lines, &Refusal::fatal("garbage", reason));
        }
        Ok(true)
    }

    /// Takes lines of a session: as a batch of records, but in JSON. Blank lines don't count.
    pub(super) fn take_lines_frame(
        &mut self,
        at: usize,
        connection: &mut Connection,
        session: u64,
        frame: &Frame<'_>,
    ) -> Result<Taken, Error> {
        let Some(next) = self.next_for(connection, session, frame.number) else {
            return Ok(Taken::Yes);
        };
        let skip = (next - frame.number) as usize;
        let lines: Vec<&[u8]> = frame
            .payload
            .split(|byte| *byte == b'\n')
            .filter(|line| !is_blank(line))
            .collect();
        let reached = frame.number + lines.len() as u64;
        self.counters.resent += skip.min(lines.len()) as u64;
        if let Some(fresh) = lines.get(skip..).filter(|fresh| !fresh.is_empty()) {
            let events: usize = fresh.iter().map(|line| self.decoder.most_bytes(line.len())).sum();
            let letters: usize = fresh.iter().map(|line| line.len() + OVERHEAD).sum();
            if !self.room(connection, events + 2 * frame::HEAD, letters)? {
                return Ok(Taken::NotNow);
            }
            self.encoder.clear();
            for (line, number) in fresh.iter().zip(next..) {
                self.decode_line(connection, line, number);
            }
            self.append_encoded(Some((session, reached)));
        }
        let due = Due::Reached(reached.max(next), self.log.next_offset());
        self.fresh.push((at, connection.generation, due));
        Ok(Taken::Yes)
    }

    /// Puts the record of a line into the encoder, or among the dead letters.
    fn decode_line(&mut self, connection: &mut Connection, line: &[u8], number: u64) {
        let result = match line.len() {
            length if length > MAX_LINE => Err(too_long(length)),
            _ => {
                let default = connection.default_stream.as_deref();
                self.decoder
                    .decode(line, default, self.sequencer.ids(), &mut self.encoder)
            }
        };
        match result {
            Ok(_) => {
                connection.accepted += 1;
                connection.dead_in_a_row = 0;
            }
            Err(misfit) => self.bury(connection, &misfit, line, number),
        }
    }

    fn bury(&mut self, connection: &mut Connection, misfit: &Misfit, line: &[u8], number: u64) {
        *self.counters.dead_letters.entry(misfit.code).or_default() += 1;
        connection.dead += 1;
        connection.dead_in_a_row += 1;
        let stream = misfit
            .stream
            .and_then(|stream| self.config.streams.get(usize::from(stream)));
        let place = Place {
            source: &connection.source,
            number,
        };
        self.dead.keep(
            misfit,
            stream.map(|stream| stream.name.as_str()),
            place,
            &line[..line.len().min(MAX_LINE)],
        );
        let refusal = Refusal {
            code: misfit.code,
            reason: misfit.reason.clone(),
            fatal: false,
            first: None,
        };
        connection.refuse(number, &refusal);
    }

    /// Flags and appends the records in the encoder; of a session, also if there are none.
    fn append_encoded(&mut self, session: Option<(u64, u64)>) {
        let Server {
            log,
            sequencer,
            counters,
            encoder,
            ..
        } = self;
        let (begun, buffer) = log.begin();
        let mut rest = encoder.bytes();
        let mut count = 0;
        while let Some((bytes, after)) = record::length(rest).and_then(|length| rest.split_at_checked(length)) {
            let marks = sequencer.judge(record::stream(bytes), record::time(bytes), record::id(bytes));
            counters.late += u64::from(marks & LATE != 0);
            counters.duplicates += u64::from(marks & DUPLICATE != 0);
            let start = buffer.len();
            buffer.extend_from_slice(bytes);
            buffer[start + record::FLAGS_AT] = record::flags(bytes) & (TEXT_ID | COUNTED_ID | ENDS) | marks;
            count += 1;
            rest = after;
        }
        counters.accepted += u64::from(count);
        match session {
            Some((session, reached)) => {
                log.finish(begun, count, session, reached);
                sequencer.advance(session, reached);
            }
            None if count == 0 => log.give_up(begun),
            None => drop(log.finish(begun, count, 0, 0)),
        }
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
}

/// The first lines of the input without their ends, as many as are taken together, and the bytes they take.
fn lines_of(input: &[u8], ended: bool) -> (Vec<&[u8]>, usize) {
    let mut lines = Vec::new();
    let mut used = 0;
    while lines.len() < LINES && used < input.len() && used < BYTES {
        let rest = &input[used..];
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) if !lines.is_empty() && used + end > BYTES => break,
            Some(end) => {
                lines.push(&rest[..end]);
                used += end + 1;
            }
            None if ended => {
                lines.push(rest);
                used = input.len();
            }
            None => break,
        }
    }
    (lines, used)
}

fn says_token(line: &[u8], token: Option<&str>) -> bool {
    let said = std::str::from_utf8(line).ok().and_then(|line| parse(line).ok());
    let Some(Json::Object(members)) = said else {
        return false;
    };
    members.iter().any(|(name, value)| match value {
        Json::Text(said) => name.as_str() == Some("token") && is_token(token, said.as_str()),
        _ => false,
    })
}
