use std::sync::Arc;

use super::SqliteCatalog;
use crate::catalog::{Catalog, CatalogError, DEFAULT_NAMESPACE};
use crate::clock::ManualClock;

#[test]
fn a_new_catalog_has_a_repository_and_a_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let clock = Arc::new(ManualClock::new(1_763_700_000_000));
    assert!(matches!(SqliteCatalog::open(&path, clock.clone()), Err(CatalogError::NotFound { .. })));
    let (catalog, created) = SqliteCatalog::open_or_create(&path, clock.clone()).unwrap();
    assert!(created);
    let repository = catalog.repository().unwrap();
    assert_eq!(catalog.namespaces().unwrap()[0].name, DEFAULT_NAMESPACE);
    drop(catalog);
    assert!(matches!(SqliteCatalog::create(&path, clock.clone()), Err(CatalogError::Exists { .. })));
    let catalog = SqliteCatalog::open(&path, clock).unwrap();
    assert_eq!(catalog.repository().unwrap(), repository);
    assert_eq!(catalog.integrity_check().unwrap(), Vec::<String>::new());
}
