//! The server as a safe Rust API: what a loadable module of Valkey or Redis can see and do. It knows nobody: a module
//! is a type that implements [`module::Module`], and [`export_module!`] makes a library of it.
//!
//! All unsafe code is here. What may be touched only on the server's main thread takes a [`MainThread`] proof, and
//! only callbacks that the server runs there have one, so the compiler keeps other threads away. Every callback
//! enters through [`guard::guarded`]: a panic is counted, logged once, and turns the module off; the server goes on
//! as stock.
//!
//! Beyond the module API: slow memory as arenas of the server's allocator ([`tier_memory`]), and held replies by
//! functions that the server exports ([`holding`]), by version. Suggested reading order: `module`, `server`,
//! `filter`, `callbacks`, `guard`, `load`.

pub mod acl;
pub mod alloc;
mod answer;
pub mod awaits;
pub mod background;
pub mod bus;
mod callbacks;
pub mod clock;
pub mod commands;
pub mod config;
mod config_files;
pub mod context;
pub mod events;
pub mod filter;
pub mod filtering;
pub mod guard;
pub mod holding;
mod home_db;
mod hooks;
pub mod info;
pub mod jemalloc;
pub mod load;
mod loaded;
mod main_thread;
pub mod messages;
pub mod migration;
pub mod module;
mod numa;
pub mod place;
mod registry;
pub mod reply;
mod rights;
pub mod server;
pub mod settings;
pub mod slow_strings;
pub mod soon;
pub mod tier_memory;
pub mod tier_pages;
mod tier_range;
mod tier_writer;
mod tier_writes;
pub mod turns;
pub mod wake;

pub use self::main_thread::MainThread;
#[doc(hidden)]
pub use valkey_module::raw;

/// Calls one function of the module API.
///
/// The functions named in [`load::REQUIRED`] are checked to be there before anything else runs; the rest are
/// optional, and their callers look first.
macro_rules! api {
    ($name:ident($($argument:expr),* $(,)?)) => {
        (::valkey_module::raw::$name.expect("checked when the module was loaded"))($($argument),*)
    };
}
pub(crate) use api;
