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

/** Observations of a workload while time passed. */
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
const OBSERVE_MS = 20;
/** Time from start to ready of a replica without another behaviour, milliseconds. */
const START_MS = 60;

/**
 * One workload `web` on scripted agents: a test changes the workload, lets time pass, and observes
 * what happened meanwhile.
 */
export class RolloutScenario {
  private readonly behaviours = new Map<number, StartBehaviour>();

  private constructor(readonly cluster: TestCluster) {
    for (const agent of cluster.agents.values())
      agent.onStart = (order) => this.behaviourOf(agent, order);
  }

  /**
   * Creates the workload and waits until it is ready. By default it has three replicas that are
   * available as soon as they are ready.
   */
  static async start(
    rollout: RolloutInit = {},
    spec: Spec = {},
    nodes = 4,
  ): Promise<RolloutScenario> {
    const story = new RolloutScenario(await startCluster(nodes));
    await story.create(rollout, spec);
    await story.observe(500);
    return story;
  }

  create(rollout: RolloutInit, spec: Spec = {}): Promise<Workload> {
    const limits = { minReadyDuration: durationFromMs(0), ...rollout };
    const ports = [{ name: 'http', containerPort: 80 }];
    const whole = {
      command: ['serve'],
      replicas: 3,
      ports,
      preStopDelay: durationFromMs(0),
      ...spec,
      rollout: limits,
    };
    return this.call((client) => client.createWorkload({ name: NAME, spec: whole }));
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

  call<Result>(make: (client: TestCluster['client']) => Promise<Result>): Promise<Result> {
    return this.cluster.complete(() => make(this.cluster.client));
  }

  async status(): Promise<WorkloadStatus> {
    const { status } = await this.call((client) => client.getWorkload({ name: NAME }));
    if (status === undefined) throw new Error('the workload has no status');
    return status;
  }

  /** Returns the rollout status without its time fields. */
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

  /** Lets time pass and records observations. */
  async observe(durationMs: number): Promise<RolloutObservations> {
    const seen = {
      lowestReady: Number.POSITIVE_INFINITY,
      highestTotal: 0,
      phases: [] as string[],
      served: [] as string[],
    };
    for (let passed = 0; passed <= durationMs; passed += OBSERVE_MS) {
      const status = await this.status();
      const { endpoints } = await this.call((client) => client.listEndpoints({ name: NAME }));
      seen.lowestReady = Math.min(seen.lowestReady, status.readyReplicas);
      seen.highestTotal = Math.max(seen.highestTotal, status.totalReplicas);
      note(seen.phases, RolloutPhase[status.rollout?.phase ?? 0] ?? '');
      note(seen.served, [...new Set(endpoints.map(({ version }) => version))].sort().join());
      await this.cluster.advance(OBSERVE_MS, OBSERVE_MS);
    }
    return seen;
  }

  /** Returns the replicas that are wanted, of one version or of all. */
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

  /** Delays the execution of stop orders while `held` is true. */
  holdStops(held: boolean): void {
    for (const agent of this.cluster.agents.values()) {
      agent.obeysStops = !held;
      for (const { replicaId, phase } of held ? [] : agent.replicas.values())
        if (phase === Phase.STOPPING)
          agent.change(replicaId, { phase: Phase.STOPPED, ready: false });
    }
  }

  /** Becomes ready after a while, unless a test has set another behaviour. */
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

function note(list: string[], item: string): void {
  if (list.at(-1) !== item) list.push(item);
}
