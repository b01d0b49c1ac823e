//! The table against its own defaults and ranges, and against docs/settings.md.

use super::*;

#[test]
fn defaults_lie_within_their_ranges_and_reach_their_fields() {
    let mut settings = Settings::default();
    for setting in TABLE {
        if let Kind::Number { default, min, max, get, set, .. } = &setting.kind {
            assert!((min..=max).contains(&default), "{:?}", setting.name);
            assert_eq!(get(&settings), *default, "{:?}", setting.name);
            set(&mut settings, *max);
            assert_eq!(get(&settings), *max, "{:?}", setting.name);
        }
    }
}

/// Names and values are two lists: each name has to bring the value that it is read as. What replies wait for is
/// refused where no server is.
#[test]
fn choices_are_in_the_order_of_their_names() {
    let mut settings = Settings::default();
    for setting in TABLE {
        if let Kind::Choice { names, default, get, set } = &setting.kind {
            assert_eq!(get(&settings), *default, "{:?}", setting.name);
            for i in 0..names.len() {
                let is_refused = set(&mut settings, i).is_err();
                assert!(!is_refused || setting.name == c"replies", "{:?}", setting.name);
                assert!(is_refused || get(&settings) == i, "{:?} {:?}", setting.name, names[i]);
            }
        }
    }
}

/// With `TENURE_WRITE_DOCS` set it writes the file instead.
#[cfg(feature = "default")]
#[test]
fn the_documentation_of_settings_is_this_table() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    if std::env::var_os("TENURE_WRITE_DOCS").is_some() {
        std::fs::write(&path, documentation()).unwrap();
    }
    let held = std::fs::read_to_string(&path).unwrap();
    assert!(held == documentation(), "docs/settings.md is not the table of settings; scripts/settings-docs writes it");
}

#[cfg(not(feature = "default"))]
#[test]
fn what_is_left_out_says_so() {
    use crate::ffi::settings::Settings as _;
    let mut settings = Settings::default();
    for (name, is_in, begins) in crate::features::KNOWN {
        for begin in begins.iter().filter(|_| !is_in) {
            assert!(TABLE.iter().all(|setting| !setting.name.to_string_lossy().starts_with(begin)), "{begin}");
            let why = settings.set_argument(begin, "1").unwrap_err();
            assert!(why.contains(&format!("feature '{name}', which this module was built without")), "{why}");
        }
    }
    if !cfg!(feature = "owners") {
        assert!(settings.set_tenants("a=user:a").unwrap_err().contains("'owners'"));
    }
    if !cfg!(feature = "replies") {
        assert!(settings.set_tenants("a=x*,replies=acked").unwrap_err().contains("'replies'"));
    }
}

#[test]
fn a_wrong_tenant_changes_nothing() {
    let mut settings = Settings::default();
    settings.set_tenants("a=x*").unwrap();
    assert!(settings.set_tenants("a=x* b").is_err());
    assert_eq!(settings.tenants_text, "a=x*");
}

/// docs/settings.md, as `scripts/settings-docs` writes it.
#[cfg(feature = "default")]
fn documentation() -> String {
    let mut text = "# Settings\n\n".to_owned();
    text +=
        "This file is written by `scripts/settings-docs` from the table in `crates/module/src/config/table.rs`.\n\n";
    text += "How settings are read and changed is in [operations.md](operations.md).\n\n";
    for Setting { name, kind, about } in TABLE {
        let (values, default, when) = values_and_default(kind);
        text += &format!("## `tenure.{}`\n\n", name.to_string_lossy());
        text += &format!("Default: {default}. Allowed: {values}{when}.\n\n{}\n\n", in_lines(about));
    }
    text.trim_end().to_owned() + "\n"
}

/// Text in lines of at most 118 columns.
#[cfg(feature = "default")]
fn in_lines(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > 118 {
            lines.push(word.to_owned());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n")
}
