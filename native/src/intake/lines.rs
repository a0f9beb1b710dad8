//! Lines of JSON, for a person with a terminal and for whoever has no library at hand.

use super::batches::is_token;
use super::connection::{Connection, Mode};
use super::dead::{OVERHEAD, Place};
use super::decode::{MAX_LINE, Misfit, too_long};
use super::server::{Server, Taken};
use super::text::{Json, parse};
use super::wire::Refusal;
use crate::log::{Error, frame};
use crate::record::{self, COUNTED_ID, DUPLICATE, LATE, TEXT_ID};

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
                used += lines[0].len() + 1;
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
            if line.iter().all(|byte| matches!(byte, b' ' | b'\t'..=b'\r')) {
                continue;
            }
            let result = match line.len() {
                length if length > MAX_LINE => Err(too_long(length)),
                _ => self.decoder.decode(line, self.sequencer.ids(), &mut self.encoder),
            };
            match result {
                Ok(_) => {
                    connection.accepted += 1;
                    connection.dead_in_a_row = 0;
                }
                Err(misfit) => self.bury(connection, &misfit, line),
            }
        }
        self.append_encoded();
        Ok(true)
    }

    fn bury(&mut self, connection: &mut Connection, misfit: &Misfit, line: &[u8]) {
        *self.counters.dead_letters.entry(misfit.code).or_default() += 1;
        connection.dead += 1;
        connection.dead_in_a_row += 1;
        let stream = misfit
            .stream
            .and_then(|stream| self.config.streams.get(usize::from(stream)));
        let place = Place {
            source: &connection.source,
            number: connection.lines,
        };
        self.dead.keep(
            misfit,
            stream.map(|stream| stream.name.as_str()),
            place,
            &line[..line.len().min(MAX_LINE)],
        );
        let number = connection.lines;
        let refusal = Refusal {
            code: misfit.code,
            reason: misfit.reason.clone(),
            fatal: false,
            first: None,
        };
        connection.refuse(number, &refusal);
        if connection.dead_in_a_row >= MAX_DEAD_IN_A_ROW {
            let reason = format!("{MAX_DEAD_IN_A_ROW} lines in a row were no records");
            connection.refuse(number, &Refusal::fatal("garbage", reason));
        }
    }

    /// Flags and appends the records in the encoder.
    fn append_encoded(&mut self) {
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
            buffer[start + record::FLAGS_AT] = record::flags(bytes) & (TEXT_ID | COUNTED_ID) | marks;
            count += 1;
            rest = after;
        }
        if count == 0 {
            log.give_up(begun);
            return;
        }
        counters.accepted += u64::from(count);
        log.finish(begun, count, 0, 0);
    }
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
