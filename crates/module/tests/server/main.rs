//! The module inside real servers: each file is a topic, each test starts servers of its own.
//!
//! What takes milliseconds runs on every server of this machine, what takes seconds on the oldest and the newest.
//! Nothing sleeps: tests wait for a state with a deadline. Figures are compared as ratios with what the test itself
//! counted, so that a busy machine changes how long a test takes and not what it says.

mod accounting;
mod auto_tenants;
mod checked_reads;
mod classes;
mod cluster;
mod collections;
mod commands;
mod config;
mod density;
mod docs;
mod eviction;
mod fail_open;
mod figures;
mod harness;
mod idle;
mod isolation;
mod latency;
mod lessons;
mod load;
mod migration;
mod objectives;
mod observe;
mod origins;
mod own_calls;
mod penalties;
mod replication;
mod replies;
mod rights;
mod rights_fuzz;
mod sample_sizes;
mod sizing;
mod sleep;
mod sleep_clusters;
mod sleep_ends;
mod sleep_pauses;
mod stalls;
mod tiers;
mod tiers_churn;
mod tiers_client;
mod tiers_collections;
mod tiers_defrag;
mod turns;
mod unload;
mod users;
