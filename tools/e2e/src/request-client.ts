import { Agent, request } from 'node:http';
import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { type CoordinatorClient, type ReplicaEndpoint } from '@cloudless/api';
import { EndpointWatch } from './endpoint-watch.js';

const PERIOD_MS = 10;
/** A request without an answer for so long has failed; servers answer within milliseconds. */
const ANSWER_WITHIN_MS = 10_000;

/** A request that was answered. */
export interface Answer {
  /** What the server calls its version. */
  readonly version: string;
  readonly replicaId: string;
  /** By `performance.now()`. */
  readonly sentAtMs: number;
}

/** A request that was not. */
export interface Failure {
  /** Whom it was sent to; empty: there was nobody. */
  readonly replicaId: string;
  readonly why: string;
}

/**
 * Sends 100 requests a second, by the clock: also when those before have no answer yet. It knows
 * its servers from the endpoints watch and asks one after the other; it never asks twice. What
 * fails is kept with its reason.
 */
export class RequestClient {
  readonly answers: Answer[] = [];
  readonly failures: Failure[] = [];
  readonly watch: EndpointWatch;
  /** Requests that were sent or could not be. */
  started = 0;
  /** Of the answered ones, how many came over a connection that had served before. */
  reused = 0;
  private readonly agent: Agent | undefined;
  private stopping = false;
  private sending: Promise<void> = Promise.resolve();

  /**
   * @param name - The workload.
   * @param connections - `kept`: a connection is used again; `new`: each request has its own.
   */
  constructor(
    client: () => CoordinatorClient,
    name: string,
    readonly connections: 'new' | 'kept',
  ) {
    this.watch = new EndpointWatch(client, name);
    this.agent = connections === 'kept' ? new Agent({ keepAlive: true }) : undefined;
  }

  /** @returns once the first set of endpoints is known and requests are being sent. */
  async start(): Promise<void> {
    await this.watch.start();
    this.sending = this.send();
  }

  /** @returns when every request has its answer or has failed. */
  async stop(): Promise<void> {
    this.stopping = true;
    await this.sending;
    await this.watch.stop();
    this.agent?.destroy();
  }

  /** Waits until `count` more requests than now were answered, or one has failed. */
  async answered(count: number): Promise<void> {
    const [enough, failed] = [this.answers.length + count, this.failures.length];
    while (this.answers.length < enough && this.failures.length === failed) await pause(PERIOD_MS);
  }

  /** Versions that have answered, ascending. */
  get versions(): readonly string[] {
    return Object.keys(this.answersByVersion);
  }

  /**
   * `new: started 812, ok 812, failed 0, on used connections 0, lowest ready 4, answered by version
   * {"1":400,"2":412}`.
   */
  get summary(): string {
    const { started, answers, failures, reused, watch } = this;
    const counts = `started ${started}, ok ${answers.length}, failed ${failures.length}, on used connections ${reused}, lowest ready ${watch.lowestReady}`;
    return `${this.connections}: ${counts}, answered by version ${JSON.stringify(this.answersByVersion)}`;
  }

  private get answersByVersion(): Readonly<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { version } of this.answers) counts[version] = (counts[version] ?? 0) + 1;
    return counts;
  }

  private async send(): Promise<void> {
    const pending = new Set<Promise<void>>();
    const beganMs = performance.now();
    while (!this.stopping) {
      for (; this.started * PERIOD_MS <= performance.now() - beganMs; this.started += 1) {
        const { endpoints } = this.watch;
        const endpoint = endpoints[this.started % Math.max(1, endpoints.length)];
        const answer =
          endpoint === undefined ? this.fail('', 'there is no endpoint') : this.ask(endpoint);
        pending.add(answer);
        void answer.finally(() => pending.delete(answer));
      }
      await pause(PERIOD_MS);
    }
    await Promise.all(pending);
  }

  private fail(replicaId: string, why: string): Promise<void> {
    this.failures.push({ replicaId, why: `request ${this.started}: ${why}` });
    return Promise.resolve();
  }

  private ask({ ip, port, replicaId, version }: ReplicaEndpoint): Promise<void> {
    const sentAtMs = performance.now();
    return new Promise((resolve) => {
      const failed = ({ message }: Error): void => {
        resolve(this.fail(replicaId, `version ${version} at ${ip}:${port}: ${message}`));
      };
      const sent = request(
        { host: ip, port, agent: this.agent ?? false, timeout: ANSWER_WITHIN_MS },
        (response) => {
          let body = '';
          response.setEncoding('utf8').on('data', (text: string) => (body += text));
          response.once('error', failed);
          response.once('end', () => {
            const said = JSON.parse(body) as { readonly version: string; readonly replica: string };
            if (said.replica !== replicaId) return failed(new Error(`answered by ${said.replica}`));
            if (sent.reusedSocket) this.reused += 1;
            this.answers.push({ version: said.version, replicaId, sentAtMs });
            resolve();
          });
        },
      );
      sent.once('timeout', () =>
        sent.destroy(new Error(`no answer within ${ANSWER_WITHIN_MS} ms`)),
      );
      sent.once('error', failed);
      sent.end();
    });
  }
}
