//! Connections whose events can wait a moment, and take turns together.
//!
//! A supplier that sends event after event would have the intake woken for each of them, and that above all levels: what it takes from
//! the workers is more than reading the events does. So connections that have lately brought only events of patient streams, which
//! nothing of the highest level reads, are looked at every APART while they bring something, all at once. The others are read at once.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};

/// How far apart patient connections have their turns.
const APART: Duration = Duration::from_micros(250);
/// So often they must have had something, each time sooner than that after the last, before they have to wait: what one supplier
/// sends at once is less.
const FEW: u32 = 16;

/// Patient connections, which are polled apart.
pub(super) struct Pace {
    patient: Poll,
    events: Events,
    /// The token by which the other poll says that a patient connection has something.
    token: Token,
    /// When they have their next turn; None: as soon as they have something, which the other poll says.
    next: Option<Instant>,
    /// Whether that was said.
    is_told: bool,
    /// Whether they were made to rest, and whether they had something the last time.
    is_resting: bool,
    had: bool,
    /// Those that have more than was read of them, which no poll tells; for their next turn.
    held: Vec<usize>,
    last: Instant,
    close: u32,
}

impl Pace {
    /// Of no connections; the poll with this registry tells of them.
    pub(super) fn new(quick: &Registry, token: Token) -> io::Result<Pace> {
        let pace = Pace {
            patient: Poll::new()?,
            events: Events::with_capacity(1024),
            token,
            next: None,
            is_told: false,
            is_resting: false,
            had: false,
            held: Vec::new(),
            last: Instant::now(),
            close: 0,
        };
        pace.link(quick)?;
        Ok(pace)
    }

    /// Where patient connections are registered.
    pub(super) fn registry(&self) -> &Registry {
        self.patient.registry()
    }

    fn link(&self, quick: &Registry) -> io::Result<()> {
        quick.register(&mut SourceFd(&self.patient.as_raw_fd()), self.token, Interest::READABLE)
    }

    /// Waits until the other connections have something, or it is time for the patient ones, if they may have their turn.
    pub(super) fn wait(&self, quick: &mut Poll, events: &mut Events, timeout: Duration, may: bool) -> io::Result<()> {
        let Some(next) = self.next.filter(|_| may) else {
            return quick.poll(events, Some(timeout));
        };
        // The poll itself counts in milliseconds.
        wait_for(
            quick.as_raw_fd(),
            next.saturating_duration_since(Instant::now()).min(timeout),
        );
        quick.poll(events, Some(Duration::ZERO))
    }

    /// The other poll says that there is something.
    pub(super) fn tell(&mut self) {
        self.is_told = true;
    }

    /// What the patient connections do.
    pub(super) fn patients(&self) -> Patients {
        match () {
            () if self.is_resting => Patients::Resting,
            () if self.had => Patients::AtWork,
            () => Patients::Absent,
        }
    }

    /// A patient connection has more than was read of it: that is for its next turn.
    pub(super) fn hold(&mut self, at: usize) {
        self.held.push(at);
    }

    /// Lets the patient connections have no turn for so long.
    pub(super) fn rest(&mut self, quick: &Registry, span: Duration) -> io::Result<()> {
        self.is_resting = true;
        self.set_next(quick, Instant::now() + span)
    }

    /// They have their next turn then, whatever they have before.
    fn set_next(&mut self, quick: &Registry, next: Instant) -> io::Result<()> {
        if self.next.replace(next).is_none() {
            quick.deregister(&mut SourceFd(&self.patient.as_raw_fd()))?;
        }
        Ok(())
    }

    /// The patient connections whose turn it is.
    pub(super) fn turn(&mut self, quick: &Registry, mut queue: impl FnMut(usize)) -> io::Result<()> {
        let now = Instant::now();
        if !self.next.map_or(self.is_told, |next| now >= next) {
            return Ok(());
        }
        (self.is_told, self.is_resting) = (false, false);
        let mut found = self.held.len();
        self.held.drain(..).for_each(&mut queue);
        loop {
            self.patient.poll(&mut self.events, Some(Duration::ZERO))?;
            let here = self.events.iter().count();
            self.events.iter().for_each(|event| queue(event.token().0));
            found += here;
            if here < self.events.capacity() {
                break;
            }
        }
        self.had = found > 0;
        if found == 0 {
            if self.next.take().is_some() {
                self.close = 0;
                self.link(quick)?;
            }
            return Ok(());
        }
        self.close = if now.duration_since(self.last) < APART {
            self.close.saturating_add(1)
        } else {
            0
        };
        self.last = now;
        if self.next.is_some() || self.close >= FEW {
            self.set_next(quick, now + APART)?;
        }
        Ok(())
    }
}

