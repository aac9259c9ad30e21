import { create } from '@bufbuild/protobuf';
import { LoadBalancerConfigSchema, ServiceSchema, type Service } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { ManifestService } from '../../manifest/manifest-service.js';
import { toLabelChanges, type ChangedKind, type PutChange } from '../objects/object-change.js';
import { listServiceNotes, printServiceChange, printServiceNotes } from './find-service.js';

/** How `apply` and `delete -f` change services. */
export const SERVICE_CHANGES: ChangedKind<ManifestService, Service> = {
  noun: 'service',
  schema: ServiceSchema,
  put: (session, change) =>
    change.current === undefined
      ? createService(session, change)
      : updateService(session, change, change.current),
  delete: (session, name, requestId) =>
    session.network.deleteService({ ...name, requestId }, session.getCallOptions()),
  // `printNotesOfServices` prints the notes, once the workloads of the manifests exist.
  printStatus: printServiceChange,
};

/**
 * Prints why services that were changed will not work as they are.
 * @param hasNewWorkloads - True when workloads were changed after the services, which may have
 *   ended the reason: the services are then read again.
 */
export async function printNotesOfServices(
  session: CliSession,
  services: readonly Service[],
  hasNewWorkloads: boolean,
): Promise<void> {
  for (const service of services) {
    if (listServiceNotes(service).length === 0) continue;
    const { namespace, name } = service;
    // The services are applied: a failure to read one again shows the earlier notes.
    const present = hasNewWorkloads
      ? await session.network
          .getService({ namespace, name }, session.getCallOptions())
          .catch(() => service)
      : service;
    await printServiceNotes(session, present);
  }
}

function createService(
  session: CliSession,
  { wanted }: PutChange<ManifestService, Service>,
): Promise<Service> {
  const { namespace, name, spec, labels, loadBalancer } = wanted;
  return session.network.createService(
    {
      ...{ namespace, name, spec, labels: { ...labels } },
      ...(loadBalancer === undefined ? {} : { loadBalancer }),
      requestId: session.getRequestId(`service/${namespace}/${name}`),
    },
    session.getCallOptions(),
  );
}

async function updateService(
  session: CliSession,
  { wanted, fields }: PutChange<ManifestService, Service>,
  current: Service,
): Promise<Service> {
  const { namespace, name, spec, labels, loadBalancer } = wanted;
  const changesBalancing = fields.some(({ path }) => path.startsWith('load_balancer'));
  const getRequestId = (part: string): string =>
    session.getRequestId(`${part}/${namespace}/${name}`);
  let service = current;
  if (fields.some(({ path }) => !path.startsWith('load_balancer'))) {
    service = await session.network.updateService(
      {
        ...{ namespace, name, spec, updateMask: { paths: ['*'] } },
        labels: toLabelChanges(current.labels, labels),
        expectedGeneration: current.generation,
        requestId: getRequestId('service'),
      },
      session.getCallOptions(),
    );
  }
  if (!changesBalancing) return service;
  await session.network.updateLoadBalancerConfig(
    {
      ...{ namespace, service: name, updateMask: { paths: ['*'] } },
      config: loadBalancer ?? create(LoadBalancerConfigSchema),
      requestId: getRequestId('load-balancer'),
    },
    session.getCallOptions(),
  );
  return session.network.getService({ namespace, name }, session.getCallOptions());
}
