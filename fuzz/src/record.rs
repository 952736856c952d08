//! The record: canonical JSON, entries, documents, writs, bundles, logs.

use std::sync::LazyLock;

use gesta_core::amounts::Budget;
use gesta_core::digest::Digest;
use gesta_core::document::{
    ApprovalStatement, Decision, EffectReport, Permit, Receipt, RegistrationStatement,
    ResolutionStatement,
};
use gesta_core::entry::Entry;
use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_core::json::{Canon, Limits, Problem, check_canonical};
use gesta_core::log::checkpoint::{Checkpoint, TreeHead};
use gesta_core::log::evidence::{ConsistencyProof, EntryProof, Evidence, Proofs};
use gesta_core::log::map::Node;
use gesta_core::log::note::{Note, NoteKey};
use gesta_core::log::tiles::{TileId, Tiles};
use gesta_core::log::tree;
use gesta_core::sample::Cast;
use gesta_core::signed::{Document, Signed};
use gesta_core::state::State;
use gesta_core::trust::{Keyring, TrustRoot};
use gesta_core::verification;
use gesta_core::writ::{Effect, ToolPattern, Writ};
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, verify};
use serde_json::Value;

/// Strict JSON: canonical form is a fixed point, means the same, and what is refused is refused for a reason.
pub(crate) fn json_text(data: &[u8]) {
    let theirs = serde_json::from_slice::<Value>(data);
    match Canon::parse(data) {
        Ok(canon) => {
            assert_eq!(Canon::parse(canon.as_bytes()).as_ref(), Ok(&canon), "a fixed point");
            check_canonical(canon.as_bytes(), Limits::DEFAULT).unwrap();
            let theirs = theirs.expect("what is read strictly is JSON");
            assert_eq!(Canon::of(&theirs).as_ref(), Ok(&canon), "it means the same");
            assert_eq!(check_canonical(data, Limits::DEFAULT).is_ok(), canon.as_bytes() == data);
        }
        Err(error) => {
            assert!(check_canonical(data, Limits::DEFAULT).is_err(), "{error}");
            match error.problem() {
                Problem::DuplicateKey(_)
                | Problem::IntegerOutOfRange(_)
                | Problem::NotFinite(_)
                | Problem::TooDeep { .. }
                | Problem::TooLarge { .. } => {}
                problem => assert!(theirs.is_err(), "{problem}"),
            }
        }
    }
}

/// Lines that may be entries: bytes and ids hold, and what is refused leaves no trace.
pub(crate) fn entries(data: &[u8]) {
    let mut state: Option<State> = None;
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(entry) = Entry::from_bytes(line) else { continue };
        assert_eq!(entry.bytes(), line);
        assert_eq!(*entry.id().as_bytes(), *Digest::of(line).as_bytes());
        let again = Entry::new(entry.payload().clone()).expect("an entry can be written again");
        assert_eq!(again.bytes(), line);
        let body = &entry.payload().body;
        for document in verification::signed(body) {
            document.genuine();
        }
        drop((verification::links(body), verification::blobs(body), verification::in_force(body)));
        let state = state.get_or_insert_with(|| State::new(entry.payload().trajectory));
        let before = state.clone();
        match state.apply(&entry) {
            Ok(()) => {
                assert_eq!(state.head(), Some(entry.head()));
                state.next(entry.payload().at);
                state.summary();
            }
            Err(_) => assert_eq!(*state, before, "what is refused leaves no trace"),
        }
    }
}

pub(crate) fn documents(data: &[u8]) {
    let Ok(canon) = Canon::parse(data) else { return };
    fn read<D: Document>(canon: &Canon)
    where
        Signed<D>: serde::de::DeserializeOwned + serde::Serialize,
    {
        let Ok(signed) = canon.read::<Signed<D>>() else { return };
        signed.verifies();
        assert_eq!(Canon::of(&signed).as_ref(), Ok(canon), "every field was read");
        assert_eq!(signed.digest(), Digest::of(signed.canon().as_bytes()));
    }
    read::<Writ>(&canon);
    read::<Decision>(&canon);
    read::<Permit>(&canon);
    read::<EffectReport>(&canon);
    read::<Receipt>(&canon);
    read::<ApprovalStatement>(&canon);
    read::<ResolutionStatement>(&canon);
    read::<RegistrationStatement>(&canon);
    if let Ok(root) = TrustRoot::parse(data) {
        root.keyring().unwrap();
    }
}

/// Choices drawn from bytes; zeros when there are no more.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    fn one_of<T: Clone>(&mut self, from: &[T]) -> T {
        let at = usize::from(self.byte()) % from.len();
        from[at].clone()
    }
}

const TOOLS: [&str; 6] = ["pay", "pay.refund", "pay.refund.all", "payments", "mail.send", "a"];

