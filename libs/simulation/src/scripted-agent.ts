import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  AgentMessageSchema,
  createCoordinatorClient,
  type EndpointSchema,
  HelloSchema,
  InventorySchema,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  type AgentMessage,
  type Order,
  type ReplicaReport,
  type StartOrder,
} from '@cloudless/api';
import { createSeededRandom, randomHex, type Clock } from '@cloudless/base';
import type { Transport } from '@connectrpc/connect';

/** What a scripted agent does with a replica it is told to start. */
export type StartBehaviour = 'ready' | 'unready' | 'fails' | 'succeeds' | 'stops' | 'nothing';

/**
 * An agent that obeys at once, unless a test tells it otherwise. It keeps what it runs across
 * sessions, as a real one does.
 */
export class ScriptedAgent {
  /** What it runs, by replica id; ended replicas stay until they are forgotten. */
  readonly replicas = new Map<string, ReplicaReport>();
  /** Every start order it took, newest last. */
  readonly started: Order[] = [];
  /** What becomes of replicas that are started from now on. */
  onStart: StartBehaviour | ((order: StartOrder) => StartBehaviour) = 'ready';
  /** False: it takes stop orders and does nothing. */
  obeysStops = true;
  /** False: it sends no PING, as if its network were cut. */
  isHeard = true;
  /** So many of the next orders to start or stop get lost on the way. */
  dropsOrders = 0;
  /** So many of the next orders to forget a replica get lost on the way. */
  dropsForgets = 0;
  /** Newest leadership it has heard of. */
  highestEpoch = 0n;
  /** How many orders it took. */
  taken = 0;
  private readonly random = createSeededRandom(7);
  private outgoing: AgentMessage[] = [];
  private wake: (() => void) | undefined;
  private session: AbortController | undefined;

  constructor(
    readonly nodeId: string,
    /** What it says of its machine beside the usual; a change counts from its next session on. */
    public hello: MessageInitShape<typeof HelloSchema>,
    private readonly clock: Clock,
  ) {}

  /** Enrols and opens a session; resolves when the coordinator has welcomed it. */
  async connect(transport: Transport): Promise<void> {
    const client = createCoordinatorClient(transport);
    const instanceId = `instance-of-${this.nodeId}-0123456789`;
    const { clusterId } = await client.enrollNode({ nodeId: this.nodeId, instanceId });
    const session = new AbortController();
    this.session = session;
    const outgoing: AgentMessage[] = [];
    this.outgoing = outgoing;
    const hello = create(HelloSchema, {
      protocolMin: 1,
      protocolMax: 1,
      instanceId,
      clusterId,
      bootId: 'boot',
      region: 'local',
      zone: 'zone-a',
      capacity: { cpuMillis: 4_000, memoryBytes: 8n * 1024n ** 3n },
      capabilities: ['runtime.process'],
      agentVersion: 'scripted',
      nodeId: this.nodeId,
      highestEpoch: this.highestEpoch,
    });
    const overrides = create(HelloSchema, this.hello);
    for (const key of Object.keys(this.hello) as (keyof typeof overrides)[])
      Object.assign(hello, { [key]: overrides[key] });
    this.send({ message: { case: 'hello', value: hello } });
    const inventory = create(InventorySchema, {
      replicas: [...this.replicas.values()],
      last: true,
    });
    this.send({ message: { case: 'inventory', value: inventory } });
    const answers = client
      .session(this.messages(outgoing, session.signal), { signal: session.signal })
      [Symbol.asyncIterator]();
    const welcome = await answers.next();
    if (welcome.done === true || welcome.value.message.case !== 'welcome')
      throw new Error('no welcome');
    this.hears(welcome.value.message.value.epoch);
    void this.obey(answers, session);
  }

  /** Ends the session; what it runs goes on. */
  disconnect(): void {
    this.session?.abort();
    this.session = undefined;
  }

  get isConnected(): boolean {
    return this.session !== undefined;
  }

  /** What an HTTP/2 PING does on a real connection. */
  ping(nodes: { heard(nodeId: string): void }): void {
    if (this.isHeard && this.session !== undefined) nodes.heard(this.nodeId);
  }

  /** Changes what it reports of a replica, and reports it. */
  change(replicaId: string, changes: Partial<ReplicaReport>): void {
    const report = this.replicas.get(replicaId);
    if (report === undefined) throw new Error(`${this.nodeId} does not know ${replicaId}`);
    this.report(Object.assign(clone(ReplicaReportSchema, report), changes));
  }

