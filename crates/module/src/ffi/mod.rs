//! The only unsafe code: the server's module API, behind types that can't be misused.
//!
//! What may be touched only on the server's main thread takes a [`MainThread`] proof, and only callbacks that the server runs
//! there have one, so the compiler keeps the worker away. Every callback enters through [`guard::guarded`]: a panic is
//! counted, logged once, and turns Tenure off; the server goes on as stock.
#![allow(unsafe_code)]

pub mod acl;
pub mod alloc;
pub mod awaits;
pub mod bus;
pub mod callbacks;
pub mod filter;
pub mod guard;
pub mod holding;
mod home_db;
pub mod jemalloc;
pub mod load;
pub mod numa;
mod registry;
pub mod reply;
pub mod server;
pub mod settings;
pub mod slow_strings;
pub mod soon;
pub mod tier_memory;
pub mod tier_pages;

/// Proof that the caller runs on the server's main thread. Only this folder makes values that implement it.
pub trait MainThread {}

/// Calls one function of the module API.
///
/// The functions named in [`load::REQUIRED`] are checked to be there before anything else runs; the rest are optional, and their
/// callers look first.
macro_rules! api {
    ($name:ident($($argument:expr),* $(,)?)) => {
        (::valkey_module::raw::$name.expect("checked when the module was loaded"))($($argument),*)
    };
}
pub(crate) use api;
