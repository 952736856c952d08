//! The registry: what it holds, and whose word counts in it.

use gesta_core::amounts::{Amounts, Budget, Span};
use gesta_core::body::{Attempt, Purpose, Registration};
use gesta_core::digest::{Digest, WritId};
use gesta_core::document::{
    FreezeTarget, KeyRevocation, RegistrationStatement, RegistryItem, TenantLimit, Threshold,
};
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::{KeyError, KeyId, PrivateKey};
use gesta_core::sample::EPOCH;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{Act, Why};
use gesta_core::time::{Day, UnixMs, Window};
use gesta_core::trust::{Distrust, Role, TrustedKey};

use crate::scene::{Scene, by_person, by_worker};

/// The identity point: anyone can forge under it.
const WEAK: &str = "0100000000000000000000000000000000000000000000000000000000000000";

fn registry() -> Scene {
    let mut scene = Scene::unbegun();
    let root = scene.cast.registry_root().unwrap();
    scene.adds(root);
    scene
}

/// A registration of this item, signed by this key, in its place.
fn item(scene: &Scene, key: &PrivateKey, item: RegistryItem) -> Body {
    statement(scene, key, item, |_| ())
}

fn statement(
    scene: &Scene,
    key: &PrivateKey,
    item: RegistryItem,
    edit: impl FnOnce(&mut RegistrationStatement),
) -> Body {
    let mut statement = RegistrationStatement {
        at: scene.now,
        item,
        key: key.id(),
        note: None,
        parent: scene.state().head().unwrap().id,
        registry: scene.state().trajectory(),
        type_: Tag::default(),
    };
    edit(&mut statement);
    let statement = Signed::sign(statement, key).unwrap();
    Body::Registration(Box::new(Registration { statement }))
}

fn trusted(key: KeyId, role: Role) -> TrustedKey {
    TrustedKey {
        key,
        name: role.to_string(),
        revoked_at: None,
        roles: [role].into(),
        tenant: None,
        valid: Window { not_before: EPOCH, not_after: EPOCH.plus(1_000) },
    }
}

/// One of every item, freezes last.
fn items(key: KeyId) -> [RegistryItem; 11] {
    let tool = || FreezeTarget::Tool("pay.refund".parse().unwrap());
    [
        RegistryItem::Key(trusted(key, Role::Approver)),
        RegistryItem::RevokeKey(KeyRevocation { at: EPOCH, key }),
        RegistryItem::RevokeWrit(WritId::new(Digest::of(b"writ"))),
        RegistryItem::Policy(Digest::of(b"policy")),
        RegistryItem::Catalogue(Digest::of(b"tools")),
        RegistryItem::Limit(TenantLimit {
            daily: Budget { calls: Some(1), ..Budget::default() },
            tenant: "acme".parse().unwrap(),
        }),
        RegistryItem::Freeze(tool()),
        RegistryItem::Unfreeze(tool()),
        RegistryItem::Quarantine(tool()),
        RegistryItem::Lift(tool()),
        reached(1, 80),
    ]
}

/// That tenant `acme` has reached a threshold on a day.
fn reached(day: u32, percent: u8) -> RegistryItem {
    RegistryItem::Reached(Threshold {
        limit: Budget { calls: Some(10), ..Budget::default() },
        of: Span::Day(Day(day)),
        percent,
        tenant: "acme".parse().unwrap(),
        used: Amounts { calls: 8, ..Amounts::default() },
    })
}

#[test]
fn a_registry_holds_registrations_and_nothing_else() {
    let scene = registry();
    let session = Scene::session();
    let wrong = || Why::WrongKindOfTrajectory;
    for act in [Act::RequestCancel, Act::Signal, Act::Plan] {
        scene.refuses(session.body(act, ""), wrong());
    }
    for act in [Act::Checkpoint, Act::Complete, Act::EndFailed] {
        scene.refuses_by(by_worker(0), session.body(act, ""), wrong());
    }
    let attempt = Body::Attempt(Box::new(Attempt {
        died: None,
        environment: gesta_core::sample::environment(),
        note: String::new(),
        restored: None,
    }));
    scene.refuses_by(by_worker(1), attempt, wrong());
    scene.refuses_by(by_worker(0), session.body(Act::Start, "a"), wrong());
    scene.refuses(scene.body(Act::Erase, ""), Why::NotEnded);
    scene.refuses(scene.cast.registry_root().unwrap(), Why::Begun);
}

