//! Functions as tools.

use std::sync::Arc;
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::document::Certainty::{DidNotHappen, Happened, Unknown};
use gesta_core::writ::Effect;
use gesta_runtime::tools::{
    Catalogue, FunctionCall, FunctionError, Manifest, Reply, Returned, code,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::world::{answer, ask, call_within, check_failure, send, within_patience};

fn manifest() -> Manifest {
    Manifest::new("t".parse().unwrap(), Effect::External)
}

fn tool<F, R>(function: F) -> Catalogue
where
    F: Fn(FunctionCall) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, FunctionError>> + Send + 'static,
{
    Catalogue::builder().function(manifest(), function).build().unwrap()
}

#[tokio::test]
async fn a_function_is_given_the_call_and_its_value_is_the_answer() {
    let catalogue = tool(|call| async move {
        let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
        Ok(json!({"key": call.key, "attempt": call.attempt, "step": call.step, "a": args["a"]}))
    });
    let output = answer(ask(&catalogue, "t", &json!({"a": 5})).await);
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output, json!({"a": 5, "attempt": 3, "key": "gesta-0123", "step": "pay/1"}));
}

#[tokio::test]
async fn a_function_may_tell_its_cost() {
    let cost = Amounts { tokens: 12, ..Amounts::ONE_CALL };
    let catalogue = Catalogue::builder()
        .function(manifest(), move |_| async move {
            Ok(Returned { value: json!("hi"), cost: Some(cost) })
        })
        .build()
        .unwrap();
    let reply = ask(&catalogue, "t", &json!({})).await;
    assert_eq!(reply, Reply::Answered { output: b"\"hi\"".to_vec(), cost: Some(cost) });
}

#[tokio::test]
async fn an_error_says_what_is_known() {
    type Make = fn(&'static str) -> FunctionError;
    let cases: [(Make, _); 4] = [
        (FunctionError::retry, (DidNotHappen, true, code::TOOL_BUSY)),
        (FunctionError::did_not_happen, (DidNotHappen, false, code::TOOL_FAILED)),
        (FunctionError::happened, (Happened, false, code::TOOL_FAILED)),
        (FunctionError::unknown, (Unknown, true, code::TOOL_FAILED)),
    ];
    for (make, (certainty, retryable, code)) in cases {
        let catalogue = tool(move |_| async move { Err(make("why").after_ms(70)) });
        let reply = ask(&catalogue, "t", &json!({})).await;
        let Reply::Failed { retry_after_ms, error, .. } = &reply else { panic!("{reply:?}") };
        assert_eq!((*retry_after_ms, error.message.as_str()), (Some(70), "why"));
        check_failure(reply, certainty, retryable, code);
    }
}

#[tokio::test]
async fn a_panic_leaves_the_effect_unknown() {
    let before = tool(|_| -> std::future::Ready<_> { panic!("before the future") });
    check_failure(ask(&before, "t", &json!({})).await, Unknown, true, code::TOOL_CRASHED);
    let inside = tool(|call| async move {
        assert!(call.key.is_empty(), "inside the future");
        Ok(json!(null))
    });
    check_failure(ask(&inside, "t", &json!({})).await, Unknown, true, code::TOOL_CRASHED);
}

/// A function that hangs, and a receiver that ends when it is dropped.
fn hanging() -> (Catalogue, oneshot::Receiver<()>) {
    let (sender, receiver) = oneshot::channel::<()>();
    let sender = Arc::new(std::sync::Mutex::new(Some(sender)));
    let catalogue = tool(move |_| {
        let held = sender.lock().unwrap().take();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok(json!(null))
        }
    });
    (catalogue, receiver)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_leaves_the_effect_unknown_and_ends_the_function() {
    let (catalogue, dropped) = hanging();
    let reply = send(&catalogue, "t", call_within(&json!({}), Duration::from_secs(30))).await;
    check_failure(reply, Unknown, true, code::DEADLINE_PASSED);
    assert!(within_patience(dropped).await.is_err());
}

#[tokio::test]
async fn dropping_the_call_ends_the_function() {
    let (catalogue, dropped) = hanging();
    let mut call = Box::pin(ask(&catalogue, "t", &json!({})));
    let pending = is_pending(&mut call).await;
    assert!(pending);
    tokio::task::yield_now().await;
    drop(call);
    assert!(within_patience(dropped).await.is_err());
}

/// Polls once; true if it is not done.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        let pending = std::pin::Pin::new(&mut *future).poll(context).is_pending();
        std::task::Poll::Ready(pending)
    })
    .await
}
