import { create } from '@bufbuild/protobuf';
import { CloudlessError, InvalidInputError, type Clock } from '@cloudless/base';
import {
  Port_Protocol,
  PortForwardResponseSchema,
  resolvePortName,
  type Port,
  type PortForwardRequest,
  type PortForwardResponse,
} from '@cloudless/api';
import type { ContainerEndpoint } from '@cloudless/runtime';
import { withKeepAlive } from './keep-alive.js';
import type { TcpDial, TcpStream } from './tcp-dial.js';

/** Container and the ports that its workload declares. */
export interface ForwardTarget {
  readonly containerId: string;
  readonly replicaId: string;
  readonly nodeId: string;
  readonly endpoints: readonly ContainerEndpoint[];
  readonly declared: readonly Port[];
}

export interface ForwardDeps {
  readonly dial: TcpDial;
  readonly clock: Clock;
  /** Interval of keep-alive messages while no data comes, milliseconds. */
  readonly keepAliveMs: number;
}

/**
 * Forwards one TCP connection to a declared port until both sides have closed it or `signal` is
 * aborted.
 */
export async function* forwardPort(
  port: string,
  target: ForwardTarget,
  requests: AsyncIterable<PortForwardRequest>,
  { dial, clock, keepAliveMs }: ForwardDeps,
  signal: AbortSignal,
): AsyncGenerator<PortForwardResponse> {
  const endpoint = requireEndpoint(port, target);
  const stream = await dial(endpoint.ip, endpoint.port);
  const close = (): void => stream.destroy();
  signal.addEventListener('abort', close, { once: true });
  try {
    if (signal.aborted) return;
    const { containerId, replicaId, nodeId } = target;
    const { portName, ip, port: number } = endpoint;
    const value = { containerId, replicaId, nodeId, portName, ip, port: number };
    yield create(PortForwardResponseSchema, { response: { case: 'started', value } });
    yield* withKeepAlive(relay(stream, requests, signal), keepAliveMs, clock, () =>
      create(PortForwardResponseSchema),
    );
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}

/** @throws kind `invalid` when no declared port matches; the message lists the declared ports. */
function requireEndpoint(
  port: string,
  { replicaId, endpoints, declared }: ForwardTarget,
): ContainerEndpoint {
  const ports = declared.filter(({ protocol }) => protocol === Port_Protocol.TCP);
  const wanted =
    port === ''
      ? ports[0]
      : ports.find((each) => resolvePortName(each) === port || String(each.containerPort) === port);
  if (wanted === undefined) {
    const known = ports
      .map((each) => `${resolvePortName(each)} (${each.containerPort})`)
      .join(', ');
    const asked = port === '' ? '' : ` ${port}`;
    throw new InvalidInputError([
      {
        field: 'port',
        message: `replica ${replicaId} declares no TCP port${asked}; ${known === '' ? 'it has none' : `it has ${known}`}`,
      },
    ]);
  }
  const name = resolvePortName(wanted);
  const endpoint = endpoints.find(({ portName }) => portName === name);
  if (endpoint !== undefined) return endpoint;
  throw new CloudlessError(
    'precondition',
    `port ${name} of replica ${replicaId} has no address yet`,
  );
}

/** Yields the data from the replica and writes the data of the client at the same time. */
async function* relay(
  stream: TcpStream,
  requests: AsyncIterable<PortForwardRequest>,
  signal: AbortSignal,
): AsyncGenerator<PortForwardResponse> {
  const failures: unknown[] = [];
  const sent = sendRequests(stream, requests).catch((reason: unknown) => {
    failures.push(reason);
    stream.destroy();
  });
  try {
    for await (const data of stream.data) {
      yield create(PortForwardResponseSchema, {
        response: { case: 'data', value: new Uint8Array(data) },
      });
    }
    yield create(PortForwardResponseSchema, { response: { case: 'end', value: {} } });
    await waitUntilAborted(sent, signal);
  } catch (reason) {
    throw failures[0] ?? reason;
  }
  if (failures.length > 0) throw failures[0];
}

async function sendRequests(
  stream: TcpStream,
  requests: AsyncIterable<PortForwardRequest>,
): Promise<void> {
  for await (const { request } of requests) {
    if (request.case === 'data') await stream.write(request.value);
    else if (request.case === 'end') break;
    else if (request.case === 'start') {
      throw new InvalidInputError([
        { field: 'start', message: 'must come once, as the first message' },
      ]);
    }
  }
  stream.end();
}

function waitUntilAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      signal.removeEventListener('abort', done);
      resolve();
    };
    if (signal.aborted) return done();
    signal.addEventListener('abort', done, { once: true });
    void work.then(done);
  });
}
