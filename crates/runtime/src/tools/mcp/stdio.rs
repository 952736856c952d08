//! A server that is a program: messages are lines on its standard streams.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

use super::exchange::Answer;
use super::inbox::Inbox;
use super::wire::{BACKLOG, Outgoing, Outlet, Sending, Wire, WireError};
use crate::tools::process::Running;
use crate::tools::secrets::Mask;
use crate::tools::size::SizeBytes;

const CHUNK: usize = 64 << 10;

/// The pipes to a server. The program is ended when this is dropped.
struct Pipes(mpsc::UnboundedSender<Line>);

struct Line {
    message: Outgoing,
    sent: oneshot::Sender<Result<(), WireError>>,
}

/// Connects the SDK with a running server.
pub(super) fn connect(running: Running, mask: Arc<Mask>, most: SizeBytes) -> (Wire, Arc<Inbox>) {
    let Running { stdin, stdout, end } = running;
    let (to_sdk, from_server) = mpsc::channel(BACKLOG);
    let inbox = Arc::new(Inbox::new(to_sdk));
    let (lines, queue) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write(stdin, queue));
    // Read from the start: the supervisor could not end while its report waits to be read.
    let told = tokio::spawn(async move { end.told(&mask).await });
    let to = Arc::clone(&inbox);
    tokio::spawn(async move {
        let flooded = read(stdout, &to, most).await;
        // Closes the standard input, and so ends what may still run.
        writer.abort();
        let how = told.await.unwrap_or_default();
        if flooded {
            to.end(&format!("the server sent more than {most} at once and was ended"), true);
        } else {
            to.end(&how, false);
        }
    });
    (Wire { outlet: Box::new(Pipes(lines)), inbox: Arc::clone(&inbox), from_server }, inbox)
}

impl Outlet for Pipes {
    fn send(&self, message: Outgoing) -> Sending {
        let (sent, done) = oneshot::channel();
        let queued = self.0.send(Line { message, sent });
        Box::pin(async move {
            let gone = || WireError::Ended("it takes no messages".to_owned());
            queued.map_err(|_| gone())?;
            done.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn close(&self) -> Sending {
        Box::pin(async { Ok(()) })
    }
}

/// One line after the other: none is ever cut by another.
async fn write(mut to: impl AsyncWrite + Unpin, mut queue: mpsc::UnboundedReceiver<Line>) {
    while let Some(Line { message, sent }) = queue.recv().await {
        let Outgoing { text, exchange, .. } = message;
        if exchange.as_ref().is_some_and(|exchange| !exchange.begin_sending()) {
            let _gone =
                sent.send(Err(WireError::NotTaken("called off before it was sent".to_owned())));
            continue;
        }
        let result = write_line(&mut to, &text).await;
        if let (Err(Cut { whole: false, why }), Some(exchange)) = (&result, &exchange) {
            // Without its last bytes no server can have read it as a message.
            exchange.answered(Answer::NotSent { why: why.clone(), refused: false });
        }
        let _gone = sent.send(result.map_err(|Cut { why, .. }| WireError::Ended(why)));
    }
}

/// A line that could not be written.
struct Cut {
    /// Whether all of the message was, and only its end is missing.
    whole: bool,
    why: String,
}

async fn write_line(to: &mut (impl AsyncWrite + Unpin), text: &str) -> Result<(), Cut> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        let cut = |why: String| Cut { whole: false, why };
        match to.write(left).await {
            Ok(0) => return Err(cut("it takes nothing".to_owned())),
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(error) => return Err(cut(error.to_string())),
        }
    }
    let end = async {
        to.write_all(b"\n").await?;
        to.flush().await
    };
    end.await.map_err(|error| Cut { whole: true, why: error.to_string() })
}

/// Reads lines to the end. True if one was longer than it may be.
async fn read(mut from: impl AsyncRead + Unpin, inbox: &Inbox, most: SizeBytes) -> bool {
    let mut chunk = vec![0; CHUNK];
    let mut line = Vec::new();
    loop {
        let read = match from.read(&mut chunk).await {
            Ok(0) | Err(_) => return false,
            Ok(read) => read,
        };
        let mut rest = chunk.get(..read).unwrap_or_default();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line.extend_from_slice(rest.get(..end).unwrap_or_default());
            if line.len() > most.bytes() {
                return true;
            }
            inbox.take(&line).await;
            line.clear();
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        line.extend_from_slice(rest);
        if line.len() > most.bytes() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use gesta_core::json::Canon;

    use super::*;
    use crate::tools::mcp::exchange::Exchange;

    /// Writes a message of 20 bytes to a pipe that takes so many and then breaks.
    async fn written(taken: usize) -> Answer {
        let (ours, theirs) = tokio::io::duplex(taken);
        let exchange = Arc::new(Exchange::call(Canon::null(), mpsc::channel(1).0));
        let message = Outgoing {
            text: "x".repeat(20),
            method: None,
            id: None,
            tool: None,
            version: None,
            exchange: Some(Arc::clone(&exchange)),
            cancels: None,
        };
        let (lines, queue) = mpsc::unbounded_channel();
        let (sent, done) = oneshot::channel();
        lines.send(Line { message, sent }).ok().unwrap();
        drop(lines);
        let breaks = async {
            // The writer fills the pipe first, then finds nobody at the other end.
            tokio::task::yield_now().await;
            drop(theirs);
        };
        tokio::join!(write(ours, queue), breaks);
        assert!(done.await.unwrap().is_err());
        exchange.conclude("no answer")
    }

    #[tokio::test]
    async fn a_message_that_was_cut_cannot_have_been_read_and_a_whole_one_may_have() {
        assert!(matches!(written(19).await, Answer::NotSent { .. }));
        assert_eq!(written(20).await, Answer::Lost("no answer".to_owned()));
    }

    #[tokio::test]
    async fn a_line_has_an_end() {
        let (to_sdk, _from_server) = mpsc::channel(1);
        let inbox = Inbox::new(to_sdk);
        let most = SizeBytes::MIB;
        let long = "x".repeat(most.bytes() + 1);
        assert!(read(long.as_bytes(), &inbox, most).await);
        let fits = format!("{}\n{}\n", "x".repeat(most.bytes()), "y".repeat(most.bytes()));
        assert!(!read(fits.as_bytes(), &inbox, most).await);
    }
}
