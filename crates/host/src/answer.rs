//! Answers: what a module's own command says is sent to its client.

use std::ffi::{c_int, c_long};

use super::api;
use super::reply::Answer;
use super::server::Server;

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
            Answer::Error(code, why) => {
                let text = format!("{} {}", code.as_str(), why.replace(['\0', '\r', '\n'], " "));
                let text = std::ffi::CString::new(text).unwrap_or_default();
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
