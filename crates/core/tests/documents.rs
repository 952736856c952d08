//! Signed documents and entries as bytes: what was signed is what is read, and there is one spelling.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use gesta_core::body::{Branch, BranchMode, Origin, Purpose};
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::{FreezeTarget, KeyRevocation, RegistryItem};
use gesta_core::entry::{Body, Entry, EntryError, Kind};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::{Canon, read_strict, to_canonical};
use gesta_core::sample::{Cast, Dice, EPOCH, author, person};
use gesta_core::signed::{Document, Signed};
use gesta_core::state::{Act, Admission, Failed, Offer, Scope, State};
use gesta_core::trust::{Role, TrustedKey};
use serde_json::{Value, json};

const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);

/// Alters one value in every way that is worth trying.
fn alterations(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!(0), json!("x")],
        Value::Bool(b) => vec![json!(!b), json!(0), Value::Null],
        Value::Number(n) => {
            let n = n.as_u64().unwrap();
            vec![json!(n + 1), json!(n.saturating_sub(1) + 2), json!(n.to_string()), Value::Null]
        }
        Value::String(text) => {
            let flipped: String = text
                .chars()
                .enumerate()
                .map(|(i, c)| if i == 0 { if c == 'a' { 'b' } else { 'a' } } else { c })
                .collect();
            vec![json!(flipped), json!(format!("{text}0")), json!(0), Value::Null, json!([text])]
        }
        Value::Array(items) => {
            let mut longer = items.clone();
            longer.push(items.first().cloned().unwrap_or(Value::Null));
            let shorter: Vec<Value> = items.iter().skip(1).cloned().collect();
            let mut all = vec![json!(longer), json!({}), Value::Null];
            if !items.is_empty() {
                all.push(json!(shorter));
            }
            all
        }
        Value::Object(fields) => {
            let mut all = vec![json!([]), Value::Null];
            for name in fields.keys() {
                let mut without = fields.clone();
                without.remove(name);
                all.push(Value::Object(without));
            }
            let mut with = fields.clone();
            with.insert("unknown".to_owned(), json!(1));
            all.push(Value::Object(with));
            all
        }
    }
}

/// The pointers of all values inside a value, itself included.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                pointers(item, &format!("{at}/{i}"), all);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(field, &format!("{at}/{name}"), all);
            }
        }
        _ => {}
    }
}

fn read<D: Document>(value: &Value) -> Option<Signed<D>> {
    Canon::of(value).unwrap().read().ok()
}

/// Everything that a signature must withstand, on one document.
fn check<D: Document + Clone + Debug + PartialEq>(signed: &Signed<D>) {
    let value: Value = Canon::of(signed).unwrap().read().unwrap();
    let back: Signed<D> = read(&value).unwrap();
    assert_eq!(back, *signed);
    assert!(back.verifies());
    assert_eq!(back.digest(), signed.digest());
    assert_eq!(Canon::of(back.doc()).unwrap(), *signed.canon(), "{} written again", D::TYPE);
    assert_eq!(value["doc"]["type"], json!(D::TYPE));

    let mut all = Vec::new();
    pointers(&value, "", &mut all);
    assert!(all.len() > 8);
    for pointer in all {
        for altered in alterations(value.pointer(&pointer).unwrap()) {
            let mut forged = value.clone();
            *forged.pointer_mut(&pointer).unwrap() = altered.clone();
            if forged == value {
                continue;
            }
            let holds = read::<D>(&forged).is_some_and(|read| read.verifies());
            assert!(!holds, "{}: {pointer} altered to {altered}", D::TYPE);
        }
    }
    for strange in [json!("gesta.other.v1"), json!(""), json!(null), json!(1)] {
        let mut other = value.clone();
        other["doc"]["type"] = strange;
        assert!(read::<D>(&other).is_none(), "{} read as another type", D::TYPE);
    }
    let mut unknown = value.clone();
    unknown["doc"]["unknown"] = json!(1);
    assert!(read::<D>(&unknown).is_none(), "{} read with an unknown field", D::TYPE);
    let mut beside = value.clone();
    beside["unknown"] = json!(1);
    assert!(read::<D>(&beside).is_none(), "{} read with something beside it", D::TYPE);
    check_alone(signed);
}

