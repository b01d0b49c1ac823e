//! The dashboard as somebody at a desk, with a phone or with other intentions finds it.
//!
//! `TENURE_SCREENSHOTS=FOLDER` keeps pictures of it there (`scripts/screenshots` makes those of the documentation so).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions, module_path, wait_for};

use crate::browser::Browser;
use crate::http::{get, next_event, request};
use crate::load::{DEADLINE, Load, server};
use crate::programs::{address_of, serving};

/// Sizes and looks: a name, width, height, and what the system prefers.
const LOOKS: [(&str, u32, u32, &str); 4] = [
    ("wide-light", 1200, 2000, "light"),
    ("wide-dark", 1200, 2000, "dark"),
    ("narrow-light", 390, 4000, "light"),
    ("narrow-dark", 390, 4000, "dark"),
];

fn dashboard_of(server: &Server, more: &[&str]) -> (crate::programs::Program, String) {
    let address = format!("127.0.0.1:{}", server.port());
    serving(&[&["dashboard", &address, "--listen", "127.0.0.1:0"], more].concat())
}

/// Counts on the page by tenant and field, as digits.
fn counts_on_page(browser: &Browser) -> BTreeMap<(String, String), String> {
    let script = "return [...document.querySelectorAll('#table tbody tr[data-tenant] td')].map((cell) => \
        [cell.parentElement.dataset.tenant, cell.dataset.field, cell.textContent.replaceAll(',', '')])";
    let cells = browser.run(script);
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    cells.as_array().unwrap().iter().map(|cell| ((text(&cell[0]), text(&cell[1])), text(&cell[2]))).collect()
}

#[test]
fn the_page_shows_what_the_server_says() {
    let test = "the_page_shows_what_the_server_says";
    let Some(server) = server(test) else { return };
    let (_dashboard, url) = dashboard_of(&server, &[]);
    let Some(browser) = Browser::open(test, &url) else { return };
    browser.look_like(1440, 1500, "light");
    let load = Load::on(&server);
    browser.wait("a curve", "document.getElementById('curve').dataset.pointBytes > 0");
    browser.wait(
        "evictions",
        "[...document.querySelectorAll('td[data-field=evictions]')].some((cell) => \
                               Number(cell.textContent.replaceAll(',', '')) > 100)",
    );
    if let Some(folder) = std::env::var_os("TENURE_SCREENSHOTS") {
        take_pictures(&browser, &PathBuf::from(folder));
    }

    // What is told is what TENURE.TENANTS says, once nothing changes any more.
    drop(load);
    let mut differing = String::new();
    let is_same = wait_for(DEADLINE, "the page to show what TENURE.TENANTS says", || {
        let on_page = counts_on_page(&browser);
        let tenants: Vec<BTreeMap<String, String>> = server.call(&["TENURE.TENANTS"]).unwrap();
        differing.clear();
        for tenant in &tenants {
            for field in ["keys", "reads", "misses", "evictions"] {
                let shown = on_page.get(&(tenant["name"].clone(), field.to_owned()));
                if shown != Some(&tenant[field]) {
                    differing += &format!("{} {field}: {shown:?}, not {}\n", tenant["name"], tenant[field]);
                }
            }
        }
        differing.is_empty()
    });
    is_same.unwrap_or_else(|why| panic!("{why}: {differing}"));
    let columns =
        browser.run("return [...document.querySelectorAll('#table thead th')].map((cell) => cell.dataset.field)");
    let is_told = columns.as_array().unwrap().iter().any(|field| field == "sleeping_keys");
    assert!(!is_told, "nothing is told of sleeping keys: {columns}");

    what_if_is_what_plan_says(&browser, &server, &address_of(&url));
    with_keys_alone(&browser);
    fits_a_phone(&browser);
    names_everything(&browser);
    the_point_follows_the_memory(&browser, &server);
    assert_eq!(browser.errors(), Vec::<Value>::new(), "the console is empty");
}

fn take_pictures(browser: &Browser, folder: &std::path::Path) {
    browser.wait("a while to have been seen", "page.history.at.length > 40");
    for (name, width, height, scheme) in LOOKS {
        browser.look_like(width, 400, scheme);
        let whole = browser.run("return document.documentElement.scrollHeight").as_u64().unwrap() as u32;
        browser.look_like(width, whole.min(height), scheme);
        let drawn = browser.run("return document.body.dataset.drawn").as_str().unwrap_or("").to_owned();
        browser.wait("it to be drawn anew", &format!("document.body.dataset.drawn > {drawn}"));
        browser.screenshot(&folder.join(format!("dashboard-{name}.png")));
    }
    browser.look_like(1440, 1500, "light");
}

