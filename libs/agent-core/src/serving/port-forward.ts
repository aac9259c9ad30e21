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

/** Container to which a connection is forwarded. */
export interface ForwardTarget {
  readonly containerId: string;
  readonly replicaId: string;
  readonly nodeId: string;
  readonly endpoints: readonly ContainerEndpoint[];
  /** Ports that the workload declares. */
  readonly declared: readonly Port[];
}

export interface ForwardDeps {
  readonly dial: TcpDial;
  readonly clock: Clock;
  /** Interval of keep-alive messages while no data comes, milliseconds. */
  readonly keepAliveMs: number;
}

/**
 * Forwards one TCP connection to a declared port until both sides have closed the connection or
 * `signal` is aborted.
 * @param port - Name or number of a declared TCP port; empty: the first declared TCP port.
 * @param requests - The messages after the first.
 * @throws kind `invalid` for a port that is not declared, `precondition` when the port has no
 *   address yet, `unavailable` when the connection is refused or breaks.
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
    yield* withKeepAlive(relayStream(stream, requests, signal), keepAliveMs, clock, () =>
      create(PortForwardResponseSchema),
    );
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}

/**
 * Returns the address of a declared TCP port.
 * @throws kind `invalid` when no declared port matches; the message lists the declared ports.
 */
function requireEndpoint(
  port: string,
  { replicaId, endpoints, declared }: ForwardTarget,
): ContainerEndpoint {
  const ports = declared.filter(({ protocol }) => protocol === Port_Protocol.TCP);
  const selectedPort =
    port === ''
      ? ports[0]
      : ports.find((each) => resolvePortName(each) === port || String(each.containerPort) === port);
  if (selectedPort === undefined) {
    const declaredPorts = ports
      .map((each) => `${resolvePortName(each)} (${each.containerPort})`)
      .join(', ');
    const requestedPort = port === '' ? '' : ` ${port}`;
    throw new InvalidInputError([
      {
        field: 'port',
        message: `replica ${replicaId} declares no TCP port${requestedPort}; ${declaredPorts === '' ? 'it has none' : `it has ${declaredPorts}`}`,
      },
    ]);
  }
  const name = resolvePortName(selectedPort);
  const endpoint = endpoints.find(({ portName }) => portName === name);
  if (endpoint !== undefined) return endpoint;
  throw new CloudlessError(
    'REPLICA_NOT_RUNNING',
    `port ${name} of replica ${replicaId} has no address yet`,
  );
}

/**
 * Yields the data of a connection and writes the data of the requests at the same time, until both
 * sides have ended or `signal` is aborted. The caller destroys the connection.
 */
export async function* relayStream(
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

/** Writes the data of the client to the connection until the client ends its half. */
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

/** Resolves when `work` has ended or `signal` is aborted. */
function waitUntilAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = (): void => {
      signal.removeEventListener('abort', finish);
      resolve();
    };
    if (signal.aborted) return finish();
    signal.addEventListener('abort', finish, { once: true });
    void work.then(finish);
  });
}