/// A document by itself, through any reader: what is kept as signed is canonical, and no key of it
/// is there twice.
fn check_alone<D: Document + Debug + PartialEq>(signed: &Signed<D>) {
    let text = Canon::of(signed).unwrap().to_string();
    let loose = text.replace("\":", "\" : ").replace(',', " , ");
    for text in [&text, &loose] {
        assert_eq!(serde_json::from_str::<Signed<D>>(text).unwrap(), *signed);
    }
    let name = format!("\"type\":\"{}\"", D::TYPE);
    let sig = format!("\"sig\":{}", Canon::of(signed.signature()).unwrap());
    for once in [name, sig] {
        let twice = text.replace(&once, &format!("{once},{once}"));
        assert_ne!(twice, text);
        assert!(serde_json::from_str::<Signed<D>>(&twice).is_err(), "{twice}");
        assert!(read_strict::<Signed<D>>(&twice).is_err(), "{twice}");
        assert!(Canon::parse(twice.as_bytes()).is_err(), "{twice}");
    }
}

/// An absent field has one spelling: `null` is not it.
fn check_absent<D: Document>(signed: &Signed<D>, fields: &[&str]) {
    for field in fields {
        let mut value: Value = Canon::of(signed).unwrap().read().unwrap();
        assert!(value["doc"].get(field).is_none(), "{}: `{field}` is there", D::TYPE);
        value["doc"][*field] = Value::Null;
        assert!(read::<D>(&value).is_none(), "{}: `{field}` read as null", D::TYPE);
    }
}

/// A session in which one call of each way of ending leaves its documents.
struct Desk {
    cast: Cast,
    admission: Admission,
    dice: Dice,
}

impl Desk {
    fn session() -> Self {
        let mut cast = Cast::new(1);
        let safe = gesta_core::document::Recovery::Safe;
        cast.style.fixed = Some((gesta_core::writ::Effect::Write, safe));
        let admission = cast.begin_session(ID).unwrap();
        Self { cast, admission, dice: Dice::new(2) }
    }

    fn does(&mut self, act: Act, on: &str) -> Body {
        let on = if on.is_empty() { Scope::Trajectory } else { Scope::Step(on.parse().unwrap()) };
        let offer = Offer { act, on };
        let body = self.cast.body(self.admission.state(), &offer, EPOCH, &mut self.dice).unwrap();
        let by = author(self.admission.state(), act).unwrap();
        self.admission.push(EPOCH, by, body.clone()).unwrap();
        body
    }
}

#[test]
fn decisions_and_permits() {
    let Body::Started(started) = Desk::session().does(Act::Start, "charge") else { panic!() };
    check(&started.decision);
    check(&started.permit);
    check_absent(&started.decision, &["reason", "registry"]);
    let Body::Rejection(rejection) = Desk::session().does(Act::Reject, "charge") else { panic!() };
    check(&rejection.decision);
    check(&rejection.receipt);
    check_absent(&rejection.receipt, &["permit", "prev"]);
}

#[test]
fn receipts_and_reports() {
    let mut desk = Desk::session();
    desk.does(Act::Start, "charge");
    desk.does(Act::Attempt, "");
    let mut trial = Desk { cast: desk.cast.clone(), admission: desk.admission.clone(), ..desk };
    let Body::Commit(commit) = trial.does(Act::CommitEffect, "charge") else { panic!() };
    let Origin::Effect { evidence, receipt, .. } = commit.origin else { panic!() };
    check(&receipt);
    check(&evidence.unwrap());
    let mut desk = Desk::session();
    desk.does(Act::Start, "charge");
    desk.does(Act::Attempt, "");
    let Body::Failure(failure) = desk.does(Act::Fail(Failed::PermanentHappened), "charge") else {
        panic!()
    };
    check(&failure.receipt);
    check(&failure.evidence.unwrap());
}

