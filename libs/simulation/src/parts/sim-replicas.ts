import { CONTAINER_LABELS } from '@cloudless/agent-core';
import type { Clock } from '@cloudless/base';
import type { ContainerEvent } from '@cloudless/runtime';
import type { RunningContainer } from '../checks/container-checker.js';
import type { SimNode } from './sim-node.js';
import type { SimRandom } from './sim-random.js';

/** When a container accepts connections. */
interface Server {
  readonly readyAt: number;
  readonly containerId: string;
  /** It is of a version that never does. */
  readonly isOfDeafVersion: boolean;
}

/**
 * The annotation by which a version of a workload tells what is wrong with its program; it is right
 * when absent.
 */
export const MOOD = 'mood';
/**
 * `crashes`: ends soon after each start; `deaf`: never accepts a connection; `fragile`: ends at
 * times.
 */
export type Mood = 'crashes' | 'deaf' | 'fragile';

/** What the programs in the containers do. */
export class SimReplicas {
  /** How many of those that start now end soon. */
  flapShare = 0;
  /** How many of those that start now never accept a connection, until all is healed. */
  deafShare = 0;
  private isHealed = false;
  private isMended = false;
  private readonly servers = new Map<string, Server>();

  constructor(
    private readonly time: Clock,
    private readonly random: SimRandom,
    private readonly running: () => Iterable<RunningContainer>,
  ) {}

  /** Whether a port of a machine is listened on. */
  accepts(node: SimNode, port: number): boolean {
    const server = this.servers.get(`${node.id}:${port}`);
    return (
      server !== undefined &&
      (server.isOfDeafVersion ? this.isMended : this.isHealed || server.readyAt <= this.time.now())
    );
  }

  observe(node: SimNode, { kind, status }: ContainerEvent): void {
    const { containerId, endpoints } = status;
    if (kind === 'exited') {
      for (const { port } of endpoints) this.servers.delete(`${node.id}:${port}`);
      return;
    }
    const { random, time } = this;
    const mood = status.labels[`${CONTAINER_LABELS.annotationPrefix}${MOOD}`] as Mood | undefined;
    const isOfDeafVersion = mood === 'deaf';
    const readyAt = random.chance(this.deafShare)
      ? Number.POSITIVE_INFINITY
      : time.now() + random.between(0, 400);
    for (const { port } of endpoints)
      this.servers.set(`${node.id}:${port}`, { readyAt, containerId, isOfDeafVersion });
    const crashShare = mood === 'crashes' ? 1 : mood === 'fragile' ? 0.3 : 0;
    if (random.chance(crashShare)) {
      time.setTimer(random.between(1, 700), () => {
        if (!this.isMended) this.end(node, containerId, 1);
      });
    }
    if (random.chance(this.flapShare)) {
      const exitCode = random.chance(0.8) ? 1 : 0;
      time.setTimer(random.between(1, 1_500), () => {
        if (!this.isHealed) this.end(node, containerId, exitCode);
      });
    }
  }

  /** Ends one of all that run, as if by itself. */
  crashOne(random: SimRandom, exitCode: number): string | undefined {
    const victim = random.pick([...this.running()]);
    if (victim === undefined) return undefined;
    this.end(victim.node, victim.containerId, exitCode);
    return `a container of ${victim.owner.replicaId} on ${victim.node.id} ends with ${exitCode}`;
  }

  /** From now on also the versions that are wrong are right. */
  mend(): void {
    this.isMended = true;
  }

  /** From now on every program is in order, but for those of versions that are wrong. */
  heal(): void {
    this.isHealed = true;
    this.flapShare = 0;
    this.deafShare = 0;
  }

  private end(node: SimNode, containerId: RunningContainer['containerId'], exitCode: number): void {
    const runs = [...this.running()].some((container) => container.containerId === containerId);
    if (runs) node.machine.exit(containerId, exitCode);
  }
}
