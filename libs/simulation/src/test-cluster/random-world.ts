import { Code, ConnectError } from '@connectrpc/connect';
import {
  ReplicaStatus_Phase as Phase,
  Taint_Effect as Effect,
  Toleration_Operator as Operator,
  WorkloadSpec_Mode as Mode,
} from '@cloudless/api';
import { createSeededRandom, type Random } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import {
  COMMIT_CHECKERS,
  onlyDeadNodesLoseReplicas,
  type Checker,
} from '../checks/commit-checkers.js';
import { isGlobal } from '../checks/global-checks.js';
import { nominationsFit } from '../checks/preemption-checkers.js';
import { requiredUserAction } from '../checks/rollout-progress.js';
import { factsOf } from '../checks/rollout-facts.js';
import { findReservationMismatches } from '../checks/convergence.js';
import { ReadySince } from '../checks/ready-since.js';
import type { ScriptedAgent } from './scripted-agent.js';
import { TestCluster, type TestClusterOptions } from './test-cluster.js';

const NODES = 5;
const WORKLOADS = ['one', 'two', 'three'];
/** Workload in mode GLOBAL in worlds with GLOBAL workloads and taints. */
const GLOBAL_WORKLOAD = 'everywhere';
/** Taint key that workload `one` tolerates, and one that no workload tolerates. */
const TAINT_KEYS = ['spot', 'broken'];
/**
 * Workloads that use the same host port in worlds with host ports. The replicas of both together,
 * plus one, fit on the five nodes.
 */
const WITH_HOST_PORT = ['two', 'three'];
/**
 * Priorities of the workloads in worlds with priorities. Their replicas take 800 of the 2 000 m CPU
 * of a node, so that two fit on a node and ten on all.
 */
const PRIORITIES: Readonly<Record<string, number>> = { one: 10, two: 150, three: 300 };
/** Number of replicas to which workloads in worlds with priorities are scaled at the end. */
const REPLICAS_THAT_FIT = 2;
/** Most replicas of a workload with a host port. */
const MAX_WITH_HOST_PORT = 2;
/**
 * Largest number of losses of one node. One more would quarantine the node for longer than a world
 * may take to converge.
 */
const MAX_LOSSES = 2;
/** Longer than a lease of 3 s, so that a node that is away this long is lost. Milliseconds. */
const ABSENCE_MS = 4_000;
/** Grace of agents that leave in good order, milliseconds. */
const LEAVE_GRACE_MS = 4_000;
/** Steps in which time advances, milliseconds. */
const STEP_MS = 50;
/** Longest delay of a commit in a slow store, milliseconds. */
const MAX_COMMIT_DELAY_MS = 20;
/** Status codes that no user input may cause. */
const INTERNAL_CODES: readonly Code[] = [
  Code.Internal,
  Code.Unknown,
  Code.Aborted,
  Code.ResourceExhausted,
];

/**
 * Checkers of what a slow store may violate for a moment: the liveness of a node changes during a
 * commit, and a placement that is on its way takes the resources of a new nomination, which is then
 * decided again.
 */
const NEEDS_FAST_STORE: readonly Checker[] = [onlyDeadNodesLoseReplicas, nominationsFit];

export interface RandomWorldOptions extends Pick<TestClusterOptions, 'historyLimit'> {
  /**
   * True: two of the workloads use the same host port, and the nodes run containers too. Default:
   * false.
   */
  readonly hostPorts?: boolean;
  /**
   * True: another workload is GLOBAL, and users set and remove two taints, of which one workload
   * tolerates one. Default: false.
   */
  readonly globalAndTaints?: boolean;
  /**
   * True: the workloads have different priorities, two of which may preempt, and want more than the
   * nodes have. Default: false.
   */
  readonly priorities?: boolean;
}

