//! A wall clock that runs `TENURE_CLOCK_SPEED` times as fast from the program's start on, put before a server by
//! `LD_PRELOAD`.
//!
//! A server's LRU clock ticks once a second, and a benchmark that replays in seconds what took hours meets a handful
//! of ticks: all keys look alike to it, and LRU is random. With a faster clock a run is as fine-grained as one of its
//! length × the speed. Only `gettimeofday` is replaced, by which servers tell idle times and expiry; what they and
//! the module measure goes by the monotonic clock, and stays. `TENURE_CLOCK_AHEAD` names a file with the seconds that
//! it is ahead (or behind, with a minus): for tests of a clock that jumps.

mod ffi;
