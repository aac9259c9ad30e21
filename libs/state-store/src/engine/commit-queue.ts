import { CloudlessError } from '@cloudless/base';
import { Draft } from './draft.js';
import type { LoggedTransaction, Storage } from './storage.js';

/**
 * Limit of commands in one group. Evaluating a command takes about 10 µs, so a group blocks the
 * event loop for at most about 40 ms.
 */
const MAX_GROUP_COMMANDS = 4_096;
/** Limit of the bytes of one group. Bounds memory and the size of one flush. */
const MAX_GROUP_BYTES = 8 * 1024 * 1024;

type Outcome =
  { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly reason: unknown };

interface Command {
  readonly bytes: number;
  readonly evaluate: (draft: Draft) => unknown;
  readonly settle: (outcome: Outcome) => void;
}

export interface CommitQueueOptions {
  readonly storage: Storage;
  /** Receives durable transactions before the promises of their callers settle. */
  readonly onCommitted: (transactions: readonly LoggedTransaction[]) => void;
  /**
   * Checks the files before and after each write.
   * @returns The reason why no write may be acknowledged; undefined while the files belong to this
   *   process.
   */
  readonly checkFiles: () => CloudlessError | undefined;
  /** Runs when a write failed because the disk is full. */
  readonly onDiskFull: () => void;
  /**
   * Runs when it is unknown whether a write was committed. All queued and later commands reject
   * with `reason`.
   */
  readonly onFailed: (reason: CloudlessError) => void;
}

/**
 * Group commit: evaluates all commands that wait when the storage begins a write, in order, in that
 * write. Uses no timers. A refused command, too, settles only after all commands before it are
 * durable.
 */
export class CommitQueue {
  private waiting: Command[] = [];
  private running: Promise<void> | undefined;
  private failure: CloudlessError | undefined;

  constructor(private readonly options: CommitQueueOptions) {}

  /**
   * Queues a command.
   * @param bytes - Approximate number of bytes that the command writes.
   * @param evaluate - Reads and writes the draft. Must throw a `conflict` or `notFound` only before
   *   its first write; any other error takes the store out of service.
   * @returns The result of `evaluate`, once its writes are durable. Rejects with the error of
   *   `evaluate` or of the write.
   */
  submit<T>(bytes: number, evaluate: (draft: Draft) => T): Promise<T> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    return new Promise<T>((resolve, reject) => {
      const settle = (outcome: Outcome): void =>
        outcome.ok ? resolve(outcome.value as T) : reject(outcome.reason);
      this.waiting.push({ bytes, evaluate, settle });
      this.running ??= this.run();
    });
  }

  /** Resolves when nothing is queued or being written. */
  async waitUntilIdle(): Promise<void> {
    while (this.running !== undefined) await this.running;
  }

  private async run(): Promise<void> {
    // commands submitted in the same event loop iteration share the first group
    await Promise.resolve();
    while (this.waiting.length > 0) await this.commit();
    this.running = undefined;
  }

  /**
   * Commits the next group in one storage write. The group is taken when the storage evaluates it,
   * so that commands queued by callers of the previous group are part of it.
   */
  private async commit(): Promise<void> {
    let group: readonly Command[] = [];
    const takeGroupOnce = (): readonly Command[] => {
      if (group.length === 0) group = this.takeGroup();
      return group;
    };
    if (this.refuseIfFilesLost(takeGroupOnce)) return;
    try {
      const { outcomes, transactions } = await this.options.storage.write((writer) =>
        evaluateGroup(new Draft(writer), takeGroupOnce()),
      );
      // the next start would not find the flushed data
      if (this.refuseIfFilesLost(takeGroupOnce)) return;
      if (transactions.length > 0) this.options.onCommitted(transactions);
      group.forEach(({ settle }, index) =>
        settle(outcomes[index] ?? { ok: false, reason: this.failure }),
      );
    } catch (reason) {
      if (this.refuseIfFilesLost(takeGroupOnce)) return;
      const isDiskFull = reason instanceof CloudlessError && reason.kind === 'exhausted';
      if (isDiskFull) this.options.onDiskFull();
      const refused = takeGroupOnce();
      const error = isDiskFull ? reason : this.fail(reason);
      for (const { settle } of refused) settle({ ok: false, reason: error });
    }
  }

  /**
   * Rejects the group when the files were lost.
   * @param takeGroupOnce - Called only then.
   * @returns True when the files were lost.
   */
  private refuseIfFilesLost(takeGroupOnce: () => readonly Command[]): boolean {
    const reason = this.options.checkFiles();
    for (const { settle } of reason === undefined ? [] : takeGroupOnce())
      settle({ ok: false, reason });
    return reason !== undefined;
  }

  /** Takes the queue out of service: rejects all queued commands, and all later ones. */
  private fail(cause: unknown): CloudlessError {
    const failure = new CloudlessError(
      'STORE_UNAVAILABLE',
      'the store is out of service: it is unknown whether the last write was committed; open the store again',
      { cause },
    );
    this.failure = failure;
    for (const { settle } of this.waiting.splice(0)) settle({ ok: false, reason: failure });
    this.options.onFailed(failure);
    return failure;
  }

  /** Removes the next group from the queue: at least one command, and more within the limits. */
  private takeGroup(): readonly Command[] {
    let bytes = 0;
    let count = 0;
    while (count < this.waiting.length && count < MAX_GROUP_COMMANDS) {
      bytes += this.waiting[count]?.bytes ?? 0;
      if (count > 0 && bytes > MAX_GROUP_BYTES) break;
      count += 1;
    }
    return this.waiting.splice(0, count);
  }
}

function evaluateGroup(
  draft: Draft,
  group: readonly Command[],
): { outcomes: Outcome[]; transactions: readonly LoggedTransaction[] } {
  const outcomes = group.map(({ evaluate }): Outcome => {
    try {
      return { ok: true, value: evaluate(draft) };
    } catch (reason) {
      if (reason instanceof CloudlessError && isRefusal(reason)) return { ok: false, reason };
      throw reason; // the storage failed midway: no write of the group may remain
    }
  });
  draft.finish();
  return { outcomes, transactions: draft.transactions };
}

/** Returns true when the error means that the command failed before its first write. */
function isRefusal(reason: CloudlessError): boolean {
  return reason.kind === 'conflict' || reason.kind === 'notFound';
}
