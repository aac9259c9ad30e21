import type {
  AgentMessage,
  CoordinatorMessage,
  EnrollNodeRequest,
  EnrollNodeResponse,
  GetReplicaFilesRequest,
  GetReplicaFilesResponse,
  NetworkReport,
  NetworkUpdate,
  TunnelFrame,
} from '@cloudless/api';
import { createNodeNetworkClient, fromConnectError } from '@cloudless/api';
import type { CoordinatorConnection } from '@cloudless/agent-core';
import type { CallConnection } from '@cloudless/api-server';
import { CloudlessError, type Clock } from '@cloudless/base';
import { PushQueue } from '@cloudless/runtime';
import type { ServingCoordinator } from './serving-coordinator.js';
import { SimPipe, connectionError, type LinkUser, type SimLink } from './sim-link.js';
import type { SimProcess } from './sim-process.js';

/** Largest number of queued items of one stream; more indicates a fault of the simulation. */
const QUEUE_LIMIT = 100_000;
/**
 * Shortest and longest delay until an end notices a cut connection after the network is free again,
 * milliseconds. The delay stands for TCP retransmission.
 */
const RESET_MS = [1, 400] as const;

/** The two ends of a connection, and the link between them. */
export interface ConnectionEnds {
  readonly time: Clock;
  readonly link: SimLink;
  readonly agent: SimProcess;
  readonly coordinator: ServingCoordinator;
  /** Called for each message on delivery. */
  readonly onMessage: (
    direction: 'up' | 'down',
    message: AgentMessage | CoordinatorMessage,
  ) => void;
}

/**
 * A connection from an agent to a coordinator: streams and pings over two ordered pipes. Each side
 * notices the end of the connection with a delay.
 */
export class SimConnection implements CoordinatorConnection, CallConnection, LinkUser {
  /** Connections within one process have no address. */
  readonly remoteAddress = '';
  private readonly up: SimPipe;
  private readonly down: SimPipe;
  private readonly pingListeners = new Set<() => void>();
  private readonly closeListeners = new Set<() => void>();
  /** Pending operations of the agent; they fail when the connection ends. */
  private readonly pendingAtAgent = new Set<(reason: Error) => void>();
  private agentClosed = false;
  private coordinatorClosed = false;
  private isCut = false;

  /** @param id - Identifies the connection to the coordinator. */
  constructor(
    readonly id: string,
    private readonly ends: ConnectionEnds,
  ) {
    this.up = new SimPipe(ends.link, 'up', ends.time);
    this.down = new SimPipe(ends.link, 'down', ends.time);
    ends.link.join(this);
    // The operating system resets the connections of a dead process.
    ends.agent.onDeath(() => this.endFromAgent());
    ends.coordinator.process.onDeath(() => this.endFromCoordinator());
  }

  async enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse> {
    const { link, agent, coordinator } = this.ends;
    return new Promise((resolve, reject) => {
      if (this.agentClosed) return reject(connectionError());
      const fail = (reason: Error): void => reject(reason);
      this.pendingAtAgent.add(fail);
      const requestLost = link.random.chance(link.faults.requestLoss);
      const replyLost = link.random.chance(link.faults.replyLoss);
      const answer = (give: () => void): void =>
        this.down.send(() =>
          agent.run(() => {
            this.pendingAtAgent.delete(fail);
            give();
          }),
        );
      this.up.send(() => {
        if (requestLost) return this.onReset();
        coordinator.process.run(() => {
          coordinator.client.enrollNode(request).then(
            (value) => (replyLost ? this.onReset() : answer(() => resolve(value))),
            (reason: unknown) => answer(() => reject(fromConnectError(reason))),
          );
        });
      });
    });
  }

  // Simulated clusters have no identities, like a coordinator that serves without TLS.
  renewNodeCertificate(): Promise<never> {
    return Promise.reject(noIdentitiesError());
  }

  issueWorkloadCertificate(): Promise<never> {
    return Promise.reject(noIdentitiesError());
  }

  authorizeAgentCall(): Promise<never> {
    return Promise.reject(noIdentitiesError());
  }

  getReplicaFiles(request: GetReplicaFilesRequest): AsyncIterable<GetReplicaFilesResponse> {
    const { client } = this.ends.coordinator;
    return this.open(readNothing(), (_incoming, options) =>
      client.getReplicaFiles(request, options),
    );
  }

  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage> {
    const { client } = this.ends.coordinator;
    return this.open(outgoing, (incoming, options) => client.session(incoming, options));
  }

  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame> {
    const { client } = this.ends.coordinator;
    return this.open(outgoing, (incoming, options) => client.tunnel(incoming, options));
  }

  /** Opens the stream of a network proxy. */
  syncNetwork(reports: AsyncIterable<NetworkReport>): AsyncIterable<NetworkUpdate> {
    const client = createNodeNetworkClient(this.ends.coordinator.transport);
    return this.open(reports, (incoming, options) => client.syncNetwork(incoming, options));
  }

  ping(): Promise<void> {
    const { agent, coordinator } = this.ends;
    if (this.agentClosed) return Promise.reject(connectionError());
    return new Promise((resolve, reject) => {
      this.pendingAtAgent.add(reject);
      this.up.send(() =>
        coordinator.process.run(() => {
          for (const listener of [...this.pingListeners]) listener();
          this.down.send(() =>
            agent.run(() => {
              this.pendingAtAgent.delete(reject);
              resolve();
            }),
          );
        }),
      );
    });
  }

  close(): void {
    this.endFromAgent();
  }

  onPing(listener: () => void): () => void {
    this.pingListeners.add(listener);
    return () => this.pingListeners.delete(listener);
  }