/** A cluster in which users, agents and coordinators act at random. Equal seeds give equal runs. */
export class RandomWorld {
  /** Violations that the checkers reported, newest last. */
  readonly violations: string[] = [];
  /** Actions with their times, newest last. */
  readonly history: string[] = [];
  private readonly random: Random;
  private readonly away = new Set<string>();
  private readonly losses = new Map<string, number>();
  private attemptedActions = 0;
  private readonly checkers: readonly Checker[];

  private constructor(
    readonly cluster: TestCluster,
    seed: number,
    private readonly storeSpeed: 'fast' | 'slow',
    private readonly hasHostPorts: boolean,
    private readonly hasGlobalAndTaints: boolean,
    private readonly hasPriorities: boolean,
  ) {
    this.random = createSeededRandom(seed);
    this.checkers =
      storeSpeed === 'slow'
        ? COMMIT_CHECKERS.filter((check) => !NEEDS_FAST_STORE.includes(check))
        : COMMIT_CHECKERS;
    for (const agent of cluster.agents.values())
      agent.onStart = () => this.pick(['ready', 'ready', 'ready', 'unready', 'fails']);
    this.checkCommits(cluster.state);
  }

  /**
   * Starts a world with five nodes.
   * @param storeSpeed - `slow`: commits take up to 20 ms and overtake each other.
   */
  static async start(
    seed: number,
    storeSpeed: 'fast' | 'slow' = 'fast',
    {
      hostPorts = false,
      globalAndTaints = false,
      priorities = false,
      ...options
    }: RandomWorldOptions = {},
  ): Promise<RandomWorld> {
    const delays = createSeededRandom(seed);
    let started = false;
    let world: RandomWorld | undefined;
    const commitDelayMs = (): number =>
      started ? Math.floor(delays.next() * MAX_COMMIT_DELAY_MS) : 0;
    const cluster = await TestCluster.start({
      ...options,
      seed,
      leaveGraceMs: LEAVE_GRACE_MS,
      ...(storeSpeed === 'slow' ? { commitDelayMs } : {}),
      onStateOpened: (state) => world?.checkCommits(state),
    });
    for (let number = 1; number <= NODES; number += 1) {
      await cluster.addNode(`node-${number}`, {
        zone: `zone-${number % 3}`,
        capacity: { cpuMillis: 2_000, memoryBytes: 8n << 30n },
        capabilities: ['runtime.process', ...(hostPorts ? ['runtime.cri', 'ports.host'] : [])],
      });
    }
    started = true;
    world = new RandomWorld(cluster, seed, storeSpeed, hostPorts, globalAndTaints, priorities);
    return world;
  }

  /** Performs one random action and lets some time pass. */
  async step(): Promise<void> {
    const [name, perform] = this.pick(this.possibleActions());
    this.history.push(`${this.cluster.clock.now()} ms: ${name}`);
    try {
      await perform();
    } catch (reason) {
      // Users may request what is not possible; an internal error is a fault of the coordinator.
      if (INTERNAL_CODES.includes(ConnectError.from(reason).code))
        this.violations.push(`${name}: ${String(reason)}`);
    }
    await this.advance(this.pick([10, 50, 200, 600]));
    this.violations.push(...findReservationMismatches(this.cluster));
  }

  /**
   * Ends all faults and waits until the cluster has converged.
   * @param withinMs - Longest wait, virtual milliseconds.
   * @returns The differences that remain; empty when the cluster has converged.
   */
  async healAndSettle(withinMs: number): Promise<readonly string[]> {
    this.history.push(`${this.cluster.clock.now()} ms: all faults end`);
    const { cluster } = this;
    for (const agent of cluster.agents.values()) this.reconnectAgent(agent);
    for (const nodeId of cluster.agents.keys())
      await cluster.complete(() => cluster.client.uncordonNode({ nodeId }));
    if (this.hasGlobalAndTaints)
      for (const nodeId of cluster.agents.keys())
        await cluster.complete(() =>
          cluster.client.updateNode({ nodeId, removeTaints: TAINT_KEYS }),
        );
    // The replicas of the lowest priorities would wait for ever.
    if (this.hasPriorities)
      for (const { value } of [...cluster.state.view().workloads()])
        if (value.deletionRequestedAt === undefined)
          await cluster.complete(() =>
            cluster.client.updateWorkload({
              name: value.name,
              spec: { replicas: REPLICAS_THAT_FIT },
            }),
          );
    for (let passed = 0; passed < withinMs; passed += 1_000) {
      for (const agent of cluster.agents.values()) {
        Object.assign(agent, { onStart: 'ready', obeysStops: true });
        for (const { replicaId, phase } of agent.replicas.values())
          this.mend(agent, replicaId, phase);
      }
      await this.resumeRollouts();
      await this.advance(1_000);
      if (findDifferences(cluster).length === 0) break;
    }
    return [...findDifferences(cluster), ...findReservationMismatches(cluster)];
  }

