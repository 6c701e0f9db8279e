mod writing;

use holdfast_proto::v1::read_disk_response::Kind;

use super::super::extents::EXTENTS_MAX;
use super::super::target::NullTarget;
use super::super::window::Assembler;
use holdfast_proto::Fingerprint;

use super::super::window::tests::{sample, serve};
use super::*;
use crate::progress::Silent;

/// Fails as it is told.
#[derive(Debug)]
struct BadTarget {
    panics: bool,
}

impl Target for BadTarget {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), ClientError> {
        assert!(!self.panics, "told to");
        Err(ClientError::Internal("no room"))
    }

    fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), ClientError> {
        Ok(())
    }
}

/// Reads a disk whose extents are said to hash to `digests`, which may be too few: nothing is said of the others.
async fn read(disk: &[u8], digests: &[Vec<u8>], jobs: &Arc<Jobs>) -> Result<(), ClientError> {
    let mut assembler = Assembler::new(disk.len() as u64, 0);
    for message in serve(disk, 1) {
        match message {
            Kind::Header(header) => assembler.header(&header)?,
            Kind::Window(mut window) => {
                let first = usize::try_from(window.first_extent).unwrap();
                for (layout, digest) in window.extents.iter_mut().zip(digests.iter().skip(first)) {
                    layout.digest = digest.clone().into();
                }
                jobs.begin_window(assembler.window(&window)?).await?;
            }
            Kind::Regions(batch) => {
                for region in assembler.regions(batch)? {
                    jobs.submit(region, &Arc::default()).await?;
                }
            }
            Kind::Damaged(_) => panic!("no damage was asked for"),
            Kind::WindowEnd(_) => drop(assembler.window_end()?),
            Kind::Queued(_) => {}
        }
    }
    jobs.drain().await
}

async fn restore(target: BadTarget) -> Result<(), ClientError> {
    let pool = Arc::new(DecodePool::new(Some(1), Cipher::Plain).unwrap());
    let jobs = Jobs::new(pool, ("d", false), Arc::new(target), OnDamage::End, Arc::new(Silent), EXTENTS_MAX);
    read(&[7; 5000], &[], &jobs).await
}

/// Reads a disk whose extents are said to hash to `digests`; returns those that do not.
async fn compare(disk: &[u8], digests: &[Vec<u8>]) -> Result<(u64, Vec<u64>), ClientError> {
    let pool = Arc::new(DecodePool::new(Some(3), Cipher::Plain).unwrap());
    let jobs =
        Jobs::new(pool, ("d", false), Arc::new(NullTarget), OnDamage::End, Arc::new(Silent), EXTENTS_MAX);
    read(disk, digests, &jobs).await?;
    Ok(jobs.false_digests())
}

#[tokio::test]
async fn extents_that_do_not_hash_to_their_digest_are_found() {
    let disk = sample();
    let extents = disk.chunks(holdfast_proto::limits::EXTENT_BYTES as usize);
    let truth: Vec<Vec<u8>> = extents.map(|e| Fingerprint::of(e).as_bytes().to_vec()).collect();
    assert_eq!(compare(&disk, &truth).await.unwrap(), (0, vec![]));
    for wrong in 0..truth.len() {
        let mut lie = truth.clone();
        lie[wrong] = vec![7; 32];
        assert_eq!(compare(&disk, &lie).await.unwrap(), (1, vec![wrong as u64]), "extent {wrong}");
        // Unknown digests are not compared.
        lie[wrong] = Vec::new();
        assert_eq!(compare(&disk, &lie).await.unwrap(), (0, vec![]), "extent {wrong}");
    }
    let mut short = truth;
    short[1].pop();
    assert!(matches!(compare(&disk, &short).await, Err(ClientError::Window(_))));
}

#[tokio::test]
async fn a_job_that_fails_or_panics_fails_the_disk() {
    let failed = restore(BadTarget { panics: false }).await;
    assert!(matches!(failed, Err(ClientError::Internal("no room"))), "{failed:?}");
    let panicked = restore(BadTarget { panics: true }).await;
    assert!(matches!(panicked, Err(ClientError::Internal("the writing thread panicked"))), "{panicked:?}");
}
