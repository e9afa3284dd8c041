//! Heights, jobs, time, settings, upgrades and traps.

use super::super::history::Random;
use super::super::player::{PACES, Player};
use coppice_model::documents::Verdict;
use coppice_tests::client::Answered;
use ic_coppice_host::TrapPoint;
use ic_coppice_interface::*;

impl Player {
    pub(super) fn notify(&mut self, random: &mut Random) -> Verdict {
        self.tip += [0, 1, 1, 2, 3, 6, 12][random.below(7) as usize];
        let persisted = random.below(4) == 0;
        let height = if random.below(8) == 0 { self.tip.saturating_sub(5).max(1) } else { self.tip };
        self.note(format!("  notify {height}, persisted {persisted}"));
        let mined_set = random.below(6) > 0;
        let answer = self.call(|coppice| {
            let producer = coppice.producer();
            if persisted {
                producer.utxo_notify_block_persisted(height).try_answer()
            } else {
                producer.utxo_notify_block(height, mined_set).try_answer()
            }
        })?;
        let Some(answer) = answer else { return Ok(()) };
        answer.map_err(|error| format!("{height} is refused: {error:?}"))?;
        self.store.current = self.store.current.max(height);
        if persisted {
            self.store.persisted = self.store.persisted.max(Some(height));
        }
        self.judge_run()
    }

    pub(super) fn utxo_set_heights(&mut self, random: &mut Random) -> Verdict {
        let current = self.tip.saturating_sub(random.below(8) as u32).max(1);
        let persisted = (random.below(3) == 0).then(|| current.saturating_sub(random.below(5) as u32).max(1));
        let processed = persisted.unwrap_or(current).saturating_sub(random.below(10) as u32);
        let heights = UtxoSetHeights { current, persisted, processed };
        self.note(format!("  utxo_set_heights {heights:?}"));
        let Some(answer) = self.call(|coppice| coppice.operator().utxo_set_heights(&heights).try_answer())? else {
            return Ok(());
        };
        let set = answer.map_err(|error| format!("{heights:?} is refused: {error:?}"))?;
        if set.heights != heights {
            return Err(format!("the answer to {heights:?} is {:?}", set.heights));
        }
        (self.store.current, self.store.persisted) = (current, persisted);
        self.judge_run()
    }

    pub(super) fn prune(&mut self, random: &mut Random) -> Verdict {
        let height = match random.below(8) {
            0 => self.store.current + 1 + random.below(20) as u32,
            1 => 0,
            2 => self.store.current.saturating_sub(random.below(8) as u32),
            _ => self.store.current,
        };
        self.note(format!("  utxo_prune {height}"));
        let assembly = self.status().block_assembly;
        let Some(answer) = self.call(|coppice| coppice.operator().utxo_prune(height).try_answer())? else {
            return Ok(());
        };
        let current = self.store.current;
        // The documents do not define which of several reasons is named.
        let reasons = [
            (height == 0, UtxoPrunerError::BadHeight(BadHeight::Zero)),
            (current > 0 && height > current, UtxoPrunerError::BadHeight(BadHeight::TooHigh { most: current })),
            (assembly == UtxoBlockAssemblyState::NotRunning, UtxoPrunerError::BlockAssemblyNotRunning),
        ];
        let expected: Vec<_> = reasons.into_iter().filter(|(is, _)| *is).map(|(_, error)| error).collect();
        let is = answer.as_ref().err().map_or(expected.is_empty(), |error| expected.contains(error));
        if !is {
            return Err(format!("the answer is {answer:?}, expected a refusal with one of {expected:?}"));
        }
        self.saw("a manual run", u64::from(answer.is_ok()));
        self.judge_run()
    }

    pub(super) fn cancel(&mut self) -> Verdict {
        let open = self.status().running.as_ref().or(self.status().pending.as_ref()).map(|job| job.id);
        let id = open.unwrap_or(1);
        self.note(format!("  utxo_cancel_prune_job {id}"));
        let Some(answer) = self.call(|coppice| coppice.operator().utxo_cancel_prune_job(id).try_answer())? else {
            return Ok(());
        };
        match (open, answer) {
            (Some(_), Ok(_)) => self.saw("a cancelled job", 1),
            (None, Err(UtxoPrunerError::NotOpen)) => {}
            (_, answer) => return Err(format!("answered {answer:?}")),
        }
        self.judge()
    }

