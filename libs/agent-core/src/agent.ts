import {
  backoffDelayMs,
  CloudlessError,
  errorFields,
  randomHex,
  sleep,
  StoppedError,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Meter,
  type Random,
} from '@cloudless/base';
import type { ContainerRuntime } from '@cloudless/runtime';
import type { AgentIdentity, AgentStore, StoredReplica } from './agent-store.js';
import { Contact } from './contact.js';
import { IdentityKeeper } from './identity-keeper.js';
import { meterTransport, showAgent } from './metrics/agent-metrics.js';
import { meterProbes } from './metrics/metered-probes.js';
import { meterRuntime } from './metrics/metered-runtime.js';
import { NodeWatch, type NodeProbe } from './node-watch.js';
import type { ProbeClients } from './probes/check-container.js';
import type { TcpConnect } from './replica/await-ready.js';
import { NodeReplicas } from './replica/node-replicas.js';
import { RuntimeWatch } from './runtime-watch.js';
import { ContainerService } from './serving/container-service.js';
import type { TcpDial } from './serving/tcp-dial.js';
import { Tunnels } from './serving/tunnels.js';
import type { CoordinatorTransport } from './session/coordinator-transport.js';
import type { NodeDescription } from './session/node-description.js';
import { SessionClient } from './session/session-client.js';
import { meterContainers } from './stats/stats-metrics.js';
import type { StatsReader } from './stats/stats-reader.js';
import { StatsSampler } from './stats/stats-sampler.js';

/** Needs of an {@link Agent}. */
export interface AgentOptions {
  readonly nodeId: string;
  /** Text that is new at each start of the machine. */
  readonly bootId: string;
  /** Coordinators, tried in turn; at least one. */
  readonly coordinators: readonly string[];
  readonly transport: CoordinatorTransport;
  readonly runtime: ContainerRuntime;
  /**
   * Told which cluster this node belongs to: at the start when that is known, otherwise after the
   * enrolment, before the first Hello. What the runtime holds of that cluster is looked at when it
   * resolves.
   */
  readonly onCluster?: (clusterId: string) => Promise<void>;
  readonly store: AgentStore;
  readonly probe: NodeProbe;
  /** Asked at each session, as the agent's own address is known only once it listens. */
  readonly node: () => NodeDescription;
  readonly connect: TcpConnect;
  /** How ports of replicas are reached for callers; without it PortForward is refused. */
  readonly dial?: TcpDial;
  readonly probeClients: ProbeClients;
  /** What containers use; without it there are no statistics. */
  readonly stats?: StatsReader;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** What an operator runs to make this agent forget its cluster. */
  readonly resetCommand: string;
  /**
   * How many containers are being started at a time at most; 1 or more. Default 4. Stops never
   * wait.
   */
  readonly startConcurrency?: number;
  /** Default: nothing is measured. */
  readonly meter?: Meter;
}

/** A runtime that cannot be reached is asked again, ever more slowly. */
const RUNTIME_BACKOFF: BackoffPolicy = { firstMs: 50, maxMs: 5_000, jitter: 0.2 };

/** What runs on every machine: keeps replicas as ordered, with or without a coordinator. */
export class Agent {
  /** Logs, commands and states of this node's containers. */
  readonly containers: ContainerService;
  private readonly tunnels: Tunnels;
  private readonly sampler: StatsSampler | undefined;
  private readonly session: SessionClient;
  private readonly watch: NodeWatch;
  private readonly runtimeWatch: RuntimeWatch;
  private readonly stopping = new AbortController();
  private readonly hide: () => void = () => undefined;
  private readonly running: Promise<unknown>[] = [];

  private constructor(
    private readonly options: AgentOptions,
    private readonly identity: IdentityKeeper,
    /** The replicas of this node; for tests and the agent's own service. */
    readonly replicas: NodeReplicas,
    contact: Contact,
  ) {
    const { transport, runtime, nodeId, bootId, clock, random, log, node, resetCommand } = options;
    const { dial } = options;
    this.sampler = samplerOf(options, replicas);
    this.containers = new ContainerService({
      nodeId,
      runtime,
      replicas,
      clock,
      ...(dial === undefined ? {} : { dial }),
      ...(this.sampler === undefined ? {} : { stats: this.sampler }),
    });
    this.tunnels = new Tunnels({
      transport,
      service: this.containers,
      clock,
      log: log.child({ component: 'tunnel' }),
    });
    const runtimeWatch = (this.runtimeWatch = new RuntimeWatch({ runtime, replicas, clock, log }));
    this.watch = new NodeWatch({
      probe: options.probe,
      clock,
      log,
      containers: () => runtimeWatch.condition,
    });
    this.session = new SessionClient({
      transport,
      addresses: options.coordinators,
      identity,
      replicas,
      contact,
      watch: this.watch,
      node,
      bootId,
      capabilities: () => runtime.capabilities(),
      clock,
      random,
      log: log.child({ component: 'session' }),
      resetCommand,
      onEnrolled: (clusterId) => this.enrolled(clusterId),
      openTunnel: (request, address) => this.tunnels.accept(request, address),
    });
    contact.listen(() => void replicas.renewLeases());
    const { meter } = options;
    if (meter !== undefined)
      this.hide = showAgent(meter, {
        connected: () => this.connected,
        tunnels: () => this.tunnels.size,
        replicas,
      });
  }