  onClose(listener: () => void): () => void {
    this.closeListeners.add(listener);
    return () => this.closeListeners.delete(listener);
  }

  onCut(): void {
    this.isCut = true;
    this.up.drop();
    this.down.drop();
  }

  onReset(): void {
    const { time, link } = this.ends;
    if (!this.isCut && link.isFree('up') && link.isFree('down')) this.onCut();
    if (!this.isCut) return;
    time.setTimer(link.random.between(...RESET_MS), () => this.closeAtAgent());
    time.setTimer(link.random.between(...RESET_MS), () => this.closeAtCoordinator());
  }

  private open<Out, In>(
    outgoing: AsyncIterable<Out>,
    call: (
      incoming: AsyncIterable<Out>,
      options: { signal: AbortSignal; headers: Headers },
    ) => AsyncIterable<In>,
  ): AsyncIterable<In> {
    const { agent, coordinator } = this.ends;
    const controller = new AbortController();
    const incoming = new PushQueue<Out>({ limit: QUEUE_LIMIT });
    const cancel = (): void =>
      this.up.send(() =>
        coordinator.process.run(() =>
          controller.abort(connectionError('the caller ended the call')),
        ),
      );
    const received = new PushQueue<In>({
      limit: QUEUE_LIMIT,
      onClose: () => {
        this.pendingAtAgent.delete(fail);
        cancel();
      },
    });
    const fail = (reason: Error): void => received.fail(reason);
    if (this.agentClosed) {
      received.fail(connectionError());
      return received;
    }
    this.pendingAtAgent.add(fail);
    this.onClose(() => {
      incoming.fail(connectionError());
      controller.abort(connectionError());
    });
    const inCoordinator = (action: () => void) => (): void => coordinator.process.run(action);
    const inAgent = (action: () => void) => (): void => agent.run(action);
    this.up.send(
      inCoordinator(() => {
        const headers = new Headers({ [CONNECTION_HEADER]: this.id });
        this.pump(
          call(read(incoming), { signal: controller.signal, headers }),
          this.down,
          'down',
          coordinator.process,
          {
            item: (item) => this.down.send(inAgent(() => received.push(item))),
            end: () => this.down.send(inAgent(() => received.end())),
            failed: (reason) =>
              this.down.send(inAgent(() => received.fail(fromConnectError(reason)))),
          },
        );
      }),
    );
    this.pump(outgoing, this.up, 'up', agent, {
      item: (item) => this.up.send(inCoordinator(() => incoming.push(item))),
      end: () => this.up.send(inCoordinator(() => incoming.end())),
      failed: () => cancel(),
    });
    return received;
  }

  /** Reads a stream only as fast as the pipe accepts items. */
  private pump<Item>(
    stream: AsyncIterable<Item>,
    pipe: SimPipe,
    direction: 'up' | 'down',
    reader: SimProcess,
    sink: { item(item: Item): void; end(): void; failed(reason: unknown): void },
  ): void {
    const items = stream[Symbol.asyncIterator]();
    const next = (): void => {
      items.next().then(
        (result) => {
          if (result.done === true) return sink.end();
          for (let copies = this.countCopies(direction, result.value); copies > 0; copies -= 1)
            sink.item(result.value);
          if (pipe.canSend(() => reader.run(next))) next();
        },
        (reason: unknown) => sink.failed(reason),
      );
    };
    next();
  }

  /** Returns how many copies of a message arrive: 0, 1 or 2. */
  private countCopies(direction: 'up' | 'down', message: unknown): number {
    const { link, onMessage } = this.ends;
    onMessage(direction, message as AgentMessage);
    const { random, faults } = link;
    const content = (message as Partial<CoordinatorMessage> | Partial<AgentMessage>).message;
    if (content?.case === 'report') return random.chance(faults.reportDouble) ? 2 : 1;
    if (content?.case !== 'order') return 1;
    // A forget order is not sent again, so it may only be lost together with its connection.
    if (content.value.order.case !== 'forget' && random.chance(faults.orderLoss)) return 0;
    return random.chance(faults.orderDouble) ? 2 : 1;
  }

  private endFromAgent(): void {
    if (this.agentClosed) return;
    this.up.send(() => this.closeAtCoordinator());
    this.closeAtAgent();
  }

  private endFromCoordinator(): void {
    if (this.coordinatorClosed) return;
    this.coordinatorClosed = true;
    this.down.send(() => this.closeAtAgent());
  }

  private closeAtAgent(): void {
    if (this.agentClosed) return;
    this.agentClosed = true;
    this.closeIfBothEnded();
    this.ends.agent.run(() => {
      for (const fail of [...this.pendingAtAgent]) fail(connectionError());
      this.pendingAtAgent.clear();
    });
  }

  private closeAtCoordinator(): void {
    if (this.coordinatorClosed) return;
    this.coordinatorClosed = true;
    this.closeIfBothEnded();
    this.ends.coordinator.process.run(() => {
      for (const listener of [...this.closeListeners]) listener();
    });
  }

  private closeIfBothEnded(): void {
    if (this.agentClosed && this.coordinatorClosed) this.ends.link.leave(this);
  }
}

/** Messages of a client that sends only its request. */
async function* readNothing(): AsyncGenerator<never> {
  // Ends at once.
}

/** Wraps a queue in a generator, which unlike the queue accepts `throw` from its reader. */
async function* read<Item>(queue: PushQueue<Item>): AsyncGenerator<Item> {
  for await (const item of queue) yield item;
}

/** Header by which a coordinator identifies the connection of a call. */
export const CONNECTION_HEADER = 'x-simulated-connection';

function noIdentitiesError(): CloudlessError {
  return new CloudlessError('NO_IDENTITIES', 'this cluster has no identities');
}
