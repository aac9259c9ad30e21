import type { StopSignal } from '@cloudless/base';
import type { ChangeBatch, Revision } from '../state-store.js';
import { getChangedKey } from '../validate.js';
import type { WatchHub } from './watch-hub.js';

/** Argument of `StateStore.watch`. */
export interface WatchRequest {
  readonly prefix: string;
  /** Only changes of later revisions. */
  readonly after: Revision;
  /** Ends the watch without error when aborted. */
  readonly signal?: StopSignal;
}

const DONE: IteratorResult<ChangeBatch, undefined> = { done: true, value: undefined };

/** Iterator of one watch. Holds its position and the transactions of at most one read. */
export class Watcher implements AsyncIterator<ChangeBatch, undefined> {
  /** Revision up to which the hub was read. */
  private position: Revision;
  private batches: readonly ChangeBatch[] = [];
  private nextIndex = 0;
  private started = false;
  private returned = false;
  private wake: (() => void) | undefined;
  private previousCall: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly hub: WatchHub,
    private readonly request: WatchRequest,
  ) {
    this.position = request.after;
  }

  /** Concurrent calls are served one after the other, in the order of the calls. */
  next(): Promise<IteratorResult<ChangeBatch, undefined>> {
    const result = this.previousCall.then(() => this.readNext());
    this.previousCall = result.catch(() => {
      this.returned = true; // as in a generator, nothing follows an error
    });
    return result;
  }

  /** Ends the watch, also during a pending {@link Watcher.next}. */
  return(): Promise<IteratorResult<ChangeBatch, undefined>> {
    this.returned = true;
    this.wake?.();
    return Promise.resolve(DONE);
  }

  private async readNext(): Promise<IteratorResult<ChangeBatch, undefined>> {
    while (!this.hasEnded()) {
      const value = this.batches[this.nextIndex];
      if (value !== undefined) {
        this.nextIndex += 1;
        return { done: false, value };
      }
      if (!this.read()) await this.sleep();
    }
    return DONE;
  }

  private hasEnded(): boolean {
    return this.returned || this.request.signal?.aborted === true || this.hub.hasEnded();
  }

  /**
   * Reads the next transactions from the hub.
   * @returns True when there were transactions, also if none of them is under the prefix.
   */
  private read(): boolean {
    if (!this.started) this.hub.checkStart(this.position);
    this.started = true;
    const unfiltered = this.hub.readAfter(this.position);
    this.batches = unfiltered
      .map((batch) => filterByPrefix(this.request.prefix, batch))
      .filter(({ changes }) => changes.length > 0);
    this.nextIndex = 0;
    this.position = unfiltered.at(-1)?.revision ?? this.position;
    return unfiltered.length > 0;
  }

  /** Resolves at the next publication, when the hub ends, on `return` and on the signal. */
  private async sleep(): Promise<void> {
    const { signal } = this.request;
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      this.hub.onNext(resolve);
      signal?.addEventListener('abort', resolve, { once: true });
    });
    if (this.wake === undefined) return;
    this.hub.cancelOnNext(this.wake);
    signal?.removeEventListener('abort', this.wake);
    this.wake = undefined;
  }
}

function filterByPrefix(prefix: string, batch: ChangeBatch): ChangeBatch {
  if (prefix === '') return batch;
  return {
    revision: batch.revision,
    changes: batch.changes.filter((change) => getChangedKey(change).startsWith(prefix)),
  };
}
