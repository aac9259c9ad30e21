import { Code, ConnectError } from '@connectrpc/connect';
import { ServiceCondition_Type, type Service, type ServiceEndpoint } from '@cloudless/api';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { parseWorkloadName, type WorkloadName } from '../../names.js';
import { suggestSimilar } from '../../suggest.js';
import { listAllPages } from '../page.js';

/** Namespace and name of a service. */
export type ServiceName = WorkloadName;

/** Formats the name of a service for messages: `service default/web`. */
export function formatServiceName({ namespace, name }: ServiceName): string {
  return `service ${namespace}/${name}`;
}

/**
 * Parses `[namespace/]name`, also as `service/name` or with the kind before.
 * @throws {@link CliFailure} with exit code 2 when one of the names is invalid.
 */
export function parseServiceName(text: string, defaultNamespace: string): ServiceName {
  return parseWorkloadName(text, defaultNamespace, 'service');
}

/**
 * Returns a service.
 * @throws {@link CliFailure} with exit code 3 when the service does not exist; the message names a
 *   similar service of the namespace, if there is one.
 */
export async function findService(session: CliSession, name: ServiceName): Promise<Service> {
  try {
    return await session.network.getService(name, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
    const names = await session.network
      .listServices({ namespace: name.namespace, pageSize: 1_000 }, session.getCallOptions())
      .then((page) => page.services.map((service) => service.name))
      .catch(() => []); // the first error is the one to report
    const hint = suggestSimilar(name.name, names);
    if (hint === '') throw reason;
    throw new CliFailure(ExitCode.notFound, `${reason.rawMessage}${hint}`, { cause: reason });
  }
}

/** Returns all endpoints of a service, by id. */
export function listServiceEndpoints(
  session: CliSession,
  { namespace, name }: ServiceName,
): Promise<readonly ServiceEndpoint[]> {
  return listAllPages(
    (page) =>
      session.network.listEndpoints(
        { namespace, service: name, ...page },
        session.getCallOptions(),
      ),
    (page) => page.endpoints,
  );
}

/**
 * Prints the status line of a change, with the name and the address of the service, and then the
 * notes of {@link printServiceNotes}.
 * @param change - The change, for example `created`.
 */
export async function printServiceStatus(
  session: CliSession,
  service: Service,
  change: string,
): Promise<void> {
  await printServiceChange(session, service, change);
  await printServiceNotes(session, service);
}

/** Prints the status line of a change, with the name and the address of the service. */
export async function printServiceChange(
  session: CliSession,
  service: Service,
  change: string,
): Promise<void> {
  const { clusterIp = '', dnsName = '' } = service.status ?? {};
  const address = [dnsName, clusterIp].filter((part) => part !== '').join(', ');
  await session.printStatus(
    `${formatServiceName(service)}: ${change}${address === '' ? '' : ` (${address})`}`,
  );
}

/**
 * Prints why a service will not work as it is: no such workload, no such port, or no network proxy.
 * Replicas that are not ready yet are not reported.
 */
export async function printServiceNotes(session: CliSession, service: Service): Promise<void> {
  for (const note of listServiceNotes(service)) await session.printStatus(`note: ${note}`);
}

/** Returns the notes of {@link printServiceNotes}. */
export function listServiceNotes({ status }: Service): readonly string[] {
  return (status?.conditions ?? [])
    .filter(
      ({ type, holds, reason }) =>
        !holds && (type !== ServiceCondition_Type.HAS_ENDPOINTS || reason === 'NoWorkloadSelected'),
    )
    .map(({ message }) => message);
}
