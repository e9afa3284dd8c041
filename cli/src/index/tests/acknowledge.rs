//! Refused acknowledgements.

use super::*;
use ic_coppice_interface::Role;

#[test]
fn unregistered_exporter_gets_advice_to_register() {
    let (mut server, client) = (Sqlite::new(), chain(&[10]));
    let url = server.fresh();
    client.transport().chain().registered = false;
    let error = engine(&client, &url, options()).settle().unwrap_err().to_string();
    let principal = client.transport().principal(Role::Exporter).to_string();
    assert!(error.contains(&principal) && error.contains("register_exporter(record"), "{error}");
    let mut reader = engine(&client, &url, Options { ack_every: None, ..options() });
    reader.settle().unwrap();
    assert_eq!((reader.figures().acks, reader.tip()), (0, Some(10)));
}

#[test]
fn reorg_between_storing_and_acknowledging_is_followed() {
    let (mut server, client) = (Sqlite::new(), chain(&[10, 20]));
    let url = server.fresh();
    let mut engine = engine(&client, &url, options());
    // Block 11 is stored, then replaced before it is acknowledged.
    while engine.tip() != Some(11) {
        engine.step().unwrap();
    }
    client.transport().chain().roll_back_to(10);
    client.transport().chain().append(2, &[20]);
    // The next certificate shows the reorg.
    let notes = engine.settle().unwrap();
    assert!(notes.len() == 2 && notes[0].contains("not acknowledged") && notes[1].contains("reorganised"), "{notes:?}");
    assert_eq!(engine.figures().reorgs, 1);
    assert_eq!(client.transport().chain().bound, 12);
}
