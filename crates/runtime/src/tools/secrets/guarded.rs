//! A transport between two guards: before a call its secrets are found, after it they are masked.
//! Every driver of ours is one, so none can forget either.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use gesta_core::document::Failing;
use tokio::time::{Instant, timeout_at};

use super::{Mask, SecretName, SecretSource, Secrets};
use crate::tools::code;
use crate::tools::driver::{Call, Driver, Reply};
use crate::tools::verdict::Verdict;

/// Makes a call with its secrets at hand. What it returns is masked by [`Guarded`].
#[async_trait]
pub(in crate::tools) trait Transport: Send + Sync {
    async fn send(&self, call: Call, secrets: Arc<Secrets>, mask: &Mask) -> Reply;

    /// Why the tool may not be called, if it was seen not to be what was pinned.
    fn frozen(&self) -> Option<&str> {
        None
    }
}

/// See the module.
pub(in crate::tools) struct Guarded<T> {
    pub(in crate::tools) sources: Arc<BTreeMap<SecretName, SecretSource>>,
    pub(in crate::tools) base_dir: Arc<PathBuf>,
    pub(in crate::tools) transport: T,
}

#[async_trait]
impl<T: Transport> Driver for Guarded<T> {
    async fn call(&self, call: Call) -> Reply {
        if Instant::now() >= call.deadline {
            let message = "the deadline had passed before anything was sent";
            return Verdict::Retry.failed(code::DEADLINE_PASSED, message);
        }
        let found = timeout_at(call.deadline, self.find()).await;
        let secrets = match found {
            Ok(Ok(secrets)) => Arc::new(secrets),
            Ok(Err(why)) => return Verdict::DidNotHappen.failed(code::SECRET_UNAVAILABLE, why),
            Err(_) => {
                let message = "the secrets could not be read before the deadline; nothing was sent";
                return Verdict::Retry.failed(code::SECRET_UNAVAILABLE, message);
            }
        };
        let mask = Mask::new(&secrets);
        mask.reply(self.transport.send(call, secrets, &mask).await)
    }

    fn frozen(&self) -> Option<&str> {
        self.transport.frozen()
    }
}

impl<T> Guarded<T> {
    /// Files may be slow, so they are read where waiting is allowed.
    async fn find(&self) -> Result<Secrets, String> {
        if self.sources.is_empty() {
            return Ok(Secrets::default());
        }
        let (sources, base_dir) = (Arc::clone(&self.sources), Arc::clone(&self.base_dir));
        match tokio::task::spawn_blocking(move || Secrets::find(&sources, &base_dir)).await {
            Ok(found) => found.map_err(|error| error.to_string()),
            Err(_) => Err("the worker is shutting down and reads no secrets".to_owned()),
        }
    }
}

impl Mask {
    fn reply(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Answered { output, cost } => {
                Reply::Answered { output: self.apply(&output), cost }
            }
            Reply::Failed { certainty, retryable, retry_after_ms, error, output } => {
                Reply::Failed {
                    certainty,
                    retryable,
                    retry_after_ms,
                    error: Failing { code: error.code, message: self.apply_text(&error.message) },
                    output: self.apply(&output),
                }
            }
        }
    }
}
