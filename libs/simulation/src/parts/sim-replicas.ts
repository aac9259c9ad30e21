import { CONTAINER_LABELS } from '@cloudless/agent-core';
import type { Clock } from '@cloudless/base';
import type { ContainerEvent } from '@cloudless/runtime';
import type { RunningContainer } from '../checks/container-checker.js';
import type { SimNode } from './sim-node.js';
import type { SimRandom } from './sim-random.js';

/** A program that listens on ports. */
interface Server {
  readonly readyAt: number;
  readonly containerId: string;
  /** True when its version never accepts connections. */
  readonly isOfDeafVersion: boolean;
}

/**
 * Annotation of a workload that selects the misbehaviour of its program. Absent: the program works.
 */
export const MISBEHAVIOUR_ANNOTATION = 'misbehaviour';
/**
 * `crashes`: every container ends soon after its start. `deaf`: no container ever accepts a
 * connection. `fragile`: a third of the containers end soon after their start.
 */
export type Misbehaviour = 'crashes' | 'deaf' | 'fragile';

/** Behaviour of the programs in the containers. */
export class SimReplicas {
  /** Probability that a container that starts now ends soon. */
  flapShare = 0;
  /**
   * Probability that a container that starts now accepts no connection until all faults are healed.
   */
  neverReadyShare = 0;
  private isHealed = false;
  private areVersionsRepaired = false;
  private readonly servers = new Map<string, Server>();

  constructor(
    private readonly time: Clock,
    private readonly random: SimRandom,
    private readonly running: () => Iterable<RunningContainer>,
  ) {}

  /** Returns true when a program listens on a port of a machine. */
  acceptsConnections(node: SimNode, port: number): boolean {
    const server = this.servers.get(`${node.id}:${port}`);
    return (
      server !== undefined &&
      (server.isOfDeafVersion
        ? this.areVersionsRepaired
        : this.isHealed || server.readyAt <= this.time.now())
    );
  }

  /** Starts or ends the program of a container. */
  observe(node: SimNode, { kind, status }: ContainerEvent): void {
    const { containerId, endpoints } = status;
    if (kind === 'exited') {
      for (const { port } of endpoints) this.servers.delete(`${node.id}:${port}`);
      return;
    }
    const { random, time } = this;
    const misbehaviour = status.labels[
      `${CONTAINER_LABELS.annotationPrefix}${MISBEHAVIOUR_ANNOTATION}`
    ] as Misbehaviour | undefined;
    const isOfDeafVersion = misbehaviour === 'deaf';
    const readyAt = random.chance(this.neverReadyShare)
      ? Number.POSITIVE_INFINITY
      : time.now() + random.between(0, 400);
    for (const { port } of endpoints)
      this.servers.set(`${node.id}:${port}`, { readyAt, containerId, isOfDeafVersion });
    const crashShare = misbehaviour === 'crashes' ? 1 : misbehaviour === 'fragile' ? 0.3 : 0;
    if (random.chance(crashShare)) {
      time.setTimer(random.between(1, 700), () => {
        if (!this.areVersionsRepaired) this.end(node, containerId, 1);
      });
    }
    if (random.chance(this.flapShare)) {
      const exitCode = random.chance(0.8) ? 1 : 0;
      time.setTimer(random.between(1, 1_500), () => {
        if (!this.isHealed) this.end(node, containerId, exitCode);
      });
    }
  }

  /**
   * Ends one of all running containers as if its program ended.
   * @returns A description; undefined when no container runs.
   */
  endOne(random: SimRandom, exitCode: number): string | undefined {
    const victim = random.pick([...this.running()]);
    if (victim === undefined) return undefined;
    this.end(victim.node, victim.containerId, exitCode);
    return `a container of ${victim.owner.replicaId} on ${victim.node.id} ends with exit code ${exitCode}`;
  }

  /** Makes the programs of misbehaving versions work from now on. */
  repairVersions(): void {
    this.areVersionsRepaired = true;
  }

  /** Makes every program work from now on, except programs of misbehaving versions. */
  heal(): void {
    this.isHealed = true;
    this.flapShare = 0;
    this.neverReadyShare = 0;
  }

  private end(node: SimNode, containerId: RunningContainer['containerId'], exitCode: number): void {
    const isRunning = [...this.running()].some(
      (container) => container.containerId === containerId,
    );
    if (isRunning) node.machine.exit(containerId, exitCode);
  }
}
