//! JSON as Python's `json` reads it, which is what src/cepheid/model/records.py judges by: NaN and Infinity are numbers,
//! integers have any size, and a lone surrogate is a character (which no attribute can hold).

use std::borrow::Cow;

use super::decode::Misfit;

/// Deeper than this is refused rather than followed; Python gives up near a thousand.
const MAX_DEPTH: usize = 900;
/// Python reads no integer of more digits.
const MAX_DIGITS: usize = 4300;

/// Text of a JSON string; UTF-8 unless it is `broken`, when lone surrogates are encoded as if they were characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    bytes: Cow<'a, [u8]>,
    broken: bool,
}

impl Text<'_> {
    /// The text; None if a character in it is broken.
    pub fn as_str(&self) -> Option<&str> {
        if self.broken {
            None
        } else {
            std::str::from_utf8(&self.bytes).ok()
        }
    }

    /// The text as it can be shown.
    pub fn shown(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether it has no characters.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// A number without fraction and exponent, as it is written.
    Int(&'a str),
    /// Another number; it may be NaN or infinite.
    Float(f64),
    /// A string.
    Text(Text<'a>),
    /// An array.
    List(Vec<Json<'a>>),
    /// An object; no name comes twice.
    Object(Vec<(Text<'a>, Json<'a>)>),
}

/// The JSON value that a text is.
pub fn parse(text: &str) -> Result<Json<'_>, Misfit> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    parser.blanks();
    let value = parser.value()?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.fault("extra data"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn fault(&self, what: &str) -> Misfit {
        let column = self
            .text
            .get(..self.at)
            .map_or(self.at, |before| before.chars().count())
            + 1;
        Misfit::new("not-json", format!("not JSON at column {column}: {what}"))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self) -> Result<Json<'a>, Misfit> {
        match self.peek() {
            Some(b'"') => self.string().map(Json::Text),
            Some(b'{') => self.nested(Parser::object),
            Some(b'[') => self.nested(Parser::list),
            Some(b'n') if self.word("null") => Ok(Json::Null),
            Some(b't') if self.word("true") => Ok(Json::Bool(true)),
            Some(b'f') if self.word("false") => Ok(Json::Bool(false)),
            Some(b'N') if self.word("NaN") => Ok(Json::Float(f64::NAN)),
            Some(b'I') if self.word("Infinity") => Ok(Json::Float(f64::INFINITY)),
            Some(b'-') if self.word("-Infinity") => Ok(Json::Float(f64::NEG_INFINITY)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.fault("expecting value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Json<'a>, Misfit>) -> Result<Json<'a>, Misfit> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Misfit::new(
                "not-json",
                "not JSON that can be read: nested too deeply".to_owned(),
            ));
        }
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Json<'a>, Misfit> {
        let mut members: Vec<(Text<'a>, Json<'a>)> = Vec::new();
        self.blanks();
        if self.word("}") {
            return Ok(Json::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.fault("expecting property name enclosed in double quotes"));
            }
            let name = self.string()?;
            self.blanks();
            if !self.word(":") {
                return Err(self.fault("expecting ':' delimiter"));
            }
            self.blanks();
            let value = self.value()?;
            members.push((name, value));
            self.blanks();
            if self.word("}") {
                break;
            }
            if !self.word(",") {
                return Err(self.fault("expecting ',' delimiter"));
            }
            self.blanks();
        }
        refuse_repeats(&members)?;
        Ok(Json::Object(members))
    }

    fn list(&mut self) -> Result<Json<'a>, Misfit> {
        let mut items = Vec::new();
        self.blanks();
        if self.word("]") {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            self.blanks();
            if self.word("]") {
                return Ok(Json::List(items));
            }
            if !self.word(",") {
                return Err(self.fault("expecting ',' delimiter"));
            }
            self.blanks();
        }
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<Json<'a>, Misfit> {
        let from = self.at;
        self.word("-");
        let digits = if self.word("0") { 1 } else { self.digits() };
        if digits == 0 {
            self.at = from;
            return Err(self.fault("expecting value"));
        }
        let mut whole = true;
        let integer = self.at;
        if self.word(".") && self.digits() > 0 {
            whole = false;
        } else {
            self.at = integer;
        }
        let mantissa = self.at;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() > 0 {
                whole = false;
            } else {
                self.at = mantissa;
            }
        }
        let text = &self.text[from..self.at];
        if !whole {
            return text.parse().map(Json::Float).map_err(|_| self.fault("expecting value"));
        }
        if digits > MAX_DIGITS {
            return Err(Misfit::new("out-of-range", "a number has too many digits".to_owned()));
        }
        Ok(Json::Int(text))
    }

    fn string(&mut self) -> Result<Text<'a>, Misfit> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        let from = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = Text {
                        bytes: Cow::Borrowed(&bytes[from..self.at]),
                        broken: false,
                    };
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => break,
                Some(0..=0x1f) => return Err(self.fault("invalid control character")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("unterminated string")),
            }
        }
        let mut text = bytes[from..self.at].to_vec();
        let mut broken = false;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Text {
                        bytes: Cow::Owned(text),
                        broken,
                    });
                }
                Some(b'\\') => broken |= self.escape(&mut text)?,
                Some(0..=0x1f) => return Err(self.fault("invalid control character")),
                Some(byte) => {
                    text.push(byte);
                    self.at += 1;
                }
                None => return Err(self.fault("unterminated string")),
            }
        }
    }

    /// Appends what an escape means; whether that is a lone surrogate.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<bool, Misfit> {
        self.at += 1;
        let plain = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                let code = self.hex()?;
                return Ok(self.code_point(code, text));
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            _ => return Err(self.fault("invalid \\escape")),
        };
        text.push(plain);
        self.at += 1;
        Ok(false)
    }

    fn hex(&mut self) -> Result<u32, Misfit> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.fault("invalid \\uXXXX escape"))?;
        self.at += 4;
        Ok(code)
    }

    fn code_point(&mut self, code: u32, text: &mut Vec<u8>) -> bool {
        let mut code = code;
        if (0xd800..0xdc00).contains(&code) && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            match self.hex() {
                Ok(low @ 0xdc00..0xe000) => code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00),
                // A broken escape is found again where it stands.
                _ => self.at = before,
            }
        }
        match char::from_u32(code) {
            Some(character) => {
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                false
            }
            None => {
                text.extend_from_slice(&[
                    0xe0 | (code >> 12) as u8,
                    0x80 | (code >> 6 & 0x3f) as u8,
                    0x80 | (code & 0x3f) as u8,
                ]);
                true
            }
        }
    }
}

fn refuse_repeats(members: &[(Text<'_>, Json<'_>)]) -> Result<(), Misfit> {
    let repeated = if members.len() <= 16 {
        let mut names = members.iter().map(|(name, _)| name).enumerate();
        names
            .find(|(at, name)| members[..*at].iter().any(|(other, _)| other == *name))
            .map(|(_, name)| name)
    } else {
        let mut seen = std::collections::HashSet::with_capacity(members.len());
        members
            .iter()
            .map(|(name, _)| name)
            .find(|name| !seen.insert(&name.bytes))
    };
    match repeated {
        Some(name) => {
            let reason = format!("{} is given twice", super::decode::quote(&name.shown()));
            Err(Misfit::new("duplicate-attribute", reason))
        }
        None => Ok(()),
    }
}
