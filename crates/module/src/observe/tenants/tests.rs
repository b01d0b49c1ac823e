use tenure_core::frequent::Named;

use super::super::owners::NOBODY;
use super::super::reply_mode::Mode;
use super::*;

fn name(tenants: &Tenants, id: TenantId) -> &str {
    &tenants.names()[id.0 as usize]
}

#[test]
fn the_longest_prefix_wins_then_the_database_then_other() {
    let spec = TenantSpec::parse("users=user:* vips=user:vip:*,min=1mb queue=db:3,max=2kb,weight=7").unwrap();
    let mut tenants = Tenants::new(&spec);
    for (db, key, expected) in [
        (0, &b"user:1"[..], "users"),
        (3, b"user:vip:1", "vips"),
        (3, b"job", "queue"),
        (0, b"use", "other"),
        (0, b"", "other"),
        (0, b"\xff\x00", "other"),
        (9999, b"job", "other"),
    ] {
        let id = tenants.of(db, key, || NOBODY);
        assert_eq!(name(&tenants, id), expected, "{db} {key:?}");
    }
    assert_eq!(tenants.bytes_min(), [0, 1 << 20, 0, 0]);
    assert_eq!(tenants.bytes_max()[2], 2048);
    assert_eq!(tenants.weights(), [1, 1, 7, 1]);
}

#[test]
fn minimums_that_no_longer_fit_are_cut_alike() {
    assert_eq!(fitting_minimums(&[100, 300], 1000), [100, 300]);
    assert_eq!(fitting_minimums(&[100, 300], 200), [50, 150]);
    let mut tenants = Tenants::new(&TenantSpec::parse("a=a:*,min=100b b=b:*,min=300b").unwrap());
    tenants.fit_minimums(200);
    assert_eq!((tenants.guaranteed(), tenants.minimums_bytes()), (&[50, 150, 0][..], 400));
    tenants.fit_minimums(u64::MAX);
    assert_eq!(tenants.guaranteed(), tenants.bytes_min());
}

#[test]
fn limits_are_split_by_shares_and_whole_again_without() {
    let mut tenants = Tenants::new(&TenantSpec::parse("a=a:*,min=100b,max=1000b b=b:*,max=10b").unwrap());
    assert!(tenants.are_limited());
    tenants.split_limits(Some(&[0.25, 0.0]));
    assert_eq!((tenants.bytes_min(), tenants.bytes_max()), (&[25, 0, 0][..], &[250, 0, u64::MAX][..]));
    tenants.split_limits(None);
    assert_eq!((tenants.bytes_min(), tenants.bytes_max()), (&[100, 0, 0][..], &[1000, 10, u64::MAX][..]));
    assert!(!Tenants::new(&TenantSpec::parse("a=a:*").unwrap()).are_limited());
}

#[test]
fn what_replies_wait_for_divides_no_keys() {
    let [plain, acked, other] =
        ["a=x*,weight=2", "a=x*,weight=2,replies=acked", "a=x*"].map(|text| TenantSpec::parse(text).unwrap());
    assert_eq!(acked.replies(), [Some(Mode::Acked)]);
    assert!(acked.holds_replies() && !plain.holds_replies());
    assert!(acked.divides_as(&plain) && !acked.divides_as(&other));
    assert!(!TenantSpec::parse("a=x*,replies=async").unwrap().holds_replies());
}

#[test]
fn a_user_wins_over_the_database_and_a_prefix_over_the_user() {
    let spec = TenantSpec::parse("users=user:* alice=user:alice,max=1mb eve=user:e=v:e jobs=db:3").unwrap();
    assert!(spec.has_users() && !TenantSpec::parse("users=user:* jobs=db:3").unwrap().has_users());
    let mut tenants = Tenants::new(&spec);
    assert_eq!(tenants.users().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["alice", "e=v:e"]);
    tenants.number_users(|name| if name == b"alice" { 7 } else { 9 });
    for (db, key, owner, expected) in [
        (0, &b"x"[..], 7, "alice"),
        (3, b"x", 7, "alice"),
        (3, b"x", 9, "eve"),
        (3, b"x", 8, "jobs"),
        (0, b"x", NOBODY, "other"),
        (0, b"user:1", 7, "users"),
    ] {
        let id = tenants.of(db, key, || owner);
        assert_eq!(name(&tenants, id), expected, "{db} {key:?} of {owner}");
    }
    assert_eq!([NOBODY, 7, 8, 9].map(|user| tenants.is_user(user)), [false, true, false, true]);
    assert_eq!(tenants.whole_database(3), None);
}

