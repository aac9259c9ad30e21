import {
  Agent,
  CONTAINER_LABELS,
  type AgentStore,
  type CoordinatorTransport,
  type StoredReplica,
} from '@cloudless/agent-core';
import { MemoryAgentStore } from '@cloudless/agent-core/testing';
import { CloudlessError, type Clock, type ContainerId, type Log } from '@cloudless/base';
import type { ContainerEvent, ContainerRequest, ContainerRuntime } from '@cloudless/runtime';
import { createFakeRuntime, type FakeRuntime } from '@cloudless/runtime/testing';
import type { SimLink } from './sim-link.js';
import { createSimTransport, type DialOptions } from './sim-network.js';
import { SimProcess, createDriftingClock, type Drift } from './sim-process.js';
import type { SimRandom } from './sim-random.js';

/** Observes the calls of an agent and the events of its machine. */
export interface NodeObserver {
  /** A container started or ended. */
  onContainerEvent(node: SimNode, event: ContainerEvent): void;
  /** A new agent process reads its disk. */
  onAgentStart(node: SimNode): void;
  /** The agent dials a coordinator. */
  onDial(node: SimNode): void;
  /** The agent requests a container start. */
  onContainerStart(node: SimNode, request: ContainerRequest): void;
  /** The agent requests the stop of a container. */
  onContainerStop(node: SimNode, containerId: ContainerId): void;
  /** The agent has saved the replica on its disk; with `stored` undefined, it has removed it. */
  onSave(node: SimNode, replicaId: string, stored: StoredReplica | undefined): void;
  /** The agent has marked the replica as stopped, because no stop order could be stored. */
  onStopMarked(node: SimNode, replicaId: string): void;
  /** The machine was restarted or destroyed: all its processes have ended. */
  onMachineEnd(node: SimNode): void;
  /** The machine did not carry out a start. */
  onStartFailure(node: SimNode, replicaId: string): void;
}

export interface SimNodeOptions {
  readonly id: string;
  readonly zone: string;
  readonly cpuMillis: number;
  /** True when the node runs container images in addition to processes. */
  readonly runsImages: boolean;
  /** True when a network proxy runs on the machine. */
  readonly hasProxy: boolean;
  readonly drift: Drift;
  readonly time: Clock;
  readonly link: SimLink;
  readonly random: SimRandom;
  readonly log: Log;
  /** URLs of the coordinators. */
  readonly addresses: readonly string[];
  readonly coordinator: DialOptions['coordinator'];
  readonly onMessage: DialOptions['onMessage'];
  readonly observer: NodeObserver;
  /** Returns true when a container accepts connections on a port of this machine. */
  readonly acceptsConnections: (node: SimNode, port: number) => boolean;
  readonly wrapStore?: ((store: AgentStore) => AgentStore) | undefined;
  readonly wrapRuntime?: ((runtime: ContainerRuntime) => ContainerRuntime) | undefined;
  readonly wrapClock?: ((clock: Clock, nodeId: string) => Clock) | undefined;
  readonly wrapTransport?:
    ((transport: CoordinatorTransport, clock: Clock) => CoordinatorTransport) | undefined;
  readonly wrapConnection?: DialOptions['wrap'];
}

/** Capabilities of a machine that runs images, some of them with host ports. */
const IMAGE_CAPABILITIES = [
  'runtime.process',
  'limits.cpu',
  'limits.memory',
  'disconnect.exclusive',
  'runtime.cri',
  'ports.host',
];
/** Shortest and longest duration of a call to the runtime, milliseconds. */
const RUNTIME_MS = [0.5, 20] as const;

/** Longest duration of a stop of the agent, milliseconds. */
const MAX_STOP_MS = 2_000;

/** A machine with its containers and the agent's disk, which outlive the agent processes. */
export class SimNode {
  readonly id: string;
  readonly link: SimLink;
  readonly store = new MemoryAgentStore();
  /** Shortest and longest duration of the agent's writes, milliseconds. */
  storeMs: readonly [number, number] = [0, 2];
  /** True while the agent's disk accepts no writes. */
  storeIsFull = false;
  /** True when the machine is destroyed permanently. */
  isDestroyed = false;
  /** Time of the world since which no agent process runs; undefined while an agent process runs. */
  quietSince: number | undefined = 0;
  /** Time of the world at which an agent process last started or resumed. */
  activeSince = 0;
  /** Times of the world at which agents began to leave in good order, oldest first. */
  readonly leftAt: number[] = [];
  private absenceMs: number | undefined;
  private runtime: FakeRuntime;
  private boots = 1;
  private process: SimProcess | undefined;
  private current: Agent | undefined;
  private incarnation = 0;

