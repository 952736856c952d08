//! What tenants use: slices that add up, draws that are sent again, draws that race.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::digest::{Digest, WritId};
use gesta_core::projection::Topic;
use gesta_core::time::Day;
use gesta_store::{Account, AccountRow, Draw, Drawn, Span, Tried};

use super::{Subject, worker};

fn account(tenant: &str, day: u32) -> Account {
    Account { tenant: tenant.parse().unwrap(), span: Span::Day(Day(day)) }
}

fn spent(calls: u64, money_micros: u64) -> Amounts {
    Amounts { calls, money_micros, ..Amounts::default() }
}

/// A draw on a limit of ten calls and a thousand millionths.
fn ask(seq: u64, keep: Amounts, need: Amounts) -> Draw {
    let limit = Budget { calls: Some(10), money_micros: Some(1000), ..Budget::default() };
    Draw { seq, limit, keep, need, want: need, ..Draw::default() }
}

/// Slices add up to no more than the limit; what is given back is there for others; days and tenants
/// are apart; what was used is told, and so is who has reached a threshold.
pub(crate) async fn accounts_are_drawn_in_slices(subject: Subject) {
    let store = &*subject.store;
    let (monday, tuesday) = (account("acme", 20_000), account("acme", 20_001));
    let draw = async |account: &Account, holder: &str, draw: &Draw| {
        store.draw(account, holder, draw).await.unwrap()
    };
    let none = Amounts::default();
    let first = draw(&monday, "a", &ask(1, none, spent(6, 600))).await;
    assert_eq!((first.drawn, first.left), (spent(6, 600), spent(4, 400)));
    let too_much = draw(&monday, "b", &ask(1, none, spent(1, 500))).await;
    assert_eq!((too_much.drawn, too_much.comes_back), (none, false), "all of it, or nothing");
    assert_eq!(draw(&monday, "b", &ask(2, none, spent(4, 400))).await.drawn, spent(4, 400));
    assert_eq!(draw(&monday, "c", &ask(1, none, spent(1, 0))).await.drawn, none);
    assert_eq!(draw(&tuesday, "c", &ask(1, none, spent(1, 0))).await.drawn, spent(1, 0));

    let mut told = ask(2, spent(5, 300), none);
    (told.used, told.idle, told.warn_at) = (spent(3, 100), spent(2, 200), vec![10, 30, 80]);
    let back = draw(&monday, "a", &told).await;
    assert_eq!((back.drawn, back.left), (spent(5, 300), spent(1, 300)));
    assert_eq!(back.reached, Some(30));
    let waits = draw(&monday, "b", &ask(3, spent(4, 400), spent(2, 0))).await;
    assert!(waits.comes_back, "{waits:?}");
    assert_eq!(draw(&account("best", 20_000), "a", &ask(1, none, none)).await.drawn, none);

    let row = |tenant, day, used, drawn, reached| AccountRow {
        account: account(tenant, day),
        used,
        drawn,
        reached,
    };
    let acme = [
        row("acme", 20_001, none, spent(1, 0), 0),
        row("acme", 20_000, spent(3, 100), spent(9, 700), 30),
    ];
    let tenant = "acme".parse().unwrap();
    assert_eq!(store.accounts(Some(&tenant), Day(0)).await.unwrap(), acme);
    let all = store.accounts(None, Day(20_000)).await.unwrap();
    assert_eq!(all[..2], acme);
    assert_eq!(all[2..], [row("best", 20_000, none, none, 0)]);
    assert_eq!(store.accounts(None, Day(20_001)).await.unwrap(), acme[..1]);
}

/// The same draw again is the same draw, and one that comes late changes nothing.
pub(crate) async fn a_draw_counts_once(subject: Subject) {
    let store = &*subject.store;
    let account = account("acme", 20_000);
    let first = ask(1, Amounts::default(), spent(7, 0));
    for _ in 0..3 {
        let drawn = store.draw(&account, "a", &first).await.unwrap();
        assert_eq!((drawn.drawn, drawn.left), (spent(7, 0), spent(3, 1000)));
    }
    let less = ask(2, spent(2, 0), Amounts::default());
    assert_eq!(store.draw(&account, "a", &less).await.unwrap().drawn, spent(2, 0));
    let other = ask(1, Amounts::default(), spent(8, 0));
    assert_eq!(store.draw(&account, "b", &other).await.unwrap().drawn, spent(8, 0));
    let late = store.draw(&account, "a", &first).await.unwrap();
    assert_eq!(late, Drawn { drawn: spent(2, 0), left: spent(0, 1000), ..Drawn::default() });
}