#[test]
fn approvals_and_resolutions() {
    let mut desk = Desk::session();
    desk.does(Act::Escalate, "asked");
    let Body::Approval(approval) = desk.does(Act::Approve, "asked") else { panic!() };
    check(&approval.statement);
    for act in [Act::ResolveHappened, Act::ResolveForced, Act::ResolveGiveUp] {
        let mut desk = Desk::session();
        desk.does(Act::Start, "charge");
        desk.does(Act::Doubt, "charge");
        let Body::Resolution(resolution) = desk.does(act, "charge") else { panic!() };
        check(&resolution.statement);
    }
}

#[test]
fn writs() {
    let cast = Cast::new(1);
    let standing = cast.standing_writ().unwrap();
    check(&standing);
    check_absent(&standing, &["parent", "trajectory"]);
    let narrowed = cast.narrow(&standing, ID).unwrap();
    check(&narrowed);
    let limited = gesta_core::writ::Writ {
        budget: gesta_core::amounts::Budget {
            calls: Some(1),
            money_micros: Some(2),
            tokens: Some(3),
            wall_ms: Some(4),
        },
        ..standing.doc().clone()
    };
    check(&Signed::sign(limited, &cast.issuer).unwrap());
    let by_guardians = gesta_core::writ::Writ { guardians: true, ..standing.doc().clone() };
    check(&Signed::sign(by_guardians, &cast.issuer).unwrap());
    check_absent(&standing, &["guardians"]);
    let mut value: Value = Canon::of(&standing).unwrap().read().unwrap();
    value["doc"]["guardians"] = json!(false);
    assert!(read::<gesta_core::writ::Writ>(&value).is_none(), "no is said by leaving it out");
    for dimension in ["calls", "money_micros", "tokens", "wall_ms"] {
        let mut value: Value = Canon::of(&standing).unwrap().read().unwrap();
        value["doc"]["budget"][dimension] = Value::Null;
        assert!(read::<gesta_core::writ::Writ>(&value).is_none(), "{dimension}");
    }
}

#[test]
fn registrations() {
    let cast = Cast::new(1);
    let mut admission = State::new(ID).admit();
    let by = author(admission.state(), Act::Begin).unwrap();
    admission.push(EPOCH, by, cast.registry_root().unwrap()).unwrap();
    let trusted = cast.trust_root().keys[1].clone();
    let items = [
        RegistryItem::Key(trusted.clone()),
        RegistryItem::RevokeKey(KeyRevocation { at: EPOCH, key: trusted.key }),
        RegistryItem::Freeze(FreezeTarget::All),
        RegistryItem::Unfreeze(FreezeTarget::Tool("pay.refund".parse().unwrap())),
    ];
    for item in items {
        let body = cast.registration(admission.state(), item, EPOCH).unwrap();
        let Body::Registration(registration) = body else { panic!() };
        check(&registration.statement);
    }
}

#[test]
fn a_set_of_roles_has_one_order() {
    let cast = Cast::new(1);
    let trusted = TrustedKey {
        roles: [Role::Operator, Role::Owner, Role::Issuer].into(),
        ..cast.trust_root().keys[0].clone()
    };
    let read = |roles: Value| {
        let mut value: Value = Canon::of(&trusted).unwrap().read().unwrap();
        value["roles"] = roles;
        Canon::of(&value).unwrap().read::<TrustedKey>()
    };
    assert_eq!(read(json!(["owner", "issuer", "operator"])).unwrap(), trusted);
    assert!(read(json!([])).unwrap().roles.is_empty());
    for other in [
        json!(["issuer", "owner", "operator"]),
        json!(["owner", "operator", "issuer"]),
        json!(["owner", "owner", "issuer", "operator"]),
        json!(["owner", "issuer", "operator", "owner"]),
        json!(["owner", { "issuer": null }, "operator"]),
    ] {
        assert!(read(other.clone()).is_err(), "{other}");
    }
    let error = read(json!(["issuer", "owner"])).unwrap_err().to_string();
    assert!(error.contains("in the order `owner`, `issuer`, `guardian`"), "{error}");
}