fn what_if_is_what_plan_says(browser: &Browser, server: &Server, dashboard: &str) {
    let address = format!("127.0.0.1:{}", server.port());
    let agree = || {
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
            .args(["plan", &address, "--tenant", "shop", "--json"])
            .output()
            .unwrap();
        let plan: Value = serde_json::from_slice(&command.stdout).unwrap();
        plan["rows"].as_array().unwrap().iter().all(|row| {
            let (bytes, miss_ratio) = (row["bytes"].as_u64().unwrap(), row["miss_ratio"].as_f64().unwrap());
            let answer = get(dashboard, &format!("/plan?tenant=shop&bytes={bytes}")).unwrap().json();
            let what_if = answer["what_if"]["miss_ratio"].as_f64().unwrap_or_else(|| panic!("{answer}"));
            (what_if - miss_ratio).abs() < 0.01
        })
    };
    // A window may end between two answers, and its curve is another.
    wait_for(DEADLINE, "the page's answers to be those of the plan", agree).unwrap();
    browser.run("document.querySelector('tr[data-tenant=shop]').click()");
    browser.run(
        "const slider = document.getElementById('slider'); slider.value = 900; slider.dispatchEvent(new \
                 Event('input'))",
    );
    browser.wait(
        "the answer to what if",
        "document.getElementById('what-if-answer').textContent.includes(\"of shop's reads would miss\")",
    );
}

fn with_keys_alone(browser: &Browser) {
    browser.run("document.activeElement.blur()");
    browser.press("?");
    browser.wait("the help", "document.getElementById('keys').open");
    browser.run("document.getElementById('keys').close()");
    browser.press("t");
    browser.press("t");
    browser.wait("the dark theme", "document.documentElement.dataset.theme === 'dark'");
    browser.press("t");
    let selected = "document.querySelector('#table tr[aria-selected=true]').dataset.tenant";
    let before = browser.run(&format!("return {selected}"));
    browser.press("j");
    browser.press("k");
    browser.press("k");
    browser.press("k");
    browser.press("j");
    browser.wait("another tenant or the same", &format!("{selected}.length > 0"));
    assert!(!before.is_null());
    browser.press("4");
    browser.wait("an hour", "document.getElementById('range').value === '3600' && page.history.at.length > 0");
    browser.press("p");
    browser.wait("a pause", "document.getElementById('pause').getAttribute('aria-pressed') === 'true'");
    browser.press("p");
    browser.press("2");
    browser.wait("five minutes", "document.getElementById('range').value === '300'");
}

fn fits_a_phone(browser: &Browser) {
    browser.look_like(390, 844, "light");
    browser.wait("no part to stand out", "document.documentElement.scrollWidth <= 390");
    browser.look_like(1440, 1500, "light");
}

/// Everything that can be operated has a name for a screen reader, and every chart says what it shows.
fn names_everything(browser: &Browser) {
    let nameless = "return [...document.querySelectorAll('button, select, input')].filter((element) => \
        !(element.textContent.trim() || element.getAttribute('aria-label') || element.labels?.length)).length";
    assert_eq!(browser.run(nameless), 0);
    let silent = "return [...document.querySelectorAll('#charts figure:not([hidden])')].filter((figure) => \
                  !figure.ariaLabel).length";
    assert_eq!(browser.run(silent), 0);
}

fn the_point_follows_the_memory(browser: &Browser, server: &Server) {
    browser.run("document.querySelector('tr[data-tenant=shop]').click()");
    let place = "Number(document.getElementById('curve').dataset.pointBytes)";
    browser.wait("the point of the tenant", &format!("page.selected === 'shop' && {place} > 0"));
    let before = browser.run(&format!("return {place}")).as_f64().unwrap();
    let _load = Load::on(server);
    server.call::<()>(&["CONFIG", "SET", "maxmemory", "8388608"]).unwrap();
    browser.wait("the point to follow", &format!("{place} < {}", 0.7 * before));
}

