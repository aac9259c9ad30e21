import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { createClient, type Transport } from '@connectrpc/connect';
import {
  AgentMessageSchema,
  CoordinatorService,
  HelloSchema,
  InventorySchema,
  ReplicaReportSchema,
  TunnelFrameSchema,
  type AgentMessage,
  type CoordinatorClient,
  type CoordinatorMessage,
  type OpenTunnel,
  type Order,
  type TunnelFrame,
} from '@cloudless/api';

/** Header by which the test bed finds the connection of a call. */
export const CONNECTION_HEADER = 'test-connection';

type Report = MessageInitShape<typeof ReplicaReportSchema>;

/** A queue of messages to the coordinator, read as an async iterable. */
class MessageQueue<Message> implements AsyncIterable<Message> {
  private readonly items: Message[] = [];
  private closed = false;
  private wake: () => void = () => undefined;

  push(message: Message): void {
    this.items.push(message);
    this.wake();
  }

  close(): void {
    this.closed = true;
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Message> {
    while (!this.closed || this.items.length > 0) {
      const next = this.items.shift();
      if (next !== undefined) yield next;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}

/**
 * An agent whose messages a test sends one by one. The agent records the orders that it receives
 * and does nothing else. Each instance is one session; the constructor sends Hello.
 */
export class ScriptedAgent {
  /** Messages of the coordinator, oldest first. */
  readonly received: CoordinatorMessage[] = [];
  /** Error by which the coordinator ended the session; undefined while the session is open. */
  failure: unknown;
  /** True once the session has ended, with or without an error. */
  ended = false;
  private readonly client: CoordinatorClient;
  private readonly outgoing = new MessageQueue<AgentMessage>();
  private readonly stopping = new AbortController();

  constructor(
    transport: Transport,
    readonly nodeId: string,
    hello: MessageInitShape<typeof HelloSchema>,
  ) {
    this.client = createClient(CoordinatorService, transport);
    this.send({ message: { case: 'hello', value: create(HelloSchema, hello) } });
    void this.run();
  }

  /** Received orders as `start w-0`, `stop w-0` or `forget w-0`, oldest first. */
  get orders(): readonly string[] {
    return this.orderMessages.map((order) => `${order.order.case ?? ''} ${order.replicaId}`);
  }

  get orderMessages(): readonly Order[] {
    return this.received.flatMap(({ message }) =>
      message.case === 'order' ? [message.value] : [],
    );
  }

  /** Received requests to open tunnels, oldest first. */
  get tunnelRequests(): readonly OpenTunnel[] {
    return this.received.flatMap(({ message }) =>
      message.case === 'openTunnel' ? [message.value] : [],
    );
  }

  /** Kinds of the received messages, oldest first: `welcome`, `order`, `admitted`. */
  get kinds(): readonly (string | undefined)[] {
    return this.received.map(({ message }) => message.case);
  }

  send(message: MessageInitShape<typeof AgentMessageSchema>): void {
    this.outgoing.push(create(AgentMessageSchema, message));
  }

  /** Sends the complete inventory of the node: these replicas and no other. */
  sendInventory(reports: readonly Report[] = []): void {
    const replicas = reports.map((report) => create(ReplicaReportSchema, report));
    this.send({
      message: { case: 'inventory', value: create(InventorySchema, { replicas, last: true }) },
    });
  }

  sendReport(report: Report): void {
    this.send({ message: { case: 'report', value: create(ReplicaReportSchema, report) } });
  }

  /**
   * Opens a requested tunnel.
   * @param frames - Frames to send after the first frame, which contains the id.
   * @returns The frames of the coordinator.
   */
  openTunnel(tunnelId: string, frames: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame> {
    return this.client.tunnel(
      (async function* () {
        yield create(TunnelFrameSchema, { frame: { case: 'tunnelId', value: tunnelId } });
        yield* frames;
      })(),
      { signal: this.stopping.signal },
    );
  }

  /** Closes the connection. */
  disconnect(): void {
    this.stopping.abort();
    this.outgoing.close();
  }

  private async run(): Promise<void> {
    try {
      const messages = this.client.session(this.outgoing, {
        signal: this.stopping.signal,
        headers: { [CONNECTION_HEADER]: this.nodeId },
      });
      for await (const message of messages) this.received.push(message);
    } catch (reason) {
      this.failure = reason;
    }
    this.ended = true;
  }
}