#[test]
fn a_document_names_the_key_that_signs_it() {
    let cast = Cast::new(1);
    let writ = cast.standing_writ().unwrap().doc().clone();
    assert!(Signed::sign(writ.clone(), &cast.owner).is_err());
    // Swapping in a genuine signature by another key does not help.
    let foreign = gesta_core::writ::Writ { key: cast.owner.id(), ..writ.clone() };
    let foreign: Value =
        Canon::of(&Signed::sign(foreign, &cast.owner).unwrap()).unwrap().read().unwrap();
    let mut swapped: Value =
        Canon::of(&Signed::sign(writ, &cast.issuer).unwrap()).unwrap().read().unwrap();
    swapped["sig"] = foreign["sig"].clone();
    assert!(!read::<gesta_core::writ::Writ>(&swapped).unwrap().verifies());
}

/// The canonical bytes of a root entry.
/// A signer knows its own signature, of what it signed and of what it reads.
#[test]
fn a_signature_is_its_signers() {
    let cast = Cast::new(1);
    let signed = cast.standing_writ().unwrap();
    assert!(signed.is_by(&cast.issuer) && !signed.is_by(&cast.owner));
    let mut value: Value = Canon::of(&signed).unwrap().read().unwrap();
    let again = read::<gesta_core::writ::Writ>(&value).unwrap();
    assert!(again.is_by(&cast.issuer) && !again.is_by(&cast.owner));
    value["doc"]["depth"] = json!(9);
    let altered = read::<gesta_core::writ::Writ>(&value).unwrap();
    assert!(!altered.is_by(&cast.issuer));
}

fn root() -> String {
    let cast = Cast::new(1);
    let mut admission = State::new(ID).admit();
    let by = author(admission.state(), Act::Begin).unwrap();
    let body = cast.root(Purpose::Session(cast.mandate(ID).unwrap())).unwrap();
    let entry = admission.push(EPOCH, by, body).unwrap();
    String::from_utf8(entry.bytes().to_vec()).unwrap()
}

#[track_caller]
fn refuses(text: &str) -> EntryError {
    assert_ne!(text, root(), "nothing was altered");
    Entry::from_bytes(text.as_bytes()).unwrap_err()
}

/// An entry with an edited payload, in canonical form again.
#[track_caller]
fn refuses_edited(edit: impl FnOnce(&mut Value)) -> EntryError {
    let mut value: Value = serde_json::from_str(&root()).unwrap();
    edit(&mut value);
    refuses(Canon::of(&value).unwrap().as_str())
}

#[test]
fn an_entrys_bytes_are_their_own_canonical_form() {
    let text = root();
    assert_eq!(Entry::from_bytes(text.as_bytes()).unwrap().bytes(), text.as_bytes());
    let json = |text: &str| assert!(matches!(refuses(text), EntryError::Json(_)), "{text}");
    json(&format!(" {text}"));
    json(&format!("{text}\n"));
    json(&text.replacen(':', ": ", 1));
    json(&text.replacen("\"v\":1", "\"v\":1.0", 1));
    json(&text.replacen("\"v\":1", "\"v\":-0", 1));
    json(&text.replacen("\"v\":1", "\"v\":1,\"v\":1", 1));
    json(&text.replacen("\"kind\"", "\"\\u006bind\"", 1));
    // The first two fields, the other way round.
    let at = format!("\"at\":{},", EPOCH.0);
    let moved = text.replacen(&at, "", 1).replacen("\"by\":", &format!("{at}\"by\":"), 1);
    json(&moved);
    json("");
    json("null\u{0}");
}

