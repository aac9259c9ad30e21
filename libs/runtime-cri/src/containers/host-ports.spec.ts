import { createSocket, type Socket } from 'node:dgram';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { afterEach, describe, expect, it } from '@jest/globals';
import { toContainerId } from '@cloudless/base';
import type { ContainerRequest, PortRequest } from '@cloudless/runtime';
import { PortReservations } from '@cloudless/system';
import { aRequest } from '../testing/requests.js';
import { claimHostPorts } from './host-ports.js';
import type { Known } from './inventory.js';

const OTHER = toContainerId('cd'.repeat(32));
const reservations = new PortReservations();
let taken: Server | Socket | undefined;
afterEach(async () => {
  await new Promise<void>((resolve) =>
    taken === undefined ? resolve() : void taken.close(() => resolve()),
  );
  taken = undefined;
});

/** Somebody listens at a port of the machine. */
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
const known = (request: ContainerRequest, phase: 'running' | 'exited'): Known =>
  ({
    sandboxId: 'sandbox-1',
    status: { containerId: OTHER, phase },
    memory: {
      ports: request.ports,
      ...(request.network?.hostNetwork === true ? { hostNetwork: true } : {}),
    },
  }) as unknown as Known;

/** Claims, and gives the sandboxes whose network was ended. */
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

describe('ports of the machine', () => {
  it('those that are given to processes are not led into a container; one in the network of the machine sees itself who listens', async () => {
    const processPorts = { from: 20_000, to: 20_009 };
    for (const port of [20_000, 20_009]) {
      await expect(claim(wants(port), { processPorts })).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${port}/tcp is among those that this node gives to processes, 20000 to 20009: take another, or change --port-range of its agent`,
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
    '%s: one that another program has is not taken from it',
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

  it('one that another container has, or is about to get, is named with it', async () => {
    const message = `host port 8080/tcp of this node is taken by container ${OTHER}`;
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

  it('one that still leads to a container that has ended is freed', async () => {
    const port = await listening('tcp');
    await new Promise<void>((resolve) => void taken?.close(() => resolve()));
    taken = undefined;
    expect(
      await claim(wants(port), {
        known: [known(wants(port), 'exited'), known(wants(9), 'exited')],
      }),
    ).toEqual(['sandbox-1']);
  });

  it('are kept from other agents on this machine until the claim is released, all of them or none', async () => {
    const [port, other] = [await listening('tcp'), new PortReservations()];
    await new Promise<void>((resolve) => void taken?.close(() => resolve()));
    taken = undefined;
    await other.take(port, 'udp');
    const both = aRequest({
      ports: [
        { name: 'a', port: 80, protocol: 'tcp', hostPort: port },
        { name: 'b', port: 80, protocol: 'udp', hostPort: port },
      ],
    });
    const message = `host port ${port}/udp of this node is about to be taken by another agent on this machine`;
    await expect(claim(both)).rejects.toMatchObject({ kind: 'exhausted', message });
    expect(await other.take(port, 'tcp')).toBe(true);
    await expect(claim(wants(port))).rejects.toMatchObject({ kind: 'exhausted' });
    other.releaseAll();
    await claim(both);
    expect([await other.take(port, 'tcp'), await other.take(port, 'udp')]).toEqual([true, true]);
    other.releaseAll();
  });

  it('a container without any claims nothing', async () => {
    const port = await listening('tcp');
    await claim(aRequest({ ports: [{ name: 'http', port, protocol: 'tcp' }] }));
  });
});
