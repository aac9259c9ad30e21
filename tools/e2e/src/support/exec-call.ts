import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { PushQueue } from '@cloudless/runtime';
import {
  ExecRequestSchema,
  PortForwardRequestSchema,
  type CoordinatorClient,
  type ExecRequest,
  type ExecResponse,
  type PortForwardRequest,
  type PortForwardResponse,
} from '@cloudless/api';
import type { ExecStartSchema, PortForwardStartSchema } from '@cloudless/api';

/** More requests than any test sends before they are read. */
const QUEUE = { limit: 100_000 };
/** Bytes of output kept as text; a test may read far more. */
const MAX_TEXT = 1024 * 1024;

/** An Exec call that a test drives step by step. */
export class ExecCall {
  private readonly requests = new PushQueue<ExecRequest>(QUEUE);
  private readonly responses: AsyncIterator<ExecResponse>;
  private readonly ending = new AbortController();
  /** The first MiB of the output that was read. */
  readonly text = { stdout: '', stderr: '' };
  /** Bytes of output that were read. */
  bytes = 0;

  constructor(
    client: Pick<CoordinatorClient, 'exec'>,
    start: MessageInitShape<typeof ExecStartSchema>,
  ) {
    this.sendRequest({ case: 'start', value: start });
    this.responses = client
      .exec(toIterable(this.requests), { signal: this.ending.signal })
      [Symbol.asyncIterator]();
  }

  sendRequest(request: NonNullable<MessageInitShape<typeof ExecRequestSchema>['request']>): void {
    this.requests.push(create(ExecRequestSchema, { request }));
  }

  /** Sends text to stdin of the command. */
  sendText(text: string): void {
    this.sendRequest({ case: 'stdin', value: new TextEncoder().encode(text) });
  }

  /** Ends the request stream. */
  endInput(): void {
    this.requests.end();
  }

  /** Returns the next message that is not a keep-alive; undefined at the end. */
  async readNext(): Promise<ExecResponse['response'] | undefined> {
    for (;;) {
      const { done, value } = await this.responses.next();
      if (done === true) return undefined;
      const { response } = value;
      if (response.case === undefined) continue;
      if (response.case === 'stdout' || response.case === 'stderr') {
        this.bytes += response.value.length;
        if (this.bytes <= MAX_TEXT)
          this.text[response.case] += new TextDecoder().decode(response.value);
      }
      return response;
    }
  }

  /** Reads until stdout so far satisfies a condition; throws when the command ends before. */
  async readUntil(fits: (stdout: string) => boolean): Promise<void> {
    while (!fits(this.text.stdout)) {
      const response = await this.readNext();
      if (response === undefined || response.case === 'exit')
        throw new Error(`ended after ${JSON.stringify(this.text)}`);
    }
  }

  /**
   * Reads to the end of the output.
   * @returns The exit code.
   */
  async readExitCode(): Promise<number> {
    for (
      let response = await this.readNext();
      response !== undefined;
      response = await this.readNext()
    ) {
      if (response.case === 'exit') return response.value.exitCode;
    }
    throw new Error('the call ended without an exit code');
  }

  /** Cancels the call, as a client that disconnects. */
  cancelCall(): void {
    this.ending.abort();
    void this.responses.next().catch(() => undefined); // the cancelled call is expected to fail
  }
}

/** A PortForward call that a test drives step by step. */
export class ForwardCall {
  private readonly requests = new PushQueue<PortForwardRequest>(QUEUE);
  private readonly responses: AsyncIterator<PortForwardResponse>;
  private readonly ending = new AbortController();

  constructor(
    client: Pick<CoordinatorClient, 'portForward'>,
    start: MessageInitShape<typeof PortForwardStartSchema>,
  ) {
    this.requests.push(
      create(PortForwardRequestSchema, { request: { case: 'start', value: start } }),
    );
    this.responses = client
      .portForward(toIterable(this.requests), { signal: this.ending.signal })
      [Symbol.asyncIterator]();
  }

  sendText(text: string): void {
    this.requests.push(
      create(PortForwardRequestSchema, {
        request: { case: 'data', value: new TextEncoder().encode(text) },
      }),
    );
  }

  endInput(): void {
    this.requests.end();
  }

  async readNext(): Promise<PortForwardResponse['response'] | undefined> {
    const { done, value } = await this.responses.next();
    return done === true ? undefined : value.response;
  }

  /** Cancels the call, as a client that disconnects. */
  cancelCall(): void {
    this.ending.abort();
    void this.responses.next().catch(() => undefined); // the cancelled call is expected to fail
  }
}

/** Adds the `throw` method that the Connect client requires of an iterator. */
async function* toIterable<Item>(items: AsyncIterable<Item>): AsyncGenerator<Item> {
  yield* items;
}