#[test]
fn only_a_registry_holds_registrations() {
    let session = Scene::session();
    let freeze = RegistryItem::Freeze(FreezeTarget::All);
    let body = item(&session, &session.cast.owner, freeze);
    session.refuses(body, Why::WrongKindOfTrajectory);
}

#[test]
fn every_item_changes_what_the_registry_says() {
    let mut scene = registry();
    let key = scene.cast.approver.id();
    let tool = FreezeTarget::Tool("pay.refund".parse().unwrap());
    let [
        register,
        revoke,
        writ,
        policy,
        catalogue,
        limit,
        freeze,
        unfreeze,
        quarantine,
        lift,
        eighty,
    ] = items(key);
    let owner = scene.cast.owner.clone();
    let mut add = |what: RegistryItem| {
        let body = item(&scene, &owner, what);
        scene.adds(body);
        scene.state().registry().clone()
    };
    assert_eq!(add(register).keys().get(&key).unwrap().revoked_at, None);
    assert_eq!(add(revoke).keys().get(&key).unwrap().revoked_at, Some(EPOCH));
    assert!(add(writ).is_revoked(&WritId::new(Digest::of(b"writ"))));
    assert_eq!(add(policy).policy(), Some(Digest::of(b"policy")));
    assert_eq!(add(catalogue).catalogue(), Some(Digest::of(b"tools")));
    assert!(add(limit).limit(&"acme".parse().unwrap()).is_some());
    let frozen = add(freeze);
    assert!(frozen.is_frozen(&tool) && !frozen.is_frozen(&FreezeTarget::All));
    assert!(!add(unfreeze).is_frozen(&tool));
    let quarantined = add(quarantine);
    assert!(quarantined.is_quarantined(&tool) && !quarantined.is_frozen(&tool));
    assert!(!add(lift).is_quarantined(&tool));
    let acme = "acme".parse().unwrap();
    assert_eq!(add(eighty).reached(&acme, Span::Day(Day(1))), 80);
    // The highest counts, of the newest day; a writ is apart.
    assert_eq!(add(reached(1, 50)).reached(&acme, Span::Day(Day(1))), 80);
    let next = add(reached(2, 50));
    assert_eq!([1, 2].map(|day| next.reached(&acme, Span::Day(Day(day)))), [0, 50]);
    assert_eq!(next.reached(&acme, Span::Writ(WritId::new(Digest::of(b"writ")))), 0);
}

#[test]
fn a_strangers_word_does_not_count() {
    let scene = registry();
    let stranger = PrivateKey::from_seed(&[0xAB; 32]);
    for what in items(scene.cast.approver.id()) {
        let body = item(&scene, &stranger, what);
        scene.refuses(body, Why::Signer(Distrust::Unknown(stranger.id())));
    }
}

#[test]
fn an_operator_stops_things_and_nothing_more() {
    let mut scene = registry();
    let operator = scene.cast.operator.clone();
    let known = RegistryItem::Key(trusted(operator.id(), Role::Operator));
    let body = item(&scene, &scene.cast.owner, known);
    scene.adds(body);
    for what in items(scene.cast.approver.id()) {
        let may = matches!(
            what,
            RegistryItem::Freeze(_)
                | RegistryItem::Unfreeze(_)
                | RegistryItem::Quarantine(_)
                | RegistryItem::Lift(_)
                | RegistryItem::Reached(_)
        );
        let body = item(&scene, &operator, what);
        if may {
            scene.accepts(body);
        } else {
            let needed = "`owner`".to_owned();
            let distrust = Distrust::WrongRole { key: operator.id(), needed };
            scene.refuses(body, Why::Signer(distrust));
        }
    }
}

#[test]
fn a_guardian_puts_into_quarantine_and_warns_and_nothing_more() {
    let mut scene = registry();
    let guardian = scene.cast.guardian.clone();
    let known = RegistryItem::Key(trusted(guardian.id(), Role::Guardian));
    let body = item(&scene, &scene.cast.owner, known);
    scene.adds(body);
    for what in items(scene.cast.approver.id()) {
        let needed: Vec<_> = what.roles().iter().map(|role| format!("`{role}`")).collect();
        let may = matches!(what, RegistryItem::Quarantine(_) | RegistryItem::Reached(_));
        let body = item(&scene, &guardian, what);
        if may {
            scene.accepts(body);
        } else {
            let needed = needed.join(" or ");
            let distrust = Distrust::WrongRole { key: guardian.id(), needed };
            scene.refuses(body, Why::Signer(distrust));
        }
    }
}

