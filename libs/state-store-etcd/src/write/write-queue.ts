import { CloudlessError } from '@cloudless/base';
import { RevisionConflictError, type Committed, type Revision } from '@cloudless/state-store';
import type { TxnResponse } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import { GroupPlanner, type PlannedTransaction } from './plan-group.js';
import type { Transaction, TxnCodec } from './txn-request.js';

/** Bytes that the encoding adds to each compare and operation, at most. */
const ENCODING_BYTES = 64;
/**
 * Groups in flight. More of them would be smaller: what arrives while a group is in flight becomes
 * the next one. A few keep etcd busy between answer and next request.
 */
const MAX_GROUPS_IN_FLIGHT = 4;

interface QueuedTransaction extends PlannedTransaction, Transaction {
  /** Grows with each submitted transaction. */
  readonly sequence: number;
  readonly settle: (result: Committed | CloudlessError) => void;
}

export interface WriteQueueOptions {
  readonly codec: TxnCodec;
  /** Bytes of the prefix of all keys in etcd. */
  readonly prefixBytes: number;
  /** Makes one call. A rejection with kind `unavailable` or `deadline` means an unknown outcome. */
  readonly send: (request: ReturnType<TxnCodec['toRequest']>) => Promise<TxnResponse>;
  /** Receives each group with its result, before the promises of the callers settle. */
  readonly onCommitted: (committed: Committed, group: readonly Transaction[]) => void;
  /** Receives the error of each group that failed as a whole. */
  readonly onFailed: (reason: CloudlessError) => void;
}

/**
 * Sends transactions to etcd, independent ones together. Each transaction is sent exactly once; when
 * the outcome is unknown, its caller gets that error.
 */
export class WriteQueue {
  private readonly planner = new GroupPlanner<QueuedTransaction>();
  private submitted = 0;
  private groupsInFlight = 0;
  private isScheduled = false;
  private idleWaiters: (() => void)[] = [];

  constructor(private readonly options: WriteQueueOptions) {}

  /**
   * Queues a transaction.
   * @param bytes - Bytes of its keys and values.
   * @returns Its result. Rejects with the conflict, or with the error of the call.
   */
  submit(transaction: Transaction, bytes: number): Promise<Committed> {
    const { compares, operations } = transaction;
    const parts = 2 * compares.length + operations.length;
    return new Promise((resolve, reject) => {
      this.planner.add({
        ...transaction,
        sequence: (this.submitted += 1),
        compared: compares.map(({ key }) => key),
        written: operations.map((operation) =>
          'put' in operation ? operation.put : operation.delete,
        ),
        bytes: 2 * bytes - countValueBytes(transaction) + parts * this.partBytes + ENCODING_BYTES,
        mayFailGroup: operations.some(
          (operation) => 'put' in operation && operation.lease !== undefined,
        ),
        settle: (result) => (result instanceof CloudlessError ? reject(result) : resolve(result)),
      });
      this.schedule();
    });
  }

  /** Resolves when nothing waits and nothing is in flight. */
  async waitUntilIdle(): Promise<void> {
    while (this.groupsInFlight > 0 || this.planner.waitingCount > 0)
      await new Promise<void>((resolve) => this.idleWaiters.push(resolve));
  }

  private get partBytes(): number {
    return this.options.prefixBytes + ENCODING_BYTES;
  }

  /** Transactions of the same turn of the event loop share the first group. */
  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    queueMicrotask(() => {
      this.isScheduled = false;
      this.sendGroups();
    });
  }

  private sendGroups(): void {
    while (this.groupsInFlight < MAX_GROUPS_IN_FLIGHT && this.planner.waitingCount > 0) {
      const group = this.planner.take();
      if (group.length === 0) return;
      this.groupsInFlight += 1;
      void this.sendGroup(group);
    }
  }

  private async sendGroup(group: readonly QueuedTransaction[]): Promise<void> {
    const submittedBefore = this.submitted;
    const results = await this.commit(group);
    this.planner.release(group);
    this.groupsInFlight -= 1;
    this.refuseOutdated(group, results, submittedBefore);
    for (const [index, { settle }] of group.entries())
      settle(results[index] ?? new CloudlessError('internal', 'a transaction has no result'));
    this.sendGroups();
    if (this.groupsInFlight === 0 && this.planner.waitingCount === 0)
      for (const resolve of this.idleWaiters.splice(0)) resolve();
  }

  /**
   * Refuses waiting transactions that compare a key with another revision than the one that this
   * group gave to the key, if they were submitted before the group was sent: the state after the
   * group is one of those that existed during their call. Saves one round trip for each of many
   * writers of one key.
   */
  private refuseOutdated(
    group: readonly QueuedTransaction[],
    results: readonly (Committed | CloudlessError)[],
    submittedBefore: number,
  ): void {
    if (this.planner.waitingCount === 0) return;
    const revisions = new Map<string, Revision | 'absent'>();
    for (const [index, { operations }] of group.entries()) {
      const result = results[index];
      if (result === undefined || result instanceof CloudlessError) continue;
      for (const operation of operations) {
        if ('put' in operation) revisions.set(operation.put, result.revision);
        else revisions.set(operation.delete, 'absent');
      }
    }
    const written = new Set(revisions.keys());
    const toConflict = (waiting: QueuedTransaction): RevisionConflictError | undefined => {
      if (waiting.sequence > submittedBefore) return undefined;
      for (const { key, is } of waiting.compares) {
        const changedAt = revisions.get(key);
        if (changedAt !== undefined && changedAt !== is)
          return new RevisionConflictError(key, is, changedAt);
      }
      return undefined;
    };
    for (const item of this.planner.remove(
      written,
      (waiting) => toConflict(waiting) !== undefined,
    )) {
      const conflict = toConflict(item);
      if (conflict !== undefined) item.settle(conflict);
    }
  }

  private async commit(
    group: readonly QueuedTransaction[],
  ): Promise<readonly (Committed | CloudlessError)[]> {
    const { codec, send, onCommitted, onFailed } = this.options;
    try {
      const results = codec.fromResponse(group, await send(codec.toRequest(group)));
      const applied = group.filter((_, index) => !(results[index] instanceof CloudlessError));
      const committed = results.find((result) => !(result instanceof CloudlessError));
      if (committed !== undefined && 'revision' in committed) onCommitted(committed, applied);
      return results;
    } catch (reason) {
      const error =
        reason instanceof CloudlessError
          ? reason
          : new CloudlessError('STORE_UNAVAILABLE', 'a write to etcd failed', { cause: reason });
      onFailed(error);
      return group.map(() => error);
    }
  }
}

/** Values are sent once; compared keys twice. */
function countValueBytes({ operations }: Transaction): number {
  return operations.reduce(
    (sum, operation) => sum + ('put' in operation ? operation.value.byteLength : 0),
    0,
  );
}