#[test]
fn others_are_refused() {
    let Some(server) = server("others_are_refused") else { return };
    let (_dashboard, url) = dashboard_of(&server, &["--name", "cache.example"]);
    let address = address_of(&url);
    let status = |method: &str, headers: &[&str]| request(&address, method, "/", headers, "").unwrap().status;
    assert_eq!((status("GET", &[]), status("GET", &["Host: cache.example"]), status("HEAD", &[])), (200, 200, 200));
    assert_eq!((status("GET", &["Host: evil.example"]), status("GET", &["Origin: http://evil.example"])), (403, 403));
    assert_eq!(status("POST", &[]), 405);
    let page = get(&address, "/").unwrap();
    assert!(
        page.head.contains("default-src 'none'") && !page.body.contains("http://") && !page.body.contains("https://")
    );
    assert!(get(&address, "/uPlot-licence.txt").unwrap().body.contains("MIT"));
    let nobody = get(&address, "/plan?tenant=nobody").unwrap().json();
    assert!(nobody["why"].as_str().is_some_and(|why| why.contains("no tenant 'nobody'")), "{nobody}");
    assert_eq!(get(&address, "/plan?tenant=shop&bytes=much").unwrap().status, 400);
}

#[test]
fn a_password_or_a_token_is_asked_for_where_others_can_reach_it() {
    let Some(server) = server("a_password_or_a_token_is_asked_for_where_others_can_reach_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "open sesame\n").unwrap();
    let (_dashboard, url) = dashboard_of(&server, &["--password-file", file.to_str().unwrap()]);
    let address = address_of(&url);
    assert_eq!(get(&address, "/history").unwrap().status, 401);
    let with = |header: &str| request(&address, "GET", "/history", &[header], "").unwrap().status;
    assert_eq!(
        (with("Authorization: Basic YW55Om9wZW4gc2VzYW1l"), with("Authorization: Basic YW55Omd1ZXNz")),
        (200, 401)
    );

    let of_server = format!("127.0.0.1:{}", server.port());
    let (_dashboard, url) = serving(&["dashboard", &of_server, "--listen", "0.0.0.0:0"]);
    let address = address_of(&url).replace("0.0.0.0", "127.0.0.1");
    let (_, token) = url.split_once("?token=").unwrap_or_else(|| panic!("{url} has no token"));
    assert_eq!(get(&address, "/").unwrap().status, 401);
    let answer = get(&address, &format!("/?token={token}")).unwrap();
    assert!(answer.status == 303 && answer.head.contains("HttpOnly"), "{}", answer.head);
    assert_eq!(request(&address, "GET", "/", &[&format!("Cookie: tenure-token={token}")], "").unwrap().status, 200);
}

#[test]
fn a_cluster_is_one_page() {
    let Ok(module) = module_path() else {
        println!("SKIPPED: a_cluster_is_one_page: libtenure.so is not built");
        return;
    };
    let options = ServerOptions::default().with_module(module).set("maxmemory", 16 << 20);
    let options = options.set("maxmemory-policy", "allkeys-lru").set("tenure.tenants", "\"shop=shop:*\"");
    let mut cluster = Cluster::start(&ServerBinary::installed().unwrap(), &options, 3, 0).unwrap();
    let any = format!("127.0.0.1:{}", cluster.nodes()[1].port());
    let (_dashboard, url) = serving(&["dashboard", &any, "--listen", "127.0.0.1:0"]);
    let look = || next_event(&address_of(&url), "/events");
    let answering = |look: &Value| {
        let servers = look["servers"].as_array().unwrap();
        (servers.len(), servers.iter().filter(|server| server["error"].is_null()).count())
    };
    let first = look().unwrap();
    assert_eq!(answering(&first), (3, 3), "{first}");
    assert_eq!(first["figures"]["maxmemory"], 3 * (16 << 20), "{first}");
    assert_eq!(first["tenants"].as_array().unwrap().len(), 2, "shop and other, each once: {first}");
    // The one that was named goes; the others are shown all the same, and it as gone.
    cluster.node_mut(1).stop().unwrap();
    // The page takes so many connections and no more, and hears of an end with the next look: some of these are
    // turned away.
    wait_for(DEADLINE, "one to be gone", || look().is_ok_and(|look| answering(&look) == (3, 2))).unwrap();
}