  /**
   * Reads what an earlier agent left, adopts what runs, and goes on with it. Resolves then: with or
   * without a coordinator.
   * @param signal - Gives up waiting for a runtime that cannot be reached.
   * @throws kind `precondition` when the store is another node's, `internal` when it is damaged.
   */
  static async start(given: AgentOptions, signal?: AbortSignal): Promise<Agent> {
    const options = measured(given);
    if (options.coordinators.length === 0)
      throw new CloudlessError('invalid', 'coordinators: at least one address is needed');
    const stored = await options.store.load();
    const identity = new IdentityKeeper(options.store, await identify(options, stored.identity));
    const contact = new Contact(options.clock);
    const replicas = new NodeReplicas({
      ...options,
      identity,
      contact,
      log: options.log.child({ component: 'replicas' }),
    });
    const agent = new Agent(options, identity, replicas, contact);
    await agent.begin(stored.replicas, signal);
    return agent;
  }

  /** The cluster this agent belongs to; empty before it was enrolled. */
  get clusterId(): string {
    return this.identity.clusterId;
  }

  /** Whether a session with a coordinator stands. */
  get connected(): boolean {
    return this.session.connected;
  }

  /**
   * Ends sessions in good order and lets go of everything. What runs goes on, and a next agent
   * finds it.
   * @param stopWorkloads - Ends every container too, each with its own grace.
   */
  async stop({ stopWorkloads = false } = {}): Promise<void> {
    this.stopping.abort();
    this.hide();
    await Promise.all([...this.running, this.tunnels.close()]);
    if (stopWorkloads) await this.replicas.stopAll();
    else await this.replicas.close();
  }

  private async begin(
    stored: readonly StoredReplica[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const stop = (): void => this.stopping.abort();
    signal?.addEventListener('abort', stop, { once: true });
    await this.watch.look();
    if (this.clusterId !== '') await this.options.onCluster?.(this.clusterId);
    await new Promise<void>((resolve, reject) => {
      this.running.push(
        this.watchRuntime(stored, resolve).then(() => reject(new StoppedError()), reject),
      );
    });
    signal?.removeEventListener('abort', stop);
    this.running.push(this.watch.run(() => this.session.sendUsage(), this.stopping.signal));
    this.running.push(this.runtimeWatch.run(() => this.session.sendUsage(), this.stopping.signal));
    this.running.push(this.session.run(this.stopping.signal));
    if (this.sampler !== undefined) this.running.push(this.sampler.run(this.stopping.signal));
  }

  /**
   * What is there of an earlier agent of this node, whose memory is gone, is told to the
   * coordinator, which says what becomes of it.
   */
  private async enrolled(clusterId: string): Promise<void> {
    const { onCluster, runtime, log } = this.options;
    if (onCluster === undefined) return;
    await onCluster(clusterId);
    try {
      this.replicas.adoptOrphans(await runtime.list());
    } catch (reason) {
      log.warn('runtime not reached', errorFields(reason));
    }
  }

  /** Restores at the first contact, and after a break compares what runs with what should. */
  private async watchRuntime(
    stored: readonly StoredReplica[],
    onRestored: () => void,
  ): Promise<void> {
    const { runtime, clock, random, log } = this.options;
    let restored = false;
    let failures = 0;
    while (!this.stopping.signal.aborted) {
      const round = new AbortController();
      const endRound = (): void => round.abort();
      this.stopping.signal.addEventListener('abort', endRound, { once: true });
      let containers;
      try {
        const events = runtime.events(round.signal); // from here on no change is missed
        const expected = this.replicas.expected();
        containers = await runtime.list();
        if (restored) this.replicas.compare(expected, containers);
        else await this.replicas.restore(stored, containers, round.signal);
        restored = true;
        failures = 0;
        onRestored();
        for await (const event of events) this.replicas.observe(event);
        if (!this.stopping.signal.aborted) log.warn('runtime events ended');
      } catch (reason) {
        // a damaged store: waiting does not help
        if (!restored && containers !== undefined) throw reason;
        if (failures === 0 && !this.stopping.signal.aborted)
          log.warn('runtime not reached', errorFields(reason));
      } finally {
        this.stopping.signal.removeEventListener('abort', endRound);
        round.abort();
      }
      failures += 1;
      await sleep(
        clock,
        backoffDelayMs(RUNTIME_BACKOFF, failures, random),
        this.stopping.signal,
      ).catch(() => undefined);
    }
  }
}

function samplerOf(
  { stats: reader, meter, runtime, clock, log }: AgentOptions,
  replicas: NodeReplicas,
): StatsSampler | undefined {
  if (reader === undefined) return undefined;
  const observer = meter === undefined ? {} : { observer: meterContainers(meter) };
  return new StatsSampler({
    reader,
    runtime,
    replicas,
    clock,
    log: log.child({ component: 'stats' }),
    ...observer,
  });
}

/** What the agent works with, measured where somebody asks for that. */
function measured(options: AgentOptions): AgentOptions {
  const { meter, clock, runtime, transport, probeClients } = options;
  if (meter === undefined) return options;
  return {
    ...options,
    runtime: meterRuntime(runtime, meter, clock),
    transport: meterTransport(transport, meter),
    probeClients: meterProbes(probeClients, meter, clock),
  };
}

async function identify(
  options: AgentOptions,
  stored: AgentIdentity | undefined,
): Promise<AgentIdentity> {
  const { nodeId, store, random, resetCommand } = options;
  if (stored !== undefined) {
    if (stored.nodeId === nodeId) return stored;
    throw new CloudlessError(
      'precondition',
      `the data directory belongs to node ${stored.nodeId}, not ${nodeId}; use its own name, another data directory, or run: ${resetCommand}`,
    );
  }
  const made: AgentIdentity = { nodeId, instanceId: randomHex(random, 16), highestEpoch: 0n };
  await store.saveIdentity(made);
  return made;
}
