import type { Taint } from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';

/**
 * Location, labels and taints of a node: the values that the agent reports, overridden by the
 * values that users set.
 */
export interface EffectiveNode {
  readonly region: string;
  readonly zone: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: Taint[];
}

/**
 * The effective location, labels and taints of a node. Users override the agent: a label that a
 * user removed stays removed even when the agent reports it.
 */
export function toEffectiveNode(record: NodeRecord): EffectiveNode {
  const labels: Record<string, string> = { ...record.hello?.labels };
  for (const key of record.removedLabels) delete labels[key];
  Object.assign(labels, record.labels);
  const fromAgent = (record.hello?.taints ?? []).filter(
    (taint) => !record.removedTaints.includes(toTaintKey(taint)),
  );
  const taints = new Map(
    [...fromAgent, ...record.taints].map((taint) => [toTaintKey(taint), taint]),
  );
  return {
    region: record.region ?? record.hello?.region ?? '',
    zone: getZone(record),
    labels,
    taints: [...taints.values()],
  };
}

/**
 * The effective zone alone. Cheaper than {@link toEffectiveNode}: it is called for each replica
 * that is shown.
 */
export function getZone({ zone, hello }: NodeRecord): string {
  return zone ?? hello?.zone ?? '';
}

/**
 * Returns true when a node has all labels of a selector, with their values. An empty one selects
 * all.
 */
export function selectsNode(
  selector: Readonly<Record<string, string>>,
  record: NodeRecord,
): boolean {
  const wanted = Object.entries(selector);
  if (wanted.length === 0) return true;
  const labels = new Map(Object.entries(toEffectiveNode(record).labels));
  return wanted.every(([key, value]) => labels.get(key) === value);
}

/** The key that identifies a taint on a node: its key and effect. */
export function toTaintKey({ key, effect }: Pick<Taint, 'key' | 'effect'>): string {
  return `${key}:${effect}`;
}
