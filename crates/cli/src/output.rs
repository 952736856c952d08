//! What goes to stdout. A reader that has gone away is not an error: what it would have read is
//! dropped, and the command comes to the same end.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

use anstream::AutoStream;
use serde::Serialize;

use crate::args::Color;

/// Stdout, and how to write to it.
pub(crate) struct Output {
    stream: Option<BufWriter<AutoStream<Stdout>>>,
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool, color: Color) -> Self {
        // JSON is written as it is, and never coloured.
        let choice = match json {
            true => anstream::ColorChoice::AlwaysAnsi,
            false => color.choice(&io::stdout()),
        };
        Self { stream: Some(BufWriter::new(AutoStream::new(io::stdout(), choice))), json }
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    /// Writes one line of text, styled with ANSI sequences that are dropped where they do not belong.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.write(text.as_ref().as_bytes())?;
        self.write(b"\n")
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.write(text.as_bytes())
    }

    /// Writes one JSON document.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        Ok(self.line(crate::escape::json(&text))?)
    }

    /// Writes one JSON value as a line.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        Ok(self.line(crate::escape::json(&text))?)
    }

    /// Writes out what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let written = self.stream.as_mut().map_or(Ok(()), Write::flush);
        self.unless_gone(written)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.stream.as_mut().map_or(Ok(()), |stream| stream.write_all(bytes));
        self.unless_gone(written)
    }

    fn unless_gone(&mut self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                if let Some(stream) = self.stream.take() {
                    // Taken apart, so that dropping it does not write again.
                    let _ = stream.into_parts();
                }
                Ok(())
            }
            other => other,
        }
    }
}

/// `1 entry`, `2 entries`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Whether progress can be shown: on a terminal that is not asked for JSON.
pub(crate) fn shows_progress(json: bool) -> bool {
    !json && io::stderr().is_terminal()
}
