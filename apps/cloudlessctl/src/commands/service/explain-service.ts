import { ServiceCondition_Type, ServiceSchema, type Service } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatCount } from '../../output/human.js';
import { formatSections } from '../../views/sections.js';
import { formatEndpointTable } from '../../views/service-view.js';
import {
  findService,
  formatServiceName,
  listServiceEndpoints,
  parseServiceName,
} from './find-service.js';

/** Explains why a service has the endpoints that it has. */
export async function explainService(invocation: Invocation, text: string): Promise<void> {
  const { session } = invocation;
  const name = parseServiceName(text, session.settings.namespace);
  const service = await findService(session, name);
  if (session.isStructured) return session.printValue(toMessageJson(ServiceSchema, service));
  const endpoints = await listServiceEndpoints(session, name);
  const failing = (service.status?.conditions ?? []).filter(({ holds }) => !holds);
  await session.print(
    formatSections(session.style, [
      ['', `${summarise(service)}\n`],
      ['Problems', failing.map(({ reason, message }) => `${reason}: ${message}\n`).join('')],
      [
        'Endpoints',
        endpoints.length === 0
          ? ''
          : formatEndpointTable(endpoints, session.nowMs, session.style, false),
      ],
    ]),
  );
}

/** Returns one sentence about the endpoints of a service. */
function summarise(service: Service): string {
  const subject = formatServiceName(service);
  const { spec, status } = service;
  if (spec?.externalName) return `${subject} leads to ${spec.externalName} outside the cluster.`;
  const { readyEndpoints = 0, totalEndpoints = 0, conditions = [] } = status ?? {};
  const hasNoProxy = conditions.some(({ reason, holds }) => reason === 'NoNetworkProxy' && !holds);
  if (readyEndpoints > 0 && hasNoProxy)
    return `${subject}: ${readyEndpoints} of ${formatCount(totalEndpoints, 'endpoint')} ${readyEndpoints === 1 ? 'is' : 'are'} ready, but no node has a network proxy; start agents with --network on or auto.`;
  if (readyEndpoints > 0)
    return `${subject}: ${readyEndpoints} of ${formatCount(totalEndpoints, 'endpoint')} receive connections.`;
  const cause = conditions.find(
    ({ type, holds }) => type === ServiceCondition_Type.HAS_ENDPOINTS && !holds,
  );
  const why = cause?.message || whyNone(service);
  return `${subject} has no endpoint that receives connections: ${why}`;
}

function whyNone({ spec, status }: Service): string {
  if ((status?.totalEndpoints ?? 0) > 0)
    return `none of ${formatCount(status?.totalEndpoints ?? 0, 'endpoint')} is ready`;
  if (spec === undefined || (spec.workload === '' && Object.keys(spec.selector).length === 0))
    return 'the service selects no workload, and no address is registered';
  return 'no replica of the selected workloads is ready';
}
