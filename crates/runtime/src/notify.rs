//! Delivering notices: one at a time in the hands of this worker, at least once, tried again with
//! growing pauses, and never given up in silence: what cannot be delivered stays in the outbox.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gesta_core::projection::Notice;
use gesta_store::{NoticeRow, Tried};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cut;
use crate::desk::{Event, Shared};

/// How often to look for notices.
const LOOK: Duration = Duration::from_secs(1);
/// How often those who deliver nothing see to it that nothing piles up.
const TIDY: Duration = Duration::from_secs(3600);
/// How long one webhook may take, with room to spare.
const EACH_MS: u64 = 15_000;
/// How often a notice is tried before it is left to a person, and how long the pauses get.
const TRIES_MOST: u32 = 12;
const PAUSE_FIRST_MS: u64 = 1_000;
const PAUSE_MOST_MS: u64 = 3_600_000;

/// Delivers whatever is in the outbox, for as long as the worker lives.
pub(crate) async fn deliver(shared: Arc<Shared>) {
    let hooks = shared.options.webhooks.len() as u64;
    loop {
        if hooks == 0 {
            tokio::time::sleep(TIDY).await;
        }
        let most = usize::from(hooks > 0);
        let lease_ms = EACH_MS.saturating_mul(hooks);
        match shared.store.claim_notices(&shared.worker, most, lease_ms).await {
            Ok(claimed) if claimed.is_empty() => tokio::time::sleep(LOOK).await,
            Ok(claimed) => {
                for row in claimed {
                    let tried = attempt(&shared, &row).await;
                    cut::here("after_notify");
                    let id = row.notice.id;
                    if let Err(error) = shared.store.settle_notice(&shared.worker, id, &tried).await
                    {
                        tracing::warn!(%error, "a notice may be delivered again");
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the outbox cannot be read");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// Tells everybody who wants to know and does not yet.
async fn attempt(shared: &Shared, row: &NoticeRow) -> Tried {
    let Notice { id, topic, .. } = &row.notice;
    let body = event(shared, &row.notice).to_string().into_bytes();
    let mut reached: BTreeSet<String> = row.reached.clone();
    let mut errors = Vec::new();
    for hook in shared.options.webhooks.iter().filter(|hook| hook.wants(&row.notice)) {
        if reached.contains(hook.name()) {
            continue;
        }
        let at_s = shared.pulse.now().0 / 1000;
        match hook.post(&id.to_string(), at_s, body.clone()).await {
            Ok(()) => {
                reached.insert(hook.name().to_owned());
            }
            Err(error) => errors.push(format!("{}: {error}", hook.name())),
        }
    }
    if errors.is_empty() {
        return Tried::Delivered;
    }
    let error = errors.join("; ");
    let again_in_ms = (row.tries + 1 < TRIES_MOST)
        .then(|| PAUSE_FIRST_MS.saturating_mul(1 << row.tries.min(20)).min(PAUSE_MOST_MS));
    tracing::warn!(notice = %id, %topic, %error, "a notice is not delivered");
    if again_in_ms.is_none() {
        let note = format!("a notice of `{topic}` was given up after {TRIES_MOST} tries: {error}");
        shared.tell(|| Event::Note(note));
    }
    Tried::Lacking { reached, error, again_in_ms }
}

/// The notice as a CloudEvent.
fn event(shared: &Shared, notice: &Notice) -> Value {
    let Notice { id, topic, at, data } = notice;
    let data: Value = serde_json::from_str(data.as_str()).unwrap_or_default();
    let source = shared.registry().map(|state| state.trajectory().to_string());
    let time = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let subject = data.get("trajectory").or_else(|| data.get("tenant")).cloned();
    json!({
        "specversion": "1.0",
        "id": id.to_string(),
        "source": format!("urn:gesta:{}", source.as_deref().unwrap_or("unregistered")),
        "type": format!("gesta.{topic}"),
        "subject": subject,
        "time": time.map(|time| time.to_string()),
        "datacontenttype": "application/json",
        "data": data,
    })
}
