//! A job queue: workers take jobs in order, each job exactly once, with priorities as key prefixes.
//!
//! `cargo run --example job_queue [DIRECTORY]`

use perigee::{Db, Family, Options, Result, TxnOptions};

/// The key of a job: lower priorities sort first, then the number.
fn job_key(priority: u8, number: u64) -> Vec<u8> {
    [&[priority][..], &number.to_be_bytes()].concat()
}

/// Takes the first job. Two workers never take the same one: the commit of the slower one
/// conflicts, and it tries again with the next job.
fn take_job(db: &Db, jobs: &Family) -> Result<Option<String>> {
    db.write_txn(TxnOptions::new(), |txn| -> Result<Option<String>> {
        let Some((key, job)) = txn.family(jobs).first()? else { return Ok(None) };
        txn.delete(jobs, &key)?;
        Ok(Some(String::from_utf8_lossy(&job).into_owned()))
    })
}

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("perigee-job-queue"), Into::into);
    let db = Db::open(&path, Options::new())?;
    let jobs = db.family_or_create("jobs", Default::default())?;
    for number in 0..20 {
        let priority = if number % 5 == 0 { 0 } else { 1 };
        jobs.put(job_key(priority, number), format!("job {number}"))?;
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = ["ada", "bob"]
            .map(|worker| {
                let (db, jobs) = (&db, &jobs);
                scope.spawn(move || -> Result<()> {
                    while let Some(job) = take_job(db, jobs)? {
                        println!("{worker}: {job}");
                    }
                    Ok(())
                })
            })
            .into_iter()
            .collect();
        workers.into_iter().try_for_each(|w| w.join().expect("no panic"))
    })?;
    assert!(jobs.is_empty()?);
    db.close()
}
