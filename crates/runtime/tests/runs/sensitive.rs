//! Sensitive values through the library: sealed under one key for one family, and erased whatever fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::sensitive::Commitment;
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_runtime::replay::{Asked, Library, Session, replay};
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{Gesta, Keys, RunError, Vault, erase, job};
use gesta_store::clock;
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::memory::MemoryStore;
use gesta_store::{Chain, DataKey, DataKeys, Kept, MemoryDataKeys, Store};
use serde_json::{Value, json};

const JOB: &str = "job: greet\ninput:\n  mail: { type: string, sensitive: true }\nsteps:\n  - { id: send, tool: send, args: { to: \"${input.mail}\", note: private } }\nanswer: ${steps.send.result}\n";

fn tools() -> Catalogue {
    let mut send = Manifest::new("send".parse().unwrap(), Effect::External);
    let sensitive = json!({ "type": "string", "x-gesta-sensitive": true });
    send.input =
        Some(json!({ "type": "object", "properties": { "to": sensitive, "note": sensitive } }));
    send.output = Some(json!({ "type": "object", "properties": { "got": sensitive } }));
    let call = async |call: FunctionCall| {
        let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
        Ok::<_, FunctionError>(json!({ "got": args["to"], "copy": args["to"] }))
    };
    Catalogue::builder().function(send, call).build().unwrap()
}

fn keys() -> Keys {
    let key = |seed| PrivateKey::from_seed(&[seed; 32]);
    Keys { owner: key(1), worker: key(2), sealer: None }
}

async fn gesta(store: &Arc<dyn Store>, keys_of: &Arc<MemoryDataKeys>) -> Gesta {
    let gesta = Gesta::open(Arc::clone(store), keys(), tools()).await.unwrap();
    let all = "@id(\"all\") permit (principal, action, resource);";
    gesta.with_data_keys(Arc::clone(keys_of) as _).governed_by(all).await.unwrap()
}

fn place() -> (Arc<dyn Store>, Arc<MemoryDataKeys>) {
    (Arc::new(MemoryStore::new(clock::system())), Arc::default())
}