/// A writ's account is apart from its tenant's days and from other writs'; its sums are those of its
/// slices, also of those that are settled.
pub(crate) async fn a_writs_account_is_apart(subject: Subject) {
    let store = &*subject.store;
    let writ = |name: &str| Account {
        tenant: "acme".parse().unwrap(),
        span: Span::Writ(WritId::new(Digest::of(name.as_bytes()))),
    };
    let (one, other) = (writ("one"), writ("other"));
    let none = Amounts::default();
    assert_eq!(store.account(&one).await.unwrap(), None);
    for job in 0..4 {
        let (holder, need) = (format!("job {job}"), spent(2, 0));
        let drawn = store.draw(&one, &holder, &ask(1, none, need)).await.unwrap();
        assert_eq!((drawn.drawn, drawn.left.calls), (need, 10 - 2 - job));
        // It has ended, and has used one of the two.
        let used = spent(1, 0);
        let end = Draw { used, ..ask(2, used, none) };
        assert_eq!(store.draw(&one, &holder, &end).await.unwrap().drawn, used);
    }
    assert_eq!(store.draw(&one, "job 9", &ask(1, none, spent(7, 0))).await.unwrap().drawn, none);
    let row = |account: &Account, used, drawn| {
        Some(AccountRow { account: account.clone(), used, drawn, reached: 0 })
    };
    assert_eq!(store.account(&one).await.unwrap(), row(&one, spent(4, 0), spent(4, 0)));
    store.draw(&other, "job 0", &ask(1, none, spent(9, 0))).await.unwrap();
    store.draw(&account("acme", 0), "w", &ask(1, none, spent(8, 0))).await.unwrap();
    assert_eq!(store.account(&other).await.unwrap(), row(&other, none, spent(9, 0)));
    assert_eq!(store.account(&one).await.unwrap(), row(&one, spent(4, 0), spent(4, 0)));
    let days = store.accounts(None, Day(0)).await.unwrap();
    assert_eq!((days.len(), days[0].drawn), (1, spent(8, 0)));
}

/// Many draw at once, each as much as it can get: together they get the limit, to the unit.
pub(crate) async fn racing_draws_never_exceed(subject: Subject) {
    const LIMIT: u64 = 500;
    let mut racers = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = Arc::clone(&subject.store);
        racers.spawn(async move {
            let (account, holder) = (account("acme", 20_000), format!("racer {number}"));
            let (mut drawn, mut seq) = (0, 0);
            loop {
                seq += 1;
                let mut draw = ask(seq, spent(drawn, 0), spent(1, 0));
                (draw.limit, draw.want) = (Budget::default(), spent(20, 0));
                draw.limit.calls = Some(LIMIT);
                let now = store.draw(&account, &holder, &draw).await.unwrap().drawn.calls;
                if now == drawn {
                    return drawn;
                }
                drawn = now;
            }
        });
    }
    let mut sum = 0;
    while let Some(drawn) = racers.join_next().await {
        sum += drawn.unwrap();
    }
    assert_eq!(sum, LIMIT);
    let rows = subject.store.accounts(None, Day(0)).await.unwrap();
    assert_eq!(rows[0].drawn, spent(LIMIT, 0));
}

/// A notice is written with what it tells of, is in one worker's hands at a time, comes back when that
/// one is silent or says that it could not be delivered, and stays when it is given up.
pub(crate) async fn notices_wait_in_the_outbox(subject: Subject) {
    let store = &*subject.store;
    let (a, b) = (worker("a"), worker("b"));
    let mut draw = ask(1, spent(9, 0), Amounts::default());
    (draw.used, draw.warn_at) = (spent(9, 0), vec![80]);
    for _ in 0..2 {
        // Reached once, however often it is told.
        store.draw(&account("acme", 20_000), "h", &draw).await.unwrap();
        draw.seq += 1;
    }
    let listed = store.notices(9).await.unwrap();
    assert_eq!((listed.len(), listed[0].tries), (1, 0));
    let id = listed[0].notice.id;
    assert_eq!(listed[0].notice.topic, Topic::Budget);
    assert!(listed[0].notice.data.as_str().contains("\"reached\":80"), "{listed:?}");

    assert!(store.claim_notices(&a, 0, 60_000).await.unwrap().is_empty());
    assert_eq!(store.claim_notices(&a, 9, 50).await.unwrap(), listed);
    let lapsed = async || store.claim_notices(&b, 9, 60_000).await.unwrap().pop();
    let taken = subject.eventually("the claim lapses", lapsed).await;
    assert_eq!(taken.notice.id, id);
    store.settle_notice(&a, id, &Tried::Delivered).await.unwrap();
    assert_eq!(store.notices(9).await.unwrap().len(), 1, "it is in other hands");

    let reached = ["ops".to_owned()].into();
    let lacking = |again_in_ms| Tried::Lacking {
        reached: BTreeSet::clone(&reached),
        error: "no answer".to_owned(),
        again_in_ms,
    };
    store.settle_notice(&b, id, &lacking(Some(3_600_000))).await.unwrap();
    assert!(store.claim_notices(&a, 9, 60_000).await.unwrap().is_empty(), "it rests");
    let row = store.notices(9).await.unwrap().remove(0);
    assert_eq!((row.tries, row.failed, row.error.as_deref()), (1, false, Some("no answer")));
    assert_eq!(row.reached, reached);
    assert_eq!(store.retry_notices().await.unwrap(), 0, "it was not given up");
    let other = account("acme", 20_001);
    store.draw(&other, "h", &draw).await.unwrap();
    let second = store.claim_notices(&a, 9, 60_000).await.unwrap().remove(0).notice.id;
    store.settle_notice(&a, second, &lacking(None)).await.unwrap();
    assert!(store.claim_notices(&a, 9, 60_000).await.unwrap().is_empty(), "it was given up");
    assert_eq!(store.retry_notices().await.unwrap(), 1);
    let again = store.claim_notices(&a, 9, 60_000).await.unwrap();
    assert_eq!((again.len(), again[0].notice.id, again[0].failed), (1, second, false));
    store.settle_notice(&a, second, &Tried::Delivered).await.unwrap();
    assert_eq!(store.notices(9).await.unwrap().len(), 1);
}
