import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { PortReservations } from '@cloudless/app-kit';
import { listHostPorts, type ContainerHostPort } from './config/network.js';
import type { KnownContainer } from './inventory.js';
import type { Sandboxes } from './sandboxes.js';

/** Host ports of a running container of another agent on this machine. */
export interface ForeignPorts {
  readonly containerId: string;
  readonly ports: readonly ContainerHostPort[];
}

/** A range of host ports, both ends included. */
export interface PortRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Checks that the host ports of a request are free, and reserves them. The network plug-ins of
 * container runtimes do not check: they forward a port to a container although another program
 * listens on it.
 * @param others - Known containers, earlier starts that are still running, and the ports that are
 *   assigned to processes of this machine.
 * @returns Releases the reservation. Call it when the container runs or the start has failed. Until
 *   then other agents on this machine, which do not see a container that is being started, cannot
 *   claim the ports.
 * @throws kind `exhausted`, naming the port and its holder.
 */
export async function claimHostPorts(
  request: ContainerRequest,
  others: {
    /** Called only when the request has a host port. */
    readonly foreign?: () => Promise<readonly ForeignPorts[]>;
    readonly known: readonly KnownContainer[];
    readonly starting: readonly ContainerRequest[];
    readonly processPorts?: PortRange | undefined;
    readonly reservations: PortReservations;
  },
  sandboxes: Pick<Sandboxes, 'endNetwork'>,
): Promise<() => void> {
  const wanted = listHostPorts(request);
  if (wanted.length === 0) return () => undefined;
  if (request.network?.hostNetwork !== true) refuseProcessPorts(wanted, others.processPorts);
  for (const other of others.starting)
    refuseUsedPorts(wanted, listHostPorts(other), other.containerId);
  for (const { status, recorded, sandboxId } of others.known) {
    const taken = listHostPorts({
      ports: recorded.ports,
      network: { hostNetwork: recorded.hostNetwork === true },
    });
    if (status.phase === 'running') refuseUsedPorts(wanted, taken, status.containerId);
    else if (findOverlap(wanted, taken) !== undefined && recorded.hostNetwork !== true)
      await sandboxes.endNetwork(sandboxId);
  }
  // Reserve before reading the ports of other agents, as these agents do, too.
  const release = await reservePorts(wanted, others.reservations);
  try {
    for (const { containerId, ports } of (await others.foreign?.()) ?? []) {
      refuseUsedPorts(wanted, ports, `${containerId} of another agent on this machine`);
    }
    for (const port of wanted) {
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

/** Reserves all ports or none.
 * @throws kind `exhausted`. */
async function reservePorts(
  wanted: readonly ContainerHostPort[],
  reservations: PortReservations,
): Promise<() => void> {
  const reserved: ContainerHostPort[] = [];
  const release = (): void => {
    for (const { port, protocol } of reserved.splice(0)) reservations.release(port, protocol);
  };
  for (const each of wanted) {
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
 * Refuses host ports in the range for processes. A forwarded port looks free to a program that
 * searches a port to listen on, but the program would get no connections.
 */
function refuseProcessPorts(
  wanted: readonly ContainerHostPort[],
  range: PortRange | undefined,
): void {
  const port = wanted.find(
    (each) => range !== undefined && each.port >= range.from && each.port <= range.to,
  );
  if (range === undefined || port === undefined) return;
  throw new CloudlessError(
    'exhausted',
    `${describePort(port)} is in the range that this node assigns to processes, ${range.from} to ${range.to}: use another port, or change --port-range of its agent`,
  );
}

function refuseUsedPorts(
  wanted: readonly ContainerHostPort[],
  taken: readonly ContainerHostPort[],
  containerId: string,
): void {
  const port = findOverlap(wanted, taken);
  if (port !== undefined)
    throw new CloudlessError(
      'exhausted',
      `${describePort(port)} of this node is in use by container ${containerId}`,
    );
}

function findOverlap(
  wanted: readonly ContainerHostPort[],
  taken: readonly ContainerHostPort[],
): ContainerHostPort | undefined {
  return wanted.find(({ port, protocol }) =>
    taken.some((each) => each.port === port && each.protocol === protocol),
  );
}

function describePort({ port, protocol }: ContainerHostPort): string {
  return `host port ${port}/${protocol}`;
}

/**
 * Whether a program could listen on the port, on all addresses. A port that this process may not
 * bind counts as free; the runtime decides.
 */
function isFree({ port, protocol }: ContainerHostPort): Promise<boolean> {
  return new Promise((resolve) => {
    const failed = ({ code }: NodeJS.ErrnoException): void => resolve(code !== 'EADDRINUSE');
    if (protocol === 'udp') {
      const socket = createSocket('udp4').once('error', (reason) => {
        socket.close();
        failed(reason);
      });
      socket.bind({ port, exclusive: true }, () => socket.close(() => resolve(true)));
      return;
    }
    const server = createServer().once('error', failed);
    server.listen({ port, host: '0.0.0.0', exclusive: true }, () =>
      server.close(() => resolve(true)),
    );
  });
}
