import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  RolloutStatus_Phase as RolloutPhase,
  ReplicaStatus_Phase as Phase,
  type ReplicaStatus,
  type StartOrder,
  type Workload,
  type WorkloadSpecSchema,
  type WorkloadStatus,
} from '@cloudless/api';
import type { ScriptedAgent, StartBehaviour } from './scripted-agent.js';
import { startCluster } from './web-workload.js';
import type { TestCluster } from './test-cluster.js';

/** Observations of a workload over a period. */
export interface RolloutObservations {
  readonly lowestReady: number;
  readonly highestTotal: number;
  /** Phases of the rollout in order of appearance. */
  readonly phases: readonly string[];
  /** Serving versions, each set in order of appearance: `1`, `1,2`, `2`. */
  readonly served: readonly string[];
}

type Spec = Exclude<MessageInitShape<typeof WorkloadSpecSchema>, { readonly $typeName: string }>;
type RolloutInit = Exclude<NonNullable<Spec['rollout']>, { readonly $typeName: string }>;

const NAME = 'web';
/** Time between two observations, milliseconds. */
const OBSERVE_MS = 20;
/** Time from start to ready of a replica whose version has no other behaviour, milliseconds. */
const START_MS = 60;

/**
 * One workload `web` on scripted agents: a test changes the workload, lets time pass, and gets the
 * observations of that period.
 */
export class RolloutScenario {
  private readonly behaviours = new Map<number, StartBehaviour>();

  private constructor(readonly cluster: TestCluster) {
    for (const agent of cluster.agents.values())
      agent.onStart = (order) => this.behaviourOf(agent, order);
  }

  /**
   * Creates the workload and waits until it is ready. By default the workload has three replicas
   * that are available as soon as they are ready.
   * @param nodes - Number of nodes.
   */
  static async start(
    rollout: RolloutInit = {},
    spec: Spec = {},
    nodes = 4,
  ): Promise<RolloutScenario> {
    const scenario = new RolloutScenario(await startCluster(nodes));
    await scenario.create(rollout, spec);
    await scenario.observe(500);
    return scenario;
  }

  /**
   * Starts the nodes without a workload.
   * @param hello - Fields of the Hello of each agent.
   */
  static async open(
    nodes: number,
    hello: Parameters<typeof startCluster>[2],
  ): Promise<RolloutScenario> {
    return new RolloutScenario(await startCluster(nodes, {}, hello));
  }

  create(rollout: RolloutInit, spec: Spec = {}): Promise<Workload> {
    const limits = { minReadyDuration: durationFromMs(0), ...rollout };
    const ports = [{ name: 'http', containerPort: 80 }];
    const fullSpec = {
      command: ['serve'],
      replicas: 3,
      ports,
      preStopDelay: durationFromMs(0),
      ...spec,
      rollout: limits,
    };
    return this.call((client) => client.createWorkload({ name: NAME, spec: fullSpec }));
  }

  /** Sets the behaviour of replicas of a version when they start. */
  setBehaviour(version: number, behaviour: StartBehaviour): this {
    this.behaviours.set(version, behaviour);
    return this;
  }

  /** Updates the replica template, which makes a new version. */
  async update(spec: Spec = {}): Promise<Workload> {
    return this.call((client) =>
      client.updateWorkload({
        name: NAME,
        spec: { env: { AT: String(this.cluster.clock.now()) }, ...spec },
      }),
    );
  }

  /** Completes a call, advancing time as far as needed. */
  call<Result>(call: (client: TestCluster['client']) => Promise<Result>): Promise<Result> {
    return this.cluster.complete(() => call(this.cluster.client));
  }

  async status(): Promise<WorkloadStatus> {
    const { status } = await this.call((client) => client.getWorkload({ name: NAME }));
    if (status === undefined) throw new Error('the workload has no status');
    return status;
  }

  /** Returns the main fields of the rollout status, and the whole status as `status`. */
  async rollout() {
    const { rollout } = await this.status();
    if (rollout === undefined) throw new Error('the status has no rollout');
    const { phase, reason, version, fromVersion } = rollout;
    return {
      phase: RolloutPhase[phase],
      reason,
      version,
      fromVersion,
      failure: rollout.failure,
      status: rollout,
    };
  }

  /** Lets time pass, and records the lowest and highest counts, the phases and serving versions. */
  async observe(durationMs: number): Promise<RolloutObservations> {
    const observed = {
      lowestReady: Number.POSITIVE_INFINITY,
      highestTotal: 0,
      phases: [] as string[],
      served: [] as string[],
    };
    for (let passed = 0; passed <= durationMs; passed += OBSERVE_MS) {
      const status = await this.status();
      const { endpoints } = await this.call((client) => client.listEndpoints({ name: NAME }));
      observed.lowestReady = Math.min(observed.lowestReady, status.readyReplicas);
      observed.highestTotal = Math.max(observed.highestTotal, status.totalReplicas);
      addWhenChanged(observed.phases, RolloutPhase[status.rollout?.phase ?? 0] ?? '');
      addWhenChanged(
        observed.served,
        [...new Set(endpoints.map(({ version }) => version))].sort().join(),
      );
      await this.cluster.advance(OBSERVE_MS, OBSERVE_MS);
    }
    return observed;
  }

  /** Returns the replicas that are wanted and have not ended, of one version or of all. */
  async replicas(version?: number): Promise<readonly ReplicaStatus[]> {
    const { replicas } = await this.status();
    const live = replicas.filter(({ leaving, phase }) => !leaving && phase <= Phase.RUNNING);
    return version === undefined ? live : live.filter((replica) => replica.version === version);
  }

  /** Changes what the agent reports about a replica. */
  changeReport(
    { nodeId, id }: ReplicaStatus,
    changes: Parameters<ReturnType<RolloutScenario['agentOf']>['change']>[1],
  ): void {
    this.agentOf(nodeId).change(id, changes);
  }

  /** True: agents stop no replica from now on. False: agents complete all stops. */
  holdStops(held: boolean): void {
    for (const agent of this.cluster.agents.values()) {
      agent.obeysStops = !held;
      for (const { replicaId, phase } of held ? [] : agent.replicas.values())
        if (phase === Phase.STOPPING)
          agent.change(replicaId, { phase: Phase.STOPPED, ready: false });
    }
  }

  /** A replica becomes ready after {@link START_MS}, unless a test has set another behaviour. */
  private behaviourOf(agent: ScriptedAgent, { version }: StartOrder): StartBehaviour {
    const behaviour = this.behaviours.get(version);
    if (behaviour !== undefined) return behaviour;
    const replicaId = agent.started.at(-1)?.replicaId ?? '';
    this.cluster.clock.setTimer(START_MS, () => {
      if (agent.replicas.get(replicaId)?.phase === Phase.RUNNING)
        agent.change(replicaId, { ready: true });
    });
    return 'unready';
  }

  private agentOf(nodeId: string) {
    const agent = this.cluster.agents.get(nodeId);
    if (agent === undefined) throw new Error(`there is no node ${nodeId}`);
    return agent;
  }
}

/** Adds an item unless it equals the last item. */
function addWhenChanged(list: string[], item: string): void {
  if (list.at(-1) !== item) list.push(item);
}
