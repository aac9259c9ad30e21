import { create } from '@bufbuild/protobuf';
import {
  RouteCondition_Type as ConditionType,
  RouteConditionSchema,
  RouteSchema,
  RouteStatusSchema,
  findRoutePort,
  type Route,
  type RouteCondition,
  type RouteSpec,
  type RouteStatus,
} from '@cloudless/api';
import type { RouteRecord } from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import { selectsNode, toServiceKeyId, type ClusterView } from '@cloudless/cluster-state';
import { getRouteSpec } from './route-lookup.js';
import { findRouteSecretProblem, getSecretName } from './route-secret.js';

/** Most services or labels that a message names. */
const MAX_NAMED = 5;

/** Reason why a condition does not hold. */
interface Problem {
  readonly reason: string;
  readonly message: string;
}

/**
 * Builds the API message of a route from the records.
 * @param nowMs - Wall-clock milliseconds.
 */
export function presentRoute(view: ClusterView, record: RouteRecord, nowMs: number): Route {
  const { namespace, name, uid, labels, generation, createdAt } = record;
  return create(RouteSchema, {
    ...{ namespace, name, uid, labels, generation },
    spec: getRouteSpec(record),
    status: presentStatus(view, record, nowMs),
    ...definedFields({ createdAt }),
  });
}

function presentStatus(view: ClusterView, record: RouteRecord, nowMs: number): RouteStatus {
  const spec = getRouteSpec(record);
  const names = [...new Set(spec.rules.map(({ service }) => service))];
  const missing = names.filter((name) => findService(view, record, name) === undefined);
  const conditions = [
    createCondition(
      ConditionType.SERVICES_EXIST,
      missing.length === 0
        ? undefined
        : {
            reason: 'ServiceNotFound',
            message: `namespace ${record.namespace} has no service ${formatNames(missing)}`,
          },
    ),
    ...(missing.length === names.length
      ? []
      : [createCondition(ConditionType.PORTS_EXIST, findPortProblem(view, record, spec))]),
    createCondition(ConditionType.NODES_SELECTED, findNodeProblem(view, spec)),
    ...(getSecretName(spec) === ''
      ? []
      : [
          createCondition(
            ConditionType.CERTIFICATE_USABLE,
            findRouteSecretProblem(view, record, nowMs),
          ),
        ]),
  ];
  return create(RouteStatusSchema, { conditions });
}

function createCondition(type: ConditionType, problem: Problem | undefined): RouteCondition {
  const { reason, message } = problem ?? { reason: '', message: '' };
  return create(RouteConditionSchema, { type, holds: problem === undefined, reason, message });
}

function findService(view: ClusterView, { namespace }: RouteRecord, name: string) {
  return view.service(toServiceKeyId(namespace, name))?.value;
}

/** Explains which rules name a port that their service lacks; undefined when there is none. */
function findPortProblem(
  view: ClusterView,
  record: RouteRecord,
  { rules }: RouteSpec,
): Problem | undefined {
  const problems = rules.flatMap(({ service, port }) => {
    const spec = findService(view, record, service)?.spec;
    if (spec === undefined || findRoutePort(spec, port) !== undefined) return [];
    const known = spec.ports.map((each) => `${each.name} (${each.port})`);
    return spec.externalName === ''
      ? [`service ${service} has no TCP port ${port}; it has ${formatNames(known)}`]
      : [`service ${service} stands for ${spec.externalName} outside the cluster and has no ports`];
  });
  if (problems.length === 0) return undefined;
  return { reason: 'PortNotFound', message: formatNames([...new Set(problems)], '; ') };
}

function findNodeProblem(view: ClusterView, spec: RouteSpec): Problem | undefined {
  let isSelected = false;
  for (const { value } of view.nodes()) {
    if (!selectsNode(spec.nodeSelector, value)) continue;
    if (value.hello?.network !== undefined) return undefined;
    isSelected = true;
  }
  const labels = Object.entries(spec.nodeSelector).map(([key, value]) => `${key}=${value}`);
  return isSelected || labels.length === 0
    ? {
        reason: 'NoNetworkProxy',
        message:
          'no node that the route selects has a network proxy; start agents with --network on or auto',
      }
    : { reason: 'NoNodeSelected', message: `no node has the labels ${formatNames(labels)}` };
}

function formatNames(names: readonly string[], separator = ', '): string {
  const shown = names.slice(0, MAX_NAMED).join(separator);
  return names.length > MAX_NAMED ? `${shown} and ${names.length - MAX_NAMED} more` : shown;
}