    pub(super) fn assembly(&mut self, random: &mut Random) -> Verdict {
        let running = random.below(3) > 0;
        let state = if running { UtxoBlockAssemblyState::Running } else { UtxoBlockAssemblyState::NotRunning };
        let height = (random.below(2) == 0).then(|| self.tip.saturating_sub(random.below(4) as u32));
        self.note(format!("  utxo_set_block_assembly_state {state:?} {height:?}"));
        let answer =
            self.call(|coppice| coppice.producer().utxo_set_block_assembly_state(state, height).try_answer())?;
        if answer.is_some() {
            self.store.assembly = height;
        }
        self.judge_run()
    }

    pub(super) fn some_time(&mut self, random: &mut Random) -> Verdict {
        let secs = [1, 10, 10, 10, 30][random.below(5) as usize];
        self.note(format!("  {secs} s pass"));
        (0..=random.below(3)).try_for_each(|_| self.pass(secs))
    }

    pub(super) fn settings(&mut self, random: &mut Random) -> Verdict {
        let retention = 10 + random.below(4) as u32;
        let instructions = PACES[random.below(4) as usize];
        let timeout = [15, 30, 600][random.below(3) as usize];
        self.note(format!(
            "  block_height_retention {retention}, max_instructions_per_tick {instructions}, job_timeout_secs {timeout}"
        ));
        let utxo = UtxoSettingsChange { block_height_retention: Some(retention), ..UtxoSettingsChange::default() };
        let change = ConfigChange { utxo: Some(utxo), ..ConfigChange::default() };
        let Some(answer) = self.call(|coppice| coppice.operator().set_config(&change).try_answer())? else {
            return Ok(());
        };
        answer.map_err(|error| format!("{error:?}"))?;
        self.store.rules.retention = retention;
        self.store.rules.unmined = retention / 2;
        self.judge_run()?;
        self.set_pace(instructions, Some(timeout))
    }

    /// Sets how much a tick does, and how long a job may take.
    fn set_pace(&mut self, instructions: u64, timeout: Option<u64>) -> Verdict {
        let change = UtxoPrunerSettingsChange {
            max_instructions_per_tick: Some(instructions),
            job_timeout_secs: timeout,
            ..UtxoPrunerSettingsChange::default()
        };
        let answer = self.call(|coppice| coppice.operator().utxo_set_pruner_settings(&change).try_answer())?;
        answer.transpose().map_err(|error| format!("{error:?}"))?;
        self.judge_run()
    }

    pub(super) fn upgrade(&mut self) -> Verdict {
        self.note("  upgrade".into());
        self.coppice.upgrade();
        self.store.message += 1;
        self.saw("an upgrade", 1);
        self.judge_run()
    }

    pub(super) fn set_trap(&mut self, random: &mut Random) {
        let point = match random.below(5) {
            0 => TrapPoint::Start,
            1 => TrapPoint::End,
            2 => TrapPoint::Instructions(1_000 + random.below(400_000)),
            _ => TrapPoint::SystemCall(1 + random.below(60)),
        };
        self.trap = Some((1 + random.below(3), point));
    }
}

impl Player {
    /// The end of a history: the block assembly runs, and all due records are deleted.
    pub fn end(&mut self) -> Verdict {
        self.trap = None;
        self.note("the end".into());
        self.coppice.producer().utxo_set_block_assembly_state(UtxoBlockAssemblyState::Running, None).answer();
        self.store.assembly = None;
        self.set_pace(PACES[3], None)?;
        self.tip = self.tip.max(self.store.current) + 12;
        let height = self.tip;
        let answer = self.call(|coppice| coppice.producer().utxo_notify_block_persisted(height).try_answer())?;
        answer.transpose().map_err(|error| format!("{error:?}"))?;
        self.store.current = self.store.current.max(height);
        self.store.persisted = self.store.persisted.max(Some(height));
        self.judge_run()?;
        for _ in 0..200 {
            self.pass(10)?;
            if self.status().running.is_none() && self.status().pending.is_none() {
                return Ok(());
            }
            // A producer's next call wakes a timer that a trap has lost (`docs/design/pruning.md`). Nothing else loses a timer.
            let problems = self.coppice.anyone().health().answer().problems;
            if problems.iter().any(|problem| problem.code == ProblemCode::TimerOverdue) {
                if !self.has_trapped() {
                    return Err("a timer is overdue, and nothing has trapped".into());
                }
                let answer =
                    self.call(|coppice| coppice.producer().utxo_notify_block_persisted(height).try_answer())?;
                answer.transpose().map_err(|error| format!("{error:?}"))?;
                self.judge_run()?;
            }
        }
        Err("the last job does not end".into())
    }
}