  /** Resumes rollouts that failed while faults were injected. */
  private async resumeRollouts(): Promise<void> {
    const { cluster } = this;
    const view = cluster.state.view();
    for (const { value: workload } of [...view.workloads()]) {
      const { name, uid } = workload;
      const control = view.control(uid)?.value;
      if (control === undefined || requiredUserAction(control, workload) !== 'resume') continue;
      // The call fails when the rollout has continued by itself meanwhile.
      await cluster.complete(() => cluster.client.resumeRollout({ name })).catch(() => undefined);
    }
  }

  private possibleActions(): readonly (readonly [string, () => Promise<unknown> | void])[] {
    return [
      ...this.userActions(),
      ...this.userActions(),
      ...(this.hasGlobalAndTaints ? this.globalAndTaintActions() : []),
      ...this.agentActions(),
      ...this.agentActions(),
      ['the coordinator restarts', () => this.restart()],
    ];
  }

  private userActions(): readonly (readonly [string, () => Promise<unknown>])[] {
    const { cluster } = this;
    const { client } = cluster;
    const name = this.pick(WORKLOADS);
    const nodeId = this.pick([...cluster.agents.keys()]);
    const usesHostPort = this.hasHostPorts && WITH_HOST_PORT.includes(name);
    const replicas = Math.min(
      this.pick([0, 1, 2, 4, 7]),
      usesHostPort ? MAX_WITH_HOST_PORT : Number.POSITIVE_INFINITY,
    );
    const rollout = this.pick([
      {},
      { minAvailable: replicas },
      { maxUnavailable: 2 },
      { maxSurge: 3 },
    ]);
    const port = usesHostPort
      ? { image: 'serve:1', ports: [{ containerPort: 80, hostPort: 8080 }] }
      : {};
    const spec = {
      command: ['serve'],
      replicas,
      rollout,
      resources: { requests: { cpuMillis: this.hasPriorities ? 800 : 100 } },
      ...(this.hasPriorities ? { priority: PRIORITIES[name] ?? 0 } : {}),
      ...port,
      ...(this.hasGlobalAndTaints && name === 'one'
        ? { placement: { tolerations: [{ key: 'spot', operator: Operator.EXISTS }] } }
        : {}),
    };
    return [
      [
        `create ${name} with ${replicas}`,
        () => cluster.complete(() => client.createWorkload({ name, spec })),
      ],
      [
        `scale ${name} to ${replicas}`,
        () => cluster.complete(() => client.scaleWorkload({ name, replicas })),
      ],
      [
        `update ${name}`,
        () =>
          cluster.complete(() =>
            client.updateWorkload({ name, spec: { args: [String((this.attemptedActions += 1))] } }),
          ),
      ],
      [`delete ${name}`, () => cluster.complete(() => client.deleteWorkload({ name }))],
      [`drain ${nodeId}`, () => cluster.complete(() => client.drainNode({ nodeId }))],
      [`cordon ${nodeId}`, () => cluster.complete(() => client.cordonNode({ nodeId }))],
      [`uncordon ${nodeId}`, () => cluster.complete(() => client.uncordonNode({ nodeId }))],
    ];
  }

