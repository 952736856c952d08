//! The parsers of what MCP servers send, for fuzzing.

use super::offer;
use super::sse::Events;

/// The data of the events in a stream that comes in these pieces; none if one is larger than it may be.
pub fn events(pieces: &[&[u8]], most_bytes: usize) -> Option<Vec<Vec<u8>>> {
    let mut events = Events::default();
    let mut all = Vec::new();
    for piece in pieces {
        all.extend(events.feed(piece, most_bytes).ok()?);
    }
    Some(all)
}

/// The tools in a page of a list, by name and as they were written.
pub fn tools(page: &str) -> Option<Vec<(String, String)>> {
    offer::page(page).ok().map(|page| page.tools)
}

/// What a server says it is.
pub fn identity(greeting: &str) -> String {
    offer::identity(greeting)
}
