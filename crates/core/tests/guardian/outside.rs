//! Nothing outside the writ is ever allowed; and were it, the state machine would not take the call.

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{Proposal, Started, step_seed};
use gesta_core::document::{Decision, FreezeTarget, Permit, Recovery, RegistryItem, Verdict};
use gesta_core::entry::Body;
use gesta_core::guardian::{Inputs, ToolFacts, judge};
use gesta_core::sample::{Cast, Dice, EPOCH, author, environment};
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{Act, Admission, Offer, Scope, State};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use proptest::prelude::*;

use crate::{inputs, proposal, registry, session};

const EFFECTS: [Effect; 4] = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
const PATTERNS: [&str; 5] = ["*", "mail*", "mail.send", "pay.*", "pay.refund"];
const TOOLS: [&str; 4] = ["mail", "mail.send", "pay.refund", "x"];
const TENANTS: [&str; 2] = ["acme", "other"];

/// What a Guardian that allows everything would have added.
fn started(
    state: &State,
    proposal: &Proposal,
    effect: Effect,
    reserve: Amounts,
    at: UnixMs,
) -> Body {
    let cast = Cast::new(1);
    let decision = Decision {
        at,
        environment: environment().digest().unwrap(),
        key: cast.guardian.id(),
        parent: state.head().unwrap().id,
        proposal: proposal.id().unwrap(),
        reason: None,
        registry: None,
        step: proposal.step.clone(),
        trace: Vec::new(),
        trajectory: state.trajectory(),
        type_: Tag::default(),
        verdict: Verdict::Allow,
        writ: state.writ().unwrap().0,
    };
    let decision = Signed::sign(decision, &cast.guardian).unwrap();
    let permit = Permit {
        attempt: state.attempt(),
        dead_at: at.plus(900),
        decision: decision.id(),
        dispatch_by: at.plus(300),
        effect,
        generation: 1,
        idempotency_key: proposal.idempotency_key(state.trajectory()),
        key: cast.guardian.id(),
        recovery: Recovery::Never,
        reserve,
        type_: Tag::default(),
    };
    let permit = Signed::sign(permit, &cast.guardian).unwrap();
    let seed = step_seed(state.seed().unwrap(), &proposal.step, 1);
    let proposal = proposal.clone();
    Body::Started(Box::new(Started { compensates: None, decision, permit, proposal, seed }))
}

/// The state, claimed by a worker.
fn claimed(state: &State) -> Admission {
    let mut admission = state.admit();
    let attempt = Offer { act: Act::Attempt, on: Scope::Trajectory };
    Cast::new(1).push(&mut admission, &attempt, EPOCH, &mut Dice::new(0)).unwrap();
    admission
}

proptest! {
    /// Whatever else is said: what is allowed is inside the writ in every dimension, and the state machine
    /// takes a call exactly if the writ allows it.
    #[test]
    fn nothing_outside_the_writ_is_allowed(
        tools in prop::collection::vec(prop::sample::select(&PATTERNS[..]), 0..3),
        (ceiling, effect) in (prop::sample::select(&EFFECTS[..]), prop::sample::select(&EFFECTS[..])),
        tool in prop::sample::select(&TOOLS[..]),
        (from, until, now) in (0_u64..5, 5_u64..10, 0_u64..15),
        budget in prop::array::uniform3(prop::option::of(0_u64..3)),
        reserve in prop::array::uniform3(0_u64..4),
        signed in any::<bool>(),
        revoked in prop::option::of(0_usize..2),
        frozen in prop::option::of(prop::sample::select(&TENANTS[..])),
        other in any::<(bool, bool)>(),
    ) {
        let [calls, money_micros, tokens] = budget;
        let (state, writs) = session(|writ| {
            writ.tools = tools.iter().map(|tool| tool.parse().unwrap()).collect();
            writ.effect = ceiling;
            writ.budget = Budget { calls, money_micros, tokens, ..Budget::default() };
            writ.window.not_after = EPOCH.plus(until);
        });
        let mut admission = claimed(&state);
        let state = admission.state().clone();
        let reserve = Amounts { calls: reserve[0], money_micros: reserve[1], tokens: reserve[2], wall_ms: 0 };
        // The session began at EPOCH; what comes before is outside every window.
        let now = UnixMs(EPOCH.0 - 5 + now).max(UnixMs(EPOCH.0 - from));
        let mut items: Vec<_> =
            revoked.iter().map(|which| RegistryItem::RevokeWrit(writs[*which])).collect();
        items.extend(frozen.map(|tenant| RegistryItem::Freeze(FreezeTarget::Tenant(tenant.parse().unwrap()))));
        let says = registry(&items);
        let proposal = proposal(tool, "{}");
        let inputs = Inputs {
            now,
            tool: Some(ToolFacts {
                effect,
                reserve,
                frozen: other.0.then(|| "it changed".to_owned()),
            }),
            writ: if signed { Ok(()) } else { Err("forged".to_owned()) },
            registry: Some(says.registry()),
            mismatches: if other.1 { vec!["/a".to_owned()] } else { Vec::new() },
            ..inputs(&writs)
        };
        let judgement = judge(&proposal, &state, &inputs).unwrap();
        let (_, writ) = state.writ().unwrap();
        let inside = |at| {
            writ.allows(&proposal.tool)
                && effect <= writ.effect
                && writ.window.contains(at)
                && writ.budget.exceeded_by(&reserve).is_none()
        };
        if judgement.verdict != Verdict::Deny {
            prop_assert!(inside(now));
            prop_assert!(signed && revoked.is_none() && frozen != Some(writ.tenant.as_str()));
        }
        // Time does not run backwards in a chain, whatever the writ says.
        let now = now.max(state.at());
        let by = author(&state, Act::Start).unwrap();
        let taken = admission.push(now, by, started(&state, &proposal, effect, reserve, now));
        prop_assert_eq!(taken.is_ok(), inside(now), "{:?}", taken.err());
    }
}
