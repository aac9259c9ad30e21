import { clone, create } from '@bufbuild/protobuf';
import {
  ServiceSchema,
  ServiceSpecSchema,
  checkSameKind,
  withBalancingDefaults,
  withServiceDefaults,
  type Service,
  type ServiceSpec,
} from '@cloudless/api';
import { InvalidInputError } from '@cloudless/base';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { ManifestService } from '../../manifest/manifest-service.js';
import {
  getIfExists,
  requireFreshChanges,
  toPutChange,
  type ObjectChange,
  type PutChange,
} from '../objects/object-change.js';
import { formatServiceName } from './find-service.js';

/** Changes of one service by a manifest. */
export type ServiceChange = ObjectChange<ManifestService, Service>;

/**
 * Compares services of manifests with those of the cluster. Nothing is changed.
 * @throws {@link CliFailure} with exit code 4 that lists the services that cannot be changed: those
 *   of `spec.expose` of a workload, those that would become headless or external, and those whose
 *   manifest has an older generation.
 */
export async function planServices(
  session: CliSession,
  services: readonly ManifestService[],
  consequence = 'nothing was applied',
): Promise<readonly ServiceChange[]> {
  const changes: PutChange<ManifestService, Service>[] = [];
  const refusals: string[] = [];
  for (const wanted of services) {
    const { namespace, name } = wanted;
    const current = await getIfExists(
      session.network.getService({ namespace, name }, session.getCallOptions()),
    );
    const refusal = current === undefined ? undefined : findRefusal(current, wanted);
    if (refusal !== undefined) refusals.push(`${formatServiceName(wanted)}: ${refusal}`);
    changes.push(compareService(wanted, current));
  }
  if (refusals.length > 0)
    throw new CliFailure(ExitCode.conflict, [`${consequence}:`, ...refusals].join('\n'));
  requireFreshChanges('service', changes);
  return changes;
}

/** Returns why a service cannot become what its manifest says; undefined when it can. */
function findRefusal(current: Service, { spec }: ManifestService): string | undefined {
  if (current.ownerWorkload !== '') {
    const owner = `${current.namespace}/${current.ownerWorkload}`;
    return `belongs to spec.expose of workload ${owner}; remove this document, or first apply the workload without expose`;
  }
  try {
    checkSameKind(getSpec(current), withServiceDefaults(spec));
    return undefined;
  } catch (reason) {
    if (reason instanceof InvalidInputError) return reason.message;
    throw reason;
  }
}

function compareService(
  wanted: ManifestService,
  current: Service | undefined,
): PutChange<ManifestService, Service> {
  const spec = withServiceDefaults(wanted.spec);
  if (current !== undefined) keepNodePorts(getSpec(current), spec);
  const before =
    current === undefined
      ? {}
      : {
          spec: getSpec(current),
          labels: current.labels,
          loadBalancer: withBalancingDefaults(current.loadBalancer),
        };
  const hasBalancing = current !== undefined || wanted.loadBalancer !== undefined;
  const after = {
    ...{ spec, labels: { ...wanted.labels } },
    ...(hasBalancing ? { loadBalancer: withBalancingDefaults(wanted.loadBalancer) } : {}),
  };
  return toPutChange(ServiceSchema, { ...wanted, spec }, current, [before, after]);
}

/** Keeps the ports of nodes that the coordinator has chosen, where the manifest names none. */
function keepNodePorts(current: ServiceSpec, spec: ServiceSpec): void {
  if (spec.type === 0) return; // CLUSTER_IP has no ports of nodes.
  for (const port of spec.ports) {
    if (port.nodePort !== 0) continue;
    port.nodePort =
      current.ports.find(({ name, protocol }) => name === port.name && protocol === port.protocol)
        ?.nodePort ?? 0;
  }
}

function getSpec({ spec }: Service): ServiceSpec {
  return clone(ServiceSpecSchema, spec ?? create(ServiceSpecSchema));
}
