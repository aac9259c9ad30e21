import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { DrainStatus_Phase, RolloutStatus_Phase } from '@cloudless/api';
import { QUICK, type RealCluster } from './cluster.js';
import { EndpointWatch } from './endpoint-watch.js';
import { ReplicaLedger } from './replica-ledger.js';
import {
  listLiveReplicas,
  waitUntilRolledOut,
  createWebSpec,
  type Rollout,
} from './rollout-tools.js';

/** Number of replicas of each workload; all of them must be ready at any time. */
export const EXERCISE_REPLICAS = 3;

/**
 * An operation of many steps on one workload, repeated in rounds. A test kills the coordinator at
 * any step of a round.
 */
export abstract class Exercise {
  readonly ledger: ReplicaLedger;
  readonly watch: EndpointWatch;
  /** Approximate duration of a round without a kill, in milliseconds. */
  takesMs = 0;

  constructor(
    protected readonly cluster: RealCluster,
    readonly name: string,
    private readonly zone: string,
    private readonly rollout: Rollout = {},
  ) {
    this.ledger = new ReplicaLedger(join(cluster.directory, `${name}.ledger`));
    this.watch = new EndpointWatch(() => cluster.client, name);
  }

  /** Starts the next round. Resolves when the coordinator has acknowledged the start. */
  abstract beginRound(): Promise<void>;
  /** Waits until the round is complete. */
  abstract waitForEnd(): Promise<void>;
  /** Returns true while the round is not complete. */
  abstract isUnderWay(): Promise<boolean>;
  /** Returns the differences to a run without kills. */
  abstract findDifferences(): Promise<readonly unknown[]>;

  /** Creates the workload and runs a first round without a kill. */
  async prepare(): Promise<void> {
    const rollout = { ...QUICK.rollout, minAvailable: EXERCISE_REPLICAS, ...this.rollout };
    const spec = createWebSpec(rollout, {
      ...QUICK,
      rollout,
      env: this.createEnv('1'),
      replicas: EXERCISE_REPLICAS,
      placement: { zones: [this.zone] },
    });
    await this.cluster.client.createWorkload({ name: this.name, spec });
    await waitUntilRolledOut(this.cluster, this.name);
    await this.watch.start();
    const beganMs = performance.now();
    await this.beginRound();
    await this.waitForEnd();
    this.takesMs = performance.now() - beganMs;
  }

  protected createEnv(version: string): Record<string, string> {
    return { VERSION: version, LEDGER: this.ledger.file };
  }
}

/** Rolls out one version after the other. */
export class RolloutExercise extends Exercise {
  private version = 1;

  async beginRound(): Promise<void> {
    this.version += 1;
    await this.cluster.client.updateWorkload({
      name: this.name,
      spec: { env: this.createEnv(String(this.version)) },
    });
  }

  async waitForEnd(): Promise<void> {
    await waitUntilRolledOut(this.cluster, this.name);
  }

  async isUnderWay(): Promise<boolean> {
    const { status } = await this.cluster.client.getWorkload({ name: this.name });
    return (
      status?.rollout?.version !== this.version ||
      status.rollout.phase !== RolloutStatus_Phase.COMPLETED
    );
  }

  /**
   * Returns a difference when the last version does not run, or a replica was started more often
   * than necessary.
   */
  async findDifferences(): Promise<readonly unknown[]> {
    const { status } = await waitUntilRolledOut(this.cluster, this.name);
    const actual = [status?.version, status?.activeVersion, status?.rollout?.version];
    const versionDifferences = actual.every((version) => version === this.version)
      ? []
      : [{ actual, expected: this.version }];
    const versions = Array.from({ length: this.version }, (_, index) => String(index + 1));
    return [
      ...versionDifferences,
      ...versions.flatMap((version) => this.findWrongStarts(this.ledger.listStarts(version))),
    ];
  }

  /**
   * Returns a difference unless a version was started once by each of the desired replicas.
   * @param starts - Replica id of each start of the version.
   */
  protected findWrongStarts(starts: readonly string[]): readonly unknown[] {
    return starts.length === EXERCISE_REPLICAS && new Set(starts).size === EXERCISE_REPLICAS
      ? []
      : [{ starts }];
  }
}

/**
 * Same as {@link RolloutExercise}, on nodes that another exercise drains meanwhile, so that a
 * version may be started more often.
 */
export class MovedRolloutExercise extends RolloutExercise {
  protected override findWrongStarts(starts: readonly string[]): readonly unknown[] {
    return starts.length >= EXERCISE_REPLICAS && new Set(starts).size === starts.length
      ? []
      : [{ starts }];
  }
}

/** Drains agent-3 and agent-4, the nodes of one zone, in turn. */
export class DrainExercise extends Exercise {
  /** Starts of replicas that the drains need. */
  private started = EXERCISE_REPLICAS;
  private node = 'agent-4';
  private other = 'agent-3';

  async beginRound(): Promise<void> {
    [this.node, this.other] = [this.other, this.node];
    await this.cluster.client.uncordonNode({ nodeId: this.node });
    this.started += (await this.listReplicasOn(this.node)).length;
    await this.cluster.client.drainNode({ nodeId: this.node });
  }

  /** Waits until all replicas are on the other node, and uncordons the drained node. */
  async waitForEnd(): Promise<void> {
    await this.waitUntilDrained();
    await waitUntilRolledOut(this.cluster, this.name);
    await this.cluster.client.uncordonNode({ nodeId: this.node });
  }

  async isUnderWay(): Promise<boolean> {
    const { status } = await this.cluster.client.getNode({ nodeId: this.node });
    return status?.drain?.phase === DrainStatus_Phase.DRAINING;
  }

  /** Returns a difference unless each replica on a drained node was replaced once. */
  async findDifferences(): Promise<readonly unknown[]> {
    const starts = this.ledger.listStarts('1');
    return starts.length === this.started && new Set(starts).size === starts.length
      ? []
      : [{ expected: this.started, starts }];
  }

  private async waitUntilDrained(): Promise<void> {
    const stopping = new AbortController();
    try {
      for await (const { node } of this.cluster.client.watchNodes(
        { nodeId: this.node },
        { signal: stopping.signal },
      )) {
        if (node !== undefined && node.status?.drain?.phase !== DrainStatus_Phase.DRAINING) return;
      }
    } finally {
      stopping.abort();
    }
  }

  private async listReplicasOn(node: string): Promise<readonly string[]> {
    const replicas = listLiveReplicas(await this.cluster.client.getWorkload({ name: this.name }));
    return replicas.filter(({ nodeId }) => nodeId === node).map(({ id }) => id);
  }
}