  constructor(readonly options: SimNodeOptions) {
    this.id = options.id;
    this.link = options.link;
    const clock = createDriftingClock(options.time, options.drift);
    this.runtime = createFakeRuntime(
      options.runsImages ? { clock, capabilities: IMAGE_CAPABILITIES } : { clock },
    );
    this.machine.subscribe((event) => options.observer.onContainerEvent(this, event));
  }

  get machine(): FakeRuntime['machine'] {
    return this.runtime.machine;
  }

  /** The agent process that runs or is paused, if any. */
  get agentProcess(): SimProcess | undefined {
    return this.process?.isDead === true ? undefined : this.process;
  }

  get agent(): Agent | undefined {
    return this.agentProcess === undefined ? undefined : this.current;
  }

  /** Starts an agent, which adopts the running containers. Does nothing while an agent exists. */
  async startAgent(): Promise<void> {
    if (this.agentProcess !== undefined || this.isDestroyed) return;
    const { time, drift, random, log, zone, cpuMillis } = this.options;
    const process = new SimProcess(`${this.id}#${(this.incarnation += 1)}`, time, drift);
    this.process = process;
    this.current = undefined;
    this.activeSince = time.now();
    this.quietSince = undefined;
    process.onDeath(() => (this.quietSince = time.now()));
    const { wrapRuntime = (runtime) => runtime, wrapClock = (clock) => clock } = this.options;
    const { wrapTransport = (transport) => transport } = this.options;
    const clock = wrapClock(process.clock, this.id);
    this.runtime = await this.runtime.reopen();
    if (process.isDead) return;
    this.options.observer.onAgentStart(this);
    const agent = await Agent.start({
      nodeId: this.id,
      bootId: `boot-${this.boots}`,
      coordinators: this.options.addresses,
      transport: wrapTransport(this.transport(process), clock),
      runtime: wrapRuntime(this.guardedRuntime(process)),
      store: this.guardedStore(process),
      nodeReader: { read: () => process.call(async () => NODE_READING) },
      node: () => ({
        region: 'r1',
        zone,
        labels: {},
        taints: [],
        capacity: { cpuMillis, memoryBytes: 8e9, storageBytes: 1e11 },
        reserved: { cpuMillis: 0, memoryBytes: 0 },
        maxReplicas: 110,
        agentVersion: '0.1.0',
        architecture: 'x64',
        operatingSystem: 'linux',
        agentAddress: '',
        ...(this.options.hasProxy ? { network: { address: '', hostId: this.id } } : {}),
      }),
      connect: (_ip, port) =>
        process.call(async () => {
          await this.wait(1);
          return this.options.acceptsConnections(this, port);
        }),
      probeClients: {
        http: () => process.call(async () => 200),
        grpc: () => process.call(async () => 'SERVING'),
      },
      clock,
      random: random.toPlainRandom(),
      log,
      resetCommand: 'cloudless-agent reset',
    });
    if (!process.isDead) this.current = agent;
  }

  killAgent(): void {
    this.agentProcess?.kill();
  }

  /**
   * Stops the agent in good order: it says Goodbye, and its containers run on.
   * @param absenceMs - Time after which the world starts the next agent, milliseconds.
   * @returns False when no agent runs.
   */
  leaveAgent(absenceMs: number): boolean {
    const { agent, process } = this;
    const { time } = this.options;
    if (agent === undefined || process?.isRunning !== true) return false;
    this.leftAt.push(time.now());
    this.absenceMs = absenceMs;
    void agent.stop().then(() => process.kill());
    // As a service manager does with a process that does not end.
    time.setTimer(MAX_STOP_MS, () => process.kill());
    return true;
  }

  /**
   * Returns the planned absence of the agent that just ended, milliseconds, once; undefined when its
   * end was not planned.
   */
  takeAbsenceMs(): number | undefined {
    const { absenceMs } = this;
    this.absenceMs = undefined;
    return absenceMs;
  }

  pauseAgent(): void {
    this.process?.pause();
    this.quietSince ??= this.options.time.now();
  }

  resumeAgent(): void {
    if (this.agentProcess === undefined || this.process?.isRunning === true) return;
    this.quietSince = undefined;
    this.activeSince = this.options.time.now();
    this.process?.resume();
  }

  /** Ends everything on the machine. Containers start again only when a new agent starts. */
  reboot(): void {
    this.killAgent();
    this.boots += 1;
    this.machine.reboot();
    this.options.observer.onMachineEnd(this);
  }

  /** Destroys the machine permanently. */
  destroy(): void {
    this.killAgent();
    this.isDestroyed = true;
    this.link.cut(Number.MAX_SAFE_INTEGER);
    this.boots += 1;
    this.machine.reboot();
    this.options.observer.onMachineEnd(this);
  }

