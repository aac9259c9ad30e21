import {
  CloudlessError,
  backoffDelayMs,
  errorFields,
  errorKindOf,
  sleep,
  type Clock,
  type Log,
  type StopSignal,
} from '@cloudless/base';
import type { ChangeBatch, Revision } from '@cloudless/state-store';
import type { EtcdClient } from '../client/etcd-client.js';
import type { WatchResponse } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import type { KeySpace, RevisionMap } from '../store/key-space.js';
import { BatchAssembler, type EntryCodec } from './batch-assembler.js';
import type { ProgressMarker } from './progress-marker.js';
import { WatchStream } from './watch-stream.js';

export interface WatcherDeps {
  readonly client: EtcdClient;
  readonly keys: KeySpace;
  readonly revisions: RevisionMap;
  readonly codec: EntryCodec;
  readonly clock: Clock;
  readonly log: Log;
  /** The newest revision that any member can have. */
  readonly readRevision: () => Promise<Revision>;
  /** Lets watches of all keys reach each revision that readers know. */
  readonly marker: ProgressMarker;
  /** Aborted when the store is closed. */
  readonly closed: AbortSignal;
}

export interface WatchRequest {
  readonly prefix: string;
  readonly after: Revision;
  readonly signal?: StopSignal;
}

/** Delay before a watch continues at another member. */
const RESUME_DELAY = { firstMs: 20, maxMs: 1_000 };
const DONE: IteratorResult<ChangeBatch, undefined> = { done: true, value: undefined };

/**
 * One watch: an etcd watch that continues after the last delivered revision when its member fails.
 * Reads the next response only when the reader has taken the last one, so a slow reader holds back
 * etcd, and not memory here.
 */
export class EtcdWatcher implements AsyncIterator<ChangeBatch, undefined> {
  /** Revision up to which everything was delivered, or is in `batches`. */
  position: Revision;
  /** True while the reader waits for etcd. */
  isWaiting = false;
  private batches: readonly ChangeBatch[] = [];
  private nextIndex = 0;
  private stream: WatchStream | undefined;
  private assembler: BatchAssembler;
  private isStarted = false;
  private failures = 0;
  private readonly ending = new AbortController();
  private previousCall: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly deps: WatcherDeps,
    private readonly request: WatchRequest,
  ) {
    this.position = request.after;
    this.assembler = new BatchAssembler(deps.codec);
    const leave = request.prefix === '' ? deps.marker.add(this) : undefined;
    this.ending.signal.addEventListener('abort', () => leave?.());
    const end = (): void => this.end();
    for (const signal of [deps.closed, request.signal]) {
      if (signal?.aborted) this.end();
      else signal?.addEventListener('abort', end, { once: true });
    }
    this.ending.signal.addEventListener('abort', () => {
      deps.closed.removeEventListener('abort', end);
      request.signal?.removeEventListener('abort', end);
    });
  }

  /** Concurrent calls are served one after the other, in the order of the calls. */
  next(): Promise<IteratorResult<ChangeBatch, undefined>> {
    const result = this.previousCall.then(() => this.readNext());
    this.previousCall = result.catch(() => this.end()); // nothing follows an error
    return result;
  }

  /** Ends the watch, also during a pending {@link EtcdWatcher.next}. */
  return(): Promise<IteratorResult<ChangeBatch, undefined>> {
    this.end();
    return Promise.resolve(DONE);
  }

  private end(): void {
    this.ending.abort();
    this.stream?.close();
    this.stream = undefined;
  }

  private async readNext(): Promise<IteratorResult<ChangeBatch, undefined>> {
    for (;;) {
      if (this.ending.signal.aborted) return DONE;
      const value = this.batches[this.nextIndex];
      if (value !== undefined) {
        this.nextIndex += 1;
        return { done: false, value };
      }
      await this.readStream();
    }
  }

  /** Reads one response, or opens the stream again after a failure. */
  private async readStream(): Promise<void> {
    try {
      this.stream ??= await this.open();
      const response = await this.readResponse(this.stream);
      if (this.ending.signal.aborted) return;
      if (response.created) await this.checkStart(response);
      this.failures = 0;
      this.take(response);
    } catch (reason) {
      this.stream?.close();
      this.stream = undefined;
      if (this.ending.signal.aborted) return;
      const kind = errorKindOf(reason);
      if (kind !== 'unavailable' && kind !== 'deadline' && kind !== 'precondition') throw reason;
      await this.pause(reason);
    }
  }

  private async readResponse(stream: WatchStream): Promise<WatchResponse> {
    this.isWaiting = true;
    try {
      return await stream.next();
    } finally {
      this.isWaiting = false;
    }
  }

  private async open(): Promise<WatchStream> {
    const startRevision = this.deps.revisions.toEtcd(this.position) + 1n;
    const { key, rangeEnd } = this.deps.keys.toWatchRange(this.request.prefix);
    this.assembler = new BatchAssembler(this.deps.codec);
    return WatchStream.open(this.deps.client, { key, rangeEnd, startRevision });
  }

  private take(response: WatchResponse): void {
    this.batches = this.assembler.add(response);
    this.nextIndex = 0;
    const isFull = this.request.prefix === '';
    const last = this.batches.at(-1);
    if (last !== undefined) {
      this.position = last.revision;
      if (isFull) this.deps.marker.recordChange(last.revision);
    } else if (isProgress(response) && this.revisionOf(response) > this.position) {
      this.position = this.revisionOf(response);
      if (isFull) this.batches = [{ revision: this.position, changes: [] }];
    }
  }

  /**
   * Checks that the start exists: etcd would wait for a future revision. The member that answers may
   * be behind, so a revision that it lacks is read from the cluster.
   */
  private async checkStart(response: WatchResponse): Promise<void> {
    const isFirst = !this.isStarted;
    this.isStarted = true;
    if (this.revisionOf(response) >= this.position) return;
    const newest = await this.deps.readRevision();
    if (newest >= this.position) return;
    throw new CloudlessError(
      isFirst ? 'invalid' : 'compacted',
      `revision ${this.position} is in the future: the newest is ${newest}`,
    );
  }

  private revisionOf({ header }: WatchResponse): Revision {
    return this.deps.revisions.fromEtcd(header?.revision ?? 0n);
  }

  private async pause(reason: unknown): Promise<void> {
    this.failures += 1;
    const { clock, log } = this.deps;
    if (this.failures === FAILURES_BEFORE_WARNING)
      log.warn('watch of etcd interrupted', {
        revision: this.position,
        ...errorFields(reason),
      });
    const delayMs = backoffDelayMs(RESUME_DELAY, this.failures);
    await sleep(clock, delayMs, this.ending.signal).catch(() => undefined);
  }
}

/** A watch that moves to another member at once is not worth a warning. */
const FAILURES_BEFORE_WARNING = 5;

/** True when all changes up to the revision of the header were delivered. */
function isProgress({ created, fragment, events, header }: WatchResponse): boolean {
  return !created && !fragment && events.length === 0 && header !== undefined;
}
