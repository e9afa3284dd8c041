//! Proofs from what the engine has stored, on both databases.

use super::*;
use crate::index::change::Keep;
use crate::index::reader;
use crate::proof::format::Proof;
use crate::proof::make::make;
use crate::proof::walk::{Walked, walk};

fn walked(url: &str, client: &Client<Fake>) -> Result<Walked> {
    reader::read(url, |tx, _| walk(tx, |bytes| client.transport().vouched(bytes), || {}))
}

fn proof(url: &str, client: &Client<Fake>, block: u64) -> Result<Proof> {
    reader::read(url, |tx, _| make(tx, block, |bytes| client.transport().vouched(bytes)))
}

#[test]
fn copied_blocks_are_proved_and_a_reorg_removes_the_rest() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("proofs").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        let url = server.fresh();
        let client = chain(&[10, 20, 30, 40, 50, 60]);
        let mut running = engine(&client, &url, options());
        running.settle().unwrap();
        let chain = || client.transport().chain();
        let head = chain().head().unwrap();
        let found = walked(&url, &client).unwrap();
        assert_eq!((found.first, found.last, found.blocks), (Some(head - 5), Some(head), 6));
        assert_eq!(found.newest_certificate.map(|of| of.number), Some(head));
        assert_eq!((found.unreached, found.gaps), (Vec::new(), Vec::new()));
        for block in head - 4..=head {
            let proof = proof(&url, &client, block).unwrap();
            let checked = proof.check(|bytes| client.transport().vouched(bytes)).unwrap();
            assert_eq!((checked.certified, checked.seal), (head, chain().blocks[&block].seal));
        }
        chain().roll_back_to(head - 3);
        chain().append(2, &[70]);
        running.settle().unwrap();
        assert_eq!(walked(&url, &client).unwrap().last, Some(head - 2));
        proof(&url, &client, head - 3).unwrap();
        assert!(proof(&url, &client, head - 1).unwrap_err().to_string().contains("there is no block"));
    }
}

#[test]
fn seals_before_runs_go_with_their_blocks() {
    let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Sqlite::new())];
    servers.extend(Postgres::new("runs").map(|server| Box::new(server) as Box<dyn Server>));
    for server in &mut servers {
        let url = server.fresh();
        let mut store = Store::open(Access::volatile(&url), &origin(Payload::All)).unwrap();
        store
            .change(|change| {
                change.put_run(10, &[1; 32])?;
                change.put_run(20, &[2; 32])?;
                change.put_run(20, &[3; 32])?;
                change.put_run(21, &[4; 32])
            })
            .unwrap();
        store.change(|change| change.remove_above(Some(20), Keep::Newest(0)).map(drop)).unwrap();
        let runs = |store: &mut Store| {
            let rows = store.database.transaction(|tx| tx.all("SELECT number, before FROM runs ORDER BY number", &[]));
            let of = |row: &Row| (row.get::<i64>(0).unwrap(), row.get::<Vec<u8>>(1).unwrap());
            rows.unwrap().iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(runs(&mut store), [(10, vec![1; 32]), (20, vec![3; 32])]);
        store.change(|change| change.remove_above(None, Keep::Newest(0)).map(drop)).unwrap();
        assert_eq!(runs(&mut store), []);
    }
}
