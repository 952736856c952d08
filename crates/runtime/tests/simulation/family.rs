//! Jobs that delegate: their files, and the writs under which they run.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::amounts::Budget;
use gesta_core::document::{RegistryItem, TenantLimit};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::TrajectoryKind;
use gesta_core::sample::Dice;
use gesta_core::signed::Signed;
use gesta_core::writ::Writ;
use gesta_runtime::job::{self, Files};
use gesta_runtime::jobs::{self, Submission, Submitted};
use gesta_store::{Listing, Store, TrajectoryRow};

use crate::authority::register;
use crate::outside::CLASSES;
use crate::scene::Scene;

/// How many levels of jobs there are below one that is submitted, in a history that has families.
const LEVELS: u64 = 2;
/// Of so many histories one has: they take several times as long.
const ONE_IN: u64 = 4;

/// The files of the jobs that others delegate to.
#[derive(Default)]
struct Drawer {
    files: BTreeMap<String, String>,
    names: u64,
}

impl Files for Drawer {
    fn read(&self, _: &str, path: &str) -> Result<(String, String), String> {
        let text = self.files.get(path).ok_or("there is no such file")?;
        Ok((path.to_owned(), text.clone()))
    }
}

impl Drawer {
    /// A random job: a few steps of every class, some in parallel, a fan-out, a wait; and some that hand
    /// their task to another job, or one to each of several.
    fn job(&mut self, dice: &mut Dice, levels: u64, first: bool) -> String {
        let mut steps = String::new();
        let count = if first { 2 + dice.below(4) } else { 1 + dice.below(2) };
        for number in 0..count {
            let (tool, _) = dice.pick(&CLASSES).unwrap();
            let needs = if number > 0 && dice.below(2) == 0 {
                format!(", needs: [s{}]", dice.below(number))
            } else {
                String::new()
            };
            let when = match dice.below(8) {
                0 => ", when: 'false'",
                1 => ", when: '1 + 1 == 2'",
                _ => "",
            };
            let does = match dice.below(8) {
                0 => format!("each: '${{[1, 2, 3]}}', tool: {tool}, args: {{ n: '${{item}}' }}"),
                1 => "wait: { signal: go, timeout: 20s }".to_owned(),
                2 if levels > 0 => self.delegate(dice, levels),
                3 if levels > 0 && dice.below(3) == 0 => {
                    format!("each: '${{[1, 2]}}', {}", self.delegate(dice, levels))
                }
                _ => format!("tool: {tool}, args: {{ n: {number} }}"),
            };
            steps += &format!("  - {{ id: s{number}, {does}{when}{needs} }}\n");
        }
        let on_failure = if dice.below(2) == 0 { "on_failure: compensate\n" } else { "" };
        let confirm = dice.pick(&["strict", "warn", "human"]).unwrap();
        self.names += 1;
        let name = format!("sim-{}", self.names);
        format!("job: {name}\nparallel: 4\nconfirm: {confirm}\n{on_failure}steps:\n{steps}")
    }

    fn delegate(&mut self, dice: &mut Dice, levels: u64) -> String {
        let file = self.job(dice, levels - 1, false);
        let name = format!("{}.yaml", self.files.len());
        self.files.insert(name.clone(), file);
        let budget = match dice.below(3) {
            0 => String::new(),
            _ => format!(", budget: {{ calls: {} }}", 1 + dice.below(5)),
        };
        let on_failure = dice.pick(&["fail", "return"]).unwrap();
        let on_cancel = dice.pick(&["cancel", "cancel", "wait"]).unwrap();
        format!(
            "delegate: {{ job: {name}{budget}, on_failure: {on_failure}, on_cancel: {on_cancel} }}"
        )
    }
}

/// Submits a random job, under a random writ. Returns the files of it and of all jobs below it.
pub(crate) async fn submit(
    scene: &Scene,
    number: u8,
    seed: u64,
    dice: &mut Dice,
) -> (TrajectoryId, Vec<String>) {
    let mut drawer = Drawer::default();
    let levels = if seed.is_multiple_of(ONE_IN) { LEVELS } else { 0 };
    let file = drawer.job(dice, levels, true);
    let compiled = job::load_with("job.yaml", &file, &*scene.catalogue, &drawer).unwrap();
    for blob in &compiled.blobs {
        scene.store.put_blob(blob.as_bytes()).await.unwrap();
    }
    let submission = scene.submission_of(number, compiled, &[]).await;
    let standing = scene.cast.standing_writ().unwrap();
    let calls = (dice.below(2) == 0).then(|| 4 + dice.below(12));
    let writ = Writ {
        budget: Budget { calls, ..Budget::default() },
        depth: 1 + dice.below(3),
        guardians: true,
        key: scene.cast.agent.id(),
        parent: Some(standing.id()),
        trajectory: Some(submission.trajectory),
        ..standing.doc().clone()
    };
    let writ = Signed::sign(writ, &scene.cast.agent).unwrap();
    let submission = Submission { writs: vec![standing, writ], ..submission };
    assert_eq!(jobs::submit(&scene.store, &submission, scene.now()).await, Ok(Submitted::New));
    let files = std::iter::once(file).chain(drawer.files.into_values());
    (submission.trajectory, files.collect())
}

/// Limits what the tenant of all jobs may use, in some histories.
pub(crate) async fn limit(scene: &Scene, dice: &mut Dice) -> Option<u64> {
    if dice.below(3) > 0 {
        return None;
    }
    let calls = 4 + dice.below(16);
    let tenant = scene.cast.standing_writ().unwrap().doc().tenant.clone();
    let daily = Budget { calls: Some(calls), ..Budget::default() };
    register(scene, RegistryItem::Limit(TenantLimit { daily, tenant })).await;
    Some(calls)
}

/// Every job there is, whoever began it.
pub(crate) async fn jobs(store: &Arc<dyn Store>) -> Vec<TrajectoryRow> {
    let rows = store.list(&Listing::default(), 1_000).await.unwrap();
    rows.into_iter().filter(|row| row.summary.kind == TrajectoryKind::Job).collect()
}

/// The ids of all jobs.
pub(crate) async fn ids(store: &Arc<dyn Store>) -> Vec<TrajectoryId> {
    jobs(store).await.into_iter().map(|row| row.trajectory).collect()
}
