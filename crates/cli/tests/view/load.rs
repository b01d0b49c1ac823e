//! A server with the module and clients that ask it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use redis::Connection;
pub use tenure_servers::DEADLINE;
use tenure_servers::{Server, ServerBinary, ServerOptions, module_path};

/// A server with three tenants and windows that end fast; `None`, and a word why, where the module isn't built.
pub fn server(test: &str) -> Option<Server> {
    let Ok(module) = module_path() else {
        println!("SKIPPED: {test}: libtenure.so is not built");
        return None;
    };
    let options = ServerOptions::default().with_module(module).set("maxmemory", 16 << 20);
    let options = options.set("maxmemory-policy", "allkeys-lru");
    let options = options.set("tenure.tenants", "\"shop=shop:*,min=2mb session=session:*,max=8mb report=report:*\"");
    let options = options.set("tenure.window-requests", 2000).set("tenure.window-seconds", 1);
    Some(Server::start(&ServerBinary::installed().expect("a server is installed"), &options).expect("it starts"))
}

/// Reads of all tenants, each miss repaired by a write, until it is dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    client: Option<JoinHandle<()>>,
}

impl Load {
    /// Begins at once.
    pub fn on(server: &Server) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (is_told, mut connection) = (Arc::clone(&stop), server.connection().expect("the server answers"));
        let client = std::thread::spawn(move || {
            let mut random = 1_u64;
            while !is_told.load(Ordering::Relaxed) {
                // A linear congruence is random enough to ask for keys with; the product of two draws likes small ones.
                let mut draw = |n: u64| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) % n
                };
                let (tenant, bytes) =
                    [("shop", 800), ("shop", 800), ("session", 300), ("report", 3000)][draw(4) as usize];
                let key = draw(20_000) * draw(20_000) / 20_000;
                if ask(&mut connection, &format!("{tenant}:{key}"), bytes).is_err() {
                    return;
                }
            }
        });
        Load { stop, client: Some(client) }
    }
}

fn ask(connection: &mut Connection, key: &str, bytes: usize) -> redis::RedisResult<()> {
    let found: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(connection)?;
    match found {
        Some(_) => Ok(()),
        None => redis::cmd("SET").arg(key).arg(vec![b'v'; bytes]).exec(connection),
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(client) = self.client.take() {
            let _ = client.join();
        }
    }
}
