//! The words that programs compare and people read: codes, states, names of things.

use std::collections::BTreeSet;

use gesta_core::codes::{self, Kind};
use gesta_core::document::{FreezeTarget, Reason};
use gesta_core::entry::Author;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::projection::{ParkedOn, Status, Topic, TrajectoryKind};
use gesta_core::sample::{person, worker};

const REASONS: [Reason; 13] = [
    Reason::InvalidAuthority,
    Reason::PolicyDenied,
    Reason::MissingRequirement,
    Reason::BudgetExhausted,
    Reason::PreconditionFailed,
    Reason::UnknownTool,
    Reason::ToolFrozen,
    Reason::TypeMismatch,
    Reason::TemporalIntervention,
    Reason::EnvelopeInvalid,
    Reason::ApprovalDenied,
    Reason::ApprovalExpired,
    Reason::DelegationExceedsAuthority,
];

#[test]
fn every_reason_to_refuse_is_written_as_its_code_and_explained() {
    for reason in REASONS {
        let code = reason.as_str();
        assert_eq!(Canon::of(&reason).unwrap().as_str(), format!("\"{code}\""));
        assert_eq!(codes::find(code).unwrap().kind, Kind::Refusal, "{code}");
    }
    let refusals = codes::ALL.iter().filter(|code| code.kind == Kind::Refusal).count();
    assert_eq!(refusals, REASONS.len(), "a code that nothing refuses with");
}

#[test]
fn a_code_has_one_entry_and_every_kind_has_codes() {
    for code in codes::ALL {
        assert_eq!(codes::find(code.code), Some(code), "listed twice");
        assert!(!code.means.is_empty() && !code.remedy.is_empty(), "{}", code.code);
    }
    assert_eq!(codes::find("no_such_code"), None);
    for kind in Kind::ALL {
        assert!(codes::ALL.iter().any(|code| code.kind == kind), "{kind:?}");
    }
    let said: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(said.len(), Kind::ALL.len());
}

/// Stores keep the words, and documents spell them the same way.
#[test]
fn a_word_leads_back_to_what_it_is_of() {
    macro_rules! leads_back {
        ($($name:ident),*) => {$(
            for value in $name::ALL.iter().copied() {
                assert_eq!($name::from_word(&value.to_string()), Some(value));
                let spelled = Canon::of(&value).unwrap();
                assert_eq!(spelled.as_str(), format!("\"{value}\""));
            }
            assert_eq!($name::from_word("nothing"), None);
        )*};
    }
    leads_back!(TrajectoryKind, Status, ParkedOn, Topic);
    let ended: Vec<Status> = Status::ALL.iter().copied().filter(|status| status.ended()).collect();
    assert_eq!(ended, [Status::Completed, Status::Failed, Status::Cancelled]);
}

#[test]
fn who_and_what_is_named() {
    let id = TrajectoryId::from_bytes([7; 16]);
    for (target, said) in [
        (FreezeTarget::Tool("pay".parse().unwrap()), "tool pay".to_owned()),
        (FreezeTarget::Principal(person().unwrap()), "principal user:ada".to_owned()),
        (FreezeTarget::Tenant("acme".parse().unwrap()), "tenant acme".to_owned()),
        (FreezeTarget::Trajectory(id), format!("job {id}")),
        (FreezeTarget::All, "everything".to_owned()),
    ] {
        assert_eq!(target.to_string(), said);
    }
    let by_worker = Author::Worker { attempt: 3, worker: worker().unwrap() };
    assert_eq!(by_worker.to_string(), "worker-1#3");
    assert_eq!(Author::Principal(person().unwrap()).to_string(), "user:ada");
}
