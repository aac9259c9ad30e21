import { create, type JsonValue } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  FieldChangeSchema,
  LoadBalancerConfigSchema,
  ServiceSchema,
  type Service,
} from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { formatCount } from '../../output/human.js';
import type { Style } from '../../output/style.js';
import { formatFieldChange } from '../../views/field-change-view.js';
import { formatServiceName, printServiceStatus } from './find-service.js';
import type { ServiceChange } from './plan-services.js';

/** A change of a service that a manifest describes. */
type PutChange = Extract<ServiceChange, { action: 'CREATE' | 'UPDATE' | 'NOTHING' }>;

const ACTION_TEXTS: Readonly<Record<ServiceChange['action'], string>> = {
  CREATE: 'create',
  UPDATE: 'update',
  NOTHING: 'unchanged',
  DELETE: 'delete',
};

/** Formats the changes of services with their fields, as the plans of workloads. */
export function formatServiceChanges(changes: readonly ServiceChange[], style: Style): string {
  return changes
    .flatMap((change) => [
      `${formatServiceName(change)}: ${ACTION_TEXTS[change.action]}`,
      ...(change.action === 'DELETE' ? [] : change.fields).flatMap((field) =>
        formatFieldChange(ServiceSchema, create(FieldChangeSchema, field), style),
      ),
    ])
    .map((line) => `${line}\n`)
    .join('');
}

/** Returns the changes of services in the form of `-o json`. */
export function toServiceChangesJson(changes: readonly ServiceChange[]): JsonValue {
  return changes.map((change) => ({
    namespace: change.namespace,
    name: change.name,
    action: change.action,
    ...(change.action === 'DELETE'
      ? {}
      : { changes: change.fields.map((field) => ({ ...field })) }),
  }));
}

/**
 * Makes the changes of services, one after the other, and prints a status line for each.
 * @returns The services that the manifests describe, in their order.
 * @throws the error of the first change that fails; the changes after that are not made.
 */
export async function executeServiceChanges(
  session: CliSession,
  changes: readonly ServiceChange[],
): Promise<readonly Service[]> {
  const services: Service[] = [];
  let applied = 0;
  for (const [index, change] of changes.entries()) {
    try {
      if (change.action === 'DELETE') await deleteService(session, change);
      else services.push(await putService(session, change));
    } catch (reason) {
      const others = changes.slice(index).filter(({ action }) => action !== 'NOTHING');
      if (applied > 0)
        await session.printNotice(
          `cloudlessctl: applied before the failure: ${formatCount(applied, 'service')}; not applied: ${others.map(formatServiceName).join(', ')}`,
        );
      throw reason;
    }
    if (change.action !== 'NOTHING') applied += 1;
  }
  return services;
}

/** Deletes a service; one that is gone already counts as deleted. */
async function deleteService(session: CliSession, change: ServiceChange): Promise<void> {
  const { namespace, name } = change;
  const requestId = session.getRequestId(`service/${namespace}/${name}`);
  try {
    await session.network.deleteService({ namespace, name, requestId }, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
  }
  await session.printStatus(`${formatServiceName(change)}: deleted`);
}

async function putService(session: CliSession, change: PutChange): Promise<Service> {
  const { action, current } = change;
  if (action === 'NOTHING' && current !== undefined) return current;
  const service =
    current === undefined
      ? await createService(session, change)
      : await updateService(session, change, current);
  await printServiceStatus(session, service, action === 'CREATE' ? 'created' : 'updated');
  return service;
}

function createService(session: CliSession, { wanted }: PutChange): Promise<Service> {
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
  { wanted, fields }: PutChange,
  current: Service,
): Promise<Service> {
  const { namespace, name, spec, labels, loadBalancer } = wanted;
  const changesBalancing = fields.some(({ path }) => path.startsWith('load_balancer'));
  const removed = Object.keys(current.labels).filter((key) => !(key in labels));
  const getRequestId = (part: string): string =>
    session.getRequestId(`${part}/${namespace}/${name}`);
  let service = current;
  if (fields.some(({ path }) => !path.startsWith('load_balancer'))) {
    service = await session.network.updateService(
      {
        ...{ namespace, name, spec, updateMask: { paths: ['*'] } },
        labels: { ...labels, ...Object.fromEntries(removed.map((key) => [key, ''])) },
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
