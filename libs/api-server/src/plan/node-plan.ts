import { create } from '@bufbuild/protobuf';
import {
  FieldChangeSchema,
  NodePlanSchema,
  NodePlan_Action as Action,
  PlanWarningSchema,
  PlanWarning_Kind as WarningKind,
  Taint_Effect,
  type FieldChange,
  type NodePlan,
  type PlanWarning,
} from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import { toEffectiveNode } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import type { CheckedChange } from './checked-change.js';

/** Returns the plan of the node that a change names; undefined for a change of a workload. */
export function createNodePlan(
  { placements }: Pick<ApiServerDeps, 'placements'>,
  checked: CheckedChange,
): NodePlan | undefined {
  if (checked.kind !== 'node' && checked.kind !== 'removal') return undefined;
  const before = checked.current.value;
  const { replicas } = placements.getAllocated(before.id);
  if (checked.kind === 'removal') {
    return create(NodePlanSchema, {
      action: Action.REMOVE,
      nodeId: before.id,
      replicas,
      warnings: warnReplicas(
        replicas,
        `${formatReplicaCount(replicas)} on node ${before.id} ${replicas === 1 ? 'counts' : 'count'} as lost, and may still run there`,
      ),
    });
  }
  const { action, change } = checked;
  return create(NodePlanSchema, {
    action: change === undefined ? Action.NOTHING : action,
    nodeId: before.id,
    replicas,
    changes: change === undefined ? [] : listChanges(before, change.after),
    warnings:
      action === Action.CONFIRM_LOST && change !== undefined
        ? warnReplicas(
            replicas,
            `${formatReplicaCount(replicas)} on node ${before.id} ${replicas === 1 ? 'is' : 'are'} replaced at once; if the machine still runs, the old ${replicas === 1 ? 'replica runs' : 'replicas run'} too`,
          )
        : [],
  });
}

function warnReplicas(replicas: number, message: string): PlanWarning[] {
  return replicas === 0
    ? []
    : [create(PlanWarningSchema, { kind: WarningKind.NODE_HAS_REPLICAS, message, replicas })];
}

function formatReplicaCount(replicas: number): string {
  return `${replicas} ${replicas === 1 ? 'replica' : 'replicas'}`;
}

/** Returns the effective labels, taints, zone and region that differ, with their values as JSON. */
function listChanges(before: NodeRecord, after: NodeRecord): FieldChange[] {
  const [previous, current] = [before, after].map(listValues);
  const paths = [...new Set([...(previous?.keys() ?? []), ...(current?.keys() ?? [])])].sort();
  return paths.flatMap((path) => {
    const [was, is] = [previous?.get(path), current?.get(path)];
    if (was === is) return [];
    return [create(FieldChangeSchema, { path, before: toJson(was), after: toJson(is) })];
  });
}

/** Returns the values of a node that an update may change, by path. */
function listValues(record: NodeRecord): ReadonlyMap<string, string> {
  const { labels, taints, zone, region } = toEffectiveNode(record);
  return new Map([
    ...Object.entries(labels).map(([key, value]) => [`labels["${key}"]`, value] as const),
    ...taints.map(
      ({ key, value, effect }) => [`taints["${key}:${Taint_Effect[effect]}"]`, value] as const,
    ),
    ...(zone === '' ? [] : [['zone', zone] as const]),
    ...(region === '' ? [] : [['region', region] as const]),
  ]);
}

function toJson(value: string | undefined): string {
  return value === undefined ? '' : JSON.stringify(value);
}
