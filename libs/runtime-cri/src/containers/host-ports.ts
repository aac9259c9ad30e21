import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { hostPortsOf, type HostPort } from './config/network.js';
import type { Known } from './inventory.js';
import type { Sandboxes } from './sandboxes.js';

/**
 * Sees to it that the ports of the machine that a container asks for are free. Networks do not: they lead a port to a container
 * although somebody else listens there.
 * @param others - What is here, and what is being started since before.
 * @throws kind `exhausted`, naming the port and who has it.
 */
export async function claimHostPorts(
  request: ContainerRequest,
  others: { readonly known: readonly Known[]; readonly starting: readonly ContainerRequest[] },
  sandboxes: Pick<Sandboxes, 'endNetwork'>,
): Promise<void> {
  const wanted = hostPortsOf(request);
  if (wanted.length === 0) return;
  for (const other of others.starting) refuseTaken(wanted, hostPortsOf(other), other.containerId);
  for (const { status, memory, sandboxId } of others.known) {
    const taken = hostPortsOf({ ports: memory.ports, network: { hostNetwork: memory.hostNetwork === true } });
    if (status.phase === 'running') refuseTaken(wanted, taken, status.containerId);
    else if (overlap(wanted, taken) !== undefined && memory.hostNetwork !== true) await sandboxes.endNetwork(sandboxId);
  }
  for (const port of wanted) {
    if (!(await isFree(port))) throw new CloudlessError('exhausted', `${nameOf(port)} of this node is in use by another program`);
  }
}

function refuseTaken(wanted: readonly HostPort[], taken: readonly HostPort[], containerId: string): void {
  const port = overlap(wanted, taken);
  if (port !== undefined)
    throw new CloudlessError('exhausted', `${nameOf(port)} of this node is taken by container ${containerId}`);
}

function overlap(wanted: readonly HostPort[], taken: readonly HostPort[]): HostPort | undefined {
  return wanted.find(({ port, protocol }) => taken.some((each) => each.port === port && each.protocol === protocol));
}

function nameOf({ port, protocol }: HostPort): string {
  return `host port ${port}/${protocol}`;
}

/** Whether one could listen there, on all addresses. A port that may not be tried is left to the runtime. */
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
    server.listen({ port, host: '0.0.0.0', exclusive: true }, () => server.close(() => resolve(true)));
  });
}
