//! Strings of the server's: those that we hold, and names that live as long as a callback.

use std::ffi::c_int;
use std::ptr;
use std::slice;

use valkey_module::raw;

use crate::api;

/// A key's name as a string of the server's: one that we hold, or one that lives as long as the callback.
pub trait Name: AsRef<[u8]> + sealed::Strings {}

impl<T: AsRef<[u8]> + sealed::Strings> Name for T {}

mod sealed {
    use super::{ScannedName, Text, raw};

    /// Who has a live string of the server's.
    pub trait Strings {
        /// The string.
        fn string(&self) -> *mut raw::RedisModuleString;
    }

    impl Strings for Text {
        #[inline]
        fn string(&self) -> *mut raw::RedisModuleString {
            self.0
        }
    }

    impl Strings for ScannedName<'_> {
        #[inline]
        fn string(&self) -> *mut raw::RedisModuleString {
            self.text
        }
    }
}

/// A server string that we hold a reference to.
pub struct Text(pub(super) *mut raw::RedisModuleString);

impl Text {
    /// A copy of `bytes` as a server string; main thread only.
    #[inline]
    pub(crate) fn without_context(bytes: &[u8]) -> Text {
        // SAFETY: the server copies `bytes`; without a context the string is ours to free.
        Text(unsafe { api!(RedisModule_CreateString(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())) })
    }

    /// Gives a string that we made, and that nobody else holds, other bytes, as many as it has.
    ///
    /// # Panics
    /// For another length.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        let mut length = 0;
        // SAFETY: the string is live.
        let start = unsafe { api!(RedisModule_StringPtrLen(self.0, &mut length)) }.cast_mut().cast::<u8>();
        assert_eq!(length, bytes.len(), "a string is filled with as many bytes as it has");
        // SAFETY: so many bytes start there, in memory that the server allocated for this string alone; they are
        // const in its interface because strings are shared, which this one isn't: the caller made it, and `&mut`
        // says that nobody reads it now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }

    /// Where the server's object lies, which holds the string or points to it.
    pub(crate) fn object(&self) -> *const u8 {
        self.0.cast()
    }

    /// A string that is ours to free; `None` for null.
    ///
    /// # Safety
    /// `text` is null, or a live string with a reference that is given up to us.
    pub(crate) unsafe fn owned(text: *mut raw::RedisModuleString) -> Option<Text> {
        // Not `then_some`, which would drop what it has no use for: null isn't ours to free.
        (!text.is_null()).then(|| Text(text))
    }

    /// The string, still ours.
    pub(crate) fn raw(&self) -> *mut raw::RedisModuleString {
        self.0
    }

    /// The string, from now on the receiver's to free.
    pub(crate) fn into_raw(self) -> *mut raw::RedisModuleString {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl AsRef<[u8]> for Text {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the string is live, and changes for `&mut self` alone.
        unsafe { bytes_of(&self.0) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: we hold one reference, and let go of it once.
        unsafe { api!(RedisModule_FreeString(ptr::null_mut(), self.0)) };
    }
}

/// The name of a key that a scan visits, or that an event is about; gone afterwards unless it is kept.
pub struct ScannedName<'a> {
    text: *mut raw::RedisModuleString,
    bytes: &'a [u8],
}

impl AsRef<[u8]> for ScannedName<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> ScannedName<'a> {
    /// # Safety
    /// The string lives, unchanged, for `'a`.
    #[inline]
    pub(crate) unsafe fn new(text: &'a *mut raw::RedisModuleString) -> ScannedName<'a> {
        // SAFETY: by the caller's promise.
        ScannedName { text: *text, bytes: unsafe { bytes_of(text) } }
    }

    /// Keeps the name beyond that, without a copy.
    pub fn keep(&self) -> Text {
        // SAFETY: the string lives now; holding it without a context only adds a reference.
        Text(unsafe { api!(RedisModule_HoldString(ptr::null_mut(), self.text)) })
    }
}

/// A server string's bytes, for as long as the pointer to it is borrowed.
///
/// # Safety
/// The string lives, and nobody changes it, for so long.
#[inline]
pub(crate) unsafe fn bytes_of(text: &*mut raw::RedisModuleString) -> &[u8] {
    let mut length = 0;
    // SAFETY: by the caller's promise.
    let start = unsafe { api!(RedisModule_StringPtrLen(*text, &mut length)) };
    if start.is_null() {
        return &[];
    }
    // SAFETY: the server says that `length` bytes start there; the caller's promise keeps them.
    unsafe { slice::from_raw_parts(start.cast(), length) }
}

/// The words of a command, as the server hands them to what runs it.
///
/// # Safety
/// `argv` holds `argc` strings, or `argc` is 0; they live, unchanged, for `'a`: the callback that runs now.
pub(crate) unsafe fn words_of<'a>(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Vec<&'a [u8]> {
    let words: &'a [*mut raw::RedisModuleString] = match usize::try_from(argc) {
        // SAFETY: by the caller's promise.
        Ok(n) if n > 0 => unsafe { slice::from_raw_parts(argv, n) },
        _ => &[],
    };
    // SAFETY: as above.
    words.iter().map(|word| unsafe { bytes_of(word) }).collect()
}
