//! Streams come and go while the intake runs: its configuration is read again, and no connection ends for it.

use std::io::Read;

use super::config::Config;
use super::server::Server;
use crate::log::{frame, schema};

/// What a signal asks for.
pub(super) enum Signal {
    /// To end.
    End,
    /// To read the configuration again.
    Reload,
}

impl Server {
    /// The signal that came.
    pub(super) fn signal(&mut self) -> Signal {
        let mut numbers = [0; 64];
        let count = self
            .signals
            .as_mut()
            .and_then(|signals| signals.read(&mut numbers).ok())
            .unwrap_or(0);
        let only_reload = count > 0 && numbers[..count].iter().all(|number| i32::from(*number) == libc::SIGHUP);
        if only_reload { Signal::Reload } else { Signal::End }
    }

    /// Reads the configuration again; if it can't be used, the one before stays, and the counters say why.
    pub(super) fn reload(&mut self) {
        self.counters.reload_error = self.try_reload().err();
        self.counters.reloads += 1;
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let path = self
            .config
            .reload
            .as_ref()
            .ok_or("no file was named to read the configuration from")?;
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let found = Config::parse(&text)?;
        if (&found.streams, &found.default_stream) == (&self.config.streams, &self.config.default_stream) {
            return Ok(());
        }
        // Only streams change; sockets and the log stay.
        let config = Config {
            streams: found.streams,
            default_stream: found.default_stream,
            ..self.config.clone()
        };
        let decoder = config.decoder()?;
        let layouts = schema::layouts(&config.schemas())?;
        // Room first, for about what the state will be, so that nothing has changed if there is none.
        self.commit().map_err(|error| error.to_string())?;
        let room = self.sequencer.state().len() + text.len() + 2 * frame::HEAD;
        let sequencer = &self.sequencer;
        self.log
            .reserve(room, || sequencer.state())
            .map_err(|error| error.to_string())?;
        self.config = config;
        self.decoder = decoder;
        self.layouts = layouts;
        self.sequencer.renew(&self.config);
        // From here on records in the log are by the new numbers.
        let state = self.sequencer.state();
        self.log.stage_state(&state);
        for at in 0..self.connections.len() {
            if let Some(mut connection) = self.connections[at].take() {
                self.renumber(&mut connection);
                self.connections[at] = Some(connection);
            }
        }
        Ok(())
    }
}
