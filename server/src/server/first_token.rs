//! The token that the first start creates, so that there is one to log in with.

use std::path::Path;

use holdfast_engine::catalog::token::{self, Role};
use holdfast_engine::catalog::{AuditEntry, Catalog, TokenSpec};
use holdfast_engine::clock::Clock;

use super::StartError;
use crate::error::ServiceError;
use crate::files;

/// Name of the token.
const FIRST_TOKEN: &str = "admin";

/// Name of the file it is kept in, below the data folder.
pub const FIRST_TOKEN_FILE: &str = "admin.token";

/// Creates the first token when there is none at all. The file is written before the catalog's row: a crash between
/// the two leaves a file whose token does not work, and the next start replaces it.
pub(super) fn ensure_first_token(
    catalog: &Catalog,
    clock: &dyn Clock,
    path: &Path,
) -> Result<bool, StartError> {
    if !catalog.list_tokens().map_err(ServiceError::from)?.is_empty() {
        return Ok(false);
    }
    create_admin_token(catalog, clock, path, FIRST_TOKEN, "first start")?;
    Ok(true)
}

/// Creates the admin token of a recovered server, whose other tokens are disabled. The name is the first one's, with a
/// number where that is taken. Returns the name.
///
/// # Errors
/// [`StartError`].
pub fn create_recovery_token(
    catalog: &Catalog,
    clock: &dyn Clock,
    path: &Path,
) -> Result<String, StartError> {
    let listed = catalog.list_tokens().map_err(ServiceError::from)?;
    let taken = |name: &str| listed.iter().any(|token| token.name == name && token.revoked_ms.is_none());
    let names = (2..).map(|number: u32| format!("{FIRST_TOKEN}-{number}"));
    let name = std::iter::once(FIRST_TOKEN.to_owned()).chain(names).find(|name| !taken(name));
    let name = name.ok_or_else(|| ServiceError::defect("every name for the admin token is taken"))?;
    create_admin_token(catalog, clock, path, &name, "recovery")?;
    Ok(name)
}

fn create_admin_token(
    catalog: &Catalog,
    clock: &dyn Clock,
    path: &Path,
    name: &str,
    who: &str,
) -> Result<(), StartError> {
    let (text, id, hash) = token::new_token(clock).map_err(ServiceError::from)?;
    files::write_durably(path, format!("{}\n", text.as_str()).as_bytes(), files::MODE_SECRET)
        .map_err(|source| StartError::Token { path: path.display().to_string(), source })?;
    let spec = TokenSpec {
        id,
        name: name.to_owned(),
        role: Role::Admin,
        namespaces: Vec::new(),
        owner: name.to_owned(),
        vm_patterns: Vec::new(),
        expires_ms: None,
    };
    catalog.create_token(&spec, &hash).map_err(ServiceError::from)?;
    catalog
        .audit(&AuditEntry {
            who: who.to_owned(),
            action: "token.create".to_owned(),
            object: id.to_string(),
            detail: format!("{name:?}, role {}", Role::Admin),
        })
        .map_err(ServiceError::from)?;
    Ok(())
}
