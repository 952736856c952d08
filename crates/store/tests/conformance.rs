//! Every store against the one suite, and against what is peculiar to it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod suite;

/// Runs the whole suite on the store that `$open` makes, one test each.
macro_rules! conformance {
    ($open:path: $($test:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::suite::$test($open().await).await;
            }
        )*
    };
    ($open:path) => {
        conformance! {
            $open:
            entries_come_back_as_they_were,
            a_stale_append_conflicts,
            an_append_to_nothing_conflicts,
            an_older_attempt_loses_its_fence,
            a_resent_append_counts_once,
            an_append_is_whole_or_absent,
            one_racer_wins_each_place,
            many_trajectories_grow_side_by_side,
            rows_follow_the_chain,
            trajectories_are_listed_in_pages,
            parked_steps_are_listed_in_pages,
            projections_are_rebuilt,
            claims_go_to_one_worker,
            only_work_is_claimed,
            an_ended_lease_frees_its_claims,
            a_late_heartbeat_begins_a_new_lease,
            claims_are_given_back,
            claims_and_appends_are_apart,
            racing_claims_are_disjoint,
            effects_wait_in_the_inbox,
            blobs_are_found_by_their_content,
            agrees_with_memory,
        }
    };
}

mod memory {
    use std::sync::Arc;

    use gesta_store::memory::MemoryStore;

    use crate::suite::{Subject, Time};

    async fn open() -> Subject {
        let (time, clock) = Time::manual();
        Subject { store: Arc::new(MemoryStore::new(clock)), time, _home: None }
    }

    conformance!(open);
}

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
mod postgres;
