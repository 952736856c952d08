//! The outside world of a simulation: tools that answer, fail, hang, answer too late or not at all,
//! and a ledger of what really happened, which no worker can see.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::amounts::Amounts;
use gesta_core::document::{Certainty, Failing, Recovery};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::sample::Dice;
use gesta_core::writ::Effect;
use gesta_runtime::duration::DurationMs;
use gesta_runtime::tools::{
    Call, Catalogue, Change, Compensate, Driver, Manifest, Reply, VerifierDeclaration, Verify,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::hostile::{Health, pass};

/// How long a tool may take, and how long after that its effect may still land.
pub(crate) const TIMEOUT_MS: u64 = 2_000;
pub(crate) const SETTLE_MS: u64 = 3_000;

/// The tools, one for each way of recovering.
pub(crate) const CLASSES: [(&str, Recovery); 5] = [
    ("safe", Recovery::Safe),
    ("keyed", Recovery::Keyed),
    ("keyed_concurrent", Recovery::KeyedConcurrent),
    ("probe", Recovery::Probe),
    ("never", Recovery::Never),
];

/// How many calls of some tools may be under way at once, of all workers together.
pub(crate) const LIMITS: [(&str, u32); 2] = [("safe", 2), ("never", 1)];

/// A call under way, whatever became of whoever made it.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) tool: &'static str,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// Something that really happened.
#[derive(Clone, Debug)]
pub(crate) struct Landed {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) step: StepId,
    pub(crate) key: String,
    pub(crate) class: Recovery,
    /// The key of the effect that it undoes, if it does.
    pub(crate) undoes: Option<String>,
}

/// What really happened, and what was sent.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) landed: Vec<Landed>,
    /// How often each key was sent.
    pub(crate) sent: BTreeMap<String, u64>,
    /// How many calls were made that nobody can say of at once that nothing came of them.
    pub(crate) used: u64,
    /// When calls of limited tools were under way.
    pub(crate) busy: Vec<Busy>,
    /// Effects that somebody else has made away with, by key.
    pub(crate) vandalised: BTreeSet<String>,
}

impl Ledger {
    pub(crate) fn has(&self, key: &str) -> bool {
        self.landed.iter().any(|landed| landed.key == key)
    }
}

/// The outside world.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    dice: Arc<Mutex<Dice>>,
    calm_at: Instant,
}

impl Outside {
    pub(crate) fn new(seed: u64, calm_at: Instant) -> Self {
        Self { ledger: Arc::default(), dice: Arc::new(Mutex::new(Dice::new(seed))), calm_at }
    }

    fn roll(&self, below: u64) -> u64 {
        self.dice.lock().unwrap().below(below)
    }

    /// The tools as one worker reaches them, but for one that it lacks.
    pub(crate) fn tools(&self, health: &Arc<Health>, lacks: Option<&str>) -> Catalogue {
        let mut builder = Catalogue::builder();
        let others = CLASSES.iter().cycle().skip(1);
        for ((class, recovery), (other, _)) in CLASSES.into_iter().zip(others) {
            if Some(class) == lacks {
                continue;
            }
            for undoes in [false, true] {
                let name = if undoes { format!("undo_{class}") } else { class.to_owned() };
                let mut manifest = Manifest::new(name.parse().unwrap(), Effect::External);
                manifest.recovery = recovery;
                manifest.timeout = DurationMs::from_ms(TIMEOUT_MS);
                manifest.settle = DurationMs::from_ms(SETTLE_MS);
                let limit = LIMITS.iter().find(|(tool, _)| *tool == name);
                manifest.concurrency = limit.and_then(|(_, limit)| NonZeroU32::new(*limit));
                manifest.probe = (recovery == Recovery::Probe).then(|| "ask".parse().unwrap());
                // What is undone is recovered in another way than what undoes it.
                let undo = format!("undo_{other}").parse().unwrap();
                let args = json!({ "of": "${key}" });
                manifest.changes = vec![Change {
                    type_: "thing".parse().unwrap(),
                    id: if undoes { "args.of" } else { "result.key" }.to_owned(),
                    value: None,
                    retract: undoes,
                }];
                if !undoes {
                    manifest.verify = vec![Verify {
                        args: json!({ "key": "${id}" }),
                        confirm: None,
                        holds: "found.there".to_owned(),
                        type_: "thing".parse().unwrap(),
                        verifier: "things".parse().unwrap(),
                    }];
                }
                let compensates = !undoes && Some(*other) != lacks;
                manifest.compensate = compensates.then_some(Compensate { args, tool: undo });
                let (outside, health) = (self.clone(), Arc::clone(health));
                let name = if undoes { "undo" } else { class };
                let driver = Tool { outside, name, class: recovery, health };
                builder = builder.driver(manifest, Canon::null(), Arc::new(driver));
            }
        }
        let ask = Manifest::new("ask".parse().unwrap(), Effect::Read);
        let driver = Ask { outside: self.clone(), health: Arc::clone(health) };
        builder = builder.driver(ask, Canon::null(), Arc::new(driver));
        let see = Manifest::new("see".parse().unwrap(), Effect::Read);
        let driver = See { outside: self.clone(), health: Arc::clone(health) };
        builder = builder.driver(see, Canon::null(), Arc::new(driver));
        let things = VerifierDeclaration {
            file: None,
            git: None,
            http: None,
            secrets: BTreeMap::new(),
            timeout: DurationMs::from_ms(TIMEOUT_MS),
            tool: Some("see".parse().unwrap()),
        };
        builder.verifier("things".parse().unwrap(), things, Path::new("")).build().unwrap()
    }

