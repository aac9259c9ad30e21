import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import type { PortReservations } from '@cloudless/system';
import { hostPortsOf, type HostPort } from './config/network.js';
import type { Known } from './inventory.js';
import type { Sandboxes } from './sandboxes.js';

/** What a running container of another agent on this machine has. */
export interface ForeignPorts {
  readonly containerId: string;
  readonly ports: readonly HostPort[];
}

/** Ports of the machine, both ends included. */
export interface PortRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Sees to it that the ports of the machine that a container asks for are free. Networks do not:
 * they lead a port to a container although somebody else listens there.
 * @param others - What is here, what is being started since before, and the ports that are given to
 *   processes of this machine.
 * @returns Releases the reservation; to be called when the container runs or the start failed.
 *   Until then other agents on this machine, which do not see a container that is being started, do
 *   not get the ports.
 * @throws kind `exhausted`, naming the port and who has it.
 */
export async function claimHostPorts(
  request: ContainerRequest,
  others: {
    /** Asked for only when there is a port to be claimed. */
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
  // before the look at others, as other agents do it
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

/** Reserves all ports or none. @throws kind `exhausted`. */
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
      `${nameOf(each)} of this node is about to be taken by another agent on this machine`,
    );
  }
  return release;
}

/**
 * What leads into a container is not seen by who looks for a free port to listen at: a process
 * there would get no connection.
 */
function refuseProcessPorts(wanted: readonly HostPort[], range: PortRange | undefined): void {
  const port = wanted.find(
    (each) => range !== undefined && each.port >= range.from && each.port <= range.to,
  );
  if (range === undefined || port === undefined) return;
  throw new CloudlessError(
    'exhausted',
    `${nameOf(port)} is among those that this node gives to processes, ${range.from} to ${range.to}: take another, or change --port-range of its agent`,
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
      `${nameOf(port)} of this node is taken by container ${containerId}`,
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
 * Whether one could listen there, on all addresses. A port that may not be tried is left to the
 * runtime.
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
