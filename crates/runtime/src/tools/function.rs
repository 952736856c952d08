//! Functions of the program itself as tools.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use gesta_core::amounts::Amounts;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use serde_json::Value;
use tokio::time::Instant;

use super::code;
use super::driver::{Call, Reply};
use super::secrets::{Mask, Secrets, Transport};
use super::verdict::{Verdict, failing};

/// One call of a function.
#[derive(Clone, Debug)]
pub struct FunctionCall {
    /// The trajectory on whose behalf.
    pub trajectory: TrajectoryId,
    /// The step on whose behalf.
    pub step: StepId,
    /// The attempt that sends it.
    pub attempt: u64,
    /// The key to deduplicate by: the same for every attempt at one effect.
    pub key: String,
    /// The arguments.
    pub args: Canon,
    /// When nobody waits for the answer any more. The function is dropped at its next `.await`: one that
    /// blocks its thread is waited for, and does that in `tokio::task::spawn_blocking` if it must.
    pub deadline: Instant,
    secrets: Arc<Secrets>,
}

impl FunctionCall {
    /// The value of a secret that the manifest declares.
    pub fn secret(&self, name: &str) -> Option<&[u8]> {
        self.secrets.get(name)
    }
}

/// Why a function has no result, and what that means for the effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FunctionError {
    verdict: Verdict,
    message: String,
    retry_after_ms: Option<u64>,
}

impl FunctionError {
    fn new(verdict: Verdict, message: impl Into<String>) -> Self {
        Self { verdict, message: message.into(), retry_after_ms: None }
    }

    /// Nothing happened, and asking again may help.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::new(Verdict::Retry, message)
    }

    /// Nothing happened, and asking again will not help.
    pub fn did_not_happen(message: impl Into<String>) -> Self {
        Self::new(Verdict::DidNotHappen, message)
    }

    /// The effect happened, and still there is no result.
    pub fn happened(message: impl Into<String>) -> Self {
        Self::new(Verdict::Happened, message)
    }

    /// Nobody knows whether it happened.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, message)
    }

    /// The same, and not to be tried again before this time has passed.
    #[must_use]
    pub fn after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}

/// What a function returns: a value, and what it cost if it knows that.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// The result.
    pub value: Value,
    /// What the call cost.
    pub cost: Option<Amounts>,
}

impl From<Value> for Returned {
    fn from(value: Value) -> Self {
        Self { value, cost: None }
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Returned, FunctionError>> + Send>>;

/// Calls one function. Dropped, it ends at its next `.await`; a panic ends only the call.
pub(super) struct Function(Arc<dyn Fn(FunctionCall) -> Running + Send + Sync>);

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}

impl Function {
    pub(super) fn new<F, R, T>(function: F) -> Self
    where
        F: Fn(FunctionCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, FunctionError>> + Send + 'static,
        T: Into<Returned>,
    {
        Self(Arc::new(move |call| {
            let running = function(call);
            Box::pin(async move { running.await.map(Into::into) })
        }))
    }
}

/// What the function returns, or that it panicked.
async fn outcome(
    function: &(dyn Fn(FunctionCall) -> Running + Send + Sync),
    call: FunctionCall,
) -> std::thread::Result<Result<Returned, FunctionError>> {
    let mut running = catch_unwind(AssertUnwindSafe(|| function(call)))?;
    poll_fn(move |context| {
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(returned)) => Poll::Ready(Ok(returned)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

#[async_trait]
impl Transport for Function {
    async fn send(&self, call: Call, secrets: Arc<Secrets>, _: &Mask) -> Reply {
        let Call { trajectory, step, attempt, key, args, deadline, progress: _ } = call;
        let call = FunctionCall { trajectory, step, attempt, key, args, deadline, secrets };
        match tokio::time::timeout_at(deadline, outcome(&*self.0, call)).await {
            Ok(Ok(Ok(Returned { value, cost }))) => match serde_json::to_vec(&value) {
                Ok(output) => Reply::Answered { output, cost },
                Err(error) => Verdict::Happened.failed(code::TOOL_FAILED, error.to_string()),
            },
            Ok(Ok(Err(error))) => failed(error),
            Ok(Err(_)) => {
                let message = "the function panicked; its effect is unknown";
                Verdict::Unknown.failed(code::TOOL_CRASHED, message)
            }
            Err(_) => {
                let message = "the function did not return before the deadline";
                Verdict::Unknown.failed(code::DEADLINE_PASSED, message)
            }
        }
    }
}

fn failed(error: FunctionError) -> Reply {
    let FunctionError { verdict, message, retry_after_ms: after } = error;
    let code = if verdict == Verdict::Retry { code::TOOL_BUSY } else { code::TOOL_FAILED };
    match verdict.reply(Vec::new(), failing(code, message)) {
        Reply::Failed { certainty, retryable, error, output, .. } => {
            Reply::Failed { certainty, retryable, retry_after_ms: after, error, output }
        }
        answered @ Reply::Answered { .. } => answered,
    }
}
