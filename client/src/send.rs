//! Blocks in as few messages as hold them: `append_blocks`, and other ways for blocks that no message holds together.

use crate::compress::compressed;
use crate::item::{Item, Size};
use crate::upload::{MOST_REFERENCES, references};
use crate::{CallError, Client, Error, Failure, Sent, Transport};
use ic_coppice_interface::{AppendBlock, AppendError, AppendStop, AppendedBlocks, UploadError};
use serde_bytes::ByteBuf;

/// Room of a message for blocks: bytes of its argument, at most 1.5 MB, the cost of decoding them, and transactions and keys, at most
/// 10,000.
///
/// ```
/// use ic_coppice_client::{Block, Room};
///
/// let block = Block::new(1, [1; 32], [0; 32], 1_700_000_000).body(vec![0; 1_000_000]).seal()?;
/// let mut room = Room::default();
/// assert_eq!([room.takes(&block), room.takes(&block)], [true, false]);
/// # Ok::<(), ic_coppice_client::SealError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    blocks: usize,
    taken: Size,
    references: u64,
}

impl Room {
    /// Takes the block into the message and returns true, or returns false if the message has no room for it.
    pub fn takes(&mut self, block: &AppendBlock) -> bool {
        let taken = self.taken + block.size();
        let references = self.references.saturating_add(references(&block.index));
        let fits = taken.fits(self.blocks + 1) && references <= MOST_REFERENCES;
        if fits {
            *self = Self { blocks: self.blocks + 1, taken, references };
        }
        fits
    }
}

impl Item for AppendBlock {
    fn size(&self) -> Size {
        const BLOCK: Size = Size { bytes: 64, units: 192 };
        let segments = [&self.body, &self.receipts, &self.index];
        let digests = [&self.sha256.body, &self.sha256.receipts, &self.sha256.index];
        let hashes = Size::of(&self.hash) + Size::of(&self.parent_hash);
        segments.into_iter().chain(digests).fold(BLOCK + hashes, |sum, bytes| sum + Size::of(bytes))
    }
}

/// Returns how many of the first blocks one message holds.
fn fitting(blocks: &[AppendBlock]) -> usize {
    let mut room = Room::default();
    blocks.iter().take_while(|block| room.takes(block)).count()
}

/// Blocks were appended up to the one before `number`.
#[derive(Debug, thiserror::Error)]
#[error("block {number} is not appended")]
pub struct Unsent {
    /// The number of the first block that is not appended.
    pub number: u64,
    /// The reason.
    #[source]
    pub error: Error<UploadError>,
}

impl<T: Transport> Client<T> {
    /// Appends blocks with consecutive numbers, in order: as many in a message as it has [`Room`] for, and each block that needs chunks by
    /// itself, as [`send_block`](Self::send_block) does. A message that traps is repeated with half of its blocks, so that a block that
    /// traps holds up only itself and the blocks after it. Returns how many blocks were sent in chunks. For producers.
    ///
    /// A repeated call is Ok: blocks that are kept already change nothing.
    ///
    /// # Errors
    /// [`Unsent`] when the canister refuses a block, or there is no answer. The blocks before it are appended.
    pub async fn send_blocks(&self, blocks: &[AppendBlock]) -> Result<u64, Unsent> {
        let (mut rest, mut most, mut in_chunks) = (blocks, usize::MAX, 0);
        while let [first, ..] = rest {
            let count = fitting(rest).min(most);
            if count <= 1 {
                let sent = self.send_block(first).await.map_err(|error| Unsent { number: first.number, error })?;
                in_chunks += u64::from(sent == Sent::InChunks);
                rest = &rest[1..];
                continue;
            }
            let list = &rest[..count];
            let (kept, stopped) = match self.append_list(list).await {
                Ok(answer) => answer,
                Err(error) if has_trapped(&error) => {
                    most = count / 2;
                    continue;
                }
                Err(error) => return Err(Unsent { number: first.number, error: error.into() }),
            };
            rest = &rest[kept..];
            if let (Some(AppendStop::Refused(error)), [refused, ..]) = (stopped, rest) {
                let number = refused.number;
                let AppendError::TooLarge { .. } = error else {
                    return Err(Unsent { number, error: Error::Refused(UploadError::Append(error)) });
                };
                self.send_in_chunks(refused).await.map_err(|error| Unsent { number, error })?;
                (rest, in_chunks) = (&rest[1..], in_chunks + 1);
            }
        }
        Ok(in_chunks)
    }

    /// Appends a block in one message, compressed if that costs the canister less.
    pub(crate) async fn append_single(&self, block: &AppendBlock) -> Result<(), Error<AppendError>> {
        let list = std::slice::from_ref(block);
        let Some(short) = compressed_list::<T>(list) else { return self.append_block(block).await };
        match answered(list, "append_compressed", self.append_compressed(short).await?)? {
            (_, Some(AppendStop::Refused(error))) => Err(Error::Refused(error)),
            _ => Ok(()),
        }
    }