  private globalAndTaintActions(): readonly (readonly [string, () => Promise<unknown>])[] {
    const { cluster } = this;
    const { client } = cluster;
    const name = GLOBAL_WORKLOAD;
    const nodeId = this.pick([...cluster.agents.keys()]);
    const key = this.pick(TAINT_KEYS);
    const effect = this.pick([Effect.NO_SCHEDULE, Effect.NO_EXECUTE]);
    const spec = {
      command: ['serve'],
      mode: Mode.GLOBAL,
      rollout: this.pick([{}, { maxUnavailable: 2 }, { maxSurge: 0, maxUnavailable: 1 }]),
      resources: { requests: { cpuMillis: 100 } },
    };
    return [
      [`create ${name}`, () => cluster.complete(() => client.createWorkload({ name, spec }))],
      [
        `update ${name}`,
        () =>
          cluster.complete(() =>
            client.updateWorkload({ name, spec: { args: [String((this.attemptedActions += 1))] } }),
          ),
      ],
      [
        `taint ${nodeId} ${key}:${Effect[effect]}`,
        () => cluster.complete(() => client.updateNode({ nodeId, setTaints: [{ key, effect }] })),
      ],
      [
        `remove taints of ${nodeId}`,
        () => cluster.complete(() => client.updateNode({ nodeId, removeTaints: TAINT_KEYS })),
      ],
    ];
  }

  private agentActions(): readonly (readonly [string, () => void])[] {
    const agent = this.pick([...this.cluster.agents.values()]);
    const report = this.pick([...agent.replicas.values()]);
    const { nodeId } = agent;
    return [
      ...(report === undefined
        ? []
        : ([
            [
              `${report.replicaId} becomes ready`,
              () => this.mend(agent, report.replicaId, report.phase),
            ],
            [
              `${report.replicaId} crashes`,
              () => this.crash(agent, report.replicaId, report.phase),
            ],
          ] as const)),
      [`${nodeId} stops slowly`, () => void (agent.obeysStops = false)],
      [`${nodeId} stops at once`, () => void (agent.obeysStops = true)],
      [`${nodeId} drops an order`, () => void (agent.dropsOrders += 1)],
      [
        `${nodeId} leaves in good order`,
        () => this.disconnectForAWhile(agent, () => agent.leave(), LEAVE_GRACE_MS + 1_000),
      ],
      [`${nodeId} reconnects`, () => agent.disconnect()],
      [`${nodeId} disconnects`, () => this.disconnectForAWhile(agent, () => agent.disconnect())],
      [
        `${nodeId} falls silent`,
        () => this.disconnectForAWhile(agent, () => void (agent.sendsPings = false)),
      ],
    ];
  }

  /** Makes a running replica ready, and completes the stop of a stopping replica. */
  private mend(agent: ScriptedAgent, replicaId: string, phase: Phase): void {
    if (phase === Phase.RUNNING) agent.change(replicaId, { ready: true, reason: '' });
    if (phase === Phase.STOPPING) agent.change(replicaId, { phase: Phase.STOPPED, ready: false });
  }

  /** Ends a container, which is restarted in place or fails. */
  private crash(agent: ScriptedAgent, replicaId: string, phase: Phase): void {
    if (phase !== Phase.RUNNING) return;
    const isPermanent = this.random.next() < 0.3;
    agent.change(
      replicaId,
      isPermanent
        ? { phase: Phase.FAILED, ready: false, reason: 'exit code 1' }
        : { ready: false, reason: 'restarted' },
    );
  }

  /** Disconnects an agent for less than a lease, or for so long that the node is lost. */
  private disconnectForAWhile(
    agent: ScriptedAgent,
    disconnect: () => void,
    absenceMs = ABSENCE_MS,
  ): void {
    const { nodeId } = agent;
    const losses = this.losses.get(nodeId) ?? 0;
    if (this.away.has(nodeId)) return;
    const isLost = losses < MAX_LOSSES && this.random.next() < 0.5;
    if (isLost) this.losses.set(nodeId, losses + 1);
    this.away.add(nodeId);
    disconnect();
    this.cluster.clock.setTimer(isLost ? absenceMs : 800, () => this.reconnectAgent(agent));
  }