/// What patient connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patients {
    /// They brought nothing the last time, or there are none.
    Absent,
    /// They have their turns, and could rest.
    AtWork,
    /// They rest.
    Resting,
}

/// Waits until something can be read, or for so long.
fn wait_for(descriptor: RawFd, span: Duration) {
    if span.is_zero() {
        return;
    }
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    let span = libc::timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    };
    // SAFETY: one pollfd and a timespec, both alive; signals are not touched. That it is interrupted is as good as that it ends.
    unsafe { libc::ppoll(&raw mut asked, 1, &raw const span, std::ptr::null()) };
}

/// Whether the events of a connection can wait: they can if it has brought only patient ones for some turns.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Turns in which it brought patient events and no others.
    turns: u32,
    /// What came in this turn.
    patient: bool,
    urgent: bool,
}

impl Patience {
    /// So many turns are looked at.
    const LONG: u32 = 16;

    /// An event came.
    pub(super) fn note(&mut self, is_patient: bool) {
        self.patient |= is_patient;
        self.urgent |= !is_patient;
    }

    /// A turn has ended; whether it is patient from now on.
    pub(super) fn end_turn(&mut self) -> bool {
        if self.urgent {
            self.turns = 0;
        } else if self.patient {
            self.turns = self.turns.saturating_add(1);
        }
        (self.patient, self.urgent) = (false, false);
        self.turns >= Self::LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_is_patient_until_something_urgent_comes() {
        let mut patience = Patience::default();
        for turn in 1..40 {
            patience.note(true);
            assert_eq!(patience.end_turn(), turn >= Patience::LONG, "{turn}");
            // A turn without events says nothing.
            assert_eq!(patience.end_turn(), turn >= Patience::LONG, "{turn}");
        }
        patience.note(true);
        patience.note(false);
        assert!(!patience.end_turn());
    }

    #[test]
    fn what_comes_is_told_however_close_it_comes() {
        let mut quick = Poll::new().unwrap();
        let mut pace = Pace::new(quick.registry(), Token(99)).unwrap();
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        pace.registry()
            .register(&mut SourceFd(&receiver.as_raw_fd()), Token(7), Interest::READABLE)
            .unwrap();
        let mut events = Events::with_capacity(8);
        let mut was_paced = false;
        for round in 0..200_u32 {
            sender.write_all(&[1]).unwrap();
            let mut told = Vec::new();
            let began = Instant::now();
            while told.is_empty() && began.elapsed() < Duration::from_secs(5) {
                // Now and then nobody may have a turn, which must not make the next one be forgotten.
                let may = round % 7 > 0 || began.elapsed() > Duration::from_millis(2);
                pace.wait(&mut quick, &mut events, Duration::from_millis(3), may)
                    .unwrap();
                if events.iter().any(|event| event.token() == Token(99)) {
                    pace.tell();
                }
                if may {
                    pace.turn(quick.registry(), |at| told.push(at)).unwrap();
                }
            }
            assert_eq!(told, [7], "{round}");
            was_paced |= pace.next.is_some();
            let mut bytes = [0; 8];
            while std::io::Read::read(&mut &receiver, &mut bytes).is_ok() {}
            match round % 50 {
                49 => std::thread::sleep(8 * APART),
                20 => {
                    assert_eq!(pace.patients(), Patients::AtWork);
                    pace.rest(quick.registry(), 4 * APART).unwrap();
                    assert_eq!(pace.patients(), Patients::Resting);
                }
                _ => {}
            }
        }
        assert!(was_paced);
    }

    #[test]
    fn what_is_held_has_its_turn_when_the_rest_is_over() {
        let quick = Poll::new().unwrap();
        let mut pace = Pace::new(quick.registry(), Token(99)).unwrap();
        pace.rest(quick.registry(), 4 * APART).unwrap();
        pace.hold(7);
        let began = Instant::now();
        let mut told = Vec::new();
        while told.is_empty() && began.elapsed() < Duration::from_secs(5) {
            pace.turn(quick.registry(), |at| told.push(at)).unwrap();
        }
        assert_eq!(told, [7]);
        assert!(began.elapsed() >= 3 * APART);
        assert_eq!(pace.patients(), Patients::AtWork);
        pace.rest(quick.registry(), Duration::ZERO).unwrap();
        pace.turn(quick.registry(), |at| told.push(at)).unwrap();
        assert_eq!((told, pace.patients()), (vec![7], Patients::Absent));
    }
}
