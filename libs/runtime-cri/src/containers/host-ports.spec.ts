import { createSocket, type Socket } from 'node:dgram';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { afterEach, describe, expect, it } from '@jest/globals';
import { toContainerId } from '@cloudless/base';
import type { ContainerRequest, PortRequest } from '@cloudless/runtime';
import { PortReservations } from '@cloudless/app-kit';
import { aRequest } from '../testing/requests.js';
import { claimHostPorts } from './host-ports.js';
import type { KnownContainer } from './inventory.js';

const OTHER = toContainerId('cd'.repeat(32));
const reservations = new PortReservations();
let taken: Server | Socket | undefined;
afterEach(async () => {
  await new Promise<void>((resolve) =>
    taken === undefined ? resolve() : void taken.close(() => resolve()),
  );
  taken = undefined;
});

/** Occupies a port of the machine with a listener. */
async function listening(protocol: PortRequest['protocol']): Promise<number> {
  if (protocol === 'tcp') {
    const server = (taken = createServer());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as AddressInfo).port;
  }
  const socket = (taken = createSocket('udp4'));
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  return socket.address().port;
}

const wants = (hostPort: number, protocol: PortRequest['protocol'] = 'tcp'): ContainerRequest =>
  aRequest({ ports: [{ name: 'http', port: 80, protocol, hostPort }] });
const known = (request: ContainerRequest, phase: 'running' | 'exited'): KnownContainer =>
  ({
    sandboxId: 'sandbox-1',
    status: { containerId: OTHER, phase },
    recorded: {
      ports: request.ports,
      ...(request.network?.hostNetwork === true ? { hostNetwork: true } : {}),
    },
  }) as unknown as KnownContainer;

/** Claims the ports of a request and returns the sandboxes whose network was ended. */
async function claim(
  request: ContainerRequest,
  others: Partial<Parameters<typeof claimHostPorts>[1]> = {},
): Promise<readonly string[]> {
  const ended: string[] = [];
  const sandboxes = { endNetwork: async (id: string) => void ended.push(id) };
  const release = await claimHostPorts(
    request,
    { known: [], starting: [], reservations, ...others },
    sandboxes,
  );
  release();
  return ended;
}

describe('claimHostPorts', () => {
  it('refuses ports of the range for processes, except in the network of the machine', async () => {
    const processPorts = { from: 20_000, to: 20_009 };
    for (const port of [20_000, 20_009]) {
      await expect(claim(wants(port), { processPorts })).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${port}/tcp is in the range that this node assigns to processes, 20000 to 20009: use another port, or change --port-range of its agent`,
      });
      await claim(wants(port));
    }
    await claim(wants(19_999), { processPorts });
    await claim(wants(20_010), { processPorts });
    await claim(
      aRequest({
        network: { hostNetwork: true },
        ports: [{ name: 'p', port: 20_000, protocol: 'tcp' }],
      }),
      {
        processPorts,
      },
    );
  });

  it.each(['tcp', 'udp'] as const)(
    'refuses a %s port on which another program listens',
    async (protocol) => {
      const port = await listening(protocol);
      await expect(claim(wants(port, protocol))).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${port}/${protocol} of this node is in use by another program`,
      });
      await claim(wants(port, protocol === 'tcp' ? 'udp' : 'tcp'));
      const hostNetwork = aRequest({
        network: { hostNetwork: true },
        ports: [{ name: 'p', port, protocol }],
      });
      await expect(claim(hostNetwork)).rejects.toMatchObject({ kind: 'exhausted' });
    },
  );

  it('refuses a port of another container or of an earlier start, and names that container', async () => {
    const message = `host port 8080/tcp of this node is in use by container ${OTHER}`;
    const other = { ...wants(8080), containerId: OTHER };
    await expect(claim(wants(8080), { known: [known(other, 'running')] })).rejects.toMatchObject({
      kind: 'exhausted',
      message,
    });
    await expect(claim(wants(8080), { starting: [other] })).rejects.toMatchObject({
      kind: 'exhausted',
      message,
    });
    const host = aRequest({
      network: { hostNetwork: true },
      ports: [{ name: 'p', port: 8080, protocol: 'tcp' }],
    });
    await expect(claim(wants(8080), { known: [known(host, 'running')] })).rejects.toMatchObject({
      kind: 'exhausted',
    });
  });

  it('frees a port that is still forwarded to an exited container', async () => {
    const port = await listening('tcp');
    await new Promise<void>((resolve) => void taken?.close(() => resolve()));
    taken = undefined;
    expect(
      await claim(wants(port), {
        known: [known(wants(port), 'exited'), known(wants(9), 'exited')],
      }),
    ).toEqual(['sandbox-1']);
  });

  it('reserves all ports or none against other agents until the claim is released', async () => {
    const [port, other] = [await listening('tcp'), new PortReservations()];
    await new Promise<void>((resolve) => void taken?.close(() => resolve()));
    taken = undefined;
    await other.reserve(port, 'udp');
    const both = aRequest({
      ports: [
        { name: 'a', port: 80, protocol: 'tcp', hostPort: port },
        { name: 'b', port: 80, protocol: 'udp', hostPort: port },
      ],
    });
    const message = `host port ${port}/udp of this node is being claimed by another agent on this machine`;
    await expect(claim(both)).rejects.toMatchObject({ kind: 'exhausted', message });
    expect(await other.reserve(port, 'tcp')).toBe(true);
    await expect(claim(wants(port))).rejects.toMatchObject({ kind: 'exhausted' });
    other.releaseAll();
    await claim(both);
    expect([await other.reserve(port, 'tcp'), await other.reserve(port, 'udp')]).toEqual([
      true,
      true,
    ]);
    other.releaseAll();
  });

  it('releases the reservation when another program listens on the port', async () => {
    const port = await listening('tcp');
    await expect(claim(wants(port))).rejects.toMatchObject({ kind: 'exhausted' });
    const other = new PortReservations();
    expect(await other.reserve(port, 'tcp')).toBe(true);
    other.releaseAll();
  });

  it('claims nothing for a container without host ports', async () => {
    const port = await listening('tcp');
    await claim(aRequest({ ports: [{ name: 'http', port, protocol: 'tcp' }] }));
  });
});
