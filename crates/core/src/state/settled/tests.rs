//! Settled steps, in memory and on a shelf, beside a plain map.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;

use super::super::Unaccounted;
use super::*;

fn step(n: u8) -> Step {
    let by = Head { id: EntryId::new(Digest::of(&[n])), seq: u64::from(n) };
    let outcomes = [Outcome::Pure, Outcome::SideEffectCommitted, Outcome::Compensated];
    Step {
        generation: 1 + u64::from(n % 3),
        inherited: n.is_multiple_of(5),
        row: Some(Digest::of(&[n, n])),
        status: match outcomes.get(usize::from(n % 4)) {
            Some(outcome) => Status::Done { by, outcome: *outcome },
            None => Status::Failed { by },
        },
        ..Step::fresh()
    }
}

fn filled<'a>(steps: impl IntoIterator<Item = (&'a StepId, &'a Step)>) -> Settled {
    added(Settled::default(), steps)
}

fn added<'a>(
    mut settled: Settled,
    steps: impl IntoIterator<Item = (&'a StepId, &'a Step)>,
) -> Settled {
    steps.into_iter().for_each(|(id, step)| assert!(settled.insert(id, step)));
    settled
}

#[test]
fn a_step_with_more_to_say_is_not_packed() {
    let id: StepId = "a".parse().unwrap();
    let start = EntryId::new(Digest::of(b"start"));
    for more in [
        Step { unaccounted: vec![Unaccounted { started: start, kept: None }], ..step(1) },
        Step { row: None, ..step(1) },
        Step { status: Status::Idle, ..step(1) },
        Step { generation: u64::MAX, ..step(1) },
    ] {
        let mut settled = Settled::default();
        assert!(!settled.insert(&id, &more));
        assert!(!settled.contains(&id));
    }
}

/// A shelf in memory, which has room for so many pages, and whose pages can be lost.
#[derive(Debug)]
struct Drawer {
    room: AtomicUsize,
    burnt: Arc<AtomicBool>,
    held: Arc<()>,
}

#[derive(Debug)]
struct Sheet {
    page: Vec<u8>,
    burnt: Arc<AtomicBool>,
    _held: Arc<()>,
}

impl Page for Sheet {
    fn read(&self) -> Option<Vec<u8>> {
        (!self.burnt.load(Ordering::Relaxed)).then(|| self.page.clone())
    }
}

impl Shelf for Drawer {
    fn put(&self, page: &[u8]) -> Option<Arc<dyn Page>> {
        let left = |room: usize| room.checked_sub(1);
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).ok()?;
        let (burnt, _held) = (Arc::clone(&self.burnt), Arc::clone(&self.held));
        Some(Arc::new(Sheet { page: page.to_vec(), burnt, _held }))
    }
}

impl Drawer {
    fn with_room(room: usize) -> Arc<Self> {
        let (burnt, held) = Default::default();
        Arc::new(Self { room: AtomicUsize::new(room), burnt, held })
    }

    /// How many pages are in it.
    fn pages(&self) -> usize {
        Arc::strong_count(&self.held) - 1
    }
}

fn many(count: u16) -> Vec<(StepId, Step)> {
    (0..count).map(|n| (format!("s{n:05}").parse().unwrap(), step(n as u8))).collect()
}

#[test]
fn few_leaves_stay_where_there_is_a_shelf() {
    let (drawer, steps) = (Drawer::with_room(usize::MAX), many(2_000));
    let shelved: Arc<dyn Shelf> = drawer.clone();
    let settled = added(Settled::default().on(shelved), steps.iter().map(|(id, step)| (id, step)));
    assert!(settled.here <= HERE_MOST + 1, "{} leaves are here", settled.here);
    assert!(drawer.pages() > 20, "{} pages are in the drawer", drawer.pages());
    assert_eq!(settled, filled(steps.iter().map(|(id, step)| (id, step))));
    drop(settled);
    assert_eq!(drawer.pages(), 0, "what nobody holds is given back");
}

