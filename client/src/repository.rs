//! Questions about what is in a repository.

use holdfast_proto::v1;

use crate::connect::Connection;
use crate::error::ClientError;

/// Rows of one answer; the server's limits are 1,000 backups and 10,000 detail rows.
const BACKUPS_PER_PAGE: u32 = 1000;
const ROWS_PER_PAGE: u32 = 5000;

/// Pages of one question at most: a server whose pages never end must not fill memory.
const PAGES_MAX: usize = 10_000;

/// All restore points of a namespace, newest first; `vm` and `job` empty for all.
///
/// # Errors
/// Any error of a call.
pub async fn list_backups(
    connection: &Connection,
    namespace: &str,
    vm: &str,
    job: &str,
) -> Result<Vec<v1::BackupInfo>, ClientError> {
    let mut client = connection.catalog();
    let mut request = v1::ListBackupsRequest {
        namespace: namespace.to_owned(),
        vm: vm.to_owned(),
        job: job.to_owned(),
        page_size: BACKUPS_PER_PAGE,
        page_token: String::new(),
    };
    let mut backups = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = client.list_backups(request.clone()).await?.into_inner();
        backups.extend(page.backups);
        if page.next_page_token.is_empty() {
            return Ok(backups);
        }
        request.page_token = page.next_page_token;
    }
    Err(ClientError::Protocol("a list of backups without an end".to_owned()))
}

/// One backup, by id, by an unambiguous prefix of it, or `latest` of a VM.
///
/// # Errors
/// [`ClientError::Refused`] when there is none or several.
pub async fn get_backup(
    connection: &Connection,
    namespace: &str,
    backup: &str,
    vm: &str,
) -> Result<v1::BackupInfo, ClientError> {
    let request = v1::GetBackupRequest {
        namespace: namespace.to_owned(),
        backup: backup.to_owned(),
        vm: vm.to_owned(),
    };
    Ok(connection.catalog().get_backup(request).await?.into_inner())
}

/// All rows a request asks for, oldest first; its page fields are set here.
///
/// # Errors
/// Any error of a call.
pub async fn report(
    connection: &Connection,
    request: v1::ReportRequest,
) -> Result<Vec<v1::DetailRow>, ClientError> {
    let mut client = connection.catalog();
    let mut request = v1::ReportRequest { page_size: ROWS_PER_PAGE, page_token: String::new(), ..request };
    let mut rows = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = client.report(request.clone()).await?.into_inner();
        rows.extend(page.rows);
        if page.next_page_token.is_empty() {
            return Ok(rows);
        }
        request.page_token = page.next_page_token;
    }
    Err(ClientError::Protocol("a report without an end".to_owned()))
}
