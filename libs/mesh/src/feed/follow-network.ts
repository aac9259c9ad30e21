import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { NetworkReportSchema, type NetworkUpdate, type TrafficReportSchema } from '@cloudless/api';
import {
  backoffDelayMs,
  definedFields,
  errorFields,
  sleep,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import type { CoordinatorConnection } from '../ports.js';

/**
 * Delay between two attempts to follow. After a fault endpoints and names must be right within 5 s,
 * also when the first attempt reaches a coordinator that does not lead.
 */
const RETRY: BackoffPolicy = { firstMs: 200, maxMs: 1_500, jitter: 0.5 };

/** Milliseconds between two reports of traffic. */
export const TRAFFIC_INTERVAL_MS = 5_000;

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
  /**
   * Begins the reports of traffic of a new stream, and returns the next report at each call. Default:
   * none are sent.
   */
  readonly openTraffic?: () => () => TrafficReport;
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
  const reports = new Reports({ nodeId, ...options.resume() }, options.openTraffic?.());
  let isConnected = false;
  let timer: Timer | undefined;
  const reportTraffic = (): void => {
    reports.pushTraffic();
    timer = options.clock.setTimer(TRAFFIC_INTERVAL_MS, reportTraffic);
  };
  try {
    for await (const update of connection.client.syncNetwork(reports, { signal })) {
      onUpdate();
      reports.push(apply(update));
      if (isConnected) continue;
      isConnected = true;
      onConnected(connection);
      if (options.openTraffic !== undefined) reportTraffic();
    }
  } finally {
    timer?.cancel();
    reports.end();
    if (isConnected) onConnected(undefined);
    connection.close();
  }
}

function noop(): void {
  // an aborted sleep
}

type Report = MessageInitShape<typeof NetworkReportSchema>;
type TrafficReport = MessageInitShape<typeof TrafficReportSchema>;

/**
 * The reports of one stream. A report that waits is replaced by a newer one, because a revision
 * includes all earlier ones, so that a slow coordinator costs no memory. Traffic is read when its
 * report is sent.
 */
class Reports implements AsyncIterable<Report> {
  private appliedRevision = 0n;
  private isRevisionDue = false;
  private isTrafficDue = false;
  private hasEnded = false;
  private wake: (() => void) | undefined;

  constructor(
    private readonly first: Report,
    private readonly readTraffic: (() => TrafficReport) | undefined,
  ) {}

  push(appliedRevision: bigint): void {
    this.appliedRevision = appliedRevision;
    this.isRevisionDue = true;
    this.wake?.();
  }

  pushTraffic(): void {
    this.isTrafficDue = true;
    this.wake?.();
  }

  end(): void {
    this.hasEnded = true;
    this.wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Report> {
    yield create(NetworkReportSchema, this.first);
    while (!this.hasEnded) {
      const { appliedRevision, isTrafficDue } = this;
      if (!this.isRevisionDue && !isTrafficDue) {
        await new Promise<void>((resolve) => (this.wake = resolve));
        continue;
      }
      this.isRevisionDue = false;
      this.isTrafficDue = false;
      const traffic = isTrafficDue ? this.readTraffic?.() : undefined;
      yield create(NetworkReportSchema, { appliedRevision, ...definedFields({ traffic }) });
    }
  }
}
