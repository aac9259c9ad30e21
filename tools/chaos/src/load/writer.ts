import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import type { CoordinatorClient, Workload } from '@cloudless/api';
import type { HistoryRecorder } from '@cloudless/state-store/linearizability';
import type { WorkloadAnswer, WorkloadCall } from '../checks/write-history.js';
import type { Acknowledgement, WriteRecord } from '../checks/write-record.js';
import type { TimedAttempt } from '../checks/write-times.js';

/** Codes after which a call may have taken effect or not, so that the same request is sent again. */
const UNKNOWN_OUTCOME = [
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.Unknown,
  Code.Internal,
  Code.Aborted,
  Code.ResourceExhausted,
];
/** Deadline of one attempt, milliseconds: longer than the election of a leader. */
const ATTEMPT_MS = 4_000;
/** Pause between two writes, and the longest one between two attempts, milliseconds. */
const PAUSE_MS = 200;
const MAX_RETRY_MS = 200;
/** Workload that all writers write. */
export const SHARED = 'shared';
/** Label that the writes set. */
const LABEL = 'by';

/** One attempt of a write, with its answer. */
export interface Attempt extends TimedAttempt {
  readonly code: Code | undefined;
  /** Text of the error; empty: acknowledged. */
  readonly message: string;
}

const SPEC = { command: ['sleep', '1000'], replicas: 0 };

/** The calls of all writers and readers. */
export type History = HistoryRecorder<WorkloadCall, WorkloadAnswer>;

/** The outcome of a write stays unknown, or the write was refused. */
class NoAnswerError extends Error {}

/**
 * A client that writes without end, one write after the other, each with a request id. A write is
 * sent again, to the next coordinator, until its result is known.
 */
export class Writer {
  /** Attempts since the last {@link Writer.takeAttempts}, in the order of their ends. */
  private attempts: Attempt[] = [];
  private readonly acknowledged = new Map<string, Acknowledgement[]>();
  /** Workloads whose deletion was acknowledged. */
  readonly deleted = new Set<string>();
  /** Errors of writes that were refused. None is expected. */
  readonly refusals: string[] = [];
  private readonly unknown = new Map<string, number>();
  private isStopped = false;
  private givesUp = false;
  private running: Promise<void> = Promise.resolve();
  private turn: number;

  /**
   * @param clients - One for each coordinator.
   * @param history - Receives every write.
   */
  constructor(
    private readonly index: number,
    private readonly clients: readonly CoordinatorClient[],
    private readonly history: History,
  ) {
    this.turn = index;
  }

  /** Creates the shared workload, once for all writers. */
  static async createShared(client: CoordinatorClient, history: History): Promise<Acknowledgement> {
    const value = 'nobody';
    const spec = { ...SPEC, labels: { [LABEL]: value } };
    const input = { call: 'create', workload: SHARED, value } as const;
    const answer = await history.record('the first client', input, async () =>
      toAnswer(await client.createWorkload({ name: SHARED, spec })),
    );
    return answer.kind === 'shown' ? answer : { generation: 0n, value };
  }

  /** Begins to write. */
  start(): void {
    this.running = this.write();
  }

  /**
   * Resolves when the current write has a result.
   * @param withinMs - Time limit; then the result counts as unknown.
   */
  async stop(withinMs: number): Promise<void> {
    this.isStopped = true;
    const timer = setTimeout(() => (this.givesUp = true), withinMs);
    await this.running;
    clearTimeout(timer);
  }

  /** Returns the attempts since the last call. */
  takeAttempts(): readonly Attempt[] {
    return this.attempts.splice(0);
  }

  /** Returns what is known of each workload that this writer wrote and did not delete. */
  get records(): readonly WriteRecord[] {
    return [...this.acknowledged].map(([name, acknowledged]) => ({
      name,
      acknowledged,
      unknown: this.unknown.get(name) ?? 0,
    }));
  }

