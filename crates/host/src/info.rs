//! A module's section of the server's INFO.

use std::ffi::{CString, c_int};

use valkey_module::raw;

use super::api;
use super::reply::Answer;

/// A value of an INFO field.
pub enum Value {
    /// A count that only grows, however often the module is turned off and on.
    Total(u64),
    /// A quantity as it is.
    Count(u64),
    /// A quantity that there may be none of, as of bytes without a maximum: -1 then.
    OrNone(Option<u64>),
    /// A fraction.
    Number(f64),
    /// Text.
    Text(String),
    /// Fields of a field.
    Fields(Vec<(&'static str, Value)>),
}

impl From<Value> for Answer {
    fn from(value: Value) -> Answer {
        match value {
            Value::Total(n) | Value::Count(n) => Answer::Integer(n as i64),
            Value::OrNone(n) => n.map_or(Answer::Integer(-1), |n| Answer::Integer(n as i64)),
            Value::Number(x) => Answer::Number(x),
            Value::Text(text) => Answer::Text(text),
            Value::Fields(fields) => {
                Answer::Map(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

/// Where fields go; their names get the module's as a prefix.
pub struct Sink {
    ctx: *mut raw::RedisModuleInfoCtx,
}

impl Sink {
    /// # Safety
    /// `ctx` is what the server handed to the INFO callback that is running now.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleInfoCtx) -> Sink {
        Sink { ctx }
    }

    /// Opens the section. False where nobody asked for it.
    pub fn section(&mut self) -> bool {
        // SAFETY: the context is that of the running INFO.
        unsafe { api!(RedisModule_InfoAddSection(self.ctx, c"".as_ptr())) == raw::REDISMODULE_OK as c_int }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: Value) {
        let name = CString::new(name).unwrap_or_default();
        let name = name.as_ptr();
        match value {
            Value::Total(n) | Value::Count(n) => {
                // SAFETY: as above; the server copies the name.
                unsafe { api!(RedisModule_InfoAddFieldULongLong(self.ctx, name, n)) };
            }
            Value::OrNone(n) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoAddFieldLongLong(self.ctx, name, n.map_or(-1, |n| n as i64))) };
            }
            Value::Number(x) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoAddFieldDouble(self.ctx, name, x)) };
            }
            Value::Text(text) => {
                let text = CString::new(text).unwrap_or_default();
                // SAFETY: as above; the server copies the text.
                unsafe { api!(RedisModule_InfoAddFieldCString(self.ctx, name, text.as_ptr())) };
            }
            Value::Fields(fields) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoBeginDictField(self.ctx, name)) };
                for (name, value) in fields {
                    self.field(name, value);
                }
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoEndDictField(self.ctx)) };
            }
        }
    }
}