    /// Appends a list of blocks in one message. Returns how many of its first blocks are kept, and the reason if these are not all.
    async fn append_list(&self, list: &[AppendBlock]) -> Result<(usize, Option<AppendStop>), CallError> {
        let (method, answer) = match compressed_list::<T>(list) {
            Some(short) => ("append_compressed", self.append_compressed(short).await?),
            None => ("append_blocks", self.update("append_blocks", (list,)).await?),
        };
        answered(list, method, answer)
    }
}

/// Returns how many of the first blocks of a list an answer reports as kept, and the reason if these are not all.
fn answered(
    list: &[AppendBlock],
    method: &str,
    AppendedBlocks { next, stopped }: AppendedBlocks,
) -> Result<(usize, Option<AppendStop>), CallError> {
    let kept = next.checked_sub(list[0].number).and_then(|kept| usize::try_from(kept).ok());
    match (&stopped, kept.filter(|kept| *kept <= list.len())) {
        (None, Some(kept)) if kept == list.len() => Ok((kept, None)),
        (Some(AppendStop::HasMore), Some(kept)) if (1..list.len()).contains(&kept) => Ok((kept, stopped)),
        (Some(AppendStop::Refused(_)), Some(kept)) if kept < list.len() => Ok((kept, stopped)),
        // The whole list is refused.
        (Some(AppendStop::Refused(_)), _) => Ok((0, stopped)),
        _ => {
            let why = format!("{} blocks sent, next is {next}, stopped: {stopped:?}", list.len());
            Err(CallError { method: method.into(), failure: Failure::Transport(why.into()) })
        }
    }
}

/// Returns the argument of `append_compressed`, if it costs the canister less than the plain blocks.
fn compressed_list<T: Transport>(list: &[AppendBlock]) -> Option<ByteBuf> {
    let argument = if T::INGRESS { candid::encode_one(list).ok()? } else { return None };
    compressed(&argument).map(ByteBuf::from)
}

