import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { NetworkReportSchema, type NetworkUpdate } from '@cloudless/api';
import {
  backoffDelayMs,
  errorFields,
  sleep,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
} from '@cloudless/base';
import type { CoordinatorConnection } from '../ports.js';

/**
 * Delay between two attempts to follow. After a fault endpoints and names must be right within 5 s,
 * also when the first attempt reaches a coordinator that does not lead.
 */
const RETRY: BackoffPolicy = { firstMs: 200, maxMs: 1_500, jitter: 0.5 };

export interface FollowOptions {
  readonly nodeId: string;
  readonly connect: (signal: AbortSignal) => Promise<CoordinatorConnection>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Returns where a new stream resumes; revision 0n: everything. */
  readonly resume: () => { readonly afterRevision: bigint; readonly feedId: string };
  /** Applies an update before the proxy reports it. Returns the applied revision. */
  readonly apply: (update: NetworkUpdate) => bigint;
  /** Called when a stream has delivered its first update, and when it has ended. */
  readonly onConnected: (connection: CoordinatorConnection | undefined) => void;
  readonly signal: AbortSignal;
}

/**
 * Follows the coordinator until `signal` is aborted: opens a stream, applies and reports each
 * update, and opens another stream when one ends. Never throws.
 */
export async function followNetwork(options: FollowOptions): Promise<void> {
  const { clock, random, log, signal } = options;
  for (let failures = 0; !signal.aborted; failures += 1) {
    if (failures > 0)
      await sleep(clock, backoffDelayMs(RETRY, failures, random), signal).catch(noop);
    if (signal.aborted) break;
    try {
      await followOnce(options, () => (failures = 0));
      log.info('the coordinator ended the stream of the network');
    } catch (reason) {
      if (signal.aborted) break;
      log[failures === 0 ? 'warn' : 'debug'](
        'the network cannot be followed; the proxy continues with what is known and dials again',
        errorFields(reason),
      );
    }
  }
}

async function followOnce(options: FollowOptions, onUpdate: () => void): Promise<void> {
  const { nodeId, signal, apply, onConnected } = options;
  const connection = await options.connect(signal);
  const reports = new Reports({ nodeId, ...options.resume() });
  let isConnected = false;
  try {
    for await (const update of connection.client.syncNetwork(reports, { signal })) {
      onUpdate();
      reports.push({ appliedRevision: apply(update) });
      if (isConnected) continue;
      isConnected = true;
      onConnected(connection);
    }
  } finally {
    reports.end();
    if (isConnected) onConnected(undefined);
    connection.close();
  }
}

function noop(): void {
  // an aborted sleep
}

type Report = MessageInitShape<typeof NetworkReportSchema>;

/**
 * The reports of one stream. A report that waits is replaced by a newer one, because a revision
 * includes all earlier ones, so that a slow coordinator costs no memory.
 */
class Reports implements AsyncIterable<Report> {
  private latest: Report | undefined;
  private hasEnded = false;
  private wake: (() => void) | undefined;

  constructor(private readonly first: Report) {}

  push(report: Report): void {
    this.latest = report;
    this.wake?.();
  }

  end(): void {
    this.hasEnded = true;
    this.wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Report> {
    yield create(NetworkReportSchema, this.first);
    while (!this.hasEnded) {
      const next = this.latest;
      if (next === undefined) {
        await new Promise<void>((resolve) => (this.wake = resolve));
        continue;
      }
      this.latest = undefined;
      yield create(NetworkReportSchema, next);
    }
  }
}
