import {
  WatchWorkloadsResponse_Kind,
  type AgentClient,
  type CoordinatorClient,
  type ReplicaStatus,
  type Workload,
} from '@cloudless/api';
import { sleep } from '@cloudless/base';
import { RealCluster } from '@cloudless/e2e';
import { CriClient } from '@cloudless/runtime-cri/client';
import { systemClock } from '@cloudless/app-kit';
import { readCpuSeconds } from './process-figures.js';
import {
  COMMAND,
  GRACE_MS,
  IMAGES,
  KILLS,
  UPDATE_PARALLELISM,
  type Figures,
  type NetworkKind,
  type Side,
} from './real-start-terms.js';
import { ChangeObserver } from './change-observer.js';

const NAME = 'bench';
const AGENT = 'agent-1';
/** Maximum number of replicas on the node. */
export const MAX_REPLICAS = 250;
/** Time limit of a wait, milliseconds. */
const WAIT_LIMIT_MS = 600_000;
/** Interval of the checks for remaining pods, milliseconds. */
const POLL_MS = 10;

/** A coordinator and an agent, measured by a client of WatchWorkloads. */
export class Cloudless implements Side {
  readonly name = 'cloudless';

  private constructor(
    private readonly cluster: RealCluster,
    private readonly clusterId: string,
    private readonly runtime: CriClient,
  ) {}

  static async start(socketPath: string): Promise<Cloudless> {
    const cluster = await RealCluster.start([], undefined, { criSocket: socketPath });
    try {
      await cluster.startAgent(AGENT, 'zone-a', ['--max-replicas', String(MAX_REPLICAS)]);
      // Policies of a new cluster deny containers in the network of the node.
      await cluster.exemptFromPolicies(NAME);
      const { clusterId } = await cluster.client.getServerInfo({});
      return new Cloudless(cluster, clusterId, new CriClient({ socketPath, clock: systemClock }));
    } catch (reason) {
      await cluster.stop();
      throw reason;
    }
  }

  async measure(count: number, network: NetworkKind): Promise<Figures> {
    const { client, agentClient } = this.cluster;
    const observer = new WorkloadObserver(client);
    try {
      const before = this.readCpuMs();
      const createMs = await createAll(client, observer, count, network);
      const after = this.readCpuMs();
      const updateMs = await updateAll(client, observer);
      const recoverMs: number[] = [];
      for (let kill = 0; kill < Math.min(KILLS, count); kill += 1)
        recoverMs.push(await measureRecovery(agentClient, observer, kill));
      const removeMs = await this.removeAll(observer);
      const { coordinator, agent, client: thisProcess } = after;
      const createCpuMs = {
        coordinator: coordinator - before.coordinator,
        agent: agent - before.agent,
        client: thisProcess - before.client,
      };
      return { createMs, updateMs, recoverMs, removeMs, createCpuMs };
    } finally {
      observer.close();
      await client.deleteWorkload({ name: NAME }).catch(() => undefined);
      await this.cluster.waitUntilDeleted(NAME);
    }
  }

  async close(): Promise<void> {
    await this.cluster.stop();
    this.runtime.close();
  }

  /**
   * Deletes the workload and waits until the workload and all pods of the cluster are gone.
   * @returns The duration, milliseconds.
   */
  private async removeAll(observer: WorkloadObserver): Promise<number> {
    const startedAt = systemClock.now();
    await this.cluster.client.deleteWorkload({ name: NAME });
    await observer.waitUntil((workload) => workload === undefined);
    while ((await this.countPods()) > 0) await sleep(systemClock, POLL_MS);
    return systemClock.now() - startedAt;
  }

  private async countPods(): Promise<number> {
    const labelSelector = { 'io.cloudless.cluster': this.clusterId };
    const { items } = await this.runtime.callQuick('ListPodSandbox', (calls) =>
      calls.listPodSandbox({ filter: { labelSelector } }),
    );
    return items.length;
  }

  private readCpuMs(): Readonly<Record<'coordinator' | 'agent' | 'client', number>> {
    const { user, system } = process.cpuUsage();
    const { coordinatorProcess } = this.cluster;
    return {
      coordinator: readCpuSeconds(coordinatorProcess.pid) * 1_000,
      agent: readCpuSeconds(this.cluster.requireAgent(AGENT).pid) * 1_000,
      client: (user + system) / 1_000,
    };
  }
}

