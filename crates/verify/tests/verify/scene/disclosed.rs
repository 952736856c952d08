//! Bundles that disclose sensitive values, and such that disclose something else than was committed to.

use gesta_core::body::Purpose;
use gesta_core::content::Content;
use gesta_core::entry::Author;
use gesta_core::json::Canon;
use gesta_core::sample::person;
use gesta_core::sensitive::{Opening, Salt};
use gesta_core::state::{Act, State};
use gesta_core::verification::Class::Tampered;
use gesta_verify::bundle::Disclosed;
use serde_json::json;

use super::tamper::Case;
use super::{Chain, JOB, Scene, cast, trust};

fn opening(salt: u8, value: &str) -> Opening {
    Opening { salt: Salt([salt; 32]), value: Canon::of(&value).unwrap() }
}

/// What is disclosed, and what stays with whoever has the data key.
fn mail() -> Opening {
    opening(1, "ada@example.org")
}

fn account() -> Opening {
    opening(2, "DE02 1203 0000 0000 2020 51")
}

/// A session whose input commits to two values, with these disclosed.
fn scene(openings: Vec<Disclosed>) -> Scene {
    let cast = cast();
    let mut chain = Chain::new(State::new(JOB));
    let mut mandate = cast.mandate(JOB).unwrap();
    let commit = |opening: Opening| json!({ "$commit": opening.commitment().unwrap().hmac });
    let input = json!({ "account": commit(account()), "mail": commit(mail()), "order": 1042 });
    mandate.input = Content::Inline(Canon::of(&input).unwrap());
    let root = cast.root(Purpose::Session(mandate)).unwrap();
    chain.add(Author::Principal(person().unwrap()), root);
    chain.act(&cast, Act::Attempt, "");
    let mut scene = Scene::small();
    scene.chains = [(JOB, chain.lines())].into();
    scene.blobs.clear();
    Scene { openings, ..scene }
}

/// One of two values is disclosed, the other withheld.
pub(crate) fn sound() -> Vec<u8> {
    scene(vec![Disclosed::new(mail()).unwrap()]).bundle()
}

/// What somebody may disclose who wants something else to have been said.
pub(crate) fn cases() -> Vec<Case> {
    let honest = Disclosed::new(mail()).unwrap();
    let value = Canon::of(&"eve@example.org").unwrap();
    let other_value = Disclosed { commit: honest.commit, salt: honest.salt, value };
    let other_salt = Disclosed { salt: Salt([3; 32]), ..honest.clone() };
    let moved = Disclosed { commit: account().commitment().unwrap().hmac, ..honest.clone() };
    let stray = Disclosed::new(opening(4, "nobody has committed to this")).unwrap();
    let case = |name, openings, code| {
        let bundle = scene(openings).bundle();
        Case { name, bundle, trust: trust(), expected: (Tampered, code, None, None) }
    };
    vec![
        case("disclosed-another-value", vec![other_value], "opening"),
        case("disclosed-with-another-salt", vec![other_salt], "opening"),
        case("disclosed-for-another-place", vec![moved], "opening"),
        case("disclosed-and-never-committed", vec![honest, stray], "stray_opening"),
    ]
}
