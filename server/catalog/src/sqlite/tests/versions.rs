//! Older, newer and foreign databases.

use super::*;
use crate::sqlite::schema::VERSION;

#[test]
fn a_catalog_of_another_version_is_unsupported_and_not_touched() {
    for (found, words) in [
        (VERSION + 1, "Use the version that wrote it"),
        (VERSION - 1, "holdfast-server recover --from"),
        (1, "holdfast-server recover --from"),
    ] {
        let home = Home::new();
        drop(home.create());
        home.raw().pragma_update(None, "user_version", found).unwrap();
        let before = std::fs::read(&home.path).unwrap();
        let clock = Arc::new(ManualClock::new(0));
        for opened in [
            Catalog::open(&home.path, clock.clone()),
            Catalog::open_existing(&home.path, clock.clone(), Arc::<OwnLatch>::default()),
            Catalog::open_or_create(&home.path, clock.clone(), Arc::<OwnLatch>::default()).map(|(c, _)| c),
        ] {
            let error = opened.unwrap_err();
            assert_eq!(error.code(), holdfast_proto::ErrorCode::Unsupported);
            for word in [words, &format!("version {found}"), &VERSION.to_string()] {
                assert!(error.to_string().contains(word), "{word} in {error}");
            }
        }
        assert_eq!(std::fs::read(&home.path).unwrap(), before);
    }
}

#[test]
fn a_repository_of_other_parameters_is_unsupported() {
    for (sql, words) in [
        ("UPDATE repository SET chunker_avg_bytes = 32768", ["8192/32768/65536", "8192/16384/65536"]),
        ("UPDATE repository SET chunker_algorithm = 'rabin'", ["rabin", "fastcdc-2020"]),
        ("UPDATE repository SET format_version = 7", ["format is 7", "knows 1"]),
    ] {
        let home = Home::new();
        drop(home.create());
        home.raw().execute(sql, []).unwrap();
        let error = home.open().unwrap_err();
        assert!(matches!(error, CatalogError::Unsupported { .. }), "{error:?}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}

#[test]
fn foreign_databases_are_not_touched() {
    for (sql, word) in [
        ("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)", "no Holdfast catalog"),
        ("PRAGMA user_version = 3", "no Holdfast catalog"),
        ("PRAGMA application_id = 66; CREATE TABLE theirs (x)", "another application (0x42)"),
    ] {
        let home = Home::new();
        home.raw().execute_batch(sql).unwrap();
        let before = std::fs::read(&home.path).unwrap();
        let clock = Arc::new(ManualClock::new(0));
        for result in [
            Catalog::open(&home.path, clock.clone()),
            Catalog::open_or_create(&home.path, clock.clone(), Arc::<OwnLatch>::default()).map(|(c, _)| c),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, CatalogError::Invalid { .. }), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
        }
        let created = Catalog::create(&home.path, clock);
        assert!(matches!(created, Err(CatalogError::Exists { .. })), "{created:?}");
        assert_eq!(std::fs::read(&home.path).unwrap(), before);
    }
}

/// A crash between making the file and filling it leaves an empty file.
#[test]
fn an_empty_file_is_no_catalog_and_is_taken_over() {
    let home = Home::new();
    std::fs::write(&home.path, b"").unwrap();
    let error = home.open().unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "catalog", .. }), "{error:?}");
    home.create().committed("web", "nightly");
}
