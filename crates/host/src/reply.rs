//! Replies: what a `Call` gave back, copied into plain values, and what a module's own commands answer.

use std::ffi::{c_int, c_long};

use valkey_module::raw;

use super::api;
use super::server::Server;

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
    /// An error; the text starts with its code, as in `ERR no such partition`.
    Error(String),
}

impl Server {
    /// Sends `answer` to the client whose command is running.
    pub fn answer(&self, answer: &Answer) {
        let ctx = self.raw();
        match answer {
            Answer::Integer(n) => {
                // SAFETY: `ctx` is the running command's context.
                unsafe { api!(RedisModule_ReplyWithLongLong(ctx, *n)) };
            }
            Answer::Number(x) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_ReplyWithDouble(ctx, *x)) };
            }
            Answer::Text(text) => {
                // SAFETY: as above; the server copies the bytes.
                unsafe { api!(RedisModule_ReplyWithStringBuffer(ctx, text.as_ptr().cast(), text.len())) };
            }
            Answer::Bytes(bytes) => {
                // SAFETY: as above; the server copies the bytes.
                unsafe { api!(RedisModule_ReplyWithStringBuffer(ctx, bytes.as_ptr().cast(), bytes.len())) };
            }
            Answer::Ok => {
                // SAFETY: as above; the string is a constant.
                unsafe { api!(RedisModule_ReplyWithSimpleString(ctx, c"OK".as_ptr())) };
            }
            Answer::Error(text) => {
                let text = std::ffi::CString::new(text.replace(['\0', '\r', '\n'], " ")).unwrap_or_default();
                // SAFETY: as above; the server copies the string.
                unsafe { api!(RedisModule_ReplyWithError(ctx, text.as_ptr())) };
            }
            Answer::Array(elements) => {
                // SAFETY: as above; that many elements follow.
                let _: c_int = unsafe { api!(RedisModule_ReplyWithArray(ctx, elements.len() as c_long)) };
                elements.iter().for_each(|element| self.answer(element));
            }
            Answer::Map(pairs) => {
                // SAFETY: as above; that many pairs follow.
                unsafe { api!(RedisModule_ReplyWithMap(ctx, pairs.len() as c_long)) };
                for (name, value) in pairs {
                    self.answer(&Answer::Text((*name).to_owned()));
                    self.answer(value);
                }
            }
        }
    }
}
