//! Those who have a say in a simulation: approvers who agree, refuse, dawdle or are nobody; owners who
//! freeze, thaw, publish other policies, and revoke keys and writs. And what the auditor makes of it: it reads
//! chains as JSON and knows only who was trusted until when, what needed consent, and when what was frozen or revoked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use gesta_core::body::Approval;
use gesta_core::document::{
    ApprovalStatement, ApprovalVerdict, FreezeTarget, KeyRevocation, RegistryItem,
};
use gesta_core::entry::{Author, Body};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::keys::PrivateKey;
use gesta_core::projection::ParkedOn;
use gesta_core::sample::{Dice, person};
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{State, Status};
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Keyring, Role, TrustedKey};
use gesta_runtime::approvals::{Word, speak};
use gesta_runtime::authority;
use gesta_store::{Chain, ParkedListing};
use serde_json::Value;
use tokio::time::Instant;

use crate::family;
use crate::hostile::pass;
use crate::scene::{REGISTRY, Scene, policies};

/// Tools that nobody may call without two people's consent, handing on a task among them.
const NEED_CONSENT: [&str; 3] = ["never", "keyed", "delegate.external"];
const QUORUM: usize = 2;
/// By how much a moment in a chain may be off.
const OFF_MS: u64 = 3_000;

/// What those who have a say did, and who they are.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    /// Whether anything needs consent.
    consent: bool,
    /// The keys that count, with the names of their owners.
    approvers: BTreeMap<String, &'static str>,
    /// What was frozen from when to when.
    frozen: Vec<(FreezeTarget, u64, u64)>,
    /// Keys and writs that were revoked, and when.
    revoked: BTreeMap<String, u64>,
}

impl Said {
    /// Whether a key or a writ was revoked, certainly, before this.
    fn revoked_before(&self, what: &str, at: u64) -> bool {
        self.revoked.get(what).is_some_and(|revoked| at > revoked + OFF_MS)
    }
}

fn policy(round: u64) -> String {
    // The text changes from round to round; who needs consent does not.
    format!(
        r#"@id("all") @quorum("{QUORUM}") @expires("60s") @reason("round {round}")
permit (principal, action in Action::"call", resource);
@id("free")
permit (principal, action in Action::"call_unattended", resource)
unless {{ resource == Tool::"never" || resource == Tool::"keyed"
    || resource == Tool::"delegate.external" }};"#
    )
}

pub(crate) async fn register(scene: &Scene, item: RegistryItem) {
    let mut chain = Chain::load(Arc::clone(&scene.store), REGISTRY).await.unwrap();
    let (now, owner) = (scene.now(), &scene.cast.owner);
    chain
        .append(|admission| authority::register(admission, (&item, None), owner, now))
        .await
        .unwrap();
}

async fn publish(scene: &Scene, round: u64) {
    let document = policies(&scene.catalogue, &policy(round));
    let (now, owner) = (scene.now(), &scene.cast.owner);
    authority::publish(&scene.store, REGISTRY, &document, owner, now).await.unwrap();
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed(&[0x90 + number; 32])
}

fn stranger() -> PrivateKey {
    PrivateKey::from_seed(&[0xbd; 32])
}

fn trust(key: &PrivateKey, name: &str) -> TrustedKey {
    TrustedKey {
        key: key.id(),
        name: name.to_owned(),
        revoked_at: None,
        roles: [Role::Approver].into(),
        tenant: None,
        valid: Window { not_before: UnixMs(0), not_after: UnixMs::LAST },
    }
}

/// Registers the approvers and puts the first policies in force, in half of all histories.
pub(crate) async fn found(scene: &Scene, dice: &mut Dice) -> Record {
    let record = Record::default();
    if dice.below(2) == 0 {
        return record;
    }
    for (number, name) in [(0, "alice"), (1, "bob"), (2, "bob"), (3, "carol")] {
        let trusted = trust(&key(number), name);
        record.0.lock().unwrap().approvers.insert(trusted.key.to_string(), name);
        register(scene, RegistryItem::Key(trusted)).await;
    }
    record.0.lock().unwrap().consent = true;
    publish(scene, 0).await;
    record
}