  private transport(agent: SimProcess): CoordinatorTransport {
    const { time, link, coordinator, onMessage, wrapConnection, observer } = this.options;
    const transport = createSimTransport({
      time,
      linkTo: (address) => link.to(address),
      agent,
      coordinator,
      onMessage,
      wrap: wrapConnection,
    });
    return {
      connect: (address, signal) => {
        if (!agent.isDead) observer.onDial(this);
        return transport.connect(address, signal);
      },
    };
  }

  /**
   * Wraps the runtime for one agent process. A request that was sent reaches the machine even if
   * the agent dies afterwards, but not if the machine restarts meanwhile.
   */
  private guardedRuntime(process: SimProcess): ContainerRuntime {
    const { runtime } = this;
    const { observer, random } = this.options;
    const callRuntime = <Result>(effect: () => Promise<Result>): Promise<Result> =>
      process.call(async () => {
        const boot = this.boots;
        await this.wait(random.between(...RUNTIME_MS));
        if (boot !== this.boots)
          throw new CloudlessError('unavailable', 'the machine was restarted');
        return effect();
      });
    return {
      name: runtime.name,
      version: () => callRuntime(() => runtime.version()),
      capabilities: () => runtime.capabilities(),
      prepare: (request, progress, signal) =>
        callRuntime(() => this.machineRuntime().prepare(request, progress, signal)),
      start: (request) => {
        if (!process.isDead) observer.onContainerStart(this, request);
        return callRuntime(async () => {
          try {
            return await this.machineRuntime().start(request);
          } catch (reason) {
            observer.onStartFailure(this, request.labels[CONTAINER_LABELS.replica] ?? '');
            throw reason;
          }
        });
      },
      stop: (containerId, graceMs) => {
        if (!process.isDead) observer.onContainerStop(this, containerId);
        return callRuntime(() => this.machineRuntime().stop(containerId, graceMs));
      },
      signal: (containerId, signal) =>
        callRuntime(() => this.machineRuntime().signal(containerId, signal)),
      limitEgress: (containerId, rules) =>
        callRuntime(() => this.machineRuntime().limitEgress(containerId, rules)),
      renew: (leases) => callRuntime(() => this.machineRuntime().renew(leases)),
      remove: (containerId) => callRuntime(() => this.machineRuntime().remove(containerId)),
      list: () => callRuntime(() => this.machineRuntime().list()),
      events: (signal) => process.iterate(runtime.events(signal)),
      logs: (containerId, request, signal) =>
        process.iterate(runtime.logs(containerId, request, signal)),
      logBatches: (containerId, request, signal) =>
        process.iterate(runtime.logBatches(containerId, request, signal)),
      exec: (containerId, request, signal) =>
        process.iterate(runtime.exec(containerId, request, signal)),
      close: () => process.call(() => runtime.close()),
    };
  }

  /**
   * Returns the machine's current runtime: a request that was sent reaches the machine, whichever
   * runtime instance it has by then.
   */
  private machineRuntime(): FakeRuntime {
    return this.runtime;
  }

  /** Wraps the agent's disk for one agent process. */
  private guardedStore(process: SimProcess): AgentStore {
    const { store } = this;
    const { observer, random, wrapStore } = this.options;
    // A write takes effect completely, or not at all when the agent or the machine dies meanwhile.
    const write = (effect: () => Promise<void>): Promise<void> =>
      process.call(async () => {
        await this.wait(random.between(...this.storeMs));
        if (this.storeIsFull)
          throw new CloudlessError('exhausted', 'the disk is full: nothing was written');
        if (!process.isDead) await effect();
      });
    const guarded: AgentStore = {
      load: () => process.call(() => store.load()),
      saveIdentity: (identity) => write(() => store.saveIdentity(identity)),
      saveReplica: (replica) =>
        write(() => store.saveReplica(replica)).then(() =>
          observer.onSave(this, replica.replicaId, replica),
        ),
      // A mark needs no space.
      markStopped: (replicaId) =>
        process
          .call(async () => {
            await this.wait(random.between(...this.storeMs));
            if (!process.isDead) await store.markStopped(replicaId);
          })
          .then(() => observer.onStopMarked(this, replicaId)),
      removeReplica: (replicaId) =>
        write(() => store.removeReplica(replicaId)).then(() =>
          observer.onSave(this, replicaId, undefined),
        ),
    };
    return wrapStore === undefined ? guarded : wrapStore(guarded);
  }

  private wait(durationMs: number): Promise<void> {
    return new Promise((resolve) => this.options.time.setTimer(durationMs, resolve));
  }
}

/** Usage and conditions that every node reports. */
const NODE_READING = {
  cpuMillis: 10,
  memoryBytes: 1_000,
  storageBytes: 2_000,
  memoryPressure: { status: false, reason: '' },
  diskPressure: { status: false, reason: '' },
};