  private reconnectAgent(agent: ScriptedAgent): void {
    this.away.delete(agent.nodeId);
    agent.sendsPings = true;
  }

  private async restart(): Promise<void> {
    await this.cluster.complete(() => this.cluster.restartCoordinator());
  }

  /**
   * Lets time pass. Agents that are not away reconnect as soon as their connection ends, as real
   * agents do.
   */
  private async advance(durationMs: number): Promise<void> {
    for (let passed = 0; passed < durationMs; passed += STEP_MS) {
      for (const agent of this.cluster.agents.values()) {
        if (!agent.isConnected && !this.away.has(agent.nodeId))
          await this.cluster.reconnect(agent.nodeId);
      }
      await this.cluster.advance(Math.min(STEP_MS, durationMs - passed), STEP_MS);
    }
  }

  /** Runs the checkers on every commit of a coordinator. */
  private checkCommits(state: ClusterState): void {
    const { clock } = this.cluster;
    const readySince = new ReadySince(
      [...state.view().replicas()].map(({ value }) => value),
      clock.now(),
    );
    // The liveness of a node may change during a slow commit; then only the records are checked.
    const isAlive = (nodeId: string): boolean =>
      this.storeSpeed === 'slow' || this.cluster.controllers.nodes.status(nodeId).alive;
    state.subscribe((changes) => {
      const view = state.view();
      const nodes = [...view.nodes()].map(({ value }) => value);
      const idsOf = (selected: readonly (typeof nodes)[number][]): ReadonlySet<string> =>
        new Set(selected.map(({ id }) => id));
      const nodeFacts = {
        alive: idsOf(nodes.filter(({ id }) => isAlive(id))),
        draining: idsOf(nodes.filter(({ draining }) => draining)),
        cordoned: idsOf(nodes.filter(({ cordoned }) => cordoned)),
        taints: new Map(nodes.map(({ id, taints }) => [id, taints])),
        readyForMs: readySince.durationsMs(clock.now()),
        readyForMaxErrorMs: this.storeSpeed === 'slow' ? MAX_COMMIT_DELAY_MS : 0,
      };
      const commit = { view, changes, nodeFacts };
      for (const check of this.checkers) this.violations.push(...check(commit));
      readySince.apply(changes, clock.now());
    });
  }

  private pick<Item>(items: readonly Item[]): Item {
    return items[Math.floor(this.random.next() * items.length)] as Item;
  }
}

/**
 * Invariants 8 and 12: returns the differences between desired and observed state after all faults
 * have ended.
 */
function findDifferences(cluster: TestCluster): readonly string[] {
  const view = cluster.state.view();
  const workloads = [...view.workloads()].flatMap(({ value: workload }) => {
    const { name } = workload;
    if (workload.deletionRequestedAt !== undefined) return [`${name} is not deleted yet`];
    const { live, wanted, canonicalVersion, limits } = factsOf(view, workload);
    const settled = live.filter(
      (replica) =>
        replica.ready && replica.desiredRunning && canonicalVersion(replica.version) === wanted,
    );
    const want = isGlobal(workload) ? cluster.agents.size : limits.want;
    return settled.length === want && live.length === want
      ? []
      : [
          `${name}: ${settled.length} of ${want} replicas are running as wanted, ${live.length} live`,
        ];
  });
  const agents = [...cluster.agents.values()].flatMap(({ nodeId, replicas }) => {
    const recordedIds = new Set([...view.replicasOn(nodeId)].map(({ value }) => value.id));
    const extra = [...replicas.keys()].filter((id) => !recordedIds.has(id));
    return extra.map((id) => `${nodeId} still has ${id}, which has no record`);
  });
  const tombstones = [...view.replicas()].flatMap(({ value }) =>
    value.lost ? [`${value.id} is still a tombstone`] : [],
  );
  return [...workloads, ...agents, ...tombstones];
}
