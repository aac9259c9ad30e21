import { CloudlessError } from '@cloudless/base';
import { Draft } from './draft.js';
import type { LoggedTransaction, Storage } from './storage.js';

/**
 * Commands in one group. Bounds how long the event loop is held while they are evaluated: about 10
 * µs each.
 */
const MAX_GROUP_COMMANDS = 4_096;
/** Bytes of keys and values in one group. Bounds memory, and what one flush has to write. */
const MAX_GROUP_BYTES = 8 * 1024 * 1024;

type Outcome =
  { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly reason: unknown };

interface Command {
  readonly bytes: number;
  readonly evaluate: (draft: Draft) => unknown;
  readonly settle: (outcome: Outcome) => void;
}

/** Needs of a {@link CommitQueue}. */
export interface CommitQueueOptions {
  readonly storage: Storage;
  /** Called with what became durable, before the callers hear of it. */
  readonly onCommitted: (transactions: readonly LoggedTransaction[]) => void;
  /** Checks the files. @returns Why nothing may be acknowledged; undefined while they are ours. */
  readonly look: () => CloudlessError | undefined;
  /** Called when a write found no room. */
  readonly onExhausted: () => void;
  /**
   * Called when it is unknown what was committed. Everything queued is rejected with this error.
   */
  readonly onFailed: (reason: CloudlessError) => void;
}

/**
 * Group commit: evaluates, in order and in one storage write, everything that was queued while the
 * last write ran. No timers. Refusals too are told only once all that was evaluated before them is
 * durable.
 */
export class CommitQueue {
  private waiting: Command[] = [];
  private running: Promise<void> | undefined;
  private failure: CloudlessError | undefined;

  constructor(private readonly options: CommitQueueOptions) {}

  /**
   * @param bytes - Roughly what it writes. @returns What `evaluate` returned, once it is durable;
   * rejects with what it threw.
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

  /** Resolves when nothing is queued or under way. */
  async idle(): Promise<void> {
    while (this.running !== undefined) await this.running;
  }

  private async run(): Promise<void> {
    await Promise.resolve(); // what is submitted in the same turn shares the first group
    while (this.waiting.length > 0) await this.commit(this.takeGroup());
    this.running = undefined;
  }

  private async commit(group: readonly Command[]): Promise<void> {
    if (this.refuse(group)) return;
    try {
      const { outcomes, transactions } = await this.options.storage.write((writer) =>
        evaluateGroup(new Draft(writer), group),
      );
      if (this.refuse(group)) return; // what was flushed is not where the next start looks for it
      if (transactions.length > 0) this.options.onCommitted(transactions);
      group.forEach(({ settle }, index) =>
        settle(outcomes[index] ?? { ok: false, reason: this.failure }),
      );
    } catch (reason) {
      if (this.refuse(group)) return;
      const known = reason instanceof CloudlessError && reason.kind === 'exhausted';
      if (known) this.options.onExhausted();
      const error = known ? reason : this.fail(reason);
      for (const { settle } of group) settle({ ok: false, reason: error });
    }
  }

  /** Rejects the group when the files were lost. @returns Whether they were. */
  private refuse(group: readonly Command[]): boolean {
    const reason = this.options.look();
    for (const { settle } of reason === undefined ? [] : group) settle({ ok: false, reason });
    return reason !== undefined;
  }

  private fail(cause: unknown): CloudlessError {
    const failure = new CloudlessError(
      'unavailable',
      'the store is out of service: it is unknown whether the last write was committed',
      { cause },
    );
    this.failure = failure;
    for (const { settle } of this.waiting.splice(0)) settle({ ok: false, reason: failure });
    this.options.onFailed(failure);
    return failure;
  }

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
      throw reason; // the storage failed in the middle: nothing of the group may remain
    }
  });
  draft.finish();
  return { outcomes, transactions: draft.transactions };
}

/** Errors that a command throws before it has written anything. */
function isRefusal(reason: CloudlessError): boolean {
  return reason.kind === 'conflict' || reason.kind === 'notFound';
}