/// People who are asked.
pub(crate) async fn approvers(scene: Arc<Scene>, mut dice: Dice, calm_at: Instant) {
    let mut round = 0_u8;
    loop {
        pass(500 + dice.below(6_000)).await;
        let rows = scene.store.parked(&ParkedListing::default(), 100).await.unwrap();
        for row in rows.into_iter().filter(|row| row.parked.on == ParkedOn::Approval) {
            let calm = Instant::now() >= calm_at;
            let verdict = match dice.below(24) {
                0 if !calm => ApprovalVerdict::Deny,
                _ => ApprovalVerdict::Approve,
            };
            match dice.below(6) {
                0 if !calm => forge(&scene, row.trajectory, &row.parked.step).await,
                1 | 2 if !calm => {}
                _ => {
                    // Once it is calm, whoever has not spoken does, and means it for long.
                    round = round.wrapping_add(1);
                    let key =
                        key(if calm { round % 4 } else { u8::try_from(dice.below(4)).unwrap() });
                    let good_for = if calm { 600_000 } else { dice.below(20_000) };
                    let registry = registry(&scene).await;
                    let word = Word {
                        step: &row.parked.step,
                        pending: row.parked.entry,
                        verdict,
                        expires: scene.now().plus(good_for),
                        note: None,
                    };
                    let (store, now) = (&scene.store, scene.now());
                    // Too late, twice, or another was faster: all of that happens.
                    let _said = speak(store, row.trajectory, &word, (&registry, &key), now).await;
                }
            }
        }
    }
}

async fn registry(scene: &Scene) -> State {
    let chain = Chain::load(Arc::clone(&scene.store), REGISTRY).await.unwrap();
    chain.state().clone()
}

/// Somebody with access to the store and no right to approve writes an approval all the same.
async fn forge(scene: &Scene, trajectory: TrajectoryId, step: &StepId) {
    let stranger = stranger();
    let mut chain = Chain::load(Arc::clone(&scene.store), trajectory).await.unwrap();
    let now = scene.now();
    let _said = chain
        .append(|admission| {
            let now = now.max(admission.state().at());
            let pending = match admission.state().step(step).map(|step| &step.status) {
                Some(Status::Pending(pending)) => pending.entry,
                _ => return Ok(()),
            };
            let statement = ApprovalStatement {
                approver: person().unwrap(),
                at: now,
                expires: now.plus(60_000),
                key: stranger.id(),
                note: None,
                pending,
                type_: Tag::default(),
                verdict: ApprovalVerdict::Approve,
            };
            let statement = Signed::sign(statement, &stranger).unwrap();
            let body = Body::Approval(Box::new(Approval { statement, step: step.clone() }));
            admission.push(now, Author::Principal(person().unwrap()), body)?;
            Ok(())
        })
        .await;
}

/// Those who own the registry. They leave nothing frozen behind.
pub(crate) async fn owners(scene: Arc<Scene>, record: Record, mut dice: Dice, calm_at: Instant) {
    for round in 1..6 {
        pass(dice.below(12_000)).await;
        if Instant::now() >= calm_at {
            return;
        }
        match dice.below(6) {
            0 if record.0.lock().unwrap().consent => publish(&scene, round).await,
            1 => {
                let target = match dice.below(3) {
                    0 => FreezeTarget::All,
                    1 => FreezeTarget::Tool("safe".parse().unwrap()),
                    _ => FreezeTarget::Tool("never".parse().unwrap()),
                };
                register(&scene, RegistryItem::Freeze(target.clone())).await;
                let from = scene.now().0;
                pass(dice.below(15_000)).await;
                let to = scene.now().0;
                register(&scene, RegistryItem::Unfreeze(target.clone())).await;
                record.0.lock().unwrap().frozen.push((target, from, to));
            }
            // One of two keys of bob's: there are still enough to agree.
            2 => {
                let (key, at) = (key(2).id(), scene.now());
                register(&scene, RegistryItem::RevokeKey(KeyRevocation { at, key })).await;
                let at = scene.now().0;
                record.0.lock().unwrap().revoked.entry(key.to_string()).or_insert(at);
            }
            3 => {
                let jobs = family::ids(&scene.store).await;
                let Some(job) = dice.pick(&jobs) else { continue };
                let chain = Chain::load(Arc::clone(&scene.store), *job).await.unwrap();
                let Some((writ, _)) = chain.state().writ() else { continue };
                register(&scene, RegistryItem::RevokeWrit(writ)).await;
                let at = scene.now().0;
                record.0.lock().unwrap().revoked.entry(writ.to_string()).or_insert(at);
            }
            _ => {}
        }
    }
}

