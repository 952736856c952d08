//! What `vectors/` holds, made from fixed keys, clock and seeds: whole bundles with their reports,
//! an entry of every kind, a signed document of every type, canonical JSON.

use std::collections::BTreeMap;

use gesta_core::body::{Origin, Purpose};
use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Entry, Kind};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::sample::{Dice, EPOCH};
use gesta_core::signed::{Document, Signed};
use gesta_core::state::Act;
use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::Report;
use serde::Serialize;
use serde_json::json;

use crate::scene::{Chain, JOB, Scene, cast, disclosed, notary, tamper, trust};

/// Contents by path.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Every vector.
pub(crate) fn files() -> Files {
    let mut files = bundles();
    let entries = one_of_every_kind();
    let mut ids = BTreeMap::new();
    for (kind, entry) in &entries {
        ids.insert(kind.as_str(), entry.id());
        files.insert(format!("entries/{kind}.json"), entry.bytes().to_vec());
    }
    files.insert("entries/ids.json".to_owned(), pretty(&ids));
    files.extend(documents(&entries));
    files.extend(transparency());
    files.extend(canonical_json());
    files
}

/// Verifies a bundle as the stand-alone program does.
pub(crate) fn report(bundle: Vec<u8>, trust: &TrustRoot, options: &Options<'_>) -> Report {
    match Bundle::read(Box::new(bundle)) {
        Ok(bundle) => verify(&bundle, &trust.keyring().unwrap(), options),
        Err(finding) => Report::of_finding(finding),
    }
}

fn bundles() -> Files {
    let mut files = Files::new();
    let mut add = |name: &str, bundle: Vec<u8>, trust_root: &TrustRoot| {
        let report = report(bundle.clone(), trust_root, &Options::default());
        files.insert(format!("bundles/{name}.tar"), bundle);
        files.insert(format!("bundles/{name}.report.json"), pretty(&report));
        if *trust_root != trust() {
            files.insert(format!("bundles/{name}.trust.json"), pretty(trust_root));
        }
        report
    };
    let valid = add("valid", Scene::new().bundle(), &trust());
    assert_eq!(valid.exit_code(), 0, "{valid}");
    let sealed = add("sealed", notary::whole(), &notary::trust_with_log());
    assert_eq!(sealed.exit_code(), 0, "{sealed}");
    let disclosing = add("disclosed", disclosed::sound(), &trust());
    assert_eq!(disclosing.exit_code(), 0, "{disclosing}");
    let (seen, trust_now) = notary::seen_before();
    let seen = add("key-revoked-after-it-was-seen", seen, &trust_now);
    assert_eq!(seen.exit_code(), 0, "{seen}");
    let cases = tamper::cases().into_iter().chain(notary::cases()).chain(disclosed::cases());
    for case in cases {
        let report = add(case.name, case.bundle, &case.trust);
        let found = report.first().map(|it| (it.class, it.code, it.trajectory, it.seq));
        assert_eq!(found, Some(case.expected), "{}: {report}", case.name);
    }
    files.insert("bundles/trust.json".to_owned(), pretty(&trust()));
    files
}

/// What a transparency log gives out: a checkpoint that is witnessed, and proofs against it.
fn transparency() -> Files {
    let log = notary::Notary::of(&Scene::new());
    let files = [
        ("log/checkpoint", log.note().to_string().into_bytes()),
        ("log/consistency.json", pretty(&log.consistency(3))),
        ("log/proof.json", pretty(&log.entry(JOB, 2))),
        ("log/trust.json", pretty(&notary::trust_with_log())),
    ];
    files.into_iter().map(|(path, bytes)| (path.to_owned(), bytes)).collect()
}