    /// Lets an effect land after a while, whatever becomes of whoever sent it.
    fn land(&self, call: &Call, class: Recovery, after_ms: u64, seen_before: bool) {
        let (ledger, call) = (Arc::clone(&self.ledger), call.clone());
        tokio::spawn(async move {
            pass(after_ms).await;
            let mut ledger = ledger.lock().unwrap();
            let known = match class {
                // The other side looks for the key when the call arrives, not when it acts on it.
                Recovery::Keyed => seen_before,
                Recovery::KeyedConcurrent => ledger.has(&call.key),
                Recovery::Safe | Recovery::Probe | Recovery::Never => false,
            };
            if !known {
                let Call { trajectory, step, key, args, .. } = call;
                let args: Value = serde_json::from_str(args.as_str()).unwrap();
                let undoes = args["of"].as_str().map(str::to_owned);
                ledger.landed.push(Landed { trajectory, step, key, class, undoes });
            }
        });
    }
}

/// A tool with an effect.
struct Tool {
    outside: Outside,
    name: &'static str,
    class: Recovery,
    health: Arc<Health>,
}

impl Tool {
    fn busy(&self, ms: u64) {
        let from = Instant::now();
        let busy = Busy { tool: self.name, from, to: from + Duration::from_millis(ms) };
        self.outside.ledger.lock().unwrap().busy.push(busy);
    }
}

/// A tool that tells whether a key has landed.
struct Ask {
    outside: Outside,
    health: Arc<Health>,
}

#[async_trait]
impl Driver for Tool {
    async fn call(&self, call: Call) -> Reply {
        self.health.awake().await;
        if Instant::now() >= call.deadline {
            return failed(Certainty::DidNotHappen, true, "too late to send");
        }
        let seen_before = {
            let mut ledger = self.outside.ledger.lock().unwrap();
            *ledger.sent.entry(call.key.clone()).or_default() += 1;
            ledger.has(&call.key)
        };
        let left = call.deadline.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap();
        let roll = self.outside.roll(100);
        let calm = Instant::now() >= self.outside.calm_at;
        let fate = if calm { 0 } else { roll };
        if !(55..67).contains(&fate) {
            self.outside.ledger.lock().unwrap().used += 1;
        }
        let reply = match fate {
            // It goes well.
            0..55 => {
                let after = self.outside.roll(left_ms.clamp(1, 60));
                self.busy(after);
                self.outside.land(&call, self.class, after, seen_before);
                pass(after + 1).await;
                let output = format!("{{\"ok\":true,\"key\":\"{}\"}}", call.key);
                Reply::Answered { output: output.into_bytes(), cost: None }
            }
            // It definitely fails, this time or every time.
            55..65 => failed(Certainty::DidNotHappen, true, "busy"),
            65..67 => failed(Certainty::DidNotHappen, false, "refused"),
            // It happens, and nobody hears of it in time.
            67..80 => {
                let after = self.outside.roll(left_ms + SETTLE_MS);
                self.busy(after.min(left_ms));
                self.outside.land(&call, self.class, after, seen_before);
                tokio::time::sleep_until(call.deadline).await;
                failed(Certainty::Unknown, true, "no answer")
            }
            // The line drops at once, and it happens, or not.
            80..90 => {
                if self.outside.roll(2) == 0 {
                    let after = self.outside.roll(left_ms + SETTLE_MS);
                    self.outside.land(&call, self.class, after, seen_before);
                }
                failed(Certainty::Unknown, true, "the line dropped")
            }
            // Nothing happens, and nobody hears that.
            _ => {
                self.busy(left_ms);
                tokio::time::sleep_until(call.deadline).await;
                failed(Certainty::Unknown, true, "no answer")
            }
        };
        self.health.awake().await;
        reply
    }
}

/// Tells whether an effect is still there.
struct See {
    outside: Outside,
    health: Arc<Health>,
}

#[async_trait]
impl Driver for See {
    async fn call(&self, call: Call) -> Reply {
        self.health.awake().await;
        if Instant::now() < self.outside.calm_at && self.outside.roll(4) == 0 {
            return failed(Certainty::Unknown, true, "no answer");
        }
        let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
        let key = args["key"].as_str().unwrap();
        let ledger = self.outside.ledger.lock().unwrap();
        let there = ledger.has(key) && !ledger.vandalised.contains(key);
        Reply::Answered { output: json!({ "there": there }).to_string().into_bytes(), cost: None }
    }
}

#[async_trait]
impl Driver for Ask {
    async fn call(&self, call: Call) -> Reply {
        self.health.awake().await;
        let happened = self.outside.ledger.lock().unwrap().has(&call.key);
        if Instant::now() < self.outside.calm_at && self.outside.roll(4) == 0 {
            return failed(Certainty::Unknown, true, "no answer");
        }
        let key = &call.key;
        let output =
            format!("{{\"happened\":{happened},\"result\":{{\"ok\":true,\"key\":\"{key}\"}}}}");
        Reply::Answered { output: output.into_bytes(), cost: Some(Amounts::ONE_CALL) }
    }
}

fn failed(certainty: Certainty, retryable: bool, message: &str) -> Reply {
    Reply::Failed {
        certainty,
        retryable,
        retry_after_ms: None,
        error: Failing { code: "simulated".to_owned(), message: message.to_owned() },
        output: Vec::new(),
    }
}
