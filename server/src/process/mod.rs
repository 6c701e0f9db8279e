//! This process and the operating system it runs on.
//!
//! | file | open it for |
//! |---|---|
//! | `allocator` | keeping glibc's allocator from holding memory back |
//! | `logging` | log lines: where they go, and what names a call in them |
//! | `open_files` | the limit of open files |
//! | `systemd` | telling the service manager when the server is ready |

pub(crate) mod allocator;
pub(crate) mod logging;
pub(crate) mod open_files;
pub(crate) mod systemd;