  private hears(epoch: bigint): void {
    if (epoch > this.highestEpoch) this.highestEpoch = epoch;
  }

  private report(report: ReplicaReport): void {
    this.replicas.set(report.replicaId, report);
    this.send({ message: { case: 'report', value: report } });
  }

  private async obey(
    answers: AsyncIterator<{ message: { case?: string | undefined; value?: unknown } }>,
    session: AbortController,
  ): Promise<void> {
    try {
      for (let item = await answers.next(); item.done !== true; item = await answers.next()) {
        if (item.value.message.case !== 'order') continue;
        const order = item.value.message.value as Order;
        if (this.dropsOrders > 0 && order.order.case !== 'forget') this.dropsOrders -= 1;
        else if (this.dropsForgets > 0 && order.order.case === 'forget') this.dropsForgets -= 1;
        else this.take(order);
      }
    } catch {
      // The session was cut; what runs goes on.
    }
    if (this.session === session) this.session = undefined;
  }

  private take(order: Order): void {
    this.taken += 1;
    this.hears(order.epoch);
    const held = this.replicas.get(order.replicaId);
    const { replicaId, workloadUid, orderRevision } = order;
    if (order.order.case === 'forget') {
      this.replicas.delete(replicaId);
      const gone = create(ReplicaReportSchema, {
        replicaId,
        workloadUid,
        orderRevision,
        phase: Phase.STOPPED,
        forgotten: true,
      });
      this.send({ message: { case: 'report', value: gone } });
      return;
    }
    if (held !== undefined && held.orderRevision >= orderRevision) {
      this.report(held);
      return;
    }
    if (order.order.case === 'start') {
      // What it has, it has: a replica never comes back, and what runs is not started twice.
      if (held !== undefined)
        return this.report(Object.assign(clone(ReplicaReportSchema, held), { orderRevision }));
      this.started.push(order);
      const behaviour =
        typeof this.onStart === 'function' ? this.onStart(order.order.value) : this.onStart;
      if (behaviour === 'nothing') return;
      this.report(
        create(ReplicaReportSchema, {
          replicaId,
          workloadUid,
          orderRevision,
          containerId: randomHex(this.random, 32),
          endpoints: endpointsOf(order.order.value),
          ...outcomes[behaviour],
        }),
      );
    } else if (order.order.case === 'stop') {
      const known =
        held === undefined
          ? create(ReplicaReportSchema, { replicaId, workloadUid })
          : clone(ReplicaReportSchema, held);
      const stopped =
        this.obeysStops || held === undefined
          ? { phase: Phase.STOPPED, ready: false }
          : { phase: Phase.STOPPING };
      this.report(Object.assign(known, { orderRevision }, stopped));
    }
  }

  private send(message: MessageInitShape<typeof AgentMessageSchema>): void {
    this.outgoing.push(create(AgentMessageSchema, message));
    this.wake?.();
  }

  /** What one session sends: a newer session has its own, as it has its own connection. */
  private async *messages(
    outgoing: AgentMessage[],
    signal: AbortSignal,
  ): AsyncGenerator<AgentMessage> {
    let wake = (): void => undefined;
    signal.addEventListener('abort', () => wake());
    while (!signal.aborted) {
      const next = outgoing.shift();
      if (next !== undefined) yield next;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
          if (this.outgoing === outgoing) this.wake = resolve;
        });
    }
  }

  /** Virtual time as this agent sees it. */
  get now(): number {
    return this.clock.now();
  }
}

/** Where its ports would be reached. */
function endpointsOf({ spec }: StartOrder): MessageInitShape<typeof EndpointSchema>[] {
  return (spec?.ports ?? []).map(({ name, containerPort }) => ({
    portName: name,
    ip: '192.0.2.1',
    port: containerPort,
  }));
}

const outcomes: Record<
  Exclude<StartBehaviour, 'nothing'>,
  MessageInitShape<typeof ReplicaReportSchema>
> = {
  ready: { phase: Phase.RUNNING, ready: true },
  unready: { phase: Phase.RUNNING, ready: false, reason: 'not listening yet' },
  fails: { phase: Phase.FAILED, ready: false, reason: 'exit code 1', lastExitCode: 1 },
  stops: { phase: Phase.STOPPED, ready: false },
  succeeds: { phase: Phase.SUCCEEDED, ready: false, lastExitCode: 0 },
};
