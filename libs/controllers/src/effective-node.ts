import type { Taint } from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';

/** Where a node is and what it carries: what its agent says, with what users set over it. */
export interface EffectiveNode {
  readonly region: string;
  readonly zone: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: Taint[];
}

/** Users win over the agent: a label they removed stays removed whatever the agent says. */
export function effectiveNode(record: NodeRecord): EffectiveNode {
  const labels: Record<string, string> = { ...record.hello?.labels };
  for (const key of record.removedLabels) delete labels[key];
  Object.assign(labels, record.labels);
  const fromAgent = (record.hello?.taints ?? []).filter(
    (taint) => !record.removedTaints.includes(taintKey(taint)),
  );
  const taints = new Map([...fromAgent, ...record.taints].map((taint) => [taintKey(taint), taint]));
  return {
    region: record.region ?? record.hello?.region ?? '',
    zone: zoneOf(record),
    labels,
    taints: [...taints.values()],
  };
}

/**
 * As {@link effectiveNode} has it, for those who need nothing else of it: it is asked for each
 * replica that is shown.
 */
export function zoneOf({ zone, hello }: NodeRecord): string {
  return zone ?? hello?.zone ?? '';
}

/** What identifies a taint on a node: its key and effect. */
export function taintKey({ key, effect }: Pick<Taint, 'key' | 'effect'>): string {
  return `${key}:${effect}`;
}
