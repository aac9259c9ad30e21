import type { NodeStatus_Phase as Phase, NodeUsage } from '@cloudless/api';

/** The current state of a node that is kept in memory only: liveness, usage and conditions. */
export interface NodeLiveStatus {
  readonly phase: Phase;
  /**
   * True while the node has a live session and the main loop of its agent turns: its reports are
   * current.
   */
  readonly alive: boolean;
  readonly reason: string;
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
  /**
   * True while nothing new is placed on the node, because the file system of its data directory has
   * too little space or too few inodes.
   */
  readonly diskFull: boolean;
  /** Why the disk is full, as text for people; empty while it is not full. */
  readonly diskFullReason: string;
  readonly networkUnavailable: boolean;
  /** True while the container runtime of the node does not answer. */
  readonly containersUnavailable: boolean;
  /**
   * Why the supervisor of the node's processes does not answer, and what to do, as its agent says;
   * empty: it answers.
   */
  readonly processesProblem: string;
  /** What the network proxy of the node cannot do, as its agent says; empty: nothing. */
  readonly networkProxyProblem: string;
  /** True while the session is alive and the main loop of the agent does not turn. */
  readonly agentSlow: boolean;
  /** Why the agent is slow, with the age of its last turn; empty while it is not slow. */
  readonly agentSlowReason: string;
  /** True while the node is quarantined: it was lost too often and receives nothing new. */
  readonly quarantined: boolean;
  /** Share of the last hour in which the node was ready, 0 to 1. */
  readonly reliability: number;
  readonly usage?: NodeUsage;
  /** Wall-clock milliseconds. */
  readonly connectedSinceMs?: number;
  readonly lastSeenMs?: number;
}