/// Everyone who has signed an approval, the forger too: whose word counts is audited here, not there.
pub(crate) fn trusted(mut keyring: Keyring) -> Keyring {
    for key in (0..4).map(key).chain([stranger()]) {
        keyring.enrol(trust(&key, "approver"));
    }
    keyring
}

/// What is wrong with a chain, as to consent and freezes.
pub(crate) fn audit(chain: &[Value], record: &Record) -> Vec<String> {
    let said = record.0.lock().unwrap();
    let mut wrong = Vec::new();
    // By step: the question that stands, what was said to it, and whether that was used.
    let mut asked: BTreeMap<&str, (&str, Vec<&Value>, bool)> = BTreeMap::new();
    for entry in chain {
        let body = &entry["body"];
        match entry["kind"].as_str().unwrap() {
            "pending_approval" => {
                let step = body["proposal"]["step"].as_str().unwrap();
                asked.insert(step, (entry_id(chain, entry), Vec::new(), false));
            }
            "approval" => {
                let doc = &body["statement"]["doc"];
                if let Some(question) = asked.get_mut(body["step"].as_str().unwrap())
                    && doc["pending"] == question.0
                {
                    question.1.push(doc);
                }
            }
            kind @ ("started" | "delegation") => {
                let (step, tool) = match kind {
                    "started" => {
                        let proposal = &body["proposal"];
                        (&proposal["step"], proposal["tool"].as_str().unwrap().to_owned())
                    }
                    _ => {
                        let effect = body["task"]["effect"].as_str().unwrap();
                        (&body["step"], format!("delegate.{effect}"))
                    }
                };
                let (step, tool) = (step.as_str().unwrap(), tool.as_str());
                let at = entry["at"].as_u64().unwrap();
                if let Some(writ) = writs(chain, entry).find(|writ| said.revoked_before(writ, at)) {
                    wrong.push(format!("`{step}` began at {at} under {writ}, which was revoked"));
                }
                if said.consent && NEED_CONSENT.contains(&tool) {
                    match asked.get(step) {
                        Some((_, words, false)) if agreed(words, &said, at) => {}
                        found => wrong.push(format!("`{step}` began without consent: {found:?}")),
                    }
                }
                let frozen = |target: &FreezeTarget| match target {
                    FreezeTarget::Tool(frozen) => frozen.as_str() == tool,
                    other => *other == FreezeTarget::All,
                };
                let begun = said.frozen.iter().find(|(target, from, to)| {
                    frozen(target) && at > from + OFF_MS && at + OFF_MS < *to
                });
                if let Some((target, from, to)) = begun {
                    wrong.push(format!(
                        "`{step}` began at {at}, {target:?} was frozen from {from} to {to}"
                    ));
                }
            }
            "commit" | "late_effect" => {
                if let Some(question) = body["step"].as_str().and_then(|step| asked.get_mut(step)) {
                    question.2 = true;
                }
            }
            _ => {}
        }
    }
    wrong
}

/// Whether enough people had agreed, with keys that counted and for so long, and nobody had said no.
fn agreed(words: &[&Value], said: &Said, at: u64) -> bool {
    let counts = |doc: &&&Value| {
        let key = doc["key"].as_str().unwrap();
        let lasts = doc["expires"].as_u64().unwrap() + OFF_MS >= at;
        said.approvers.contains_key(key) && !said.revoked_before(key, at) && lasts
    };
    let of = |verdict: &str| {
        let fitting = words.iter().filter(|doc| doc["verdict"] == verdict);
        let names = fitting.filter(counts).map(|doc| said.approvers[doc["key"].as_str().unwrap()]);
        names.collect::<BTreeSet<_>>().len()
    };
    of("approve") >= QUORUM && of("deny") == 0
}

/// The writ that a call began under, and those above it.
fn writs<'a>(chain: &'a [Value], started: &'a Value) -> impl Iterator<Item = &'a str> {
    let mandate = &chain[0]["body"]["purpose"]["job"]["writs"];
    let above = mandate.as_array().into_iter().flatten();
    let above = above.filter_map(|writ| writ["doc"]["parent"].as_str());
    above.chain(started["body"]["decision"]["doc"]["writ"].as_str())
}

/// The id of an entry, from the entry that follows it; the last has none that anybody could name.
fn entry_id<'a>(chain: &'a [Value], entry: &Value) -> &'a str {
    let next = chain.get(usize::try_from(entry["seq"].as_u64().unwrap()).unwrap() + 1);
    next.map_or("", |next| next["parent"].as_str().unwrap())
}
