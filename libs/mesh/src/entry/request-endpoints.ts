import type { Duplex } from 'node:stream';
import { Port_Protocol } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import type { Dialled } from '../dial/endpoint-dialler.js';
import { toServiceKey } from '../model/network-model.js';
import type { EndpointChoice, EndpointRequest } from '../ports.js';
import { explainStale, identifyClient, type ProxyContext } from '../proxy/proxy-context.js';
import type { CarriedConnection } from '../service/connection-table.js';
import type { EndpointTarget, ServicePort } from '../service/service-port.js';
import { formatAddress } from '../stream/proxy-header.js';
import { resetStream } from '../stream/splice.js';

/** Chooses an endpoint of a service for a request, as for a connection of a client of this node. */
export function chooseEndpoint(context: ProxyContext, request: EndpointRequest): EndpointChoice {
  const port = findPort(context, request);
  if (typeof port === 'string') return { kind: 'refused', reason: port };
  const { clientAddress, exclude } = request;
  const nowMs = context.clock.now();
  const choice = port.balancer.choose({ clientAddress, nowMs, exclude });
  const target = choice.kind === 'refused' ? undefined : port.target(choice.endpointId);
  if (choice.kind === 'refused' || target === undefined) {
    port.countRefusal(choice.kind === 'refused' ? choice.reason : 'noEndpoints');
    return { kind: 'refused', reason: 'has no endpoint that can be chosen' };
  }
  const { endpointId } = choice;
  port.balancer.opened(endpointId);
  let isReleased = false;
  return {
    kind: 'chosen',
    endpointId,
    namesClient: port.settings.proxyProtocol,
    connect: (trace) => connect(context, port, target, { ...request, trace }),
    release: () => {
      if (isReleased) return;
      isReleased = true;
      port.balancer.closed(endpointId);
    },
  };
}

function findPort(context: ProxyContext, request: EndpointRequest): ServicePort | string {
  const key = toServiceKey(request.namespace, request.service);
  const entry = context.view.services.get(key);
  if (entry === undefined) return 'does not exist';
  const declared = entry.spec?.ports.find(
    ({ port, protocol }) => port === request.port && protocol !== Port_Protocol.UDP,
  );
  const port = declared === undefined ? undefined : context.services.port(key, declared.name);
  return port ?? 'does not have the TCP port of the route';
}

async function connect(
  context: ProxyContext,
  port: ServicePort,
  target: EndpointTarget,
  { clientAddress, clientPort, virtual, trace }: EndpointRequest & { trace: string | undefined },
): Promise<Duplex> {
  const { id } = target.endpoint;
  const { connectTimeoutMs: timeoutMs, proxyProtocol } = port.settings;
  const describe = () => ({
    ...{ endpoint: id, port: target.portName, protocol: 'tcp' as const, virtual },
    client: formatAddress({ address: clientAddress, port: clientPort }),
    identity: identifyClient(context, clientAddress),
    ...definedFields({ trace }),
  });
  const dialled = await new Promise<Dialled>((resolve) =>
    context.dialler.dial(target, describe, { timeoutMs, proxyProtocol }, resolve),
  );
  const counts = port.countsOf(id);
  if (dialled.kind === 'failed') {
    port.balancer.reportFailed(id, context.clock.now());
    counts.failures += 1;
    throw new Error(dialled.reason);
  }
  // The endpoint may have gone while it was connected.
  const stale = explainStale(context, target);
  if (stale !== undefined) {
    resetStream(dialled.stream);
    throw new Error(stale);
  }
  port.balancer.reportConnected(id, context.clock.now());
  counts.connections += 1;
  watch(context, port, target, dialled.stream);
  return dialled.stream;
}

/** Makes the end of the endpoint end the connection. */
function watch(
  context: ProxyContext,
  port: ServicePort,
  { endpoint }: EndpointTarget,
  stream: Duplex,
): void {
  const connection: CarriedConnection = {
    endpointId: endpoint.id,
    replicaId: endpoint.replicaId,
    nodeId: endpoint.nodeId,
    carriedBytes: 0,
    // Unused connections are closed by their user.
    idleTimeoutMs: 0,
    reset: () => resetStream(stream),
  };
  context.connections.add(connection, context.clock.now());
  port.openConnections += 1;
  stream.on('error', () => undefined);
  stream.once('close', () => {
    context.connections.remove(connection);
    port.openConnections -= 1;
  });
}