/// Changes a writ, one field after the other.
fn changed(writ: &mut Writ, choices: &mut Choices<'_>) {
    let effects = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
    let tool = |choices: &mut Choices<'_>| choices.one_of(&TOOLS);
    for _ in 0..choices.byte() % 6 {
        let amount = [None, Some(0), Some(1), Some(u64::from(choices.byte()))];
        match choices.byte() % 10 {
            0 => writ.effect = choices.one_of(&effects),
            1 => writ.depth = u64::from(choices.byte() % 9),
            2 => writ.window.not_before = writ.window.not_before.plus(u64::from(choices.byte())),
            3 => writ.window.not_after = writ.window.not_after.plus(u64::from(choices.byte())),
            4 => writ.guardians = choices.byte().is_multiple_of(2),
            5 => writ.tenant = choices.one_of(&["acme", "other"]).parse().unwrap(),
            6 => writ.principal = choices.one_of(&["agent:sample", "user:eve"]).parse().unwrap(),
            7 => {
                let tools = (0..choices.byte() % 4).map(|_| match choices.byte() % 3 {
                    0 => ToolPattern::Any,
                    1 => ToolPattern::Prefix(format!("{}.", tool(choices))),
                    _ => ToolPattern::Exact(tool(choices).parse().unwrap()),
                });
                writ.tools = tools.collect();
            }
            8 => writ.budget = Budget { calls: choices.one_of(&amount), ..writ.budget },
            _ => {
                let tokens = choices.one_of(&amount);
                let money_micros = choices.one_of(&amount);
                writ.budget = Budget { tokens, money_micros, ..writ.budget };
            }
        }
    }
}

/// A narrower writ allows nothing that the wider one does not.
pub(crate) fn writs(data: &[u8]) {
    static CAST: LazyLock<(Cast, Writ)> = LazyLock::new(|| {
        let cast = Cast::new(3);
        let standing = cast.standing_writ().unwrap().doc().clone();
        (cast, standing)
    });
    let (cast, standing) = &*CAST;
    let choices = &mut Choices(data);
    let mut above = standing.clone();
    changed(&mut above, choices);
    let Ok(parent) = Signed::sign(above.clone(), &cast.issuer) else { return };
    let trajectory = TrajectoryId::from_bytes([1; 16]);
    let Ok(below) = cast.narrow(&parent, trajectory) else { return };
    let mut below = below.doc().clone();
    changed(&mut below, choices);
    if below.narrows(&above, parent.id()).is_err() {
        return;
    }
    assert!(below.effect <= above.effect && below.depth < above.depth);
    assert!(below.window.not_before >= above.window.not_before);
    assert!(below.window.not_after <= above.window.not_after);
    assert_eq!(below.tenant, above.tenant);
    for tool in TOOLS {
        let tool: ToolName = tool.parse().unwrap();
        assert!(!below.allows(&tool) || above.allows(&tool), "{tool}");
    }
    for ((_, less), (_, more)) in
        below.budget.dimensions().into_iter().zip(above.budget.dimensions())
    {
        assert!(more.is_none_or(|more| less.is_some_and(|less| less <= more)));
    }
}

/// Bundles: read and verified without a panic, and always to the same report.
pub(crate) fn bundles(data: &[u8]) {
    static TRUST: LazyLock<Keyring> =
        LazyLock::new(|| Cast::new(3).trust_root().keyring().unwrap());
    let Ok(bundle) = Bundle::read(Box::new(data.to_vec())) else { return };
    let report = verify(&bundle, &TRUST, &Options::default());
    assert_eq!(report, verify(&bundle, &TRUST, &Options::default()));
    let bare = Options { signatures: false, ..Options::default() };
    assert_ne!(verify(&bundle, &TRUST, &bare).exit_code(), 0, "unsigned is never sound");
}

/// Notes, checkpoints, proofs, tiles and nodes of a transparency log.
pub(crate) fn logs(data: &[u8]) {
    if let Ok(note) = Note::parse(data) {
        assert_eq!(note.to_string().as_bytes(), data, "a note has one form");
        if let Ok(head) = TreeHead::parse(&note.text) {
            assert!(note.text.starts_with(&format!("{}\n{}\n", head.origin, head.size)));
        }
        if let Ok(checkpoint) = Checkpoint::parse(&note.text) {
            assert_eq!(checkpoint.to_string(), note.text, "a checkpoint has one form");
        }
        if let Ok(evidence) = Evidence::new(data, &Proofs::new(Vec::new(), true)) {
            evidence.witnesses(&Keyring::default());
        }
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(key) = NoteKey::parse(text)
    {
        assert_eq!(NoteKey::parse(&key.to_string()).as_ref(), Ok(&key));
    }
    if let Ok(proofs) = Proofs::parse(data) {
        assert_eq!(proofs.to_bytes().unwrap(), data, "proofs have one form");
    }
    if let Ok(proof) = EntryProof::parse(data) {
        let _ = proof.check();
    }
    let _ = ConsistencyProof::parse(data);
    if let Some(node) = Node::from_bytes(data) {
        assert_eq!(node.to_bytes().as_slice(), data);
    }
    if let [level, number, sizes @ ..] = data {
        let size = sizes.iter().take(3).fold(0, |size, byte| size << 8 | u64::from(*byte));
        let id = TileId { level: level % 4, number: u64::from(*number) };
        if let Ok(tiles) = Tiles::new([(id, data.to_vec())]) {
            let _ = tiles.root(size);
            let ranges = tree::inclusion(u64::from(*number), size);
            let _ = ranges.map(|ranges| tiles.read(&ranges));
        }
    }
}
