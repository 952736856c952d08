//! Server-sent events: the data of each event, as it comes. Ids and kinds of events are passed over:
//! nothing is resumed, so that nobody can be told one answer twice.

/// Takes bytes, gives the data of events.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Whether the event has data at all.
    any: bool,
    /// Whether the last byte was a carriage return, whose line feed does not count.
    returned: bool,
    /// How many bytes the event under way has.
    size: usize,
}

/// An event is larger than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Events {
    /// Takes more of the stream and gives the events that it completes.
    pub(super) fn feed(&mut self, bytes: &[u8], most: usize) -> Result<Vec<Vec<u8>>, TooLarge> {
        let mut events = Vec::new();
        for byte in bytes {
            let after_return = std::mem::replace(&mut self.returned, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                byte => {
                    self.size += 1;
                    if self.size > most {
                        return Err(TooLarge);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        if line.is_empty() {
            self.size = 0;
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.any).then_some(data).filter(|data| !data.is_empty());
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => Some(&[][..]),
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => Some(value),
            Some(_) | None => None,
        };
        if let Some(value) = value {
            if self.any {
                self.data.push(b'\n');
            }
            self.any = true;
            self.data.extend_from_slice(value);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> Vec<String> {
        let mut events = Events::default();
        let fed = chunks.iter().flat_map(|chunk| events.feed(chunk.as_bytes(), 100).unwrap());
        fed.map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn events_end_at_empty_lines_however_lines_end() {
        assert_eq!(read(&["data: {\"a\":1}\n\n"]), ["{\"a\":1}"]);
        assert_eq!(read(&["event: message\r\nid: 7\r\ndata:x\r\n\r\n"]), ["x"]);
        assert_eq!(read(&["data: a\rdata: b\r\rdata: c\r\n", "\r\n"]), ["a\nb", "c"]);
        assert_eq!(read(&["da", "ta: a", "b\n", "\n: note\n\n", "data\n\n"]), ["ab"]);
        assert_eq!(read(&["\u{feff}data: x\n\n", "database: y\n\n"]), ["x"]);
        assert_eq!(read(&["data: not ended\n"]), [""; 0]);
    }

    #[test]
    fn an_event_has_an_end() {
        let mut events = Events::default();
        assert_eq!(events.feed(b"data: 1234\n", 9), Err(TooLarge));
        let mut events = Events::default();
        for _ in 0..100 {
            assert_eq!(events.feed(b"data: 12\n\n", 9).unwrap().len(), 1);
        }
    }
}
