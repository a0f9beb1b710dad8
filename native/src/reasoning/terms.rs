//! Terms as numbers: each term, in the form of N-Triples, has one number for as long as the engine lives.

use hashbrown::HashMap;

/// A triple of terms' numbers: subject, predicate, object.
pub type Triple = [u32; 3];

/// The terms by number, and their numbers.
#[derive(Default)]
pub struct Terms {
    numbers: HashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

/// A line that is not `subject predicate object .`
#[derive(Debug, PartialEq, Eq)]
pub struct NotATriple(pub String);

impl Terms {
    /// The number of a term, which may be new.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer than 2^32 terms");
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// The term of a number.
    pub fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    /// Whether a term can be a subject: everything but a literal.
    pub fn is_node(&self, number: u32) -> bool {
        !self.text(number).starts_with('"')
    }

    /// Whether a term can be a predicate.
    pub fn is_iri(&self, number: u32) -> bool {
        self.text(number).starts_with('<')
    }

    /// The triples of N-Triples as pyoxigraph writes them: single spaces, a line each.
    pub fn parse(&mut self, text: &str) -> Result<Vec<Triple>, NotATriple> {
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| self.parse_line(line))
            .collect()
    }

    fn parse_line(&mut self, line: &str) -> Result<Triple, NotATriple> {
        let mut parts = line.splitn(3, ' ');
        let (Some(s), Some(p), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NotATriple(line.to_owned()));
        };
        let Some(o) = rest.trim_end().strip_suffix('.') else {
            return Err(NotATriple(line.to_owned()));
        };
        Ok([self.number(s), self.number(p), self.number(o.trim_end())])
    }

    /// Triples as N-Triples.
    pub fn print<'a>(&self, triples: impl IntoIterator<Item = &'a Triple>) -> String {
        let mut text = String::new();
        for triple in triples {
            for &term in triple {
                text.push_str(self.text(term));
                text.push(' ');
            }
            text.push_str(".\n");
        }
        text
    }
}
