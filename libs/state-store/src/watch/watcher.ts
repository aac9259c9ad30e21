import type { StopSignal } from '@cloudless/base';
import type { Change, ChangeBatch, Revision } from '../state-store.js';
import type { WatchHub } from './watch-hub.js';

export interface WatchRequest {
  readonly prefix: string;
  readonly after: Revision;
  readonly signal?: StopSignal;
}

const DONE: IteratorResult<ChangeBatch, undefined> = { done: true, value: undefined };

/** One reader of a watch. Holds its position and the transactions of at most one read. */
export class Watcher implements AsyncIterator<ChangeBatch, undefined> {
  private position: Revision;
  private ready: readonly ChangeBatch[] = [];
  private readyIndex = 0;
  private started = false;
  private returned = false;
  private wake: (() => void) | undefined;
  private last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly hub: WatchHub,
    private readonly request: WatchRequest,
  ) {
    this.position = request.after;
  }

  /** Calls made before the previous one has settled are answered in order. */
  next(): Promise<IteratorResult<ChangeBatch, undefined>> {
    const result = this.last.then(() => this.readNext());
    this.last = result.catch(() => {
      this.returned = true; // like a generator: nothing follows an error
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
    while (!this.isOver()) {
      const value = this.ready[this.readyIndex];
      if (value !== undefined) {
        this.readyIndex += 1;
        return { done: false, value };
      }
      if (!this.read()) await this.sleep();
    }
    return DONE;
  }

  private isOver(): boolean {
    return this.returned || this.request.signal?.aborted === true || this.hub.hasEnded();
  }

  /** Reads from the position. @returns True when there were transactions, of any prefix. */
  private read(): boolean {
    if (!this.started) this.hub.checkStart(this.position);
    this.started = true;
    const batches = this.hub.readAfter(this.position);
    this.ready = batches
      .map((batch) => filterByPrefix(this.request.prefix, batch))
      .filter(({ changes }) => changes.length > 0);
    this.readyIndex = 0;
    this.position = batches.at(-1)?.revision ?? this.position;
    return batches.length > 0;
  }

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

function getChangedKey(change: Change): string {
  return change.kind === 'put' ? change.entry.key : change.key;
}
