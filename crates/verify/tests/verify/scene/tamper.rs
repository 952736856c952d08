//! Every way in which a bundle can be wrong, each with what must be said of it.

use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::trust::{Role, TrustRoot};
use gesta_core::verification::Class::{self, Incomplete, Tampered, Unreadable, Untrusted};
use serde_json::Value;

use super::pack::{Member, Pack, canonical};
use super::{BLOB, BRANCH, JOB, REGISTRY, Scene, Twists, cast, stranger, trust};

/// A bundle, the trust root to verify it with, and the first finding expected of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bundle: Vec<u8>,
    pub(crate) trust: TrustRoot,
    pub(crate) expected: Expected,
}

/// Class, code, trajectory and entry number of the first finding.
pub(crate) type Expected = (Class, &'static str, Option<TrajectoryId>, Option<u64>);

fn file(id: TrajectoryId) -> String {
    format!("trajectories/{id}.jsonl")
}

/// Every case.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = changed_lines();
    cases.extend(forked_lines());
    cases.extend(respelled_lines());
    cases.extend(changed_signatures());
    cases.extend(changed_keys());
    cases.extend(changed_links());
    cases.extend(changed_blobs());
    cases.extend(changed_archive());
    cases.extend(changed_paths());
    cases.extend(bombs());
    cases.extend(super::forged::cases());
    cases
}

fn case(name: &'static str, bundle: Vec<u8>, expected: Expected) -> Case {
    Case { name, bundle, trust: trust(), expected }
}

