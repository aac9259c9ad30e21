import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  ServiceSchema,
  ServiceSpecSchema,
  checkSameKind,
  diffMessage,
  withBalancingDefaults,
  withServiceDefaults,
  type FieldChangeSchema,
  type Service,
  type ServiceSpec,
} from '@cloudless/api';
import { InvalidInputError } from '@cloudless/base';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { ManifestService } from '../../manifest/manifest-service.js';
import { formatServiceName, type ServiceName } from './find-service.js';

/** A change of a field, as plans of workloads have. */
type FieldChangeInit = Required<
  Pick<
    Exclude<MessageInitShape<typeof FieldChangeSchema>, { $typeName: string }>,
    'path' | 'before' | 'after'
  >
>;

/** Changes of one service by a manifest. */
export type ServiceChange = ServiceName &
  (
    | {
        readonly action: 'CREATE' | 'UPDATE' | 'NOTHING';
        readonly wanted: ManifestService;
        /** Undefined: the service does not exist. */
        readonly current: Service | undefined;
        /** Fields that change, with paths from the manifest on. */
        readonly fields: readonly FieldChangeInit[];
      }
    | { readonly action: 'DELETE' }
  );

/**
 * Compares services of manifests with those of the cluster. Nothing is changed.
 * @throws {@link CliFailure} with exit code 4 that lists the services that cannot be changed: those
 *   of `spec.expose` of a workload, and those that would become headless or external.
 */
export async function planServices(
  session: CliSession,
  services: readonly ManifestService[],
  consequence = 'nothing was applied',
): Promise<readonly ServiceChange[]> {
  const changes: ServiceChange[] = [];
  const refusals: string[] = [];
  for (const wanted of services) {
    const current = await getServiceIfExists(session, wanted);
    const refusal = current === undefined ? undefined : findRefusal(current, wanted);
    if (refusal !== undefined) refusals.push(`${formatServiceName(wanted)}: ${refusal}`);
    changes.push(compareService(wanted, current));
  }
  if (refusals.length > 0)
    throw new CliFailure(ExitCode.conflict, [`${consequence}:`, ...refusals].join('\n'));
  return changes;
}

async function getServiceIfExists(
  session: CliSession,
  { namespace, name }: ServiceName,
): Promise<Service | undefined> {
  try {
    return await session.network.getService({ namespace, name }, session.getCallOptions());
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.NotFound) return undefined;
    throw reason;
  }
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

function compareService(wanted: ManifestService, current: Service | undefined): ServiceChange {
  const { namespace, name, labels } = wanted;
  const spec = withServiceDefaults(wanted.spec);
  if (current !== undefined) keepNodePorts(getSpec(current), spec);
  const before = create(
    ServiceSchema,
    current === undefined
      ? {}
      : {
          spec: getSpec(current),
          labels: current.labels,
          loadBalancer: withBalancingDefaults(current.loadBalancer),
        },
  );
  const hasBalancing = current !== undefined || wanted.loadBalancer !== undefined;
  const after = create(ServiceSchema, {
    ...{ spec, labels },
    ...(hasBalancing ? { loadBalancer: withBalancingDefaults(wanted.loadBalancer) } : {}),
  });
  const fields = diffMessage(ServiceSchema, before, after).map((difference) => ({
    path: difference.path,
    before: difference.before === undefined ? '' : JSON.stringify(difference.before),
    after: difference.after === undefined ? '' : JSON.stringify(difference.after),
  }));
  const action = current === undefined ? 'CREATE' : fields.length > 0 ? 'UPDATE' : 'NOTHING';
  return { namespace, name, action, current, fields, wanted: { ...wanted, spec } };
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
