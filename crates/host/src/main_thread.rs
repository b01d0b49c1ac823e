//! Proofs that the caller runs on the server's main thread: what may be touched only there asks for one.

use std::marker::PhantomData;

/// Proof that the caller runs on the server's main thread.
///
/// # Safety
/// A value of the type exists on that thread alone, while the server runs a callback there.
pub unsafe trait MainThread {}

/// The proof alone, for where what it came from is handed on to be changed. It can't leave the thread.
pub struct OnMain(PhantomData<*const ()>);

// SAFETY: made from another proof, for as long as the thread is the main one, which is for good.
unsafe impl MainThread for OnMain {}

impl OnMain {
    /// Of who has one already.
    #[inline]
    pub fn by(_proof: &impl MainThread) -> OnMain {
        OnMain(PhantomData)
    }
}
