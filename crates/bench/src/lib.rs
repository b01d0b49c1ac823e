//! What `tenure bench` is made of: requests, the clients that send them, the backends that misses go to, and the
//! figures.
//!
//! Suggested reading order: [`workload`] (what is asked), [`backend`] (what a miss costs), [`client`] (who asks),
//! [`run`] (one server, one measurement), [`statistics`] (what is kept of it), [`timeline`] (how it went over the
//! run), [`paced`] (in peaks and valleys), [`restart`] (before and after one), [`comparison`] (many runs in turn),
//! [`report`] (what they came to). [`no_harm`], [`slot_map`] and [`replies`] are other kinds of runs: at full load
//! without misses, of clients that remember slots, of writes and replicas; [`full_cache`] is what a cache costs that
//! is full; [`scale`] is what keys cost as they grow; [`tiers`] is what two tiers of memory cost; [`predict`] asks the
//! simulator.
#![forbid(unsafe_code)]

pub mod backend;
pub mod client;
pub mod comparison;
pub mod full_cache;
pub mod full_load;
pub mod moment;
pub mod no_harm;
pub mod observation;
pub mod paced;
pub mod placement;
pub mod predict;
pub mod replies;
pub mod report;
pub mod resize;
pub mod restart;
pub mod run;
pub mod scale;
pub mod slot_map;
pub mod statistics;
pub mod system;
pub mod tiers;
pub mod timeline;
pub mod workload;
