//! What claiming costs: the rows that it looks at, however much has ended before.

use gesta_core::time::UnixMs;
use gesta_store::{Profile, Store as _};

use super::Place;
use crate::suite::{Job, worker};

const CLAIM: &str = include_str!("../../src/postgres/sql/claim.sql");
const ENDED: &str = "
    INSERT INTO trajectories (trajectory, head_seq, head_id, attempt, kind, status, tenant,
        principal, runnable, wake_at, begun_at, changed_at)
    SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), 9, '\\x00', 1, 'job', 'completed', 'acme',
        'agent', false, NULL, n, n
    FROM generate_series(1, $1::bigint) AS n";
const READ: &str = "
    SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
    WHERE relid = to_regclass('trajectories')";

/// Rows that a claim reads with so many ended jobs in the store.
async fn rows_read(ended: i64) -> i64 {
    let place = Place::new();
    let store = place.open().await;
    store.heartbeat(&worker("w"), &Profile::default(), 600_000).await.unwrap();
    for number in 1..=9 {
        let job = Job::new(200 + number, UnixMs(1_000_000 + u64::from(number)));
        store.append(job.of("acme").begin()).await.unwrap();
    }
    let admin = place.admin().await;
    admin.execute(ENDED, &[&ended]).await.unwrap();
    admin.batch_execute("ANALYZE trajectories").await.unwrap();
    let settings = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
        SET enable_hashjoin = off; SET enable_mergejoin = off; BEGIN";
    admin.batch_execute(settings).await.unwrap();
    let before: i64 = admin.query_one(READ, &[]).await.unwrap().get(0);
    let claimed = admin.query(CLAIM, &[&"w", &3_i64, &70_i64]).await.unwrap();
    assert_eq!(claimed.len(), 3);
    let after: i64 = admin.query_one(READ, &[]).await.unwrap().get(0);
    after - before
}

#[tokio::test]
async fn a_claim_costs_the_same_however_much_has_ended() {
    let few = rows_read(100).await;
    let many = rows_read(100_000).await;
    assert!((9..100).contains(&few), "{few}");
    assert_eq!(many, few);
}
