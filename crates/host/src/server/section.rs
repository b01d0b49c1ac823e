//! What the server tells of itself in a section of INFO, asked for without the command: `MONITOR`, `SLOWLOG` and
//! `INFO commandstats` stay the users', and it is told where the command has another name (`rename-command`) too.
//!
//! Cost: the server writes the section as INFO does, and makes a tree of its fields; looking one up costs some 100 ns.

use std::ffi::CStr;
use std::str::FromStr;

use valkey_module::raw;

use crate::api;
use crate::server::Server;

/// One section of INFO, as it was when it was asked for.
pub struct Section(*mut raw::RedisModuleServerInfoData);

impl Section {
    /// One field of it; `None` where this server has none of that name.
    pub fn field(&self, name: &CStr) -> Option<&str> {
        // SAFETY: the section is ours until it is dropped, and the name is a C string.
        let value = unsafe { api!(RedisModule_ServerInfoGetFieldC(self.0, name.as_ptr())) };
        if value.is_null() {
            return None;
        }
        // SAFETY: the value is a C string that lives as long as the section, which is borrowed.
        unsafe { CStr::from_ptr(value) }.to_str().ok()
    }

    /// One field of it as a number; `None` where there is none, or where it is something else.
    pub fn number<T: FromStr>(&self, name: &CStr) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // SAFETY: the section is ours and is freed once; without a context, as it was asked for.
        unsafe { api!(RedisModule_FreeServerInfo(std::ptr::null_mut(), self.0)) };
    }
}

impl Server {
    /// One section of INFO, by the name that the command takes.
    pub fn section(&self, name: &CStr) -> Section {
        // SAFETY: the name is a C string, which the server copies; without a context nothing is freed behind our back.
        Section(unsafe { api!(RedisModule_GetServerInfo(std::ptr::null_mut(), name.as_ptr())) })
    }

    /// One field of one section.
    pub fn info_field(&self, section: &CStr, field: &CStr) -> Option<String> {
        self.section(section).field(field).map(str::to_owned)
    }

    /// Several fields of one section; `None` where one of them isn't there.
    pub fn info_fields<const N: usize>(&self, section: &CStr, fields: [&CStr; N]) -> Option<[String; N]> {
        let section = self.section(section);
        let values: Vec<String> =
            fields.into_iter().map_while(|field| section.field(field).map(str::to_owned)).collect();
        values.try_into().ok()
    }
}
