import { create, equals } from '@bufbuild/protobuf';
import {
  LoadBalancerConfigSchema,
  ResolveServiceResponseSchema,
  ServiceEndpointSchema,
  ServiceSchema,
  ServiceSpecSchema,
  ServiceStatusSchema,
  withBalancingDefaults,
  type Service,
  type ServiceEndpoint,
} from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toKindJson, toMessageJson } from '../../call/cli-session.js';
import type { ManifestService } from '../../manifest/manifest-service.js';
import { printServiceManifests } from '../../manifest/print-manifest.js';
import { formatFields, formatSections } from '../../views/sections.js';
import {
  formatEndpointTable,
  formatServiceDescription,
  formatServiceTable,
} from '../../views/service-view.js';
import { describeEmptyList, printObjects, readListFilter } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { getTextOption, requireOperand } from '../options.js';
import { listAllPages } from '../page.js';
import { findService, listServiceEndpoints, parseServiceName } from './find-service.js';

/** Names, fields and columns of services in lists. */
export const SERVICE_KIND: ObjectKind<Service> = {
  plural: 'services',
  fields: [...ServiceSchema.fields, ...ServiceStatusSchema.fields].map(({ jsonName }) => jsonName),
  toJson: (service) => toKindJson('Service', ServiceSchema, service),
  formatManifests: (services) => printServiceManifests(services.map(toManifest)),
  formatTable: (services, { nowMs, style, settings }) =>
    formatServiceTable(services, nowMs, style, settings.output === 'wide'),
};

function toManifest(service: Service): ManifestService {
  const { namespace, name, labels, loadBalancer, spec = create(ServiceSpecSchema) } = service;
  const isDefault =
    loadBalancer === undefined ||
    equals(LoadBalancerConfigSchema, loadBalancer, withBalancingDefaults(undefined));
  return { namespace, name, spec, labels, loadBalancer: isDefault ? undefined : loadBalancer };
}

/** Names, fields and columns of endpoints in lists. */
const ENDPOINT_KIND: ObjectKind<ServiceEndpoint> = {
  plural: 'endpoints',
  fields: ServiceEndpointSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (endpoint) => toMessageJson(ServiceEndpointSchema, endpoint),
  formatTable: (endpoints, { nowMs, style, settings }) =>
    formatEndpointTable(endpoints, nowMs, style, settings.output === 'wide'),
};

/** Lists the services of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listServices(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const filter = readListFilter(invocation);
  const services = await listAllPages(
    (page) => session.network.listServices({ ...filter, ...page }, session.getCallOptions()),
    (page) => page.services,
  );
  const empty = describeEmptyList(SERVICE_KIND.plural, filter.namespace);
  await printObjects(
    invocation,
    SERVICE_KIND,
    services,
    `${empty}; create one with: cloudlessctl service create`,
  );
}

/** Shows services by name. */
export async function getServices(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const names = operands.map((text) => parseServiceName(text, session.settings.namespace));
  const services: Service[] = [];
  for (const name of names) services.push(await findService(session, name));
  await printObjects(invocation, SERVICE_KIND, services, 'no services', {
    single: operands.length === 1,
  });
}

/** Shows a service with its conditions and endpoints. */
export async function describeService(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the service');
  const name = parseServiceName(text, session.settings.namespace);
  const service = await findService(session, name);
  if (session.isStructured) return session.printValue(SERVICE_KIND.toJson(service));
  const endpoints = await listServiceEndpoints(session, name);
  await session.print(formatServiceDescription(service, endpoints, session.nowMs, session.style));
}

/** Shows what the name of a service resolves to and which endpoints a caller in a zone would use. */
export async function resolveService(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the service');
  const { namespace, name } = parseServiceName(text, session.settings.namespace);
  const callerZone = getTextOption(invocation, 'fromZone') ?? '';
  const resolved = await session.network.resolveService(
    { serviceName: name, namespace, callerZone },
    session.getCallOptions(),
  );
  if (session.isStructured)
    return session.printValue(toMessageJson(ResolveServiceResponseSchema, resolved));
  const fields = formatFields([
    ['DNS name', resolved.dnsName],
    ['Address', resolved.virtualIp],
    ['External name', resolved.externalName],
    ['Endpoints', resolved.endpoints.length === 0 ? 'none is ready' : ''],
  ]);
  const table =
    resolved.endpoints.length === 0
      ? ''
      : formatEndpointTable(resolved.endpoints, session.nowMs, session.style, false);
  await session.print(
    formatSections(session.style, [
      ['', fields],
      ['Endpoints, nearest first', table],
    ]),
  );
}

/** Lists the endpoints of a service. */
export async function listEndpoints(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the service');
  const name = parseServiceName(text, session.settings.namespace);
  const endpoints = await listServiceEndpoints(session, name);
  await printObjects(
    invocation,
    ENDPOINT_KIND,
    endpoints,
    `service ${name.namespace}/${name.name} has no endpoints; see: cloudlessctl explain service/${name.name}`,
  );
}
