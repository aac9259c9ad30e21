import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Machine, RunningProgram } from '@cloudless/e2e';
import type { TrafficRequest } from './verdict.js';

const CLIENT = fileURLToPath(new URL('./traffic-client.mjs', import.meta.url));
/** Time for the answers of the last requests, milliseconds: longer than the client waits. */
const LAST_ANSWERS_MS = 6_000;
const POLL_MS = 20;

/** A client of a service on a machine. */
export class Traffic {
  private readonly program: RunningProgram;
  private taken = 0;

  /**
   * Starts the client. The caller must call {@link Traffic.stop}.
   * @param rate - Requests per second.
   */
  constructor(machine: Machine, address: string, rate: number) {
    this.program = machine.start(
      `exec ${process.execPath} --no-warnings ${CLIENT} ${address} 80 ${rate}`,
    );
  }

  /** Returns the requests that have ended since the last {@link Traffic.take}, in this order. */
  read(): readonly TrafficRequest[] {
    return this.program.lines.slice(this.taken).map((line) => JSON.parse(line) as TrafficRequest);
  }

  /** Waits until so many more requests have ended. */
  async waitForRequests(count: number): Promise<void> {
    const enough = this.program.lines.length + count;
    while (this.program.lines.length < enough) {
      if (this.program.hasEnded) throw new Error(this.program.lines.slice(-5).join('\n'));
      await pause(POLL_MS);
    }
  }

  /**
   * Returns the requests since the last call.
   * @param untilMs - Waits until every request that was sent before this time has ended.
   */
  async take(untilMs: number): Promise<readonly TrafficRequest[]> {
    await this.waitForRequests(1);
    const newest = (): number =>
      (JSON.parse(this.program.lines.at(-1) ?? '{}') as TrafficRequest).sentAtMs;
    while (newest() < untilMs) await pause(POLL_MS);
    await pause(LAST_ANSWERS_MS);
    const requests = this.read();
    this.taken = this.program.lines.length;
    return requests;
  }

  /** Ends the client after its last answers. */
  async stop(): Promise<void> {
    await this.program.kill('SIGTERM');
  }
}
