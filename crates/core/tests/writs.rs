//! Writs: no sequence of attenuations widens anything.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::digest::{Digest, WritId};
use gesta_core::ids::{Tenant, ToolName};
use gesta_core::keys::PrivateKey;
use gesta_core::sample::Cast;
use gesta_core::signed::Signed;
use gesta_core::time::{UnixMs, Window};
use gesta_core::writ::{Effect, ToolPattern, Widening, Writ, WritChainError, leaf};
use proptest::prelude::*;

fn holder(number: u8) -> PrivateKey {
    PrivateKey::from_seed(&[number; 32])
}

/// Few names, so that patterns meet.
const TOOLS: [&str; 6] = ["mail", "mail.send", "mail.sendall", "pay", "pay.refund", "x"];
const PATTERNS: [&str; 9] =
    ["*", "mail*", "mail.*", "mail.send", "mail.send*", "pay*", "pay.refund", "p*", "x"];
const EFFECTS: [Effect; 4] = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];

fn pattern() -> impl Strategy<Value = ToolPattern> {
    prop::sample::select(&PATTERNS[..]).prop_map(|text| text.parse().unwrap())
}

fn limit() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 3 => (0u64..4).prop_map(Some)]
}

fn budget() -> impl Strategy<Value = Budget> {
    (limit(), limit(), limit(), limit()).prop_map(|(calls, money_micros, tokens, wall_ms)| Budget {
        calls,
        money_micros,
        tokens,
        wall_ms,
    })
}

fn tenant() -> impl Strategy<Value = Tenant> {
    prop_oneof![6 => Just("acme"), 1 => Just("evil")].prop_map(|name| name.parse().unwrap())
}

/// What a writ may do; links to parent and signer are added with its place in a chain.
#[derive(Clone, Debug)]
struct Powers {
    budget: Budget,
    depth: u64,
    effect: Effect,
    tenant: Tenant,
    tools: Vec<ToolPattern>,
    window: Window,
}

fn powers() -> impl Strategy<Value = Powers> {
    (
        budget(),
        0u64..5,
        prop::sample::select(&EFFECTS[..]),
        tenant(),
        prop::collection::vec(pattern(), 0..3),
        (0u64..3, 6u64..9),
    )
        .prop_map(|(budget, depth, effect, tenant, tools, (from, to))| Powers {
            budget,
            depth,
            effect,
            tenant,
            tools,
            window: Window { not_before: UnixMs(from), not_after: UnixMs(to) },
        })
}

/// Each writ signed by the holder of the one above, whether or not it narrows it.
fn chain(powers: &[Powers]) -> Vec<Signed<Writ>> {
    let mut chain: Vec<Signed<Writ>> = Vec::new();
    for (i, powers) in powers.iter().enumerate() {
        let number = u8::try_from(i).unwrap();
        let signer = holder(number);
        let writ = Writ {
            budget: powers.budget,
            depth: powers.depth,
            effect: powers.effect,
            guardians: false,
            holder: holder(number + 1).id(),
            key: signer.id(),
            parent: chain.last().map(Signed::<Writ>::id),
            tenant: powers.tenant.clone(),
            tools: powers.tools.clone(),
            trajectory: None,
            window: powers.window,
            ..Cast::new(1).standing_writ().unwrap().doc().clone()
        };
        chain.push(Signed::sign(writ, &signer).unwrap());
    }
    chain
}

/// One thing that someone may want to do under a writ.
#[derive(Clone, Debug)]
struct Probe {
    tool: ToolName,
    effect: Effect,
    used: Amounts,
    at: UnixMs,
    tenant: Tenant,
    depth: u64,
}

fn probe() -> impl Strategy<Value = Probe> {
    let amounts =
        (0u64..5, 0u64..5, 0u64..5, 0u64..5).prop_map(|(calls, money_micros, tokens, wall_ms)| {
            Amounts { calls, money_micros, tokens, wall_ms }
        });
    (
        prop::sample::select(&TOOLS[..]),
        prop::sample::select(&EFFECTS[..]),
        amounts,
        0u64..10,
        tenant(),
        0u64..6,
    )
        .prop_map(|(tool, effect, used, at, tenant, depth)| Probe {
            tool: tool.parse().unwrap(),
            effect,
            used,
            at: UnixMs(at),
            tenant,
            depth,
        })
}

/// What a writ allows of a probe, dimension by dimension, in the words of the design: worked out
/// here and not asked of the code under test, so far as it can be.
fn allowed(writ: &Writ, probe: &Probe) -> [bool; 9] {
    let within = |limit: Option<u64>, used: u64| limit.is_none_or(|limit| used <= limit);
    let named = |pattern: &ToolPattern| {
        let text = pattern.to_string();
        match text.strip_suffix('*') {
            Some(prefix) => probe.tool.as_str().starts_with(prefix),
            None => probe.tool.as_str() == text,
        }
    };
    [
        writ.tools.iter().any(named),
        probe.effect <= writ.effect,
        within(writ.budget.calls, probe.used.calls),
        within(writ.budget.money_micros, probe.used.money_micros),
        within(writ.budget.tokens, probe.used.tokens),
        within(writ.budget.wall_ms, probe.used.wall_ms),
        writ.window.not_before <= probe.at && probe.at <= writ.window.not_after,
        writ.tenant == probe.tenant,
        probe.depth <= writ.depth,
    ]
}