#[tokio::test]
async fn a_program_hands_on_what_it_never_records() {
    let (store, data_keys) = place();
    let gesta = gesta(&store, &data_keys).await;
    let compiled = job::load("job.yaml", JOB, gesta.tools()).unwrap();
    let id = gesta.submit(&compiled, &[("mail", "bob@example.org")], None).await.unwrap();
    let answer = gesta.run(id).await.unwrap().answer.unwrap();
    let shown: Value = serde_json::from_str(answer.as_str()).unwrap();
    assert!(Commitment::read(&shown["got"]).is_some(), "{answer}");
    assert_eq!(shown["copy"], "[sensitive]");
    let revealed = gesta.reveal(id, &answer).await.unwrap();
    assert_eq!(revealed.as_str(), r#"{"copy":"[sensitive]","got":"bob@example.org"}"#);
    for stored in store.entries(id, 0, 100).await.unwrap() {
        let text = String::from_utf8(stored.bytes).unwrap();
        assert!(!text.contains("bob@example.org"), "{text}");
    }
}

#[tokio::test]
async fn without_a_place_for_data_keys_nothing_is_sent() {
    let (store, data_keys) = place();
    let all = "@id(\"all\") permit (principal, action, resource);";
    let bare = Gesta::open(Arc::clone(&store), keys(), tools()).await.unwrap();
    let bare = bare.governed_by(all).await.unwrap();
    let compiled = job::load("job.yaml", JOB, bare.tools()).unwrap();
    let refused = bare.submit(&compiled, &[("mail", "bob@example.org")], None).await.unwrap_err();
    assert!(matches!(refused, RunError::NoVault { .. }), "{refused}");
    let plain = JOB.replace(", sensitive: true", "");
    let compiled = job::load("job.yaml", &plain, bare.tools()).unwrap();
    let id = bare.submit(&compiled, &[("mail", "bob@example.org")], None).await.unwrap();
    assert_eq!(bare.run(id).await.unwrap().error.unwrap().code, "no_data_keys");
    assert_eq!(data_keys.key(id).await.unwrap(), Kept::Nothing);
}

#[tokio::test]
async fn a_sealed_value_opens_under_its_key_in_its_family_as_it_was() {
    let (store, data_keys) = place();
    let (family, other) = (TrajectoryId::from_bytes([1; 16]), TrajectoryId::from_bytes([2; 16]));
    let vault = Vault::new(Arc::clone(&store), Arc::clone(&data_keys) as _);
    let safe = vault.ensure(family).await.unwrap();
    let commitments = safe.seal(&[json!("bob"), json!("bob")]).await.unwrap();
    let commitment = commitments[0];
    assert_ne!(commitment, commitments[1]);
    assert_eq!(safe.opening(&commitment).await.unwrap().value, Canon::of("bob").unwrap());
    let blob = data_keys.opening(family, commitment.hmac).await.unwrap().unwrap();
    let Kept::Key(key) = data_keys.key(family).await.unwrap() else { panic!("no key") };

    let why = |family: TrajectoryId, key: DataKey, blob: Digest| {
        let store = Arc::clone(&store);
        async move {
            let keys = Arc::new(MemoryDataKeys::default());
            keys.ensure(family, &key).await.unwrap();
            keys.note(family, &[(commitment.hmac, blob)]).await.unwrap();
            let safe = Vault::new(store, keys as _).safe(family).await.unwrap();
            safe.opening(&commitment).await.unwrap_err().to_string()
        }
    };
    let wrong = why(family, DataKey::new([9; 32]), blob).await;
    assert!(wrong.contains("another key"), "{wrong}");
    let swapped = why(other, key.clone(), blob).await;
    assert!(swapped.contains("altered, or belongs to something else"), "{swapped}");
    let twin = data_keys.opening(family, commitments[1].hmac).await.unwrap().unwrap();
    let swapped = why(family, key.clone(), twin).await;
    assert!(swapped.contains("altered, or belongs to something else"), "{swapped}");
    let mut altered = store.blob(blob).await.unwrap().unwrap();
    *altered.last_mut().unwrap() ^= 1;
    let altered = store.put_blob(&altered).await.unwrap().sha256;
    let altered = why(family, key, altered).await;
    assert!(altered.contains("altered"), "{altered}");
    let gone = why(family, DataKey::new([9; 32]), Digest::of(b"nothing")).await;
    assert!(gone.contains("is missing"), "{gone}");
}

/// Every append of an erasure fails, in both ways; the key is gone before any chain says so, and asking
/// again finishes it.
#[tokio::test]
async fn an_erasure_that_was_cut_off_is_finished() {
    for fault in [Fault::Lost, Fault::Unanswered] {
        let (store, data_keys) = place();
        let gesta = gesta(&store, &data_keys).await;
        let compiled = job::load("job.yaml", JOB, gesta.tools()).unwrap();
        let id = gesta.submit(&compiled, &[("mail", "bob@example.org")], None).await.unwrap();
        let by = "owner".parse().unwrap();
        let now = UnixMs(4_000_000_000_000);
        let vault = Vault::new(Arc::clone(&store), Arc::clone(&data_keys) as _);
        let why = ("because", now);
        let early = erase(&store, &vault, (id, false), (&by, why.0), now).await.unwrap_err();
        assert_eq!(early, RunError::NotEnded(vec![id]));
        assert!(matches!(data_keys.key(id).await.unwrap(), Kept::Key(_)));
        gesta.run(id).await.unwrap();

        let faulty: Arc<dyn Store> =
            Arc::new(FaultyStore::new(Arc::clone(&store), Box::new(move |_| Some(fault))));
        erase(&faulty, &vault, (id, false), (&by, why.0), now).await.unwrap_err();
        let Kept::Destroyed(digest) = data_keys.key(id).await.unwrap() else { panic!("alive") };
        let done = erase(&store, &vault, (id, false), (&by, why.0), now).await.unwrap();
        assert_eq!(done.key, digest);
        let again = erase(&store, &vault, (id, false), (&by, "again"), now).await.unwrap();
        assert_eq!(done, again);
        let entries = store.entries(id, 0, 100).await.unwrap();
        let said = entries.iter().filter(|stored| {
            let entry = gesta_core::entry::Entry::from_bytes(&stored.bytes).unwrap();
            matches!(entry.payload().body, Body::Erased(_))
        });
        assert_eq!(said.count(), 1, "{fault:?}");
        Chain::load(Arc::clone(&store), id).await.unwrap();
        assert_eq!(vault.safe(id).await.err(), Some(RunError::Erased(id)));
        assert_eq!(vault.ensure(id).await.err(), Some(RunError::Erased(id)));
    }
}

/// With random bytes from elsewhere, commitments are reproducible; and never from a recorded seed.
#[tokio::test]
async fn salts_come_from_where_they_are_drawn() {
    let (store, _) = place();
    let family = TrajectoryId::from_bytes([1; 16]);
    let mut seen = BTreeMap::new();
    for byte in [7_u8, 7, 8] {
        let keys = Arc::new(MemoryDataKeys::default());
        let entropy = Arc::new(move |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        });
        let vault = Vault::new(Arc::clone(&store), keys as _).drawing_from(entropy);
        let safe = vault.ensure(family).await.unwrap();
        let commitments = safe.seal(&[json!("bob")]).await.unwrap();
        *seen.entry(commitments[0]).or_insert(0) += 1;
    }
    assert_eq!(seen.into_values().max(), Some(2));
}

/// Nobody can derive what random salts went into: commitments are taken from the record, and counted. With the
/// key or without, before and after it is destroyed, everything else is derived as it was.
#[tokio::test]
async fn a_replay_takes_commitments_as_they_are_and_says_when_the_values_are_gone() {
    let (store, data_keys) = place();
    let gesta = gesta(&store, &data_keys).await;
    let compiled = job::load("job.yaml", JOB, gesta.tools()).unwrap();
    let id = gesta.submit(&compiled, &[("mail", "bob@example.org")], None).await.unwrap();
    gesta.run(id).await.unwrap();
    let replayed = async || {
        let mut library = Library::new(Arc::clone(&store));
        replay(&mut library, id, &Asked::default(), &mut |_| ()).await.unwrap().0
    };
    let before = replayed().await;
    assert_eq!(before.session, Session::Complete);
    // The input is handed on as it is; only the literal was committed to on the way.
    assert_eq!((before.committed, before.erased), (1, false));
    assert_eq!(before.run_hash, Some(before.replay_hash));

    let vault = Vault::new(Arc::clone(&store), Arc::clone(&data_keys) as _);
    let (by, now) = ("owner".parse().unwrap(), UnixMs(4_000_000_000_000));
    erase(&store, &vault, (id, false), (&by, "because"), now).await.unwrap();
    let after = replayed().await;
    assert_eq!((&after.session, after.committed, after.erased), (&Session::Complete, 1, true));
    assert_eq!((after.run_hash, after.replay_hash), (before.run_hash, before.replay_hash));
    assert_eq!(after.derived, before.derived);
    assert_eq!(after.given.get("erased"), Some(&1));
}
