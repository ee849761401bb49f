//! Transactions: transfers between accounts by four threads, with retries and an invariant.
//!
//! `cargo run --example transactions [DIRECTORY]`

use perigee::{Db, Durability, Family, Options, Result, Txn, TxnOptions};

const ACCOUNTS: u64 = 8;
const TRANSFERS: u64 = 500;

fn balance(txn: &Txn, accounts: &Family, account: u64) -> Result<u64> {
    let value = txn.get(accounts, account.to_be_bytes())?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&value).parse().unwrap_or(0))
}

fn transfer(db: &Db, accounts: &Family, from: u64, to: u64) -> Result<bool> {
    // The closure runs again if another transaction changed one of the two accounts meanwhile.
    db.write_txn(TxnOptions::new(), |txn| -> Result<bool> {
        let (a, b) = (balance(txn, accounts, from)?, balance(txn, accounts, to)?);
        if a == 0 || from == to {
            return Ok(false);
        }
        txn.put(accounts, from.to_be_bytes(), (a - 1).to_string())?;
        txn.put(accounts, to.to_be_bytes(), (b + 1).to_string())?;
        Ok(true)
    })
}

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("perigee-transactions"), Into::into);
    // Transfers survive a crash of the process; `Durability::Full` would sync each of them.
    let db = Db::open(&path, Options::new().durability(Durability::None))?;
    let accounts = db.family_or_create("accounts", Default::default())?;
    for account in 0..ACCOUNTS {
        accounts.put(account.to_be_bytes(), "100")?;
    }
    let moved: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (db, accounts) = (&db, &accounts);
                scope.spawn(move || -> Result<u64> {
                    let mut moved = 0;
                    for i in 0..TRANSFERS {
                        let (from, to) = ((i * 7 + thread) % ACCOUNTS, (i * 3 + 1) % ACCOUNTS);
                        moved += u64::from(transfer(db, accounts, from, to)?);
                    }
                    Ok(moved)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).sum::<Result<u64>>()
    })?;
    let mut total = 0;
    for value in accounts.values()? {
        total += String::from_utf8_lossy(&value?).parse().unwrap_or(0);
    }
    println!("{moved} transfers; the sum of all accounts is still {total}");
    assert_eq!(total, ACCOUNTS * 100);
    db.close()
}