#[test]
fn what_finds_no_room_stays() {
    let (drawer, steps) = (Drawer::with_room(5), many(2_000));
    let settled = added(Settled::default().on(drawer), steps.iter().map(|(id, step)| (id, step)));
    assert!(settled.shelf.is_none(), "it is asked once");
    assert_eq!(settled, filled(steps.iter().map(|(id, step)| (id, step))));
    assert_eq!(settled.check(), Ok(()));
}

#[test]
fn what_is_lost_may_have_been_anything() {
    let (drawer, steps) = (Drawer::with_room(usize::MAX), many(2_000));
    let shelved: Arc<dyn Shelf> = drawer.clone();
    let mut settled =
        added(Settled::default().on(shelved), steps.iter().map(|(id, step)| (id, step)));
    let before = settled.clone();
    drawer.burnt.store(true, Ordering::Relaxed);
    assert_eq!(settled.check(), Ok(()), "nobody has looked");
    let unknown: StepId = "s00001x".parse().unwrap();
    assert!(!settled.contains(&unknown), "its mark tells that it is not there");
    assert!(settled.get(&unknown).is_none());
    assert_eq!(settled.check(), Ok(()), "no page was needed for that");
    let known: StepId = "s00001".parse().unwrap();
    assert!(settled.contains(&known), "nobody can say that it is not there");
    assert_eq!((settled.check(), before.check()), (Err(Forgotten), Err(Forgotten)));

    settled = Settled { loss: Loss::default(), ..settled };
    assert_eq!(settled.get(&known), None);
    assert_eq!(settled.check(), Err(Forgotten));
    settled = Settled { loss: Loss::default(), ..settled };
    assert!(settled.insert(&unknown, &step(1)));
    assert_eq!(settled.check(), Err(Forgotten));
    settled = Settled { loss: Loss::default(), ..settled };
    settled.rows(|_, _| ());
    assert_eq!(settled.check(), Err(Forgotten));
    let mut heirs = Settled::default();
    heirs.inherit(&settled);
    assert_eq!(heirs.check(), Err(Forgotten));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn it_holds_what_was_put_in(
        ids in prop::collection::vec(("[a-c]{1,2}(/[a-c0-9-]{1,4}){0,2}", any::<u8>()), 0..900),
        split in any::<prop::sample::Index>(),
        shelf in any::<bool>(),
    ) {
        let parsed: Vec<(StepId, Step)> =
            ids.iter().map(|(id, n)| (id.parse().unwrap(), step(*n))).collect();
        let (early, late) = parsed.split_at(split.index(parsed.len() + 1).min(parsed.len()));
        let empty = Settled::default();
        let empty = if shelf { empty.on(Drawer::with_room(usize::MAX)) } else { empty };
        let first = added(empty.clone(), early.iter().map(|(id, step)| (id, step)));
        let model: BTreeMap<StepId, Step> = early.iter().cloned().collect();
        let mut second = first.clone();
        let mut both = model.clone();
        for (id, step) in late {
            prop_assert!(second.insert(id, step));
            both.insert(id.clone(), step.clone());
        }
        for (settled, model) in [(&first, &model), (&second, &both)] {
            prop_assert!(settled.iter().eq(model));
            let mut rows = model.iter().map(|(id, step)| (id.as_str(), step.row.unwrap()));
            settled.rows(|id, row| assert_eq!(Some((id, row)), rows.next()));
            prop_assert!(rows.next().is_none());
            for (id, _) in &parsed {
                prop_assert_eq!(settled.get(id), model.get(id));
                prop_assert_eq!(settled.contains(id), model.contains_key(id));
            }
            prop_assert_eq!(settled, &filled(model.iter().rev()));
            let mut heirs = empty.clone();
            heirs.inherit(settled);
            let done = model.iter().filter(|(_, s)| matches!(s.status, Status::Done { .. }));
            let done = done.map(|(id, s)| (id.clone(), Step { inherited: true, ..s.clone() }));
            let done: BTreeMap<StepId, Step> = done.collect();
            prop_assert!(heirs.iter().eq(&done));
        }
        prop_assert_eq!(first == second, model == both);
    }
}