#[test]
fn an_entry_has_exactly_its_fields() {
    let shape = |error: EntryError| assert!(matches!(error, EntryError::Shape(_)), "{error}");
    for field in ["at", "body", "by", "kind", "parent", "seq", "trajectory", "v"] {
        shape(refuses_edited(|value| {
            value.as_object_mut().unwrap().remove(field);
        }));
    }
    shape(refuses_edited(|value| value["unknown"] = json!(1)));
    shape(refuses_edited(|value| value["body"]["unknown"] = json!(1)));
    shape(refuses_edited(|value| value["by"]["worker"] = json!("worker-1")));
    shape(refuses_edited(|value| value["by"]["attempt"] = Value::Null));
    shape(refuses_edited(|value| value["by"] = json!({})));
    shape(refuses_edited(|value| value["kind"] = json!("unknown")));
    shape(refuses_edited(|value| value["kind"] = json!("plan")));
    shape(refuses_edited(|value| value["parent"] = json!("")));
    shape(refuses_edited(|value| value["body"] = Value::Null));
    shape(refuses_edited(|value| value["seq"] = json!(-1)));
    shape(refuses_edited(|value| value["seq"] = json!(0.5)));
    shape(refuses_edited(|value| value["at"] = json!("1")));
    shape(refuses_edited(|value| {
        let id = value["trajectory"].as_str().unwrap().to_uppercase();
        value["trajectory"] = json!(id);
    }));
    let mandate = "/body/purpose/session";
    for absent in ["delegated_by", "registry"] {
        shape(refuses_edited(|value| value.pointer_mut(mandate).unwrap()[absent] = Value::Null));
    }
}

#[test]
fn another_version_is_named() {
    for version in [0, 2] {
        let error = refuses_edited(|value| value["v"] = json!(version));
        assert_eq!(error, EntryError::Version(version));
    }
    let error = refuses_edited(|value| {
        value["v"] = json!(2);
        value["field_of_the_future"] = json!(1);
    });
    assert_eq!(error, EntryError::Version(2));
}

#[test]
fn integers_beyond_what_a_double_holds_are_refused() {
    let text = root();
    for big in ["9007199254740992", "18446744073709551616", "1e21", "123456789012345678901234"] {
        let seq = text.replacen("\"seq\":0", &format!("\"seq\":{big}"), 1);
        let error = refuses(&seq);
        assert!(matches!(error, EntryError::Json(_) | EntryError::Shape(_)), "{big}: {error}");
        let at = text.replacen(&EPOCH.0.to_string(), big, 1);
        refuses(&at);
    }
    // The largest one is fine as a number; it is then the chain's to refuse.
    let last = text.replacen("\"seq\":0", "\"seq\":9007199254740991", 1);
    assert_eq!(Entry::from_bytes(last.as_bytes()).unwrap().seq(), 9_007_199_254_740_991);
}

/// A value in another spelling that serde would read by itself.
#[test]
fn a_struct_is_an_object_and_a_word_is_a_string() {
    let listed = |value: &Value| {
        let fields = value.as_object().unwrap();
        Value::Array(fields.values().cloned().collect())
    };
    refuses_edited(|value| *value = listed(value));
    refuses_edited(|value| value["by"] = json!([null, value["by"]["principal"], null]));
    refuses_edited(|value| value["body"] = listed(&value["body"]));
    refuses_edited(|value| value["kind"] = json!({ "root": null }));
    let window = "/body/purpose/session/writs/0/doc/window";
    refuses_edited(|value| {
        let inner = value.pointer_mut(window).unwrap();
        *inner = listed(inner);
    });
    refuses_edited(|value| {
        let effect = "/body/purpose/session/writs/0/doc/effect";
        *value.pointer_mut(effect).unwrap() = json!({ "irreversible": null });
    });
}

/// Entries of every kind, one for each set of fields that a kind was met with.
fn entries_of_every_shape() -> Vec<Entry> {
    let cast = Cast::new(1);
    let mut met = BTreeMap::new();
    let mut meet = |entry: &Entry| {
        let value: Value = serde_json::from_slice(entry.bytes()).unwrap();
        let mut fields = Vec::new();
        pointers(&value, "", &mut fields);
        let fields: BTreeSet<String> = fields.into_iter().collect();
        met.entry((entry.kind(), fields)).or_insert_with(|| entry.clone());
    };
    for seed in 0..240 {
        let mut dice = Dice::new(seed);
        let mut now = EPOCH;
        let mut admission = match seed % 4 {
            0 => {
                let mut admission = State::new(ID).admit();
                let by = author(admission.state(), Act::Begin).unwrap();
                admission.push(EPOCH, by, cast.registry_root().unwrap()).unwrap();
                admission
            }
            1 => cast.begin_session(ID).unwrap(),
            _ => cast.begin_job(ID).unwrap(),
        };
        cast.wander(&mut admission, 60, &mut now, &mut dice).unwrap();
        for wanted in [Act::RequestCancel, Act::Complete, Act::EndCancelled, Act::EndFailed] {
            let offers = admission.state().next(now);
            let offer = offers.iter().find(|offer| offer.act == wanted);
            if let Some(offer) = offer.filter(|_| wanted != Act::RequestCancel || seed % 3 == 0) {
                cast.push(&mut admission, offer, now, &mut dice).unwrap();
            }
            cast.wander(&mut admission, 12, &mut now, &mut dice).unwrap();
        }
        if let Some((admitted, _)) = admission.finish() {
            admitted.entries().iter().for_each(&mut meet);
        }
    }
    meet(&branch(&cast));
    met.into_values().collect()
}