const NAMES: [&str; 9] =
    ["tool", "effect", "calls", "money", "tokens", "wall", "time", "tenant", "depth"];

/// Whatever the last writ of an accepted chain allows, every writ above it allows.
fn check(chain: &[Signed<Writ>], probes: &[Probe]) -> Result<(), TestCaseError> {
    let Ok(leaf) = leaf(chain) else { return Ok(()) };
    for probe in probes {
        let below = allowed(leaf.doc(), probe);
        for above in chain {
            let above = allowed(above.doc(), probe);
            for (dimension, (below, above)) in NAMES.iter().zip(below.iter().zip(above)) {
                prop_assert!(!below || above, "{dimension} widened for {probe:?}");
            }
        }
    }
    Ok(())
}

/// A writ that narrows another: every dimension drawn from inside the one above.
fn narrowed(above: &Powers, draw: &Powers, keep: u64) -> Powers {
    let tighter = |above: Option<u64>, draw: Option<u64>| match (above, draw) {
        (Some(above), Some(draw)) => Some(above.min(draw)),
        (above, None) => above,
        (None, draw) => draw,
    };
    let tools: Vec<ToolPattern> = above
        .tools
        .iter()
        .enumerate()
        .filter(|(i, _)| keep >> i & 1 == 1)
        .map(|(_, tool)| tool.clone())
        .collect();
    Powers {
        budget: Budget {
            calls: tighter(above.budget.calls, draw.budget.calls),
            money_micros: tighter(above.budget.money_micros, draw.budget.money_micros),
            tokens: tighter(above.budget.tokens, draw.budget.tokens),
            wall_ms: tighter(above.budget.wall_ms, draw.budget.wall_ms),
        },
        depth: draw.depth.min(above.depth.saturating_sub(1)),
        effect: above.effect.min(draw.effect),
        tenant: above.tenant.clone(),
        tools,
        window: Window {
            not_before: above.window.not_before.max(draw.window.not_before),
            not_after: above.window.not_after.min(draw.window.not_after),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Pairs at random: most are refused, and what is accepted widens nothing.
    #[test]
    fn no_accepted_pair_widens(
        pair in prop::collection::vec(powers(), 2),
        probes in prop::collection::vec(probe(), 24),
    ) {
        check(&chain(&pair), &probes)?;
    }

    /// Chains that narrow by construction, with one link that may do anything.
    #[test]
    fn no_accepted_chain_widens(
        first in powers(),
        draws in prop::collection::vec((powers(), any::<u64>()), 1..6),
        (wild, at) in (powers(), 0usize..6),
        probes in prop::collection::vec(probe(), 24),
    ) {
        let mut links = vec![Powers { depth: 9, ..first }];
        for (draw, keep) in &draws {
            let above = links.last().unwrap().clone();
            links.push(narrowed(&above, draw, *keep));
        }
        let honest = chain(&links);
        check(&honest, &probes)?;
        // Depth runs out; nothing else stands in the way of an honest chain.
        match leaf(&honest) {
            Ok(leaf) => prop_assert_eq!(leaf.id(), honest.last().unwrap().id()),
            Err(WritChainError::Widens { widening: Widening::Depth { .. }, .. }) => {}
            Err(other) => panic!("{other}"),
        }
        if let Some(link) = links.get_mut(at) {
            *link = wild;
        }
        check(&chain(&links), &probes)?;
    }

    /// The other way round: what the patterns of a child mean, one of its parent's means.
    #[test]
    fn covering_is_meaning(
        above in prop::collection::vec(pattern(), 1..3),
        below in pattern(),
        tool in prop::sample::select(&TOOLS[..]),
    ) {
        let tool: ToolName = tool.parse().unwrap();
        for above in above {
            if above.covers(&below) && below.matches(&tool) {
                prop_assert!(above.matches(&tool), "{above} covers {below} but not {tool}");
            }
        }
    }
}

/// A parent with a limit in every dimension, and a child that uses all of it.
fn family() -> (Signed<Writ>, Writ) {
    let cast = Cast::new(1);
    let standing = cast.standing_writ().unwrap();
    let parent = Writ {
        budget: Budget {
            calls: Some(10),
            money_micros: Some(20),
            tokens: Some(30),
            wall_ms: Some(40),
        },
        depth: 3,
        effect: Effect::External,
        tools: vec!["pay.*".parse().unwrap(), "mail.send".parse().unwrap()],
        window: Window { not_before: UnixMs(100), not_after: UnixMs(200) },
        ..standing.doc().clone()
    };
    let parent = Signed::sign(parent, &cast.issuer).unwrap();
    let child =
        Writ { depth: 2, key: cast.agent.id(), parent: Some(parent.id()), ..parent.doc().clone() };
    (parent, child)
}

/// The child, edited, is refused for exactly this widening.
#[track_caller]
fn widens(edit: impl FnOnce(&mut Writ), widening: Widening) {
    let (parent, mut child) = family();
    assert_eq!(child.narrows(parent.doc(), parent.id()), Ok(()));
    edit(&mut child);
    assert_eq!(child.narrows(parent.doc(), parent.id()), Err(widening.clone()));
    let child = Signed::sign(child, &Cast::new(1).agent).unwrap();
    let refused = leaf(&[parent, child]).unwrap_err();
    assert_eq!(refused, WritChainError::Widens { index: 1, widening });
}

#[test]
fn each_dimension_is_refused_by_name() {
    for pattern in ["*", "p*", "pay*", "mail.*", "mail.send*", "mail.sendall", "x"] {
        let pattern: ToolPattern = pattern.parse().unwrap();
        let added = pattern.clone();
        widens(|writ| writ.tools.push(added), Widening::Tool(pattern));
    }
    let effect = Widening::Effect { child: Effect::Irreversible, parent: Effect::External };
    widens(|writ| writ.effect = Effect::Irreversible, effect);
    widens(|writ| writ.budget.calls = Some(11), Widening::Budget("calls"));
    widens(|writ| writ.budget.calls = None, Widening::Budget("calls"));
    widens(|writ| writ.budget.money_micros = Some(21), Widening::Budget("money_micros"));
    widens(|writ| writ.budget.money_micros = None, Widening::Budget("money_micros"));
    widens(|writ| writ.budget.tokens = Some(31), Widening::Budget("tokens"));
    widens(|writ| writ.budget.tokens = None, Widening::Budget("tokens"));
    widens(|writ| writ.budget.wall_ms = Some(41), Widening::Budget("wall_ms"));
    widens(|writ| writ.budget.wall_ms = None, Widening::Budget("wall_ms"));
    widens(|writ| writ.window.not_before = UnixMs(99), Widening::Window);
    widens(|writ| writ.window.not_after = UnixMs(201), Widening::Window);
    let (child, parent) = ("evil".parse().unwrap(), "acme".parse().unwrap());
    widens(|writ| writ.tenant = "evil".parse().unwrap(), Widening::Tenant { child, parent });
    widens(|writ| writ.depth = 3, Widening::Depth { child: 3, parent: 3 });
    widens(|writ| writ.parent = None, Widening::Parent);
    widens(|writ| writ.parent = Some(WritId::new(Digest::of(b"other"))), Widening::Parent);
}

#[test]
fn the_largest_depth_does_not_wrap() {
    let (parent, mut child) = family();
    child.depth = u64::MAX;
    let widening = Widening::Depth { child: u64::MAX, parent: 3 };
    assert_eq!(child.narrows(parent.doc(), parent.id()), Err(widening));
}

#[test]
fn only_the_holder_narrows() {
    let (parent, mut child) = family();
    let stranger = holder(0x77);
    child.key = stranger.id();
    let widening = Widening::Signer { signer: stranger.id(), holder: Cast::new(1).agent.id() };
    let child = Signed::sign(child, &stranger).unwrap();
    let refused = leaf(&[parent, child]).unwrap_err();
    assert_eq!(refused, WritChainError::Widens { index: 1, widening });
}

#[test]
fn a_chain_begins_with_a_writ_that_stands_alone() {
    let (parent, child) = family();
    let child = Signed::sign(child, &Cast::new(1).agent).unwrap();
    assert_eq!(leaf(&[]).unwrap_err(), WritChainError::Empty);
    assert_eq!(leaf(std::slice::from_ref(&child)).unwrap_err(), WritChainError::Rootless);
    assert_eq!(leaf(&[child.clone(), parent.clone()]).unwrap_err(), WritChainError::Rootless);
    let twice = leaf(&[parent.clone(), child.clone(), child.clone()]).unwrap_err();
    assert_eq!(twice, WritChainError::Widens { index: 2, widening: Widening::Parent });
    let stands = leaf(&[parent.clone(), parent.clone()]).unwrap_err();
    assert_eq!(stands, WritChainError::Widens { index: 1, widening: Widening::Parent });
    let chain = [parent, child];
    assert_eq!(leaf(&chain).unwrap().id(), chain[1].id());
}

#[test]
fn a_link_skipped_breaks_the_chain() {
    let cast = Cast::new(1);
    let (parent, child) = family();
    let middle = Signed::sign(child.clone(), &cast.agent).unwrap();
    let bottom = Writ { depth: 1, parent: Some(middle.id()), ..child };
    let bottom = Signed::sign(bottom, &cast.agent).unwrap();
    assert!(leaf(&[parent.clone(), middle, bottom.clone()]).is_ok());
    let refused = leaf(&[parent, bottom]).unwrap_err();
    assert_eq!(refused, WritChainError::Widens { index: 1, widening: Widening::Parent });
}
