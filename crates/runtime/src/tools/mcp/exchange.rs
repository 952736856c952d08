//! One request whose answer is wanted as it was written: whether it was sent, and what came back. The
//! SDK's types drop fields that they do not know and write numbers their own way (shown by the tests in
//! `wire.rs`). So neither arguments nor results pass through them: the request carries this exchange
//! through the SDK, and our own end of the wire fills in the one and takes out the other.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use gesta_core::json::Canon;
use tokio::sync::mpsc;

const WAITING: u8 = 0;
const WITHDRAWN: u8 = 1;
const SENT: u8 = 2;

/// How far a call says it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Progressed {
    pub(super) progress: f64,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A result, as the server wrote it.
    Result(String),
    /// A JSON-RPC error, as the server wrote it.
    Error { code: i64, message: String, raw: String },
    /// An HTTP status that means failure.
    Status { status: u16, message: String, retry_after_ms: Option<u64> },
    /// The request did not reach the server whole.
    NotSent { why: String, refused: bool },
    /// The request was sent, and there is no whole answer.
    Lost(String),
    /// The answer is larger than it may be.
    TooLarge(String),
}

/// See the module.
pub(super) struct Exchange {
    /// The arguments of a call, to be sent as they are.
    pub(super) args: Option<Canon>,
    stage: AtomicU8,
    answer: Mutex<Option<Answer>>,
    progress: Option<mpsc::Sender<Progressed>>,
}

impl Exchange {
    /// A question without arguments of the caller's.
    pub(super) fn question() -> Self {
        Self { args: None, stage: AtomicU8::new(WAITING), answer: Mutex::new(None), progress: None }
    }

    /// A call.
    pub(super) fn call(args: Canon, progress: mpsc::Sender<Progressed>) -> Self {
        Self { args: Some(args), progress: Some(progress), ..Self::question() }
    }

    /// Whether the first byte may go out now. From then on nobody can say that nothing was sent.
    pub(super) fn begin_sending(&self) -> bool {
        let begun = self.stage.compare_exchange(WAITING, SENT, Ordering::SeqCst, Ordering::SeqCst);
        begun.is_ok() || self.sent()
    }

    /// Calls the request off. True if nothing of it was sent, which then stays so.
    pub(super) fn withdraw(&self) -> bool {
        let (from, to) = (WAITING, WITHDRAWN);
        let withdrawn = self.stage.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        withdrawn.is_ok() || self.stage.load(Ordering::SeqCst) == WITHDRAWN
    }

    fn sent(&self) -> bool {
        self.stage.load(Ordering::SeqCst) == SENT
    }

    /// Keeps the first answer.
    pub(super) fn answered(&self, answer: Answer) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer);
    }

    /// The request went wrong on its way. What that means depends on whether anything was sent.
    pub(super) fn broke(&self, why: &str) {
        self.answered(if self.withdraw() {
            Answer::NotSent { why: why.to_owned(), refused: false }
        } else {
            Answer::Lost(why.to_owned())
        });
    }

    /// What is known when nobody waits any more.
    pub(super) fn conclude(&self, why: &str) -> Answer {
        self.broke(why);
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.take().unwrap_or_else(|| Answer::Lost(why.to_owned()))
    }

    /// Passes progress on. Of a flood, what does not fit is dropped.
    pub(super) fn progressed(&self, progressed: Progressed) {
        if let Some(progress) = &self.progress {
            let _full = progress.try_send(progressed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_withdrawn_is_never_sent_and_what_was_sent_is_never_withdrawn() {
        let exchange = Exchange::question();
        assert!(exchange.withdraw());
        assert!(!exchange.begin_sending());
        let exchange = Exchange::question();
        assert!(exchange.begin_sending() && exchange.begin_sending());
        assert!(!exchange.withdraw());
    }

    #[test]
    fn the_first_answer_counts_and_none_depends_on_whether_it_was_sent() {
        let exchange = Exchange::question();
        exchange.answered(Answer::Result("1".into()));
        exchange.answered(Answer::Lost("later".into()));
        assert_eq!(exchange.conclude("end"), Answer::Result("1".into()));
        let unsent = Exchange::question().conclude("end");
        assert_eq!(unsent, Answer::NotSent { why: "end".into(), refused: false });
        let sent = Exchange::question();
        sent.begin_sending();
        assert_eq!(sent.conclude("end"), Answer::Lost("end".into()));
    }
}
