import { Condition_Type as ConditionType, type Condition } from '@cloudless/api';

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

/** Returns why nothing new is placed on a node whose disk is full; empty: the disk is not full. */
export function explainDiskFull(conditions: AgentConditions | undefined): string {
  const reason = conditions?.get(ConditionType.DISK_FULL);
  if (reason === undefined) return '';
  const details = reason === '' ? '' : ` (${reason})`;
  return `the file system of the data directory is almost full${details}: nothing new is placed on this node`;
}

/**
 * Returns true when readers of a node see a difference: other conditions hold, or the network proxy
 * has other problems. The reasons of other conditions are not shown.
 */
export function haveConditionsChanged(before: AgentConditions, after: AgentConditions): boolean {
  const proxy = ConditionType.NETWORK_PROXY_DEGRADED;
  return (
    REPORTED.some((type) => before.has(type) !== after.has(type)) ||
    before.get(proxy) !== after.get(proxy)
  );
}