fn branch(cast: &Cast) -> Entry {
    let mut desk = Desk::session();
    desk.does(Act::Start, "charge");
    desk.does(Act::CommitEffect, "charge");
    let source = desk.admission.state();
    let into = TrajectoryId::from_bytes([8; 16]);
    let head = source.head().unwrap();
    let body = Body::Branch(Box::new(Branch {
        compiler: String::new(),
        mandate: cast.mandate(into).unwrap(),
        mode: BranchMode::Ask,
        note: String::new(),
        principal: person().unwrap(),
        seed: Seed::new(Digest::of(b"branch")),
        source: ID,
        source_commit: head.id,
        source_head: head,
    }));
    let mut admission = source.branching(into).admit();
    let by = author(admission.state(), Act::Begin).unwrap();
    admission.push(EPOCH, by, body).unwrap().clone()
}

/// Whether the value there is someone else's JSON, in which an array is as good as an object.
fn is_foreign(pointer: &str) -> bool {
    pointer.split('/').any(|name| ["args", "found", "inline", "spec", "value"].contains(&name))
}

/// The orders in which an object's values may stand in an array: all of them if they are few.
fn as_arrays(fields: &serde_json::Map<String, Value>) -> Vec<Value> {
    let mut orders = vec![Vec::new()];
    for value in fields.values() {
        let places = |order: &Vec<Value>| if fields.len() <= 3 { 0 } else { order.len() };
        orders = orders
            .iter()
            .flat_map(|order| {
                (places(order)..=order.len()).map(|place| {
                    let mut longer = order.clone();
                    longer.insert(place, value.clone());
                    longer
                })
            })
            .collect();
    }
    orders.into_iter().map(Value::Array).collect()
}

#[test]
fn every_value_of_every_entry_has_one_spelling() {
    let entries = entries_of_every_shape();
    let kinds: BTreeSet<Kind> = entries.iter().map(Entry::kind).collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "{kinds:?}");
    let mut tried = 0;
    for entry in entries {
        let read = Entry::from_bytes(entry.bytes()).unwrap();
        assert_eq!(to_canonical(read.payload()).unwrap(), entry.bytes(), "written again");
        let value: Value = serde_json::from_slice(entry.bytes()).unwrap();
        let mut all = Vec::new();
        pointers(&value, "", &mut all);
        for pointer in all {
            let others = match value.pointer(&pointer).unwrap() {
                Value::Object(fields) => as_arrays(fields),
                Value::String(text) => vec![json!({ text: null }), json!([text])],
                Value::Number(number) => vec![json!(number.to_string()), json!([number])],
                Value::Null | Value::Bool(_) => vec![json!([]), json!({})],
                Value::Array(items) => {
                    let places = items.iter().enumerate();
                    vec![places.map(|(place, item)| (place.to_string(), item.clone())).collect()]
                }
            };
            for other in others {
                let mut altered = value.clone();
                *altered.pointer_mut(&pointer).unwrap() = other.clone();
                let bytes = to_canonical(&altered).unwrap();
                let accepted = Entry::from_bytes(&bytes).is_ok();
                let kind = entry.kind();
                assert_eq!(accepted, is_foreign(&pointer), "{kind}: {pointer} as {other}");
                tried += 1;
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
}