/// Changes the lines of a chain. A careful forger makes the manifest fit, a careless one does not.
fn lines(id: TrajectoryId, careful: bool, change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<u8> {
    let scene = Scene::new();
    let mut changed = scene.clone();
    change(changed.chains.get_mut(&id).unwrap());
    let mut pack = Pack::of(&changed);
    if !careful {
        let manifest = Pack::of(&scene).member("gesta-bundle.json").data.clone();
        pack.set("gesta-bundle.json", manifest);
    }
    pack.bytes()
}

/// Changes one value of an entry, and keeps it canonical.
pub(super) fn edited(line: &mut Vec<u8>, pointer: &str, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(line).unwrap();
    change(value.pointer_mut(pointer).unwrap());
    *line = canonical(&value);
}

/// Spells a part of a line otherwise, without a thought for its form.
pub(super) fn respelled(line: &mut Vec<u8>, from: &str, to: &str) {
    let text = String::from_utf8(line.clone()).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    *line = text.replace(from, to).into_bytes();
}

/// Gives every entry from `from` on the id of the one before it, as a forger would.
fn rehash(lines: &mut [Vec<u8>], from: usize) {
    for at in from..lines.len() {
        let parent = Digest::of(&lines[at - 1]).to_string();
        edited(&mut lines[at], "/parent", |value| *value = parent.into());
    }
}

fn changed_lines() -> Vec<Case> {
    let at = |code, seq| (Tampered, code, Some(JOB), Some(seq));
    let note = b"claimed";
    let flip = |line: &mut Vec<u8>| {
        let found = line.windows(note.len()).position(|part| part == note).unwrap();
        line[found] ^= 1;
    };
    vec![
        case("flipped-byte", lines(JOB, false, |l| flip(&mut l[2])), at("parent", 3)),
        case(
            "flipped-last-byte",
            lines(BRANCH, false, |l| flip(&mut l[1])),
            (Tampered, "head", Some(BRANCH), Some(1)),
        ),
        case(
            "flipped-sign",
            lines(JOB, false, |l| edited(&mut l[4], "/body/cost/calls", |v| *v = 2.into())),
            at("illegal", 4),
        ),
        case("reordered", lines(JOB, false, |l| l.swap(3, 4)), at("sequence", 3)),
        case("dropped", lines(JOB, false, |l| drop(l.remove(3))), at("sequence", 3)),
        case("dropped-first", lines(JOB, false, |l| drop(l.remove(0))), at("sequence", 0)),
        case("truncated", lines(JOB, false, |l| l.truncate(7)), at("truncated", 6)),
        case("duplicate-seq", lines(JOB, false, |l| l.insert(4, l[3].clone())), at("sequence", 4)),
        case(
            "spliced",
            lines(JOB, true, |l| l[2] = Scene::new().chains[&BRANCH][1].clone()),
            at("other_trajectory", 2),
        ),
        case(
            "renumbered",
            lines(JOB, true, |l| {
                l.remove(2);
                for (seq, line) in l.iter_mut().enumerate() {
                    edited(line, "/seq", |value| *value = seq.into());
                }
                rehash(l, 1);
            }),
            at("illegal", 2),
        ),
        case(
            "future-version",
            lines(JOB, true, |l| edited(&mut l[2], "/v", |value| *value = 2.into())),
            (Unreadable, "future_version", Some(JOB), Some(2)),
        ),
        case(
            "unknown-kind",
            lines(JOB, true, |l| edited(&mut l[2], "/kind", |kind| *kind = "foresight".into())),
            at("not_an_entry", 2),
        ),
        case("non-canonical", lines(JOB, true, |l| l[2].insert(1, b' ')), at("not_canonical", 2)),
        case(
            "unknown-field",
            lines(JOB, true, |l| edited(&mut l[2], "/body", |body| body["more"] = 1.into())),
            at("not_an_entry", 2),
        ),
        case("empty-line", lines(JOB, true, |l| l.insert(2, Vec::new())), at("not_canonical", 2)),
    ]
}

/// A head that something else follows too.
fn forked_lines() -> Vec<Case> {
    let at = |code, seq| (Tampered, code, Some(JOB), Some(seq));
    vec![
        case(
            "forked",
            lines(JOB, true, |l| {
                let mut other = l[5].clone();
                edited(&mut other, "/at", |value| *value = (value.as_u64().unwrap() + 1).into());
                l.insert(6, other);
            }),
            at("sequence", 6),
        ),
        case(
            "forked-and-renumbered",
            lines(JOB, true, |l| {
                let mut other = l[5].clone();
                edited(&mut other, "/seq", |value| *value = 6.into());
                l.truncate(6);
                l.push(other);
            }),
            at("parent", 6),
        ),
    ]
}

/// What is not canonical deep inside of an otherwise canonical entry.
fn respelled_lines() -> Vec<Case> {
    let at = |code, seq| (Tampered, code, Some(JOB), Some(seq));
    vec![
        case(
            "nested-duplicate-key",
            lines(JOB, true, |l| {
                respelled(&mut l[3], r#"{"amount":1999,"#, r#"{"amount":1999,"amount":1,"#);
            }),
            at("not_canonical", 3),
        ),
        case(
            "nested-order",
            lines(JOB, true, |l| {
                let (sorted, not) =
                    (r#"{"amount":1999,"for":"charge"}"#, r#"{"for":"charge","amount":1999}"#);
                respelled(&mut l[3], sorted, not);
            }),
            at("not_canonical", 3),
        ),
        case(
            "nested-number",
            lines(JOB, true, |l| {
                respelled(&mut l[3], r#""attempt":1,"dead"#, r#""attempt":1.0,"dead"#);
            }),
            at("not_canonical", 3),
        ),
    ]
}

fn changed_signatures() -> Vec<Case> {
    let at = |code, seq| (Tampered, code, Some(JOB), Some(seq));
    let window = "/body/purpose/job/writs/1/doc/window/not_after";
    vec![
        case(
            "swapped-signature",
            lines(JOB, true, |l| {
                let permit: Value = serde_json::from_slice(&l[3]).unwrap();
                let signature = permit.pointer("/body/permit/sig").unwrap().clone();
                edited(&mut l[3], "/body/decision/sig", |value| *value = signature);
                rehash(l, 4);
            }),
            at("signature", 3),
        ),
        case(
            "edited-expiry",
            lines(JOB, true, |l| {
                edited(&mut l[0], window, |value| *value = (value.as_u64().unwrap() - 1).into());
                rehash(l, 1);
            }),
            at("signature", 0),
        ),
        case(
            "edited-permit",
            lines(JOB, true, |l| {
                edited(&mut l[3], "/body/permit/doc/dispatch_by", |value| {
                    *value = (value.as_u64().unwrap() + 1).into();
                });
                rehash(l, 4);
            }),
            at("signature", 3),
        ),
    ]
}

fn twisted(twists: &Twists) -> Vec<u8> {
    Pack::of(&Scene::with(twists)).bytes()
}

fn changed_keys() -> Vec<Case> {
    let at = |code| (Untrusted, code, Some(JOB), Some(3));
    let guardian = |key| twisted(&Twists { guardian: Some(key), ..Twists::default() });
    let mut owner_is_issuer = trust();
    for key in &mut owner_is_issuer.keys {
        key.roles = [Role::Issuer].into();
    }
    let mut expired = trust();
    for key in &mut expired.keys {
        key.valid.not_after = key.valid.not_before;
    }
    let revoked = twisted(&Twists { revoke_guardian: true, ..Twists::default() });
    let registry = |code| (Untrusted, code, Some(REGISTRY), Some(0));
    let good = Scene::new().bundle();
    let stranger = TrustRoot::new(super::Cast::new(9).trust_root().keys);
    vec![
        case("other-key", guardian(self::stranger()), at("unknown_key")),
        case("wrong-role", guardian(cast().executor), at("wrong_role")),
        case("revoked-key", revoked, at("revoked_key")),
        Case { trust: stranger, ..case("other-trust", good.clone(), registry("unknown_key")) },
        Case {
            trust: owner_is_issuer,
            ..case("owner-is-none", good.clone(), registry("wrong_role"))
        },
        Case { trust: expired, ..case("expired-key", good, registry("key_validity")) },
    ]
}

fn changed_links() -> Vec<Case> {
    let none = Twists::default();
    let child = Scene::new().child;
    let without = |id: TrajectoryId| {
        let mut scene = Scene::new();
        scene.chains.remove(&id);
        scene.blobs.retain(|_, _| id != JOB);
        Pack::of(&scene).bytes()
    };
    let in_job = |code, seq| (Tampered, code, Some(JOB), Some(seq));
    vec![
        case(
            "foreign-registry-head",
            twisted(&Twists { foreign_registry_head: true, ..none.clone() }),
            in_job("registry_head", 0),
        ),
        case(
            "foreign-decision-head",
            twisted(&Twists { foreign_decision_head: true, ..none.clone() }),
            in_job("registry_head", 3),
        ),
        case(
            "foreign-delegation-head",
            twisted(&Twists { foreign_delegation_head: true, ..none.clone() }),
            in_job("registry_head", 5),
        ),
        case(
            "revoked-writ",
            twisted(&Twists { revoke_writ: true, ..none.clone() }),
            in_job("revoked_writ", 3),
        ),
        case("registry-cut", lines(REGISTRY, true, |l| drop(l.pop())), in_job("registry_head", 0)),
        case(
            "other-spending",
            twisted(&Twists { free_child: true, ..none.clone() }),
            in_job("delegation_result", 6),
        ),
        case(
            "other-writ",
            twisted(&Twists { other_writ: true, ..none.clone() }),
            (Tampered, "delegation", Some(child), Some(0)),
        ),
        case("orphan", twisted(&Twists { orphan: true, ..none.clone() }), in_job("delegation", 5)),
        case(
            "child-cut",
            lines(child, true, |l| drop(l.pop())),
            (Tampered, "truncated", Some(child), Some(3)),
        ),
        case(
            "foreign-source-head",
            twisted(&Twists { foreign_source_head: true, ..none.clone() }),
            (Tampered, "source_head", Some(BRANCH), Some(0)),
        ),
        case(
            "invented-result",
            twisted(&Twists { invented_result: true, ..none }),
            (Tampered, "recorded_from", Some(BRANCH), Some(3)),
        ),
        case(
            "branch-of-itself",
            lines(BRANCH, true, |l| {
                edited(&mut l[0], "/body/source", |value| *value = BRANCH.to_string().into());
            }),
            (Tampered, "branch_cycle", Some(BRANCH), Some(0)),
        ),
        case("source-cut", lines(JOB, true, |l| l.truncate(5)), in_job("truncated", 4)),
        case("missing-source", without(JOB), (Incomplete, "missing_source", Some(BRANCH), Some(0))),
    ]
}

fn changed_blobs() -> Vec<Case> {
    let packed = |change: fn(&mut Scene)| {
        let mut scene = Scene::new();
        change(&mut scene);
        Pack::of(&scene).bytes()
    };
    let at = |class, code| (class, code, Some(JOB), Some(0));
    let swapped = packed(|scene| {
        scene.blobs.insert(Digest::of(BLOB), BLOB.to_ascii_uppercase());
    });
    let longer = packed(|scene| {
        scene.blobs.insert(Digest::of(BLOB), [BLOB, b" "].concat());
    });
    let missing = packed(|scene| scene.blobs.clear());
    let stray = packed(|scene| {
        scene.blobs.insert(Digest::of(b"more"), b"more".to_vec());
    });
    vec![
        case("blob-swapped", swapped, at(Tampered, "blob")),
        case("blob-longer", longer, at(Tampered, "blob")),
        case("blob-missing", missing, at(Incomplete, "missing_blob")),
        case("blob-stray", stray, (Tampered, "stray_blob", None, None)),
    ]
}

fn packed(change: impl FnOnce(&mut Pack)) -> Vec<u8> {
    let mut pack = Pack::of(&Scene::small());
    change(&mut pack);
    pack.bytes()
}

fn changed_archive() -> Vec<Case> {
    let of = |code| (Tampered, code, None, None);
    let manifest = |from: &'static str, to: &'static str| {
        packed(|pack| {
            let member = pack.member("gesta-bundle.json");
            let text = String::from_utf8(member.data.clone()).unwrap();
            assert!(text.contains(from));
            member.data = text.replacen(from, to, 1).into_bytes();
        })
    };
    let good = Scene::small().bundle();
    let cut = |by: usize| good[..good.len() - by].to_vec();
    vec![
        case("archive-cut", cut(1025), of("archive_cut")),
        case("archive-without-end", cut(1024), of("archive_cut")),
        case("archive-with-half-an-end", cut(512), of("archive_cut")),
        case("archive-with-more", [good.as_slice(), &[0; 512]].concat(), of("archive_end")),
        case("padding", packed(|pack| pack.member("keys.json").padding = 1), of("archive_padding")),
        case("manifest-spaced", manifest("{", "{ "), of("manifest")),
        case("manifest-null", manifest(r#""blobs""#, r#""a":null,"blobs""#), of("manifest")),
        case(
            "manifest-of-the-future",
            manifest("gesta.bundle.v1", "gesta.bundle.v2"),
            (Unreadable, "future_version", None, None),
        ),
        case(
            "other-hints",
            packed(|pack| pack.set("keys.json", br#"{"keys":[],"type":"gesta.keys.v1"}"#.to_vec())),
            of("keys"),
        ),
        case(
            "no-bundle",
            b"nothing of the kind".to_vec(),
            (Unreadable, "not_a_bundle", None, None),
        ),
        case("no-archive", vec![b'x'; 2048], (Unreadable, "not_a_bundle", None, None)),
        case(
            "no-new-line",
            packed(|pack| {
                pack.member(&file(JOB)).data.pop();
            }),
            (Tampered, "archive_line", Some(JOB), Some(1)),
        ),
        case(
            "nothing",
            Pack::of(&Scene { chains: [].into(), blobs: [].into(), ..Scene::new() }).bytes(),
            (Incomplete, "nothing", None, None),
        ),
    ]
}

fn changed_paths() -> Vec<Case> {
    let of = |code| (Tampered, code, None, None);
    let renamed = |name: &'static str| packed(|pack| pack.member(&file(JOB)).name = name.into());
    let kind = |kind: u8, link: &'static str| {
        packed(|pack| {
            let member = pack.member(&file(JOB));
            member.kind = kind;
            member.link = link.into();
        })
    };
    let inserted = |member: Member| packed(|pack| pack.members.insert(1, member));
    vec![
        case("path-up", renamed("../../etc/passwd"), of("archive_name")),
        case("path-absolute", renamed("/etc/passwd"), of("archive_name")),
        case("path-inside-up", renamed("trajectories/../keys.json"), of("archive_name")),
        case("path-dot", renamed("./keys.json"), of("archive_name")),
        case("path-link", kind(b'2', "/etc/passwd"), of("archive_header")),
        case("path-hard-link", kind(b'1', "keys.json"), of("archive_header")),
        case("path-device", kind(b'3', ""), of("archive_header")),
        case("path-directory", kind(b'5', ""), of("archive_header")),
        case(
            "path-pax",
            inserted(Member { kind: b'x', ..Member::file("PaxHeaders/x", "11 path=x\n") }),
            of("archive_name"),
        ),
        case(
            "path-long-link",
            inserted(Member { kind: b'L', ..Member::file("././@LongLink", "x") }),
            of("archive_name"),
        ),
        case(
            "path-twice",
            packed(|pack| {
                let at = pack.position(&file(JOB));
                pack.members.insert(at, pack.members[at].clone());
            }),
            of("archive_order"),
        ),
        case("path-unsorted", packed(|pack| pack.members.swap(1, 2)), of("archive_order")),
        case("path-missing", packed(|pack| drop(pack.members.remove(2))), of("archive_order")),
        case(
            "path-unlisted",
            packed(|pack| {
                pack.members.push(Member::file(format!("blobs/{}", Digest::of(b"")), ""));
            }),
            of("archive_end"),
        ),
    ]
}

/// Members that claim to be larger than they are, or than anybody should read.
fn bombs() -> Vec<Case> {
    let of = |class, code| (class, code, None, None);
    let claiming = |name: String, claim: &'static [u8; 12]| {
        packed(|pack| pack.member(&name).claims = Some(*claim))
    };
    let blob = format!("blobs/{}", Digest::of(BLOB));
    let manifest = |change: fn(&mut Value)| {
        packed(|pack| {
            let member = pack.member("gesta-bundle.json");
            let mut value: Value = serde_json::from_slice(&member.data).unwrap();
            change(&mut value);
            member.data = canonical(&value);
        })
    };
    vec![
        case("bomb-blob", claiming(blob.clone(), b"77777777777\0"), of(Tampered, "archive_cut")),
        case(
            "bomb-manifest",
            claiming("gesta-bundle.json".to_owned(), b"77777777777\0"),
            of(Tampered, "archive_cut"),
        ),
        case(
            "bomb-in-base-256",
            claiming(blob, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
            of(Tampered, "archive_header"),
        ),
        case(
            "bomb-listed-blob",
            manifest(|it| it["blobs"][0]["size"] = 9_007_199_254_740_991_u64.into()),
            of(Tampered, "manifest"),
        ),
        case(
            "bomb-listed-head",
            manifest(|it| it["trajectories"][0]["head"]["seq"] = 9_007_199_254_740_991_u64.into()),
            (Tampered, "truncated", Some(JOB), Some(1)),
        ),
        case(
            "bomb-compressed",
            [b"\x1f\x8b\x08\0\0\0\0\0\x02\x03".as_slice(), &[0; 1014]].concat(),
            of(Unreadable, "not_a_bundle"),
        ),
    ]
}