#[test]
fn without_entries_each_database_is_a_tenant_up_to_the_limit() {
    let mut tenants = Tenants::new(&TenantSpec::default());
    assert_eq!(tenants.of(5, b"a", || NOBODY), TenantId(0));
    assert_eq!(tenants.of(0, b"a", || NOBODY), TenantId(1));
    assert_eq!(tenants.of(5, b"b", || NOBODY), TenantId(0));
    assert_eq!(tenants.names(), ["db5", "db0"]);
    assert_eq!(tenants.whole_database(5), Some(TenantId(0)));
    for db in 0..200 {
        tenants.of(db, b"a", || NOBODY);
    }
    assert_eq!(tenants.names().len(), TENANTS_MAX);
    let (high, higher) = (tenants.of(150, b"a", || NOBODY), tenants.of(60_000, b"a", || NOBODY));
    assert_eq!((name(&tenants, high), name(&tenants, higher)), ("other", "other"));
    assert_eq!(tenants.whole_database(150), None);
}

#[test]
fn first_parts_appear_where_nobody_else_has_the_key() {
    let spec = TenantSpec::parse("shop=shop:* alice=user:alice queue=db:3").unwrap();
    let mut tenants = Tenants::with_delimiter(&spec, ":");
    tenants.number_users(|_| 7);
    assert_eq!(tenants.names(), ["shop", "alice", "queue", "other"]);
    let session = tenants.appear(b"session", None).unwrap();
    assert_eq!(tenants.appear(b"session", None), None, "it is there");
    for (db, key, owner, expected) in [
        (0, &b"session:1"[..], NOBODY, "session*"),
        (900, b"session:1", NOBODY, "session*"),
        (0, b"session:1", 7, "alice"),
        (3, b"session:1", NOBODY, "queue"),
        (0, b"shop:1", NOBODY, "shop"),
        (0, b"session", NOBODY, "other"),
        (0, b"else:1", NOBODY, "other"),
    ] {
        let id = tenants.of(db, key, || owner);
        assert_eq!(name(&tenants, id), expected, "{db} {key:?} of {owner}");
    }
    let other = tenants.other();
    for (tenant, key) in [(other, &b"else:1"[..]), (other, b"else"), (session, b"session:1")] {
        tenants.accessed(tenant, key);
    }
    assert_eq!(tenants.nobodys().unwrap().most(1), [Named { name: b"else".to_vec(), count: 1 }]);
    assert_eq!(tenants.appear(b"else", Some(session)), Some(session));
    assert_eq!(tenants.of(0, b"session:1", || NOBODY), other);
    assert_eq!(tenants.appear(b"x", Some(TenantId(0))), None, "who was named stays");
    let n = (0..100).filter(|i| tenants.appear(format!("p{i}").as_bytes(), None).is_some()).count();
    assert_eq!((n, tenants.names().len(), tenants.free()), (TENANTS_MAX - 5, TENANTS_MAX, 0));
    assert_eq!((tenants.whole_database(0), tenants.bytes_min().len()), (None, TENANTS_MAX));
    let alone = Tenants::with_delimiter(&TenantSpec::default(), "/");
    assert_eq!(alone.names(), ["other"], "databases are no tenants then");
    assert_eq!((Tenants::new(&spec).free(), Tenants::new(&spec).do_appear()), (0, false));
}

#[test]
fn wrong_entries_are_refused_with_the_reason() {
    for (text, part) in [
        ("users", "has no selector"),
        ("users=user:", "selector 'user:'"),
        ("users=*", "selector '*'"),
        ("a=x* a=y*", "named twice"),
        ("a=x* b=x*", "select the same keys"),
        ("a=user:x b=user:x", "select the same keys"),
        ("a=user:", "selector 'user:'"),
        ("a=user:x*y", "selector 'user:x*y'"),
        ("a=user:x,colour=3", "option 'colour=3'"),
        ("a=db:70000", "database '70000'"),
        ("a=x*,min=2mb,max=1mb", "above max"),
        ("a=x*,colour=3", "option 'colour=3'"),
        ("a=x*,weight=0", "weight '0'; allowed is 1 to 1000"),
        ("a=x*,replies=later", "replies 'later'; allowed is async, sent or acked"),
        ("a=x*,min=lots", "'lots' is not a number of bytes"),
        ("other=x*", "tenant name 'other'"),
    ] {
        let error = TenantSpec::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