/// The first entry of each kind in the scene, and in histories that wander.
fn one_of_every_kind() -> BTreeMap<Kind, Entry> {
    let mut found = BTreeMap::new();
    for line in Scene::new().chains.values().flatten() {
        let entry = Entry::from_bytes(line).unwrap();
        found.entry(entry.kind()).or_insert(entry);
    }
    let cast = cast();
    let id = TrajectoryId::from_bytes([0x3c; 16]);
    for acts in [&[Act::EndFailed][..], &[Act::RequestCancel, Act::EndCancelled, Act::Erase]] {
        let (_, state) = cast.begin_session(id).unwrap().finish().unwrap();
        let mut chain = Chain::new(state);
        for act in acts {
            chain.act(&cast, *act, "");
        }
        for entry in chain.entries {
            found.entry(entry.kind()).or_insert(entry);
        }
    }
    for seed in 0..1000 {
        if found.len() == Kind::ALL.len() {
            break;
        }
        let mut admission = cast.begin_job(id).unwrap();
        cast.wander(&mut admission, 60, &mut EPOCH.plus(1), &mut Dice::new(seed)).unwrap();
        let (admitted, _) = admission.finish().unwrap();
        for entry in admitted.entries() {
            found.entry(entry.kind()).or_insert_with(|| entry.clone());
        }
    }
    let missing: Vec<_> = Kind::ALL.iter().filter(|kind| !found.contains_key(kind)).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
    found
}

fn documents(entries: &BTreeMap<Kind, Entry>) -> Files {
    let mut files = Files::new();
    for entry in entries.values() {
        match &entry.payload().body {
            Body::Root(root) => {
                if let Purpose::Job(mandate) | Purpose::Session(mandate) = &root.purpose {
                    files.extend(mandate.writs.first().map(document));
                }
            }
            Body::Branch(branch) => files.extend(branch.mandate.writs.first().map(document)),
            Body::Started(body) => files.extend([document(&body.decision), document(&body.permit)]),
            Body::Commit(body) => {
                if let Origin::Effect { receipt, .. } = &body.origin {
                    files.extend([document(receipt)]);
                }
            }
            Body::Approval(body) => files.extend([document(&body.statement)]),
            Body::Resolution(body) => files.extend([document(&body.statement)]),
            Body::LateEffect(body) => files.extend([document(&body.report)]),
            Body::Registration(body) => files.extend([document(&body.statement)]),
            _ => {}
        }
    }
    files
}

fn document<D: Document>(signed: &Signed<D>) -> (String, Vec<u8>) {
    let key = signed.doc().key();
    // The keys of a cast are made of one byte each.
    let seed = (0..=u8::MAX).map(|byte| [byte; 32]);
    let seed = seed.into_iter().find(|seed| PrivateKey::from_seed(seed).id() == key).unwrap();
    let vector = json!({
        "document": signed.canon(),
        "id": signed.digest(),
        "key": key,
        "key_seed": hex::encode(seed),
        "preimage": hex::encode(signed.canon().as_bytes()),
        "signature": signed.signature(),
        "type": D::TYPE,
    });
    (format!("documents/{}.json", D::TYPE), pretty(&vector))
}

/// What RFC 8785 shows in its appendix on numbers, as far as integers are safe.
const RFC_8785_NUMBERS: &str = "[0,-0,5e-324,-5e-324,1.7976931348623157e308,-1.7976931348623157e308,\
295147905179352830000.5e1,1e+22,999999999999999700000.5e5,1e21,9.999999999999997e-7,0.000001,\
333333333.3333332,333333333.33333325,333333333.3333333,333333333.3333334,333333333.33333343,\
-0.0000033333333333333333,1424953923781206.2]";

