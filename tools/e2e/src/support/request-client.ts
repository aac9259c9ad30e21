import { Agent, request } from 'node:http';
import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { type CoordinatorClient, type ReplicaEndpoint } from '@cloudless/api';
import { EndpointWatch } from './endpoint-watch.js';

/** Time between two requests. */
const PERIOD_MS = 10;
/** Time limit of a request. Servers answer within milliseconds, so a longer wait is a failure. */
const ANSWER_WITHIN_MS = 10_000;

/** An answered request. */
export interface AnsweredRequest {
  /** Version that the server reports. */
  readonly version: string;
  readonly replicaId: string;
  /** Time of `performance.now()`. */
  readonly sentAtMs: number;
}

/** A failed request. */
export interface FailedRequest {
  /** Replica that the request was sent to; empty when there was no endpoint. */
  readonly replicaId: string;
  readonly reason: string;
}

/**
 * Sends 100 requests a second, regardless of pending answers, to the endpoints of a watch in turn.
 * Never retries. Records each answer, and each failure with its reason.
 */
export class RequestClient {
  /** In the order of the answers. */
  readonly answers: AnsweredRequest[] = [];
  readonly failures: FailedRequest[] = [];
  /** The watch that provides the endpoints. */
  readonly watch: EndpointWatch;
  /** Number of requests that were sent or could not be sent. */
  started = 0;
  /** Number of answered requests that used an earlier connection again. */
  reused = 0;
  private readonly agent: Agent | undefined;
  private stopping = false;
  private sending: Promise<void> = Promise.resolve();

  /**
   * @param name - Name of the workload.
   * @param connections - `kept`: connections are reused; `new`: each request opens a connection.
   * @param toHost - Address of an endpoint for this client. Default: the one in the endpoint.
   * @param answerWithinMs - Time limit of a request, milliseconds.
   */
  constructor(
    client: () => CoordinatorClient,
    name: string,
    readonly connections: 'new' | 'kept',
    private readonly toHost = ({ ip }: ReplicaEndpoint): string => ip,
    private readonly answerWithinMs = ANSWER_WITHIN_MS,
  ) {
    this.watch = new EndpointWatch(client, name);
    this.agent = connections === 'kept' ? new Agent({ keepAlive: true }) : undefined;
  }

  /** Starts the watch and the requests. Resolves when the first set of endpoints has arrived. */
  async start(): Promise<void> {
    await this.watch.start();
    this.sending = this.send();
  }

  /** Sends no more requests. Resolves when every request was answered or has failed. */
  async stop(): Promise<void> {
    this.stopping = true;
    await this.sending;
    await this.watch.stop();
    this.agent?.destroy();
  }

  /** Waits until `count` more requests were answered, or one more request has failed. */
  async waitForAnswers(count: number): Promise<void> {
    const [enoughAnswers, earlierFailures] = [this.answers.length + count, this.failures.length];
    while (this.answers.length < enoughAnswers && this.failures.length === earlierFailures)
      await pause(PERIOD_MS);
  }

  /** Returns the versions that have answered, in ascending order. */
  get versions(): readonly string[] {
    return Object.keys(this.answersByVersion);
  }

  /**
   * Formats the counts: `new: started 812, ok 812, failed 0, on used connections 0, lowest ready 4,
   * answered by version {"1":400,"2":412}`.
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
          endpoint === undefined
            ? this.recordFailure('', 'there is no endpoint')
            : this.sendTo(endpoint);
        pending.add(answer);
        void answer.finally(() => pending.delete(answer));
      }
      await pause(PERIOD_MS);
    }
    await Promise.all(pending);
  }

  private recordFailure(replicaId: string, reason: string): Promise<void> {
    this.failures.push({ replicaId, reason: `request ${this.started}: ${reason}` });
    return Promise.resolve();
  }

  private sendTo(endpoint: ReplicaEndpoint): Promise<void> {
    const { port, replicaId, version } = endpoint;
    const host = this.toHost(endpoint);
    const sentAtMs = performance.now();
    return new Promise((resolve) => {
      const onError = ({ message }: Error): void => {
        resolve(this.recordFailure(replicaId, `version ${version} at ${host}:${port}: ${message}`));
      };
      const sent = request(
        { host, port, agent: this.agent ?? false, timeout: this.answerWithinMs },
        (response) => {
          let body = '';
          response.setEncoding('utf8').on('data', (text: string) => (body += text));
          response.once('error', onError);
          response.once('end', () => {
            const answer = JSON.parse(body) as {
              readonly version: string;
              readonly replica: string;
            };
            if (answer.replica !== replicaId)
              return onError(new Error(`answered by ${answer.replica}`));
            if (sent.reusedSocket) this.reused += 1;
            this.answers.push({ version: answer.version, replicaId, sentAtMs });
            resolve();
          });
        },
      );
      sent.once('timeout', () =>
        sent.destroy(new Error(`no answer within ${this.answerWithinMs} ms`)),
      );
      sent.once('error', onError);
      sent.end();
    });
  }
}
