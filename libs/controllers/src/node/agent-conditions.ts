import { Condition_Type as ConditionType, type Condition } from '@cloudless/api';
import type { NodeLiveStatus } from '@cloudless/cluster-state';

/** The conditions of a node that hold, as its agent says, with the reasons of the agent. */
export type AgentConditions = ReadonlyMap<ConditionType, string>;

/** The conditions that agents report. The coordinator itself decides READY and QUARANTINED. */
const REPORTED = [
  ConditionType.MEMORY_PRESSURE,
  ConditionType.DISK_PRESSURE,
  ConditionType.NETWORK_UNAVAILABLE,
  ConditionType.CONTAINER_RUNTIME_UNAVAILABLE,
  ConditionType.NETWORK_PROXY_DEGRADED,
  ConditionType.DISK_FULL,
  ConditionType.PROCESS_RUNTIME_UNAVAILABLE,
];

/** The conditions whose reasons are shown as the agent says them. */
const SHOWN_REASONS = [
  ConditionType.NETWORK_PROXY_DEGRADED,
  ConditionType.PROCESS_RUNTIME_UNAVAILABLE,
];

/** Longest reason that is kept. */
const MAX_REASON_CHARACTERS = 2_000;

/** Returns the conditions in a message of an agent that hold. */
export function readAgentConditions(conditions: readonly Condition[]): AgentConditions {
  return new Map(
    conditions
      .filter(({ type, status }) => status && REPORTED.includes(type))
      .map(({ type, reason }) => [type, reason.slice(0, MAX_REASON_CHARACTERS)]),
  );
}

/** Conditions of an agent in the live status of its node. */
type ConditionStatus = Pick<
  NodeLiveStatus,
  | 'memoryPressure'
  | 'diskPressure'
  | 'diskFull'
  | 'diskFullReason'
  | 'networkUnavailable'
  | 'containersUnavailable'
  | 'processesProblem'
  | 'networkProxyProblem'
>;

/**
 * Returns the conditions of an agent as the live status of its node shows them.
 * @param conditions - Undefined for a node without a session: no condition holds.
 */
export function toConditionStatus(conditions: AgentConditions = new Map()): ConditionStatus {
  return {
    memoryPressure: conditions.has(ConditionType.MEMORY_PRESSURE),
    diskPressure: conditions.has(ConditionType.DISK_PRESSURE),
    diskFull: conditions.has(ConditionType.DISK_FULL),
    diskFullReason: explainDiskFull(conditions),
    networkUnavailable: conditions.has(ConditionType.NETWORK_UNAVAILABLE),
    containersUnavailable: conditions.has(ConditionType.CONTAINER_RUNTIME_UNAVAILABLE),
    processesProblem: conditions.get(ConditionType.PROCESS_RUNTIME_UNAVAILABLE) ?? '',
    networkProxyProblem: conditions.get(ConditionType.NETWORK_PROXY_DEGRADED) ?? '',
  };
}

/** Returns why nothing new is placed on a node whose disk is full; empty: the disk is not full. */
function explainDiskFull(conditions: AgentConditions): string {
  const reason = conditions.get(ConditionType.DISK_FULL);
  if (reason === undefined) return '';
  const details = reason === '' ? '' : ` (${reason})`;
  return `the file system of the data directory is almost full${details}: nothing new is placed on this node`;
}

/**
 * Returns true when readers of a node see a difference: other conditions hold, or a reason that is
 * shown has changed.
 */
export function haveConditionsChanged(before: AgentConditions, after: AgentConditions): boolean {
  return (
    REPORTED.some((type) => before.has(type) !== after.has(type)) ||
    SHOWN_REASONS.some((type) => before.get(type) !== after.get(type))
  );
}
