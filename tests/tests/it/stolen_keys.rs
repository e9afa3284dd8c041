//! The table of stolen keys, in `SECURITY.md` and `docs/operations.md`, compared with the access table: a role or a method in only one of
//! them fails the test.

use coppice_interface::Role;
use coppice_interface::methods::TABLE;
use std::collections::BTreeSet;
use std::path::Path;

/// The lines of a page's table.
fn table(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.starts_with("| role | give it to |"));
    lines.take_while(|line| line.starts_with('|')).collect()
}

/// The names in code style in a cell, without arguments.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).map(|name| name.split('(').next().unwrap_or(name)).collect()
}

/// The roles that may call a method, any of which suffices; `None` if there is no such method, or if anyone may call it.
fn roles_of(method: &str) -> Option<&'static [Role]> {
    TABLE.iter().find(|of| of.name == method).map(|of| of.roles).filter(|roles| !roles.is_empty())
}

fn methods_of(role: Role) -> BTreeSet<&'static str> {
    let names = TABLE.iter().map(|of| of.name);
    names.filter(|name| roles_of(name).is_some_and(|roles| roles.contains(&role))).collect()
}

/// The methods that a cell names, directly or by a role.
fn methods_named(cell: &str) -> BTreeSet<&str> {
    let role = |name: &str| Role::ALL.into_iter().find(|role| format!("{role:?}") == name);
    names(cell)
        .into_iter()
        .flat_map(|name| role(name).map_or_else(|| vec![name], |role| methods_of(role).into_iter().collect()))
        .collect()
}

/// Returns the faults of the table: missing, superfluous and wrong entries.
fn problems(rows: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let cells =
        |row: &str| -> Vec<String> { row.trim_matches('|').split(" | ").map(|cell| cell.trim().into()).collect() };
    let rows: Vec<Vec<String>> = rows.iter().skip(2).map(|row| cells(row)).collect();
    let mut wanted: Vec<(String, Vec<Role>)> =
        Role::ALL.map(|role| (format!("`{role:?}`"), vec![role])).into_iter().collect();
    wanted.push(("controllers".into(), vec![Role::Operator, Role::Admin]));
    for row in rows.iter().filter(|row| !wanted.iter().any(|(name, _)| *name == row[0])) {
        found.push(format!("{} is no role", row[0]));
    }
    for (name, roles) in wanted {
        let mut its = rows.iter().filter(|row| row[0] == name);
        let (Some(row), None) = (its.next(), its.next()) else {
            found.push(format!("{name} has not one row"));
            continue;
        };
        let [_, holder, may, worst, lever] = row.as_slice() else {
            found.push(format!("{name} has not five cells"));
            continue;
        };
        if holder.is_empty() || worst.is_empty() {
            found.push(format!("{name}: an empty cell"));
        }
        let all: BTreeSet<&str> = roles.iter().flat_map(|&role| methods_of(role)).collect();
        found.extend(all.symmetric_difference(&methods_named(may)).map(|method| format!("{name}: {method}")));
        // Another role must have the remedy, or a controller, who stands above all roles.
        let of_others = |method: &str| roles_of(method).is_some_and(|may| may.iter().any(|role| !roles.contains(role)));
        if !names(lever).into_iter().any(of_others) && !lever.contains("controller") {
            found.push(format!("{name}: no other role has the remedy"));
        }
        let unknown = names(lever).into_iter().filter(|name| roles_of(name).is_none());
        found.extend(unknown.map(|method| format!("{name}: the lever {method} is no role's method")));
    }
    found
}

#[test]
fn each_role_is_listed_with_its_methods_worst_case_and_anothers_remedy() {
    let read =
        |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap();
    let (security, operations) = (read("SECURITY.md"), read("docs/operations.md"));
    assert_eq!(table(&security), table(&operations), "the table of both pages is the same");
    assert_eq!(problems(&table(&security)), [""; 0]);
    // The check finds each planted fault.
    for (from, to, finds) in [
        ("| `Alert` |", "| `Alarm` |", vec!["`Alarm` is no role", "`Alert` has not one row"]),
        ("`utxo_freeze`, ", "", vec!["`Alert`: utxo_freeze"]),
        ("`ack_exported`", "`ack_exported`, `prune_now`", vec!["`Exporter`: prune_now"]),
        ("| auditors |", "|  |", vec!["`Observer`: an empty cell"]),
        ("all of `Operator` and `Admin`", "all of `Admin`", vec!["controllers: abort_block"]),
        ("| `revoke_role` |", "| `get_audit_log` |", vec![]),
        ("| `revoke_role` |", "| `forget_it` |", vec!["`Observer`: no other role has the remedy"]),
        ("by a controller, whose rights no admin takes", "", vec!["`Admin`: no other role has the remedy"]),
    ] {
        assert!(security.contains(from), "nothing to plant in: {from}");
        let planted = security.replace(from, to);
        let found = problems(&table(&planted));
        for finding in &finds {
            assert!(found.iter().any(|found| found == finding), "{to}: {found:?}");
        }
        assert_eq!(found.is_empty(), finds.is_empty(), "{to}: {found:?}");
    }
}
