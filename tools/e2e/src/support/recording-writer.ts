import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { createCoordinatorClient, type CoordinatorClient, type Workload } from '@cloudless/api';

/**
 * Error codes after which it is unknown whether a write was applied, so that the writer sends the
 * same request again.
 */
const UNKNOWN_OUTCOME = [
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.Unknown,
  Code.Internal,
  Code.Aborted,
];
/** Deadline of each call: longer than a restart of the coordinator takes. */
const CALL_TIMEOUT_MS = 5_000;
/** Delay before a request is sent again. */
const RETRY_MS = 20;

/** An acknowledged write. */
export interface AcknowledgedWrite {
  readonly name: string;
  /** The workload after this write. */
  readonly answer: Workload;
  /** Number of times the request was sent. */
  readonly sends: number;
}

/**
 * A client that writes continuously, one write after the other, each with its own request id. The
 * writer repeats a write until the result is known, and records the acknowledged writes.
 */
export class RecordingWriter {
  readonly log: AcknowledgedWrite[] = [];
  /** Errors of writes that the coordinator refused as invalid; a test expects none. */
  readonly refusals: string[] = [];
  private readonly client: CoordinatorClient;
  private stopped = false;
  private count = 0;

  constructor(
    readonly index: number,
    url: string,
  ) {
    this.client = createCoordinatorClient(createGrpcTransport({ baseUrl: url }));
  }

  /** Stops after the current write has a result. */
  stop(): void {
    this.stopped = true;
  }

  /**
   * Writes until {@link RecordingWriter.stop}: its own workload, workload `shared`, and new ones.
   */
  async run(): Promise<void> {
    const own = `own-${this.index}`;
    await this.writeUntilKnown(own, (requestId) =>
      this.client.createWorkload(
        { name: own, requestId, spec: { command: ['sleep', '1000'], replicas: 0 } },
        OPTIONS,
      ),
    );
    while (!this.stopped) {
      this.count += 1;
      const { count } = this;
      await this.writeUntilKnown(own, (requestId) =>
        this.client.scaleWorkload({ name: own, requestId, replicas: count % 3 }, OPTIONS),
      );
      await this.writeUntilKnown('shared', (requestId) =>
        this.client.updateWorkload(
          { name: 'shared', requestId, spec: { labels: { by: `w${this.index}-${count}` } } },
          OPTIONS,
        ),
      );
      const name = `made-${this.index}-${count}`;
      await this.writeUntilKnown(name, (requestId) =>
        this.client.createWorkload(
          { name, requestId, spec: { command: ['sleep', '1000'], replicas: 0 } },
          OPTIONS,
        ),
      );
    }
  }

  /** Sends one request until its result is known. */
  private async writeUntilKnown(
    name: string,
    send: (requestId: string) => Promise<Workload>,
  ): Promise<void> {
    const requestId = randomBytes(12).toString('hex');
    for (let sends = 1; ; sends += 1) {
      try {
        this.log.push({ name, answer: await send(requestId), sends });
        return;
      } catch (reason) {
        const { code, message } = ConnectError.from(reason);
        if (!UNKNOWN_OUTCOME.includes(code)) {
          this.refusals.push(`${name}: ${message}`);
          return;
        }
      }
      await pause(RETRY_MS);
    }
  }
}

const OPTIONS = { timeoutMs: CALL_TIMEOUT_MS };
