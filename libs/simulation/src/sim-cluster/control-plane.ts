import type { Clock, Log } from '@cloudless/base';
import type { Controllers } from '@cloudless/controllers';
import type { ClusterState } from '@cloudless/cluster-state';
import type { WorldPlan } from '../faults/fault-plan.js';
import type { NodeFacts } from '../parts/node-facts.js';
import type { ServingCoordinator } from '../parts/serving-coordinator.js';
import type { SimDisk } from '../parts/sim-disk.js';
import type { Drift, SimProcess } from '../parts/sim-process.js';
import type { SimRandom } from '../parts/sim-random.js';
import type { InjectedBug } from './injected-bug.js';
import type { Trace } from './trace.js';

/** A coordinator that leads, as the checkers see it. */
export interface LeadingCoordinator {
  readonly state: ClusterState;
  readonly controllers: Controllers;
}

/** The coordinators of a world. */
export interface ControlPlane {
  /** URLs of all coordinators, as agents and users know them. */
  readonly addresses: readonly string[];
  /** Starts all coordinators. */
  start(): void;
  /** Returns the coordinator that accepts connections at an address, if any. */
  at(address: string): ServingCoordinator | undefined;
  /** The coordinator that leads, if any. */
  readonly leading: LeadingCoordinator | undefined;
  /** The process that leads or should lead, running or paused, if any. */
  readonly leaderProcess: SimProcess | undefined;
  /**
   * Kills the coordinator that leads, or the only one; it starts again after `restartAfterMs`
   * virtual milliseconds.
   * @returns False when no such coordinator was running.
   */
  killLeader(restartAfterMs: number): boolean;
  /** Kills all coordinators; each starts again after `restartAfterMs` virtual milliseconds. */
  killAll(restartAfterMs: number): void;
  /**
   * Time of the world at which the last disturbance of a coordinator ended that lets it miss pings,
   * milliseconds; now while one lasts.
   */
  readonly lastPause: number;
  /** Called after every event of the world. */
  observe(): void;
  /** Ends every fault of the coordinators, and restarts those that are dead. */
  heal(): void;
}

/** What the coordinators of a world are built from. */
export interface ControlPlaneDeps {
  readonly time: Clock;
  readonly random: SimRandom;
  readonly disk: SimDisk;
  readonly log: Log;
  readonly plan: WorldPlan;
  readonly trace: Trace;
  readonly injected: InjectedBug | undefined;
  /** Draws the clock error of a process. */
  readonly drift: (maxOffsetMs: number) => Drift;
  /** Shortest and longest delay of the coordinators' views, milliseconds. */
  readonly viewDelayMs: () => readonly [number, number];
  readonly onCommit: (revision: bigint, nodeFacts: NodeFacts) => void;
  readonly reportViolation: (text: string) => void;
  /** Called when a coordinator accepts calls. */
  readonly onServing: (coordinator: ServingCoordinator, isRestart: boolean) => void;
}

/** Lease of a node, milliseconds. */
export const LEASE_MS = 3_000;
/** Grace of agents that leave, milliseconds; shorter than the default, so that some graces end. */
export const LEAVE_GRACE_MS = 8_000;
/** Shortest and longest time until a dead process is started again, milliseconds. */
export const RESTART_MS: readonly [number, number] = [30, 1_500];
/**
 * Range of the virtual addresses in worlds with services. Only 47 services can have one, so that a
 * world would soon assign an address again if its hold time were ignored.
 */
export const SERVICE_CIDR = '10.96.0.0/26';