fn canonical_json() -> Files {
    let deep = "[".repeat(65) + &"]".repeat(65);
    let deepest = r#"{"a":["#.repeat(32) + &"]}".repeat(32);
    let cases: &[(&str, &[u8])] = &[
        ("literals", b" [ null , true,\tfalse ]\n"),
        ("numbers", b"[0,-0,1.0,1e1,0.1,1e21,1e-7,4.50,333333333.33333329,5e-324,-1.5E+3]"),
        ("safe-integers", b"[9007199254740991,-9007199254740991]"),
        ("strings", br#"["\u20ac\u000f\n\u0042\"\\\/","\ud83d\ude00","\u007f"]"#),
        (
            "order",
            "{\"\u{fb33}\":1,\"\u{1f600}\":2,\"1\":3,\"\\r\":4,\"\u{f6}\":5,\"\":6}".as_bytes(),
        ),
        ("nested", br#"{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":[]}"#),
        ("rfc-8785-numbers", RFC_8785_NUMBERS.as_bytes()),
        ("halves", b"[1e23,9.999999999999999e22,9.999999999999997e22,4.35,2e-3,0.000001,1e-27]"),
        ("ends-of-doubles", b"[1.7976931348623157e308,-1.7976931348623157e308,2.2250738585072014e-308,5e-324,2e-324,1e-400]"),
        ("zeros", b"[-0,-0.0,0e5,-0E-9,0.000]"),
        ("many-digits", b"[0.1000000000000000055511151231257827021181583404541015625,1.000000000000000000000000000000000001]"),
        ("beyond-integers", br#"{"n":9007199254740992}"#),
        ("beyond-integers-below", br#"{"n":-9007199254740992}"#),
        ("beyond-integers-as-a-fraction", b"[9007199254740993.0]"),
        ("beyond-integers-as-a-power", b"[9.007199254740993e15]"),
        ("beyond-doubles-by-power", b"[-1e999999999999999999999]"),
        ("normal-forms", "{\"e\u{301}\":1,\"\u{e9}\":2,\"\u{212b}\":3,\"\u{c5}\":4}".as_bytes()),
        ("unseen", "[\"a\u{200b}b\",\"\u{202e}c\",\"\u{feff}\",\"\u{2028}\"]".as_bytes()),
        ("delimiters", br#"{"a\u0000b":"\u0000","a":"b\u0000","\u001f":"\u0009"}"#),
        ("deepest", deepest.as_bytes()),
        ("beyond-doubles", br#"{"n":[1e400]}"#),
        ("duplicate-key", br#"{"a":{"k":1,"\u006b":2}}"#),
        ("lone-surrogate", br#"{"s":"\ud800"}"#),
        ("leading-zero", b"[01]"),
        ("comment", b"[1] // one"),
        ("trailing-comma", b"[1,]"),
        ("two-documents", b"{} {}"),
        ("byte-order-mark", b"\xef\xbb\xbf{}"),
        ("not-utf-8", b"[\"\xff\"]"),
        ("control-character", b"[\"\x01\"]"),
        ("not-a-number", b"[NaN]"),
        ("nothing", b""),
        ("too-deep", deep.as_bytes()),
    ];
    let vectors = cases.iter().map(|(name, input)| {
        let parsed = Canon::parse(input);
        let vector = JsonVector {
            canonical: parsed.as_ref().ok().map(ToString::to_string),
            error: parsed.as_ref().err().map(|error| {
                json!({ "pointer": error.pointer(), "problem": error.problem().to_string() })
            }),
            input: std::str::from_utf8(input).ok(),
            input_hex: hex::encode(input),
            sha256: parsed.as_ref().ok().map(|canon| Digest::of(canon.as_bytes())),
        };
        (format!("json/{name}.json"), pretty(&vector))
    });
    vectors.collect()
}

/// A document, and its canonical form or why it has none.
#[derive(Serialize)]
struct JsonVector<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
    input_hex: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Digest>,
}

fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap();
    text.push(b'\n');
    text
}

/// What the lists of frozen formats name in `vectors/`, each with its digest: it stays, byte for byte, whatever
/// newer formats add beside it. Reports are not in them: what is said of a bundle may become clearer.
pub(crate) fn frozen(place: &std::path::Path) -> BTreeMap<String, Digest> {
    let lists = std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path());
    let lists = lists.filter(|path| path.extension().is_some_and(|it| it == "sha256"));
    let texts = lists.map(|path| std::fs::read_to_string(path).unwrap()).collect::<Vec<_>>();
    let line = |line: &str| {
        let (digest, path) = line.split_once("  ").unwrap();
        (path.to_owned(), Digest::from_hex(digest).unwrap())
    };
    texts.iter().flat_map(|text| text.lines().map(line)).collect()
}
