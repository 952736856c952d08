//! The world through its public door: what a delta may do, that it applies whole or not at all, and
//! that the digest follows the content alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gesta_core::json::Canon;
use gesta_core::world::{Change, Delta, DeltaError, External, ResourceRef, World};
use proptest::prelude::*;

fn name(id: &str) -> ResourceRef {
    ResourceRef { id: id.into(), type_: "order".parse().unwrap() }
}

fn create(id: &str, value: u64) -> Change {
    Change::Create { external: None, resource: name(id), value: Canon::of(&value).unwrap() }
}

fn replace(id: &str, expected: u64, value: u64) -> Change {
    let value = Canon::of(&value).unwrap();
    Change::Replace { expected, external: None, resource: name(id), value }
}

fn retract(id: &str, expected: u64) -> Change {
    Change::Retract { expected, resource: name(id) }
}

/// A world with `a` at version 1 and `b` at version 2.
fn world() -> World {
    let mut world = World::default();
    world.apply(&Delta(vec![create("a", 1), create("b", 1)])).unwrap();
    world.apply(&Delta(vec![replace("b", 1, 2)])).unwrap();
    world
}

fn contents(world: &World) -> Vec<(String, u64, String)> {
    world
        .iter()
        .map(|(name, there)| (name.to_string(), there.version, there.value.to_string()))
        .collect()
}

/// A delta that begins well is refused for its last change, and changes nothing.
#[track_caller]
fn refuses(last: Change, error: DeltaError) {
    let mut world = world();
    let before = (contents(&world), world.digest());
    let delta = Delta(vec![create("c", 1), replace("a", 1, 7), last]);
    assert_eq!(world.check(&delta), Err(error.clone()));
    assert_eq!(world.apply(&delta), Err(error));
    assert_eq!((contents(&world), world.digest()), before);
}

#[test]
fn what_is_created_was_not_there() {
    refuses(create("b", 9), DeltaError::Exists(name("b")));
}

#[test]
fn what_is_replaced_or_retracted_is_there_at_that_version() {
    refuses(replace("z", 1, 9), DeltaError::Missing(name("z")));
    refuses(retract("z", 1), DeltaError::Missing(name("z")));
    for expected in [0, 1, 3] {
        let error = || DeltaError::Version { resource: name("b"), expected, actual: 2 };
        refuses(replace("b", expected, 9), error());
        refuses(retract("b", expected), error());
    }
}

#[test]
fn one_delta_changes_a_resource_once() {
    refuses(retract("c", 1), DeltaError::Twice(name("c")));
    refuses(replace("a", 2, 9), DeltaError::Twice(name("a")));
    refuses(create("c", 1), DeltaError::Twice(name("c")));
}

#[test]
fn versions_count_from_one_and_begin_anew_after_retraction() {
    let mut world = world();
    let version = |world: &World, id: &str| world.get(&name(id)).map(|there| there.version);
    assert_eq!((version(&world, "a"), version(&world, "b")), (Some(1), Some(2)));
    world.apply(&Delta(vec![retract("b", 2), replace("a", 1, 5)])).unwrap();
    assert_eq!((version(&world, "a"), version(&world, "b")), (Some(2), None));
    assert_eq!(world.len(), 1);
    world.apply(&Delta(vec![create("b", 3)])).unwrap();
    assert_eq!(version(&world, "b"), Some(1));
}

#[test]
fn the_digest_tells_every_part_of_a_resource_apart() {
    let with = |change: Change| {
        let mut world = World::default();
        world.apply(&Delta(vec![change])).unwrap();
        world.digest()
    };
    let external = |reference: &str| Change::Create {
        external: Some(External { reference: Some(reference.to_owned()), ..External::default() }),
        resource: name("a"),
        value: Canon::of(&1).unwrap(),
    };
    let other_type = Change::Create {
        external: None,
        resource: ResourceRef { id: "a".into(), type_: "invoice".parse().unwrap() },
        value: Canon::of(&1).unwrap(),
    };
    let mut digests = vec![
        World::default().digest(),
        with(create("a", 1)),
        with(create("a", 2)),
        with(create("b", 1)),
        with(external("x")),
        with(external("y")),
        with(other_type),
        world().digest(),
    ];
    let mut second_version = World::default();
    second_version.apply(&Delta(vec![create("a", 1)])).unwrap();
    second_version.apply(&Delta(vec![replace("a", 1, 1)])).unwrap();
    digests.push(second_version.digest());
    let all = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), all);
}

#[test]
fn a_name_cannot_be_read_as_another_type_and_id() {
    let with = |type_: &str, id: &str| {
        let resource = ResourceRef { id: id.into(), type_: type_.parse().unwrap() };
        let mut world = World::default();
        let change = Change::Create { external: None, resource, value: Canon::null() };
        world.apply(&Delta(vec![change])).unwrap();
        world.digest()
    };
    assert_ne!(with("a", "b/c"), with("a/b", "c"));
    assert_ne!(with("a", "bc"), with("ab", "c"));
}

#[test]
fn a_clone_goes_its_own_way() {
    let first = world();
    let mut second = first.clone();
    second.apply(&Delta(vec![retract("a", 1)])).unwrap();
    assert!(first.get(&name("a")).is_some() && second.get(&name("a")).is_none());
    assert_ne!(first, second);
}

proptest! {
    #[test]
    fn the_digest_is_independent_of_the_order(
        (ids, shuffled) in prop::collection::btree_set(0u32..500, 0..24).prop_flat_map(|ids| {
            let ids: Vec<u32> = ids.into_iter().collect();
            (Just(ids.clone()), Just(ids).prop_shuffle())
        }),
        cut in 0usize..24,
    ) {
        let build = |ids: &[u32], cut: usize| {
            let mut world = World::default();
            let changes: Vec<Change> =
                ids.iter().map(|id| create(&id.to_string(), u64::from(*id))).collect();
            let (first, second) = changes.split_at(cut.min(changes.len()));
            world.apply(&Delta(first.to_vec())).unwrap();
            world.apply(&Delta(second.to_vec())).unwrap();
            world
        };
        let ordered = build(&ids, 0);
        let other = build(&shuffled, cut);
        prop_assert_eq!(ordered.digest(), other.digest());
        prop_assert_eq!(contents(&ordered), contents(&other));
    }

    #[test]
    fn undoing_leads_back_to_the_same_digest(
        there in prop::collection::btree_set(0u32..60, 0..20),
        new in prop::collection::btree_set(60u32..120, 0..20),
    ) {
        let mut world = World::default();
        let creates = |ids: &std::collections::BTreeSet<u32>| {
            Delta(ids.iter().map(|id| create(&id.to_string(), 1)).collect())
        };
        world.apply(&creates(&there)).unwrap();
        let before = world.digest();
        world.apply(&creates(&new)).unwrap();
        prop_assert_eq!(world.digest() == before, new.is_empty());
        let undo = Delta(new.iter().map(|id| retract(&id.to_string(), 1)).collect());
        world.apply(&undo).unwrap();
        prop_assert_eq!(world.digest(), before);
    }
}