async function createAll(
  client: CoordinatorClient,
  observer: WorkloadObserver,
  count: number,
  network: NetworkKind,
): Promise<number> {
  const [image] = IMAGES;
  const spec = {
    image,
    command: COMMAND,
    replicas: count,
    network: { hostNetwork: network === 'host' },
    // The requests are small, so that all replicas fit on one machine.
    resources: { requests: { cpuMillis: 1, memoryBytes: 1_048_576n } },
    terminationGracePeriod: { seconds: BigInt(GRACE_MS / 1_000) },
    rollout: { maxUnavailable: UPDATE_PARALLELISM, maxSurge: 0, minReadyDuration: { seconds: 0n } },
  };
  const startedAt = systemClock.now();
  await client.createWorkload({ name: NAME, spec });
  const ready = await observer.waitUntil((workload) => workload?.status?.readyReplicas === count);
  return ready - startedAt;
}

async function updateAll(client: CoordinatorClient, observer: WorkloadObserver): Promise<number> {
  const [, image] = IMAGES;
  const startedAt = systemClock.now();
  const { generation } = await client.updateWorkload({ name: NAME, spec: { image } });
  const updated = await observer.waitUntil((workload) => {
    const status = workload?.status;
    if (status === undefined || status.observedGeneration < generation) return false;
    const { desiredReplicas, readyReplicas, updatedReplicas, totalReplicas } = status;
    return [readyReplicas, updatedReplicas, totalReplicas].every(
      (replicas) => replicas === desiredReplicas,
    );
  });
  return updated - startedAt;
}

/**
 * Kills the main process of a replica.
 * @returns Milliseconds until the replica is ready with another container.
 */
async function measureRecovery(
  agentClient: AgentClient,
  observer: WorkloadObserver,
  index: number,
): Promise<number> {
  const find = (workload: Workload | undefined, id: string): ReplicaStatus | undefined =>
    workload?.status?.replicas.find((replica) => replica.id === id);
  const { id = '', containerId = '' } = observer.workload?.status?.replicas[index] ?? {};
  const { pid } = await agentClient.getContainerStatus({ containerId });
  if (pid <= 0) throw new Error(`replica ${id} does not run`);
  const startedAt = systemClock.now();
  process.kill(pid, 'SIGKILL');
  const back = await observer.waitUntil((workload) => {
    const replica = find(workload, id);
    return replica !== undefined && replica.ready && replica.containerId !== containerId;
  });
  return back - startedAt;
}

/** The workload that WatchWorkloads reports; undefined while it does not exist. */
class WorkloadObserver {
  workload: Workload | undefined;
  private readonly watching = new AbortController();
  private readonly changes = new ChangeObserver(WAIT_LIMIT_MS);

  constructor(client: CoordinatorClient) {
    void this.follow(client);
  }

  /**
   * Waits until a condition holds.
   * @returns The time at which the client received the change, milliseconds of the system clock.
   */
  waitUntil(holds: (workload: Workload | undefined) => boolean): Promise<number> {
    return this.changes.waitUntil(
      () => holds(this.workload),
      () => `not done within ${WAIT_LIMIT_MS / 1_000} s: ${describe(this.workload)}`,
    );
  }

  close(): void {
    this.watching.abort();
  }

  private async follow(client: CoordinatorClient): Promise<void> {
    try {
      for await (const { kind, workload } of client.watchWorkloads(
        { name: NAME },
        { signal: this.watching.signal },
      )) {
        if (kind === WatchWorkloadsResponse_Kind.PUT) this.workload = workload;
        else if (kind === WatchWorkloadsResponse_Kind.DELETED) this.workload = undefined;
        else continue;
        this.changes.recordChange();
      }
      throw new Error('the watch of the workload ended');
    } catch (reason) {
      this.changes.endObservation(reason);
    }
  }
}

function describe(workload: Workload | undefined): string {
  const { desiredReplicas = 0, readyReplicas = 0, replicas = [] } = workload?.status ?? {};
  const reasons = new Set(replicas.filter(({ ready }) => !ready).map(({ reason }) => reason));
  return `${readyReplicas} of ${desiredReplicas} ready; ${[...reasons].slice(0, 3).join('; ')}`;
}
