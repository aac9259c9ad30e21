import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { DrainStatus_Phase, RolloutStatus_Phase } from '@cloudless/api';
import { QUICK, type RealCluster } from './cluster.js';
import { EndpointWatch } from './endpoint-watch.js';
import { ReplicaLedger } from './replica-ledger.js';
import { liveReplicas, rolledOut, webSpec, type Rollout } from './rollout-tools.js';

/** How many replicas each has, all of which must be ready at any time. */
export const EXERCISE_REPLICAS = 3;

/**
 * Something that the coordinator carries out in many steps, again and again; it can be killed at
 * each.
 */
export abstract class Exercise {
  readonly ledger: ReplicaLedger;
  readonly watch: EndpointWatch;
  /** How long a round takes, about, when nobody is killed. */
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

  /** Begins the next round. @returns once that is acknowledged. */
  abstract begin(): Promise<void>;
  /** Waits until the round is over. */
  abstract ended(): Promise<void>;
  /** Whether there is something left to do in this round. */
  abstract isUnderWay(): Promise<boolean>;
  /** What is not as it would be had nobody been killed. */
  abstract differences(): Promise<readonly unknown[]>;

  /** Creates the workload, and goes through a first round without a kill. */
  async prepare(): Promise<void> {
    const rollout = { ...QUICK.rollout, minAvailable: EXERCISE_REPLICAS, ...this.rollout };
    const spec = webSpec(rollout, {
      ...QUICK,
      rollout,
      env: this.env('1'),
      replicas: EXERCISE_REPLICAS,
      placement: { zones: [this.zone] },
    });
    await this.cluster.client.createWorkload({ name: this.name, spec });
    await rolledOut(this.cluster, this.name);
    await this.watch.start();
    const beganMs = performance.now();
    await this.begin();
    await this.ended();
    this.takesMs = performance.now() - beganMs;
  }

  protected env(version: string): Record<string, string> {
    return { VERSION: version, LEDGER: this.ledger.file };
  }
}

/** One version after the other. */
export class Rollouts extends Exercise {
  private version = 1;

  async begin(): Promise<void> {
    this.version += 1;
    await this.cluster.client.updateWorkload({
      name: this.name,
      spec: { env: this.env(String(this.version)) },
    });
  }

  async ended(): Promise<void> {
    await rolledOut(this.cluster, this.name);
  }

  async isUnderWay(): Promise<boolean> {
    const { status } = await this.cluster.client.getWorkload({ name: this.name });
    return (
      status?.rollout?.version !== this.version ||
      status.rollout.phase !== RolloutStatus_Phase.COMPLETED
    );
  }

  /** The last version runs, and none was started more often than it had to be. */
  async differences(): Promise<readonly unknown[]> {
    const { status } = await rolledOut(this.cluster, this.name);
    const reached = [status?.version, status?.activeVersion, status?.rollout?.version];
    const last = reached.every((number) => number === this.version)
      ? []
      : [{ reached, wanted: this.version }];
    const versions = Array.from({ length: this.version }, (_, index) => String(index + 1));
    return [
      ...last,
      ...versions.flatMap((version) => this.wrongStarts(this.ledger.startsOf(version))),
    ];
  }

  /** Each version is started on as many replicas as are wanted, once each. */
  protected wrongStarts(starts: readonly string[]): readonly unknown[] {
    return starts.length === EXERCISE_REPLICAS && new Set(starts).size === EXERCISE_REPLICAS
      ? []
      : [{ starts }];
  }
}

/** As {@link Rollouts}, on nodes that are drained meanwhile: replicas may have to move. */
export class MovedRollouts extends Rollouts {
  protected override wrongStarts(starts: readonly string[]): readonly unknown[] {
    return starts.length >= EXERCISE_REPLICAS && new Set(starts).size === starts.length
      ? []
      : [{ starts }];
  }
}

/** Both nodes of a zone are drained in turn. */
export class Drains extends Exercise {
  private started = EXERCISE_REPLICAS;
  private node = 'agent-4';
  private other = 'agent-3';

  async begin(): Promise<void> {
    [this.node, this.other] = [this.other, this.node];
    await this.cluster.client.uncordonNode({ nodeId: this.node });
    this.started += (await this.replicasOn(this.node)).length;
    await this.cluster.client.drainNode({ nodeId: this.node });
  }

  /** Everything is on the other node then, so that the next drain moves it all. */
  async ended(): Promise<void> {
    await this.drained();
    await rolledOut(this.cluster, this.name);
    await this.cluster.client.uncordonNode({ nodeId: this.node });
  }

  async isUnderWay(): Promise<boolean> {
    const { status } = await this.cluster.client.getNode({ nodeId: this.node });
    return status?.drain?.phase === DrainStatus_Phase.DRAINING;
  }

  /** Each replica on a drained node was replaced once. */
  async differences(): Promise<readonly unknown[]> {
    const starts = this.ledger.startsOf('1');
    return starts.length === this.started && new Set(starts).size === starts.length
      ? []
      : [{ wanted: this.started, starts }];
  }

  private async drained(): Promise<void> {
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

  private async replicasOn(node: string): Promise<readonly string[]> {
    const replicas = liveReplicas(await this.cluster.client.getWorkload({ name: this.name }));
    return replicas.filter(({ nodeId }) => nodeId === node).map(({ id }) => id);
  }
}