#[test]
fn no_other_role_speaks_in_the_registry() {
    for role in
        [Role::Issuer, Role::Guardian, Role::Executor, Role::Approver, Role::Sealer, Role::Witness]
    {
        let mut scene = registry();
        let key = PrivateKey::from_seed(&[0xAC; 32]);
        let body = item(&scene, &scene.cast.owner, RegistryItem::Key(trusted(key.id(), role)));
        scene.adds(body);
        let freeze = item(&scene, &key, RegistryItem::Freeze(FreezeTarget::All));
        let needed = "`owner` or `operator`".to_owned();
        scene.refuses(freeze, Why::Signer(Distrust::WrongRole { key: key.id(), needed }));
    }
}

#[test]
fn a_second_owner_counts_until_revoked_and_while_valid() {
    let mut scene = registry();
    let second = PrivateKey::from_seed(&[0xAD; 32]);
    let known = RegistryItem::Key(trusted(second.id(), Role::Owner));
    let body = item(&scene, &scene.cast.owner, known);
    scene.adds(body);
    let policy = |scene: &Scene| item(scene, &second, RegistryItem::Policy(Digest::of(b"p")));
    scene.later(1_000);
    scene.accepts(policy(&scene));
    let mut stale = scene.clone();
    stale.later(1);
    let distrust = Distrust::OutsideValidity { key: second.id(), at: stale.now };
    stale.refuses(policy(&stale), Why::Signer(distrust));

    let body = item(
        &scene,
        &scene.cast.owner,
        RegistryItem::RevokeKey(KeyRevocation { at: scene.now, key: second.id() }),
    );
    scene.adds(body);
    let distrust = Distrust::Revoked { key: second.id(), revoked_at: scene.now };
    scene.refuses(policy(&scene), Why::Signer(distrust));
}

#[test]
fn a_weak_key_neither_owns_nor_enters() {
    let weak: KeyId = Canon::of(WEAK).unwrap().read().unwrap();
    let why = || Why::Key(KeyError::Weak(WEAK.to_owned()));
    let unbegun = Scene::unbegun();
    let root = unbegun.cast.root(Purpose::Registry { owner: weak }).unwrap();
    unbegun.refuses(root, why());
    let scene = registry();
    let body = item(&scene, &scene.cast.owner, RegistryItem::Key(trusted(weak, Role::Owner)));
    scene.refuses(body, why());
}

#[test]
fn a_registration_has_one_place_in_one_registry() {
    let mut scene = registry();
    let owner = scene.cast.owner.clone();
    let freeze = || RegistryItem::Freeze(FreezeTarget::All);
    let body = item(&scene, &owner, freeze());
    scene.adds(body.clone());
    scene.refuses(body, Why::Parent);
    let elsewhere = statement(&scene, &owner, freeze(), |statement| {
        statement.registry = TrajectoryId::from_bytes([9; 16]);
    });
    scene.refuses(elsewhere, Why::OtherTrajectory);
}

#[test]
fn anyone_may_carry_a_registration_in() {
    let scene = registry();
    let body = || item(&scene, &scene.cast.owner, RegistryItem::Freeze(FreezeTarget::All));
    for by in [by_person(), by_worker(5)] {
        let mut trial = scene.admission.clone();
        trial.push(UnixMs(0), by, body()).unwrap();
    }
}

#[test]
fn a_revoked_key_stays_revoked_when_it_is_registered_again() {
    let mut scene = registry();
    let second = PrivateKey::from_seed(&[99; 32]);
    let enrol = RegistryItem::Key(trusted(second.id(), Role::Owner));
    let owner = scene.cast.owner.clone();
    scene.adds(item(&scene, &owner, enrol.clone()));
    scene.adds(item(
        &scene,
        &owner,
        RegistryItem::RevokeKey(KeyRevocation { at: scene.now, key: second.id() }),
    ));
    scene.adds(item(&scene, &owner, enrol));
    assert!(scene.state().registry().keys().get(&second.id()).unwrap().revoked_at.is_some());
}
