//! How the tool gets to a server: by TLS with certificates of either side, with a user and a password that no command
//! line shows; and what packages are made of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tenure_servers::{Server, ServerBinary, ServerOptions, module_path};

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate for 127.0.0.1, and its key, signed by themselves.
fn certificate(folder: &Path, name: &str) -> [PathBuf; 2] {
    let [certificate, key] = ["crt", "key"].map(|end| format!("{name}.{end}"));
    let names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
    let of =
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", names];
    openssl(
        folder,
        &[&of[..], &["-addext", "basicConstraints=critical,CA:FALSE", "-out", &certificate, "-keyout", &key]].concat(),
    );
    [folder.join(certificate), folder.join(key)]
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn status(address: &str, arguments: &[&str], password: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["status", address]).args(arguments).env_remove("VALKEYCLI_AUTH");
    command.env("REDISCLI_AUTH", password.unwrap_or_default());
    command.output().expect("the tool starts")
}

#[test]
fn a_server_is_reached_by_tls_and_with_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let [server_certificate, server_key] = certificate(folder.path(), "server");
    let [own_certificate, own_key] = certificate(folder.path(), "own");
    let text = |path: &Path| path.display().to_string();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = ServerOptions::default().with_module(module_path().unwrap()).set("tls-port", port);
    let options = options.set("tls-cert-file", text(&server_certificate)).set("tls-key-file", text(&server_key));
    let options = options.set("tls-ca-cert-file", text(&own_certificate)).set("tls-auth-clients", "yes");
    let server = Server::start(&ServerBinary::installed().unwrap(), &options).unwrap();
    server.call::<()>(&["ACL", "SETUSER", "watch", "on", ">open sesame", "+@all", "~*"]).unwrap();
    server.call::<()>(&["ACL", "SETUSER", "default", "off"]).unwrap();

    let address = format!("127.0.0.1:{port}");
    let (ca, cert, key) = (text(&server_certificate), text(&own_certificate), text(&own_key));
    let certificates = ["--tls", "--cacert", &ca, "--cert", &cert, "--key", &key];
    let by_tls = [&certificates[..], &["--user", "watch"]].concat();
    let output = status(&address, &by_tls, Some("open sesame"));
    assert!(output.status.success() && said(&output).contains(&address), "{}", said(&output));
    let file = folder.path().join("password");
    std::fs::write(&file, "open sesame\n").unwrap();
    let by_file = [&by_tls[..], &["--auth-file", file.to_str().unwrap()]].concat();
    assert!(status(&address, &by_file, None).status.success());
    let anybodys = ["--tls", "--insecure", "--cert", &cert, "--key", &key, "--user", "watch"];
    let output = status(&address, &anybodys, Some("open sesame"));
    assert!(output.status.success(), "{}", said(&output));

    for (arguments, password, expected) in [
        (&by_tls[..], Some("wrong"), "authentication"),
        (&by_tls[..], None, "authentication"),
        (&certificates[..], None, "hint: give the password"),
        // Whose certificate is not trusted.
        (&["--tls", "--cert", &cert, "--key", &key, "--user", "watch"], Some("open sesame"), "hint: --cacert"),
        (&["--tls", "--cacert", "/no/such/file"], None, "/no/such/file: cannot be read"),
        (&["--cacert", &ca], None, "--tls"),
    ] {
        let output = status(&address, arguments, password);
        assert!(
            !output.status.success() && said(&output).to_lowercase().contains(expected),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn the_manual_and_the_completions_know_every_subcommand() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tenure")).arg("pages").arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let read =
        |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
    let completions = ["tenure.bash", "_tenure", "tenure.fish"].map(read);
    for subcommand in
        ["bench", "cluster", "dashboard", "exporter", "mrc", "plan", "replies", "simulate", "status", "top"]
    {
        assert!(completions.iter().all(|text| text.contains(subcommand)), "{subcommand}");
        let page = read(&format!("man/tenure-{subcommand}.1"));
        assert!(page.starts_with(".ie") && page.contains(".SH OPTIONS"), "{page}");
    }
    assert!(read("man/tenure.1").contains("tenure\\-status"));
}

/// A server's configuration is what it was once `tenure-setup` has taken out again what it added.
#[test]
fn what_setup_adds_to_a_configuration_it_takes_out_again() {
    let root = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/tenure-setup");
    let conf = root.path().join("etc/redis/redis.conf");
    std::fs::create_dir_all(conf.parent().unwrap()).unwrap();
    let setup = |words: &[&str]| {
        let output = Command::new(&script).args(words).env("TENURE_SETUP_ROOT", root.path()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        said(&output)
    };
    let before = "port 6379\n# a comment\nappendonly no\n";
    std::fs::write(&conf, before).unwrap();
    assert!(setup(&["enable"]).contains("redis-server"));
    assert!(setup(&["enable"]).contains("already"));
    let enabled = std::fs::read_to_string(&conf).unwrap();
    assert!(
        enabled.starts_with(before) && enabled.contains("\nloadmodule /usr/lib/valkey/modules/libtenure.so\n"),
        "{enabled}"
    );
    // As CONFIG REWRITE leaves it.
    std::fs::write(&conf, format!("{enabled}tenure.samples 7\n")).unwrap();
    setup(&["disable"]);
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), before);
    assert!(setup(&["status"]).contains("no configuration"));
}

/// The oldest distribution that packages are for is Debian 12, with glibc 2.36: what is built with that or an older one
/// asks for no newer.
#[test]
fn module_and_tool_ask_for_no_newer_library_than_promised() {
    const PROMISED: (u32, u32) = (2, 36);
    let here = Command::new("getconf").arg("GNU_LIBC_VERSION").output().expect("getconf is there");
    let here = versions_in(&String::from_utf8_lossy(&here.stdout).replace("glibc ", "GLIBC_")).max().unwrap();
    if here > PROMISED {
        println!("SKIPPED: built with glibc {}.{}, packages are built with an older one", here.0, here.1);
        return;
    }
    for file in [module_path().unwrap(), PathBuf::from(env!("CARGO_BIN_EXE_tenure"))] {
        let bytes = std::fs::read(&file).unwrap();
        let newest = versions_in(&String::from_utf8_lossy(&bytes)).max();
        let newest = newest.unwrap_or_else(|| panic!("{} names no version of glibc", file.display()));
        assert!(newest <= PROMISED, "{} runs from glibc {}.{} on", file.display(), newest.0, newest.1);
    }
}

/// The versions of symbols in a text, as in `GLIBC_2.34`.
fn versions_in(text: &str) -> impl Iterator<Item = (u32, u32)> {
    text.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut numbers = rest[..end].split('.').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    })
}
