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
let listener: Server | Socket | undefined;
afterEach(async () => {
  await new Promise<void>((resolve) =>
    listener === undefined ? resolve() : void listener.close(() => resolve()),
  );
  listener = undefined;
});

/** Listens on a free port of the machine and returns the port. */
async function listenOn(protocol: PortRequest['protocol']): Promise<number> {
  if (protocol === 'tcp') {
    const server = (listener = createServer());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as AddressInfo).port;
  }
  const socket = (listener = createSocket('udp4'));
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  return socket.address().port;
}

const requestPort = (
  hostPort: number,
  protocol: PortRequest['protocol'] = 'tcp',
): ContainerRequest => aRequest({ ports: [{ name: 'http', port: 80, protocol, hostPort }] });
const known = (request: ContainerRequest, phase: 'running' | 'exited'): KnownContainer =>
  ({
    sandboxId: 'sandbox-1',
    status: { containerId: OTHER, phase },
    recorded: {
      ports: request.ports,
      ...(request.network?.hostNetwork === true ? { hostNetwork: true } : {}),
    },
  }) as unknown as KnownContainer;

/**
 * Claims the ports of a request and releases them at once.
 * @returns The ids of the sandboxes whose network was ended.
 */
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
  it('refuses host ports in the range of the process runtime, except in the network of the machine', async () => {
    const processPorts = { from: 20_000, to: 20_009 };
    for (const port of [20_000, 20_009]) {
      await expect(claim(requestPort(port), { processPorts })).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${port}/tcp is in the range that this node assigns to processes, 20000 to 20009: use another port, or change --port-range of its agent`,
      });
      await claim(requestPort(port));
    }
    await claim(requestPort(19_999), { processPorts });
    await claim(requestPort(20_010), { processPorts });
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
    'refuses a %s host port on which another program listens',
    async (protocol) => {
      const port = await listenOn(protocol);
      await expect(claim(requestPort(port, protocol))).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${port}/${protocol} of this node is in use by another program`,
      });
      await claim(requestPort(port, protocol === 'tcp' ? 'udp' : 'tcp'));
      const hostNetwork = aRequest({
        network: { hostNetwork: true },
        ports: [{ name: 'p', port, protocol }],
      });
      await expect(claim(hostNetwork)).rejects.toMatchObject({ kind: 'exhausted' });
    },
  );

  it('refuses a host port of another container or of an earlier start, and names that container', async () => {
    const message = `host port 8080/tcp of this node is in use by container ${OTHER}`;
    const other = { ...requestPort(8080), containerId: OTHER };
    await expect(
      claim(requestPort(8080), { known: [known(other, 'running')] }),
    ).rejects.toMatchObject({
      kind: 'exhausted',
      message,
    });
    await expect(claim(requestPort(8080), { starting: [other] })).rejects.toMatchObject({
      kind: 'exhausted',
      message,
    });
    const host = aRequest({
      network: { hostNetwork: true },
      ports: [{ name: 'p', port: 8080, protocol: 'tcp' }],
    });
    await expect(
      claim(requestPort(8080), { known: [known(host, 'running')] }),
    ).rejects.toMatchObject({
      kind: 'exhausted',
    });
  });

  it('ends the network of an exited container that has the same host port', async () => {
    const port = await listenOn('tcp');
    await new Promise<void>((resolve) => void listener?.close(() => resolve()));
    listener = undefined;
    expect(
      await claim(requestPort(port), {
        known: [known(requestPort(port), 'exited'), known(requestPort(9), 'exited')],
      }),
    ).toEqual(['sandbox-1']);
  });

  it('reserves all host ports or none against other agents until the claim is released', async () => {
    const [port, other] = [await listenOn('tcp'), new PortReservations()];
    await new Promise<void>((resolve) => void listener?.close(() => resolve()));
    listener = undefined;
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
    await expect(claim(requestPort(port))).rejects.toMatchObject({ kind: 'exhausted' });
    other.releaseAll();
    await claim(both);
    expect([await other.reserve(port, 'tcp'), await other.reserve(port, 'udp')]).toEqual([
      true,
      true,
    ]);
    other.releaseAll();
  });

  it('releases the reservation when another program listens on the port', async () => {
    const port = await listenOn('tcp');
    await expect(claim(requestPort(port))).rejects.toMatchObject({ kind: 'exhausted' });
    const other = new PortReservations();
    expect(await other.reserve(port, 'tcp')).toBe(true);
    other.releaseAll();
  });

  it('claims nothing for a container without host ports', async () => {
    const port = await listenOn('tcp');
    await claim(aRequest({ ports: [{ name: 'http', port, protocol: 'tcp' }] }));
  });
});