  private async write(): Promise<void> {
    const own = `own-${this.index}`;
    await this.create(own);
    for (let count = 1; !this.isStopped; count += 1) {
      const value = `w${this.index}-${count}`;
      const name = count % 4 === 0 ? SHARED : own;
      const input = { call: 'update', workload: name, value } as const;
      await this.writeUntilKnown(input, (client, requestId, options) =>
        client.updateWorkload({ name, requestId, spec: { labels: { [LABEL]: value } } }, options),
      );
      if (count % 8 === 0) await this.create(`made-${this.index}-${count}`);
      if (count % 16 === 0) await this.delete(`made-${this.index}-${count - 8}`);
      await pause(PAUSE_MS * (0.5 + Math.random()));
    }
  }

  private async create(name: string): Promise<void> {
    const spec = { ...SPEC, labels: { [LABEL]: name } };
    const input = { call: 'create', workload: name, value: name } as const;
    await this.writeUntilKnown(input, (client, requestId, options) =>
      client.createWorkload({ name, requestId, spec }, options),
    );
  }

  private async delete(name: string): Promise<void> {
    const input = { call: 'delete', workload: name, value: '' } as const;
    const answer = await this.sendRecorded(input, (client, requestId, options) =>
      client.deleteWorkload({ name, requestId }, options),
    );
    this.acknowledged.delete(name);
    if (answer !== undefined) this.deleted.add(name);
  }

  /** Sends a write until its result is known, and records the answer. */
  private async writeUntilKnown(input: WorkloadCall, send: Send<Workload>): Promise<void> {
    const name = input.workload;
    const answer = await this.sendRecorded(input, send);
    if (answer?.kind !== 'shown') return;
    const answers = this.acknowledged.get(name) ?? [];
    answers.push(answer);
    this.acknowledged.set(name, answers);
  }

  /**
   * Sends a write until its result is known.
   * @returns The answer; undefined when the write was refused, or its result is unknown.
   */
  private async sendRecorded(
    input: WorkloadCall,
    send: Send<Workload>,
  ): Promise<WorkloadAnswer | undefined> {
    try {
      return await this.history.record(`writer ${this.index}`, input, async () =>
        toAnswer(await this.sendUntilKnown(input.workload, send)),
      );
    } catch (reason) {
      if (reason instanceof NoAnswerError) return undefined;
      throw reason;
    }
  }

  /**
   * Sends a write to one coordinator after the other.
   * @throws {@link NoAnswerError} when the write was refused, or its result stays unknown.
   */
  private async sendUntilKnown(name: string, send: Send<Workload>): Promise<Workload> {
    const requestId = randomBytes(12).toString('hex');
    for (;;) {
      const client = this.clients[this.turn % this.clients.length];
      if (client === undefined) throw new Error('a writer needs at least one coordinator');
      const sentAtMs = performance.now();
      try {
        const answer = await send(client, requestId, { timeoutMs: ATTEMPT_MS });
        this.attempts.push({
          sentAtMs,
          endedAtMs: performance.now(),
          code: undefined,
          message: '',
        });
        return answer;
      } catch (reason) {
        const { code, message } = ConnectError.from(reason);
        this.attempts.push({ sentAtMs, endedAtMs: performance.now(), code, message });
        if (!UNKNOWN_OUTCOME.includes(code)) {
          this.refusals.push(`${name}: ${message}`);
          throw new NoAnswerError();
        }
      }
      if (this.givesUp) {
        this.unknown.set(name, (this.unknown.get(name) ?? 0) + 1);
        throw new NoAnswerError();
      }
      this.turn += 1;
      await pause(MAX_RETRY_MS * (0.5 + Math.random() / 2));
    }
  }
}

/** Sends one write. */
type Send<Result> = (
  client: CoordinatorClient,
  requestId: string,
  options: { readonly timeoutMs: number },
) => Promise<Result>;

/** Returns what an answer shows of a workload. */
export function toAnswer({ uid, generation, spec }: Workload) {
  return { kind: 'shown', uid, generation, value: spec?.labels[LABEL] ?? '' } as const;
}
