import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { PortReservations } from '@cloudless/system';
import { hostPortsOf, type HostPort } from './config/network.js';
import type { Known } from './inventory.js';
import type { Sandboxes } from './sandboxes.js';

/** Host ports of a running container of another agent on this machine. */
export interface ForeignPorts {
  readonly containerId: string;
  readonly ports: readonly HostPort[];
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
    readonly known: readonly Known[];
    readonly starting: readonly ContainerRequest[];
    readonly processPorts?: PortRange | undefined;
    readonly reservations: PortReservations;
  },
  sandboxes: Pick<Sandboxes, 'endNetwork'>,
): Promise<() => void> {
  const wanted = hostPortsOf(request);
  if (wanted.length === 0) return () => undefined;
  if (request.network?.hostNetwork !== true) refuseProcessPorts(wanted, others.processPorts);
  for (const other of others.starting) refuseTaken(wanted, hostPortsOf(other), other.containerId);
  for (const { status, memory, sandboxId } of others.known) {
    const taken = hostPortsOf({
      ports: memory.ports,
      network: { hostNetwork: memory.hostNetwork === true },
    });
    if (status.phase === 'running') refuseTaken(wanted, taken, status.containerId);
    else if (overlap(wanted, taken) !== undefined && memory.hostNetwork !== true)
      await sandboxes.endNetwork(sandboxId);
  }
  // Reserve before reading the ports of other agents, as these agents do, too.
  const release = await reserve(wanted, others.reservations);
  try {
    for (const { containerId, ports } of (await others.foreign?.()) ?? []) {
      refuseTaken(wanted, ports, `${containerId} of another agent on this machine`);
    }
    for (const port of wanted) {
      if (!(await isFree(port)))
        throw new CloudlessError(
          'exhausted',
          `${nameOf(port)} of this node is in use by another program`,
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
async function reserve(
  wanted: readonly HostPort[],
  reservations: PortReservations,
): Promise<() => void> {
  const reserved: HostPort[] = [];
  const release = (): void => {
    for (const { port, protocol } of reserved.splice(0)) reservations.release(port, protocol);
  };
  for (const each of wanted) {
    if (await reservations.take(each.port, each.protocol)) {
      reserved.push(each);
      continue;
    }
    release();
    throw new CloudlessError(
      'exhausted',
      `${nameOf(each)} of this node is being claimed by another agent on this machine`,
    );
  }
  return release;
}

/**
 * Refuses host ports in the range for processes. A forwarded port looks free to a program that
 * searches a port to listen on, but the program would get no connections.
 */
function refuseProcessPorts(wanted: readonly HostPort[], range: PortRange | undefined): void {
  const port = wanted.find(
    (each) => range !== undefined && each.port >= range.from && each.port <= range.to,
  );
  if (range === undefined || port === undefined) return;
  throw new CloudlessError(
    'exhausted',
    `${nameOf(port)} is in the range that this node assigns to processes, ${range.from} to ${range.to}: use another port, or change --port-range of its agent`,
  );
}

function refuseTaken(
  wanted: readonly HostPort[],
  taken: readonly HostPort[],
  containerId: string,
): void {
  const port = overlap(wanted, taken);
  if (port !== undefined)
    throw new CloudlessError(
      'exhausted',
      `${nameOf(port)} of this node is in use by container ${containerId}`,
    );
}

function overlap(wanted: readonly HostPort[], taken: readonly HostPort[]): HostPort | undefined {
  return wanted.find(({ port, protocol }) =>
    taken.some((each) => each.port === port && each.protocol === protocol),
  );
}

function nameOf({ port, protocol }: HostPort): string {
  return `host port ${port}/${protocol}`;
}

/**
 * Whether a program could listen on the port, on all addresses. A port that this process may not
 * bind counts as free; the runtime decides.
 */
function isFree({ port, protocol }: HostPort): Promise<boolean> {
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
