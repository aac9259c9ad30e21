import { TransientSet } from '@cloudless/base';
import type { Change } from '@cloudless/state-store';
import type { RecordPut, RecordWrite } from '../transaction/transaction.js';

const NO_PUTS: readonly (RecordPut | undefined)[] = [];

/**
 * The transactions of this process that are being committed. The view takes their records instead of
 * decoding their bytes, when the store delivers the very bytes that the records were encoded to.
 */
export class OwnWrites {
  /** Oldest first. */
  private readonly transactions = new TransientSet<readonly RecordWrite[]>();

  /**
   * Adds the writes of a transaction.
   * @returns A function that removes them. Call it when the commit has ended.
   */
  add(writes: readonly RecordWrite[]): () => void {
    this.transactions.add(writes);
    return () => this.transactions.delete(writes);
  }

  /**
   * Finds the puts that the changes of one batch were made by, and removes their transaction.
   * @returns At the index of each change its put, undefined for a deletion. An empty list when no
   *   transaction that is being committed has the first put of the batch: when another process made
   *   the changes, or all of them are deletions.
   */
  takePuts(changes: readonly Change[]): readonly (RecordPut | undefined)[] {
    const writes = this.takeTransaction(changes);
    if (writes === undefined) return NO_PUTS;
    let next = 0;
    // Both lists have the same order, but the deletion of an absent key is no change.
    return changes.map((change) => {
      if (change.kind === 'delete') return undefined;
      const { value } = change.entry;
      for (let index = next; index < writes.length; index += 1) {
        const write = writes[index];
        if (!isPutOf(write, value)) continue;
        next = index + 1;
        return write;
      }
      return undefined;
    });
  }

  /** Removes the transaction whose first put is the first put of a batch, and returns its writes. */
  private takeTransaction(changes: readonly Change[]): readonly RecordWrite[] | undefined {
    const first = changes.find((change) => change.kind === 'put');
    if (first === undefined) return undefined;
    // Most stores commit transactions in the order of the calls: the search ends early.
    for (const writes of this.transactions) {
      const put = writes.find((write) => 'put' in write);
      if (!isPutOf(put, first.entry.value)) continue;
      this.transactions.delete(writes);
      return writes;
    }
    return undefined;
  }
}

function isPutOf(write: RecordWrite | undefined, value: Uint8Array): write is RecordPut {
  return write !== undefined && 'put' in write && write.value === value;
}
