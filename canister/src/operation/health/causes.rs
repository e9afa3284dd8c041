//! Causes before symptoms: the table of problems that hide others or come before them.

use super::finding::Raised;
use ic_coppice_interface::ProblemCode::{self, *};

/// A problem, and the problems that it causes.
struct Cause {
    code: ProblemCode,
    /// Problems whose only remedy is that of the cause; they are not reported while the cause is.
    hides: &'static [ProblemCode],
    /// Problems that come after the cause, within their severity, because they may clear with it.
    demotes: &'static [ProblemCode],
}

const fn cause(code: ProblemCode, hides: &'static [ProblemCode], demotes: &'static [ProblemCode]) -> Cause {
    Cause { code, hides, demotes }
}

/// Causes. `CyclesLow` has a row for each kind of its symptoms: what stops, what the chain suffers, what records suffer. A cause that
/// another one demotes has its symptoms in a row of that one, too.
const CAUSES: [Cause; 18] = [
    cause(CyclesLow, &[], &[TimersStopped, FeedingRefused, GrowthUnpaid, UpgradeUnpaid, NotReady, TimerOverdue]),
    cause(CyclesLow, &[], &[HeadStale, CapacityExhausted, PruneBehind, ExportHeld]),
    cause(CyclesLow, &[], &[PreservationBlocked, RollbackWaits, RecordsOverdue]),
    // Without cycles no timer fires, and `prune_now` is refused.
    cause(TimersStopped, &[TimerOverdue], &[NotReady, CapacityExhausted, PruneBehind, RecordsOverdue]),
    cause(FeedingRefused, &[], &[HeadStale]),
    cause(GrowthUnpaid, &[], &[PreservationBlocked, RollbackWaits, RecordsOverdue]),
    cause(ReservationLimit, &[], &[PreservationBlocked, RollbackWaits, RecordsOverdue]),
    cause(MemoryAtCap, &[], &[PreservationBlocked, RollbackWaits, RecordsOverdue]),
    cause(RecordsFull, &[], &[PreservationBlocked, RollbackWaits, RecordsOverdue]),
    cause(TimerOverdue, &[], &[CapacityExhausted, PruneBehind, RecordsOverdue]),
    cause(UploadStuck, &[UploadOpen], &[]),
    cause(ApplyingStopped, &[], &[ExportHeld]),
    cause(ExporterKeyless, &[], &[ExportHeld]),
    cause(DeletionsStopped, &[], &[ExportHeld, PruneBehind]),
    cause(HeightsAhead, &[], &[RecordsOverdue]),
    cause(HeightsRefused, &[], &[RecordsOverdue]),
    cause(UtxoPrunerOff, &[], &[RecordsOverdue]),
    cause(UtxoPrunerWaits, &[], &[RecordsOverdue]),
];

/// Removes hidden problems, and sorts the others: most severe first, and within a severity causes before what they cause.
pub(super) fn order(raised: &mut Vec<Raised>) {
    let causes: Vec<&Cause> =
        CAUSES.iter().filter(|cause| raised.iter().any(|(_, _, found)| found.code == cause.code)).collect();
    raised.retain(|(_, _, found)| !causes.iter().any(|cause| cause.hides.contains(&found.code)));
    raised.sort_by_key(|(severity, _, found)| {
        let above = causes.iter().filter(|cause| cause.demotes.contains(&found.code)).count();
        (*severity, above, found.code)
    });
}

#[cfg(test)]
mod tests {
    use super::super::{advice::advice, finding};
    use super::*;

    fn ordered(codes: &[ProblemCode]) -> Vec<ProblemCode> {
        let mut raised = codes.iter().map(|&code| (advice(code).0, None, finding(code, ""))).collect();
        order(&mut raised);
        raised.into_iter().map(|(_, _, found)| found.code).collect()
    }

    #[test]
    fn every_cause_comes_before_its_symptoms_of_the_same_severity() {
        for cause in &CAUSES {
            for &symptom in cause.demotes {
                for codes in [[cause.code, symptom], [symptom, cause.code]] {
                    let (of_cause, of_symptom) = (advice(cause.code).0, advice(symptom).0);
                    let first = if of_symptom < of_cause { symptom } else { cause.code };
                    assert_eq!(ordered(&codes)[0], first, "{codes:?}");
                }
            }
            for &hidden in cause.hides {
                assert_eq!(ordered(&[hidden, cause.code]), [cause.code]);
            }
        }
        // Among all problems, too.
        let all = ordered(&ProblemCode::ALL);
        for cause in &CAUSES {
            let at = |code: ProblemCode| all.iter().position(|of| *of == code);
            for symptom in cause.demotes.iter().filter(|symptom| advice(**symptom).0 == advice(cause.code).0) {
                assert!(
                    at(*symptom).is_none_or(|at_symptom| at(cause.code) < Some(at_symptom)),
                    "{:?}: {symptom:?}",
                    cause.code
                );
            }
        }
    }

    #[test]
    fn symptoms_of_a_demoted_cause_are_those_of_its_cause() {
        for cause in &CAUSES {
            let demotes =
                |of: &ProblemCode| CAUSES.iter().any(|row| row.code == cause.code && row.demotes.contains(of));
            for below in CAUSES.iter().filter(|below| cause.demotes.contains(&below.code)) {
                for symptom in below.demotes {
                    assert!(demotes(symptom), "{:?} over {:?}: {symptom:?}", cause.code, below.code);
                }
            }
        }
    }

    #[test]
    fn without_cycles_the_first_problem_names_them_and_no_timer_is_blamed() {
        let raised = [TimerOverdue, PruneBehind, CyclesLow, FeedingRefused, TimersStopped, UpgradeUnpaid, NotReady];
        let ordered = ordered(&raised);
        assert_eq!(ordered[0], CyclesLow);
        assert!(!ordered.contains(&TimerOverdue), "{ordered:?}");
        assert_eq!(ordered.len(), raised.len() - 1);
    }
}