/// Returns whether the message was executed and trapped. The IC has one reject code for traps and for missing methods.
fn has_trapped(error: &CallError) -> bool {
    let is_final = error.retry() == crate::Retry::Never;
    is_final && error.reject().is_some_and(|reject| reject.code == crate::Reject::CANISTER_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, block_on, noise};
    use crate::{Block, Reject, Retry};
    use ic_coppice_interface::*;

    fn blocks(count: u64, body: usize) -> Vec<AppendBlock> {
        let block = |number: u64| Block::new(number, [1; 32], [0; 32], 1).body(vec![7; body]).seal().unwrap();
        (5..5 + count).map(block).collect()
    }

    fn answer(next: u64, stopped: Option<AppendStop>) -> AppendedBlocks {
        AppendedBlocks { next, stopped }
    }

    fn send(script: Script, blocks: &[AppendBlock]) -> Result<u64, Unsent> {
        let client = Client::new(script);
        let sent = block_on(client.send_blocks(blocks));
        client.transport().ended();
        sent
    }

    const KEPT: Result<(), AppendError> = Ok(());

    fn trapped() -> Result<Vec<u8>, Failure> {
        Err(Failure::Rejected(Reject::new(5, None, "IC0503: Canister aaaaa-aa trapped".into())))
    }

    #[test]
    fn message_holds_as_many_blocks_as_its_bytes_and_references_allow() {
        assert_eq!(fitting(&blocks(9, 400_000)), 3);
        assert_eq!(fitting(&blocks(2, 1_600_000)), 0);
        assert_eq!(fitting(&[]), 0);
        let ids = |count| segments::encode_index(vec![[0; 32]; count].into_iter(), [].into_iter()).unwrap();
        let with = |count| AppendBlock { index: ByteBuf::from(ids(count)), ..AppendBlock::default() };
        assert_eq!(fitting(&[with(6_000), with(4_000), with(1)]), 2);
        // The estimate is an upper bound.
        let small = blocks(6_000, 3);
        let count = fitting(&small);
        let length = candid::encode_one(&small[..count]).unwrap().len();
        assert!(count > 3_000 && length < 1_500_000, "{count} blocks, {length} bytes");
    }

    #[test]
    fn blocks_are_sent_in_full_messages_and_a_single_one_by_itself() {
        let script = Script::default().answers("append_blocks", answer(8, None));
        let script = script.answers("append_blocks", answer(11, None)).answers("append_block", KEPT);
        assert_eq!(send(script, &blocks(7, 400_000)).unwrap(), 0);
        assert_eq!(send(Script::default(), &[]).unwrap(), 0);
        assert_eq!(send(Script::default().answers("append_block", KEPT), &blocks(1, 9)).unwrap(), 0);
    }

    #[test]
    fn rest_for_which_a_message_has_no_room_is_sent_in_the_next_one() {
        let script = Script::default().answers("append_blocks", answer(7, Some(AppendStop::HasMore)));
        assert_eq!(send(script.answers("append_blocks", answer(10, None)), &blocks(5, 9)).unwrap(), 0);
    }

    #[test]
    fn refused_block_ends_the_call_with_its_number() {
        let refused =
            |next, error| Script::default().answers("append_blocks", answer(next, Some(AppendStop::Refused(error))));
        let unsent = |script| send(script, &blocks(4, 9)).unwrap_err();
        let gap = AppendError::Gap { expected: 3 };
        for (next, number) in [(5, 5), (7, 7), (3, 5), (99, 5)] {
            let Unsent { number: found, error } = unsent(refused(next, gap.clone()));
            assert!(matches!(&error, Error::Refused(UploadError::Append(why)) if *why == gap), "{error:?}");
            assert_eq!((found, error.retry()), (number, Retry::Reorg), "{next}");
        }
        // Blocks of which the answer says nothing.
        for (next, stopped) in [(5, Some(AppendStop::HasMore)), (8, None), (9, Some(AppendStop::HasMore)), (10, None)] {
            let Unsent { number, error } = unsent(Script::default().answers("append_blocks", answer(next, stopped)));
            assert!(matches!(&error, Error::Call(CallError { failure: Failure::Transport(_), .. })), "{error:?}");
            assert_eq!(number, 5);
        }
    }

    #[test]
    fn block_that_no_message_has_room_for_is_uploaded_and_the_others_are_sent_together() {
        let no_room = AppendError::TooLarge { what: "references: upload the block".into(), limit: 9 };
        let script = Script::default()
            .answers("append_blocks", answer(6, Some(AppendStop::Refused(no_room))))
            .answers("begin_block", Ok::<_, AppendError>(UploadProgress { chunks: 0, missing: 0 }))
            .answers("commit_block", Ok::<_, UploadError>(Commit::Done))
            .answers("append_blocks", answer(9, None));
        assert_eq!(send(script, &blocks(4, 9)).unwrap(), 1);
    }

    /// The transport of a script, whose canister pays for bytes.
    struct Paid(Script);

    impl Transport for Paid {
        const INGRESS: bool = true;

        async fn update(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
            self.0.update(method, arg).await
        }

        async fn query(&self, method: &str, arg: Vec<u8>) -> Result<Vec<u8>, Failure> {
            self.0.query(method, arg).await
        }
    }

    #[test]
    fn blocks_are_compressed_if_that_costs_the_canister_less() {
        let plain = Block::new(9, [1; 32], [0; 32], 1).body(noise(9_000)).seal().unwrap();
        let gap = || AppendStop::Refused(AppendError::Gap { expected: 3 });
        let script = Script::default()
            .answers("append_compressed", answer(9, None))
            .answers("append_block", KEPT)
            .answers("append_compressed", answer(6, None))
            .answers("append_compressed", answer(5, Some(gap())))
            .answers("append_compressed", answer(5, None));
        let client = Client::new(Paid(script));
        block_on(client.send_blocks(&[blocks(4, 9_000), vec![plain.clone()]].concat()[..4])).unwrap();
        assert_eq!(block_on(client.send_block(&plain)).unwrap(), Sent::Whole);
        let [first] = &blocks(1, 9_000)[..] else { unreachable!() };
        assert_eq!(block_on(client.send_block(first)).unwrap(), Sent::Whole);
        let error = block_on(client.send_block(first)).unwrap_err();
        assert!(matches!(error, Error::Refused(UploadError::Append(AppendError::Gap { .. }))), "{error:?}");
        assert!(matches!(block_on(client.send_block(first)), Err(Error::Call(_))), "the block is not kept");
        client.transport().0.ended();
    }

    #[test]
    fn list_that_traps_is_halved_until_only_the_block_that_traps_is_left() {
        let list = |script: Script, next| script.answers("append_blocks", answer(next, None));
        let traps = |script: Script| script.returns("append_blocks", trapped());
        // Eight blocks from 5 on, of which block 10 traps.
        let script = traps(traps(list(traps(Script::default()), 9)));
        let script = script.answers("append_block", KEPT).returns("append_block", trapped());
        let Unsent { number, error } = send(script, &blocks(8, 9)).unwrap_err();
        assert_eq!((number, error.retry()), (10, Retry::Never));
        // A stopped canister has not trapped.
        let stopped = Reject::new(5, None, "IC0508: Canister aaaaa-aa is stopped".into());
        let script = Script::default().returns("append_blocks", Err(Failure::Rejected(stopped)));
        let Unsent { number, error } = send(script, &blocks(8, 9)).unwrap_err();
        assert_eq!((number, error.retry()), (5, Retry::Again));
    }
}
