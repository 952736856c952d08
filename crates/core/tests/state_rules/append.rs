//! What a store is handed: entries, and the conditions under which it may keep them.

use gesta_core::body::StepKind;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::{Fence, ParkedOn, Status};
use gesta_core::state::Act;

use crate::scene::{ID, Scene, step};

const OTHER: TrajectoryId = TrajectoryId::from_bytes([8; 16]);

#[test]
fn a_beginning_expects_nothing_and_what_follows_expects_its_head() {
    let scene = Scene::session();
    let (admitted, state) = scene.admission.clone().finish().unwrap();
    assert_eq!((admitted.trajectory(), admitted.expected()), (ID, None));
    assert_eq!(admitted.head(), admitted.entries().last().unwrap().head());
    assert_eq!(admitted.under(), None);
    assert!(state.admit().finish().is_none(), "nothing was added");

    let mut next = Scene { admission: state.admit(), ..scene };
    next.opens("a");
    assert_eq!(next.admission.entries().len(), 1);
    let (opened, _) = next.admission.finish().unwrap();
    assert_eq!(opened.expected(), Some(admitted.head()));
    assert_eq!(opened.head().seq, admitted.head().seq + 1);
    assert_eq!((admitted.fence(), opened.fence()), (Fence::Open, Fence::Attempt(1)));
    assert_eq!(opened.projection().summary.status, Status::Running);
}

#[test]
fn what_was_decided_on_one_head_of_a_registry_does_not_pass_under_another() {
    let mut scene = Scene::session();
    let (first, second) = (scene.state().head().unwrap(), {
        scene.opens("a");
        scene.state().head().unwrap()
    });
    scene.admission.under(OTHER, first);
    scene.admission.under(OTHER, second);
    assert_eq!(scene.admission.finish().unwrap().0.under(), Some((OTHER, first)));
}

#[test]
fn rows_of_parked_steps_come_and_go() {
    let mut scene = Scene::job(&[("asked", StepKind::Call, &[])]);
    scene.does(Act::Escalate, "asked");
    let (parked, state) = scene.admission.clone().finish().unwrap();
    let rows = &parked.projection().parked;
    assert_eq!(rows.iter().map(|row| row.on).collect::<Vec<_>>(), [ParkedOn::Approval]);
    assert_eq!(parked.projection().summary.status, Status::Parked);
    assert!(parked.projection().unparked.is_empty());

    let mut next = Scene { admission: state.admit(), ..scene };
    next.does(Act::RequestCancel, "");
    next.does(Act::EndCancelled, "");
    let (ended, _) = next.admission.finish().unwrap();
    assert_eq!(ended.projection().unparked, [step("asked")]);
    assert_eq!(ended.projection().parked, []);
    assert_eq!(ended.projection().summary.status, Status::Cancelled);
}
