//! Replies: what a `Call` gave back, copied into plain values, and what a module's own commands
//! answer.

use valkey_module::raw;

use super::api;

/// A reply of the server to a call, copied.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Null, and whatever has no shape below.
    Nothing,
    /// An integer.
    Integer(i64),
    /// A string, simple or bulk.
    Text(Vec<u8>),
    /// An array, or a map as key, value, key, value.
    Array(Vec<Value>),
}

impl Value {
    /// Copies a call's reply.
    ///
    /// # Safety
    /// `reply` is a reply that has not been freed.
    pub(super) unsafe fn copy_of(reply: *mut raw::RedisModuleCallReply) -> Value {
        // SAFETY: by the caller's promise.
        let kind = unsafe { api!(RedisModule_CallReplyType(reply)) } as isize;
        match kind {
            raw::REDISMODULE_REPLY_INTEGER => {
                // SAFETY: the reply is an integer.
                Value::Integer(unsafe { api!(RedisModule_CallReplyInteger(reply)) })
            }
            raw::REDISMODULE_REPLY_STRING => {
                let mut length = 0;
                // SAFETY: the reply is a string; it is not freed while we copy.
                let start = unsafe { api!(RedisModule_CallReplyStringPtr(reply, &mut length)) };
                // SAFETY: the server says that `length` bytes start there.
                Value::Text(unsafe { std::slice::from_raw_parts(start.cast(), length) }.to_vec())
            }
            raw::REDISMODULE_REPLY_ARRAY => {
                // SAFETY: the reply is an array.
                let length = unsafe { api!(RedisModule_CallReplyLength(reply)) };
                let element = |i| {
                    // SAFETY: `i` is below the array's length; its elements live as long as it does.
                    unsafe { Value::copy_of(api!(RedisModule_CallReplyArrayElement(reply, i))) }
                };
                Value::Array((0..length).map(element).collect())
            }
            _ => Value::Nothing,
        }
    }

    /// The integer, or `None`.
    pub fn integer(&self) -> Option<i64> {
        if let Value::Integer(n) = self { Some(*n) } else { None }
    }

    /// The text where it is UTF-8, or `None`.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }

    /// The bytes of a string, or `None`.
    pub fn bytes(&self) -> Option<&[u8]> {
        if let Value::Text(bytes) = self { Some(bytes) } else { None }
    }

    /// True where a command answered `OK`.
    pub fn is_ok(&self) -> bool {
        self.bytes() == Some(b"OK")
    }

    /// The elements; none where it isn't an array.
    pub fn elements(&self) -> &[Value] {
        if let Value::Array(elements) = self { elements } else { &[] }
    }

    /// The value behind `key` in a map sent as key, value, key, value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.elements().chunks_exact(2).find(|pair| pair[0].text() == Some(key)).map(|pair| &pair[1])
    }
}

/// What a command answers. Maps are maps in RESP3 and flat arrays in RESP2, as the server's own are.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Number(f64),
    /// A bulk string.
    Text(String),
    /// A bulk string that is no text.
    Bytes(Vec<u8>),
    /// `+OK`.
    Ok,
    /// An array.
    Array(Vec<Answer>),
    /// A map.
    Map(Vec<(&'static str, Answer)>),
    /// An error, and why.
    Error(ErrorCode, String),
}

impl Answer {
    /// An error of no other kind.
    pub fn error(why: impl Into<String>) -> Answer {
        Answer::Error(ErrorCode::General, why.into())
    }
}

/// The word that an error begins with: clients tell errors apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// `ERR`.
    General,
    /// `NOPERM`.
    NoPermission,
}

impl ErrorCode {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::General => "ERR",
            ErrorCode::NoPermission => "NOPERM",
        }
    }
}
