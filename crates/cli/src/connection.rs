//! How the tool reaches a server: user, password and TLS, as valkey-cli and redis-cli have them. A password never
//! stands on the command line, where every user of the machine can read it.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
use tenure_view::nodes::parse_address;

use crate::watching::password;

/// Variables that hold the password, as the servers' own clients look for it.
const PASSWORD_VARIABLES: [&str; 2] = ["VALKEYCLI_AUTH", "REDISCLI_AUTH"];

/// The options of every subcommand that asks a server.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArguments {
    /// User of the server; an address may name one as well: redis://USER:PASSWORD@HOST:PORT.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A file whose first line is the server's password, `-` for standard input; else VALKEYCLI_AUTH or REDISCLI_AUTH
    /// has it.
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,

    /// Connect by TLS; the server's certificate has to be for the host that the address names.
    #[arg(long)]
    tls: bool,

    /// Trust certificates signed by those in this PEM file, in place of the machine's own.
    #[arg(long, value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,

    /// The tool's own certificate, where the server asks for one (PEM).
    #[arg(long, value_name = "FILE", requires = "tls", requires = "key")]
    cert: Option<PathBuf>,

    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls", requires = "cert")]
    key: Option<PathBuf>,

    /// Trust any certificate: whoever is between can read and change everything.
    #[arg(long, requires = "tls")]
    insecure: bool,
}

impl ConnectionArguments {
    /// Where `address` is, with what these options say of how to get there. What an address says itself is newer and
    /// wins.
    ///
    /// # Errors
    /// When it is no address, or a file that is named can't be read.
    pub fn to(&self, address: &str) -> Result<ConnectionInfo> {
        Ok(self.to_all([address])?.remove(0))
    }

    /// The same of several; standard input is read once.
    ///
    /// # Errors
    /// As [`ConnectionArguments::to`].
    pub fn to_all<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) -> Result<Vec<ConnectionInfo>> {
        let password = self.password()?;
        let certificates = self.certificates()?;
        addresses
            .into_iter()
            .map(|address| self.complete(parse_address(address)?, password.as_deref(), &certificates))
            .collect()
    }

    fn complete(
        &self,
        info: ConnectionInfo,
        password: Option<&str>,
        certificates: &TlsCertificates,
    ) -> Result<ConnectionInfo> {
        let mut settings = info.redis_settings().clone();
        if settings.password().is_none() {
            if let (None, Some(user)) = (settings.username(), &self.user) {
                settings = settings.set_username(user);
            }
            if let Some(password) = password {
                settings = settings.set_password(password);
            }
        }
        let info = info.set_redis_settings(settings);
        let by_tls = match info.addr().clone() {
            ConnectionAddr::Tcp(host, port) if self.tls => {
                info.set_addr(ConnectionAddr::TcpTls { host, port, insecure: self.insecure, tls_params: None })
            }
            ConnectionAddr::TcpTls { .. } => info,
            _ => return Ok(info),
        };
        use_one_provider();
        let client = Client::build_with_tls(by_tls, certificates.clone()).context("TLS can't be set up")?;
        Ok(client.get_connection_info().clone())
    }

    fn password(&self) -> Result<Option<String>> {
        match &self.auth_file {
            Some(file) if file.as_os_str() == "-" => {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).context("standard input can't be read")?;
                let line = line.trim_end_matches(['\r', '\n']);
                ensure!(!line.is_empty(), "standard input: the first line is to be the password, and is empty");
                Ok(Some(line.to_owned()))
            }
            Some(file) => password(file).map(Some),
            None => {
                Ok(PASSWORD_VARIABLES.iter().find_map(|name| std::env::var(name).ok()).filter(|text| !text.is_empty()))
            }
        }
    }

    fn certificates(&self) -> Result<TlsCertificates> {
        let read = |file: &Path| std::fs::read(file).with_context(|| format!("{}: cannot be read", file.display()));
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            _ => None,
        };
        Ok(TlsCertificates { client_tls, root_cert: self.cacert.as_deref().map(read).transpose()? })
    }
}

/// The library of TLS has its arithmetic elsewhere, and is told where once.
fn use_one_provider() {
    // Told already: so it stays.
    _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &ConnectionArguments, address: &str) -> (Option<String>, Option<String>) {
        let info = arguments.to(address).unwrap();
        let settings = info.redis_settings();
        (settings.username().map(str::to_owned), settings.password().map(str::to_owned))
    }

    #[test]
    fn a_password_comes_from_the_address_or_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "open sesame\n").unwrap();
        let some = |text: &str| Some(text.to_owned());
        let arguments =
            ConnectionArguments { user: some("watch"), auth_file: Some(file), ..ConnectionArguments::default() };
        assert_eq!(settings(&arguments, "127.0.0.1:1"), (some("watch"), some("open sesame")));
        assert_eq!(settings(&arguments, "redis://other:word@127.0.0.1:1"), (some("other"), some("word")));
    }

    #[test]
    fn tls_is_asked_for_by_option_or_by_address() {
        let is_tls = |arguments: &ConnectionArguments, address: &str| {
            matches!(arguments.to(address).unwrap().addr(), ConnectionAddr::TcpTls { .. })
        };
        let plain = ConnectionArguments::default();
        let by_tls = ConnectionArguments { tls: true, ..ConnectionArguments::default() };
        assert!(
            !is_tls(&plain, "127.0.0.1:1") && is_tls(&by_tls, "127.0.0.1:1") && is_tls(&plain, "rediss://127.0.0.1:1")
        );
        let missing = ConnectionArguments { cacert: Some("/no/file".into()), ..by_tls };
        assert!(missing.to("127.0.0.1:1").unwrap_err().to_string().contains("/no/file: cannot be read"));
    }
}
