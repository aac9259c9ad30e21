import { CloudlessError } from '@cloudless/base';
import type { EtcdClient } from '../client/etcd-client.js';
import type { Endpoint } from '../client/endpoint.js';
import { toEtcdFailure } from '../client/etcd-failure.js';
import type { WatchResponse } from '../gen/etcd/etcdserverpb/rpc_pb.js';

/** Keys of a watch, and the revision of etcd at which it begins. */
export interface WatchStart {
  readonly key: Uint8Array;
  readonly rangeEnd: Uint8Array;
  readonly startRevision: bigint;
}

/** The start of a watch is no longer retained. */
export class WatchCompactedError extends CloudlessError {
  /** @param compactRevision - Revision of etcd up to which the history was dropped. */
  constructor(readonly compactRevision: bigint) {
    super(
      'compacted',
      'the changes after the start of the watch are no longer retained; read a snapshot and watch from there',
    );
  }
}

/**
 * One Watch call at one member. Delivers the responses until the call fails.
 * @throws {@link WatchCompactedError} when the start is no longer retained; `denied` when the user
 *   of etcd may not watch; otherwise the watch may be continued at another member, with kind
 *   `unavailable`.
 */
export class WatchStream {
  private readonly abortion = new AbortController();
  private readonly responses: AsyncIterator<WatchResponse>;

  private constructor(
    private readonly client: EtcdClient,
    private readonly endpoint: Endpoint,
    headers: Record<string, string>,
    start: WatchStart,
  ) {
    const { signal } = this.abortion;
    const calls = endpoint.watch.watch(createRequests(start, signal), { headers, signal });
    this.responses = calls[Symbol.asyncIterator]();
  }

  /** @throws kind `unavailable` or `precondition` when the selected member cannot be reached. */
  static async open(client: EtcdClient, start: WatchStart): Promise<WatchStream> {
    const { endpoint, headers } = await client.openStream();
    return new WatchStream(client, endpoint, headers, start);
  }

  async next(): Promise<WatchResponse> {
    let result: IteratorResult<WatchResponse>;
    try {
      result = await this.responses.next();
    } catch (reason) {
      if (!this.abortion.signal.aborted) this.client.reportStreamFailure(this.endpoint, reason);
      throw toEtcdFailure(reason).error;
    }
    if (result.done === true) throw createEndError('etcd ended the watch');
    const { compactRevision, canceled, cancelReason } = result.value;
    if (compactRevision > 0n) throw new WatchCompactedError(compactRevision);
    if (canceled) {
      const { error, outcome } = toEtcdFailure(new Error(cancelReason));
      throw outcome === 'answer' ? error : createEndError(`etcd ended the watch: ${cancelReason}`);
    }
    return result.value;
  }

  close(): void {
    this.abortion.abort();
    void this.responses.return?.().catch(() => undefined);
  }
}

/** Sends the start; then keeps the call open until `signal` is aborted. */
async function* createRequests({ key, rangeEnd, startRevision }: WatchStart, signal: AbortSignal) {
  yield {
    requestUnion: {
      case: 'createRequest' as const,
      value: { key, rangeEnd, startRevision, progressNotify: true, fragment: true },
    },
  };
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function createEndError(message: string): CloudlessError {
  return new CloudlessError('STORE_UNAVAILABLE', message);
}
