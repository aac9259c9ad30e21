import { setTimeout as pause } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import type { CoordinatorClient } from '@cloudless/api';
import { SHARED, toAnswer, type History } from './writer.js';

/** Deadline of a read, milliseconds. A read that fails is not sent again. */
const ATTEMPT_MS = 4_000;
/** Mean time between two reads, milliseconds. */
const PAUSE_MS = 100;

/**
 * A client that reads the shared workload and those of writers without end, one coordinator after
 * the other, and asks for everything that was acknowledged before the read.
 */
export class Reader {
  private isStopped = false;
  private running: Promise<void> = Promise.resolve();

  /**
   * @param clients - One for each coordinator.
   * @param writerCount - Number of writers whose workloads are read.
   * @param history - Receives every read.
   */
  constructor(
    private readonly index: number,
    private readonly clients: readonly CoordinatorClient[],
    private readonly writerCount: number,
    private readonly history: History,
  ) {}

  /** Begins to read. */
  start(): void {
    this.running = this.read();
  }

  /** Resolves when the current read has ended. */
  async stop(): Promise<void> {
    this.isStopped = true;
    await this.running;
  }

  private async read(): Promise<void> {
    for (let turn = this.index; !this.isStopped; turn += 1) {
      const client = this.clients[turn % this.clients.length];
      if (client === undefined) throw new Error('a reader needs at least one coordinator');
      const name = turn % 2 === 0 ? SHARED : `own-${turn % this.writerCount}`;
      await readRecorded(client, name, this.history, `reader ${this.index}`);
      await pause(PAUSE_MS * (0.5 + Math.random()));
    }
  }
}

/** Reads one workload and records the answer; a read that fails leaves no answer. */
export async function readRecorded(
  client: CoordinatorClient,
  name: string,
  history: History,
  reader: string,
): Promise<void> {
  const input = { call: 'read', workload: name, value: '' } as const;
  try {
    await history.record(reader, input, async () => {
      try {
        const options = { timeoutMs: ATTEMPT_MS };
        return toAnswer(await client.getWorkload({ name, linearizable: true }, options));
      } catch (reason) {
        if (ConnectError.from(reason).code !== Code.NotFound) throw reason;
        return { kind: 'notFound' };
      }
    });
  } catch {
    // the history has the read without an answer
  }
}
