//! The vectors that are checked in are the ones that the code makes, byte for byte.

use std::fs;
use std::path::Path;

use gesta_core::digest::Digest;
use gesta_core::entry::{Entry, Kind};
use gesta_core::keys::Sign as _;
use gesta_core::keys::{KeyId, PrivateKey};
use serde_json::Value;

use crate::golden;

const REMEDY: &str = "`cargo xtask vectors` writes what is not frozen";

fn place() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

#[test]
fn vectors_are_what_is_checked_in() {
    let (files, frozen) = (golden::files(), golden::frozen(&place()));
    for (path, made) in &files {
        let stored = fs::read(place().join(path)).unwrap_or_default();
        assert!(stored == *made, "vectors/{path} differs; {REMEDY}");
    }
    for part in ["bundles", "documents", "entries", "json", "log"] {
        for stored in fs::read_dir(place().join(part)).unwrap() {
            let path = format!("{part}/{}", stored.unwrap().file_name().to_string_lossy());
            let known = files.contains_key(&path) || frozen.contains_key(&path);
            assert!(known, "nothing makes vectors/{path}; {REMEDY}");
        }
    }
}

/// Formats that are frozen are read for ever: what shows them is neither changed nor dropped. Those of a newer
/// format go beside it, into a list of their own.
#[test]
fn what_is_frozen_stays() {
    let frozen = golden::frozen(&place());
    assert!(frozen.len() > 200, "{}", frozen.len());
    for (path, digest) in &frozen {
        let stored = fs::read(place().join(path)).unwrap_or_default();
        assert!(Digest::of(&stored) == *digest, "vectors/{path} is frozen and was changed");
    }
    let has = |part: &str| frozen.keys().any(|path| path.starts_with(part));
    assert!(["bundles", "documents", "entries", "json", "log", "runs"].into_iter().all(has));
}

/// Read back with as little of our own code as possible.
#[test]
fn entries_and_documents_hold_by_themselves() {
    let read = |path: String| fs::read(place().join(path)).unwrap();
    let ids: Value = serde_json::from_slice(&read("entries/ids.json".into())).unwrap();
    for kind in Kind::ALL {
        let entry = Entry::from_bytes(&read(format!("entries/{kind}.json"))).unwrap();
        assert_eq!(entry.kind(), *kind);
        assert_eq!(ids[kind.as_str()], entry.id().to_string());
    }
    let types = [
        "writ",
        "decision",
        "permit",
        "effect",
        "receipt",
        "approval",
        "resolution",
        "registration",
    ];
    for type_ in types {
        let vector: Value =
            serde_json::from_slice(&read(format!("documents/gesta.{type_}.v1.json"))).unwrap();
        let text = |field: &str| vector[field].as_str().unwrap();
        let preimage = hex::decode(text("preimage")).unwrap();
        let key =
            PrivateKey::from_seed(&hex::decode(text("key_seed")).unwrap().try_into().unwrap());
        assert_eq!(KeyId::parse(text("key")).unwrap(), key.id());
        let signature = serde_json::to_value(key.sign(&preimage)).unwrap();
        assert_eq!(signature, vector["signature"], "{type_}");
        assert_eq!(serde_json::from_slice::<Value>(&preimage).unwrap(), vector["document"]);
    }
}
