import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { PortReservations } from '@cloudless/app-kit';
import { listHostPorts, type ContainerHostPort } from './config/network.js';
import type { KnownContainer } from './inventory.js';
import type { ForeignPorts, Sandboxes } from './sandboxes.js';

/** A range of host ports, both ends included. */
export interface PortRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Checks that the host ports of a request are free, and reserves them. The network plug-ins of
 * container runtimes do not check this: they forward a port to a container although another program
 * listens on the port. A port that is still forwarded to an exited container of this owner is
 * freed.
 * @param others - The users of host ports on this machine.
 * @param sandboxes - Ends the networks of exited containers.
 * @returns A function that releases the reservation. Call it when the container runs or the start
 *   has failed. Until then no other agent on this machine can claim the ports: the container is not
 *   visible to other agents while it is being started.
 * @throws kind `exhausted`, naming the port and its holder.
 */
export async function claimHostPorts(
  request: ContainerRequest,
  others: {
    /** Lists the host ports of other agents. Called only when the request has a host port. */
    readonly foreign?: () => Promise<readonly ForeignPorts[]>;
    /** Containers of this owner. */
    readonly known: readonly KnownContainer[];
    /** Earlier starts of this agent that are still running. */
    readonly starting: readonly ContainerRequest[];
    /** Range from which the process runtime assigns ports. */
    readonly processPorts?: PortRange | undefined;
    /** Reservations that all agents on this machine share. */
    readonly reservations: PortReservations;
  },
  sandboxes: Pick<Sandboxes, 'endNetwork'>,
): Promise<() => void> {
  const requested = listHostPorts(request);
  if (requested.length === 0) return () => undefined;
  if (request.network?.hostNetwork !== true) refuseProcessPorts(requested, others.processPorts);
  for (const other of others.starting)
    refuseUsedPorts(requested, listHostPorts(other), other.containerId);
  for (const { status, recorded, sandboxId } of others.known) {
    const used = listHostPorts({
      ports: recorded.ports,
      network: { hostNetwork: recorded.hostNetwork === true },
    });
    if (status.phase === 'running') refuseUsedPorts(requested, used, status.containerId);
    else if (findOverlap(requested, used) !== undefined && recorded.hostNetwork !== true)
      await sandboxes.endNetwork(sandboxId);
  }
  // Reserve before reading the ports of other agents. All agents use this order, so of two agents
  // at least one sees the reservation or the container of the other.
  const release = await reservePorts(requested, others.reservations);
  try {
    for (const { containerId, ports } of (await others.foreign?.()) ?? []) {
      refuseUsedPorts(requested, ports, `${containerId} of another agent on this machine`);
    }
    for (const port of requested) {
      if (!(await isFree(port)))
        throw new CloudlessError(
          'exhausted',
          `${describePort(port)} of this node is in use by another program`,
        );
    }
    return release;
  } catch (reason) {
    release();
    throw reason;
  }
}

/**
 * Reserves all ports or none.
 * @returns A function that releases the reserved ports.
 * @throws kind `exhausted`, naming the port that another agent has reserved.
 */
async function reservePorts(
  requested: readonly ContainerHostPort[],
  reservations: PortReservations,
): Promise<() => void> {
  const reserved: ContainerHostPort[] = [];
  const release = (): void => {
    for (const { port, protocol } of reserved.splice(0)) reservations.release(port, protocol);
  };
  for (const each of requested) {
    if (await reservations.reserve(each.port, each.protocol)) {
      reserved.push(each);
      continue;
    }
    release();
    throw new CloudlessError(
      'exhausted',
      `${describePort(each)} of this node is being claimed by another agent on this machine`,
    );
  }
  return release;
}

/**
 * Refuses host ports in the range of the process runtime. A process could listen on a port that is
 * forwarded to a container, but would get no connections: the network forwards them.
 */
function refuseProcessPorts(
  requested: readonly ContainerHostPort[],
  range: PortRange | undefined,
): void {
  const port = requested.find(
    (each) => range !== undefined && each.port >= range.from && each.port <= range.to,
  );
  if (range === undefined || port === undefined) return;
  throw new CloudlessError(
    'exhausted',
    `${describePort(port)} is in the range that this node assigns to processes, ${range.from} to ${range.to}: use another port, or change --port-range of its agent`,
  );
}

function refuseUsedPorts(
  requested: readonly ContainerHostPort[],
  used: readonly ContainerHostPort[],
  containerId: string,
): void {
  const port = findOverlap(requested, used);
  if (port !== undefined)
    throw new CloudlessError(
      'exhausted',
      `${describePort(port)} of this node is in use by container ${containerId}`,
    );
}

function findOverlap(
  requested: readonly ContainerHostPort[],
  used: readonly ContainerHostPort[],
): ContainerHostPort | undefined {
  return requested.find(({ port, protocol }) =>
    used.some((each) => each.port === port && each.protocol === protocol),
  );
}

function describePort({ port, protocol }: ContainerHostPort): string {
  return `host port ${port}/${protocol}`;
}

/**
 * Returns true when a program could listen on the port, on all addresses. Also returns true for a
 * port that this process lacks the permission to bind; the container runtime then decides.
 */
function isFree({ port, protocol }: ContainerHostPort): Promise<boolean> {
  return new Promise((resolve) => {
    const onError = (reason: Error): void => resolve(errorCodeOf(reason) !== 'EADDRINUSE');
    if (protocol === 'udp') {
      const socket = createSocket('udp4').once('error', (reason) => {
        socket.close();
        onError(reason);
      });
      socket.bind({ port, exclusive: true }, () => socket.close(() => resolve(true)));
      return;
    }
    const server = createServer().once('error', onError);
    server.listen({ port, host: '0.0.0.0', exclusive: true }, () =>
      server.close(() => resolve(true)),
    );
  });
}
