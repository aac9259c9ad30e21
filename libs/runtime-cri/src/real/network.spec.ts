import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { readFileSync } from 'node:fs';
import { createServer, connect, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { sleep } from '@cloudless/base';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { CriClient } from '../client/index.js';
import { resolveHostname } from '../containers/config/network.js';
import { PodSandboxState } from '../gen/runtime/v1/api_pb.js';
import { execIn, aScriptRequest } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;
const RETRY_MS = 50;

let machine: RealCriMachine;
const start = (script: string, overrides: Partial<ContainerRequest>): Promise<ContainerStatus> =>
  machine.runtime.start(aScriptRequest(script, overrides));
const runScript = async ({ containerId }: ContainerStatus, script: string): Promise<string> =>
  (await execIn(machine.runtime, containerId, script)).text.trim();

/** Returns a TCP port that was free a moment ago. */
async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Connects to a TCP port until the program there answers, and returns the answer. */
async function readTcp(host: string, port: number): Promise<string> {
  for (;;) {
    const text = await new Promise<string>((resolve) => {
      let received = '';
      connect({ host, port })
        .on('data', (part: Buffer) => (received += part.toString()))
        .once('error', () => resolve(''))
        .once('close', () => resolve(received));
    });
    if (text !== '') return text.trim();
    await sleep(systemClock, RETRY_MS);
  }
}

/** Sends to a UDP port until the program there answers, and returns the answer. */
async function readUdp(host: string, port: number): Promise<string> {
  const socket = createSocket('udp4');
  const answer = new Promise<string>((resolve) =>
    socket.once('message', (data) => resolve(data.toString().trim())),
  );
  let text: string | undefined;
  void answer.then((found) => (text = found));
  while (text === undefined) {
    socket.send('hello\n', port, host);
    await sleep(systemClock, RETRY_MS);
  }
  socket.close();
  return text;
}

/** Returns an address of this machine that is not loopback, if there is one. */
function findOwnAddress(): string {
  const found = Object.values(networkInterfaces())
    .flatMap((all) => all ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal);
  return found?.address ?? '127.0.0.1';
}

/** Script that sends this text to every client of a TCP port. */
const serveText = (text: string, port = 80): string =>
  `while :; do echo ${text} | nc -l -p ${port} > /dev/null; done`;

describeReal(
  `networks of real containers${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeEach(async () => {
      machine = await openRealCriMachine();
    });
    afterEach(() => machine.dispose());

    it('forward a host port to the container, whose endpoint is the address of the pod', async () => {
      const hostPort = await findFreePort();
      const status = await start(serveText('web'), {
        ports: [{ name: 'http', port: 80, protocol: 'tcp', hostPort }],
      });
      const [endpoint] = status.endpoints;
      expect(status).toMatchObject({ ownCgroup: true, ownNetwork: true });
      expect(endpoint).toMatchObject({ portName: 'http', port: 80 });
      expect(await readTcp(endpoint?.ip ?? '', 80)).toBe('web');
      expect(await readTcp(findOwnAddress(), hostPort)).toBe('web');
    });

    it('forward a UDP host port to the container', async () => {
      const hostPort = await findFreePort();
      const { endpoints, pid } = await start('exec sleep 3600', {
        ports: [{ name: 'dns', port: 53, protocol: 'udp', hostPort }],
      });
      // The image has no program that listens on UDP, so a program of the machine listens in the
      // network of the container.
      const pong =
        "require('dgram').createSocket('udp4').on('message', function (_, from) { this.send('pong', from.port, from.address) }).bind(53)";
      const server = spawn(
        'nsenter',
        ['--net', '--target', String(pid), process.execPath, '-e', pong],
        { stdio: 'ignore' },
      );
      try {
        expect(await readUdp(endpoints[0]?.ip ?? '', 53)).toBe('pong');
        expect(await readUdp(findOwnAddress(), hostPort)).toBe('pong');
      } finally {
        server.kill('SIGKILL');
      }
    });

    it('refuse a used host port, and give it to the next container after an exit', async () => {
      const hostPort = await findFreePort();
      const ports = [{ name: 'http', port: 80, protocol: 'tcp', hostPort }] as const;
      const first = await start(serveText('first'), { ports });
      expect(await readTcp(findOwnAddress(), hostPort)).toBe('first');
      await expect(start(serveText('second'), { ports })).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${hostPort}/tcp of this node is in use by container ${first.containerId}`,
      });
      await machine.runtime.stop(first.containerId, 0);
      await start(serveText('second'), { ports });
      expect(await readTcp(findOwnAddress(), hostPort)).toBe('second');
      expect(await machine.runtime.list()).toHaveLength(2);
    });

    it('refuse a host port on which another program listens', async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const { port: hostPort } = server.address() as AddressInfo;
      await expect(
        start('', { ports: [{ name: 'http', port: 80, protocol: 'tcp', hostPort }] }),
      ).rejects.toMatchObject({
        kind: 'exhausted',
        message: `host port ${hostPort}/tcp of this node is in use by another program`,
      });
      expect(await machine.runtime.list()).toEqual([]);
      await new Promise((resolve) => server.close(resolve));
    });

    it('are the network of the machine with its host name and ports when hostNetwork is set', async () => {
      const port = await findFreePort();
      const ports = [{ name: 'http', port, protocol: 'tcp' }] as const;
      const status = await start(serveText('host', port), {
        ports,
        network: { hostNetwork: true },
      });
      expect(status.endpoints).toEqual([{ portName: 'http', ip: '127.0.0.1', port }]);
      expect([status.ownCgroup, status.ownNetwork]).toEqual([true, undefined]);
      expect(await readTcp('127.0.0.1', port)).toBe('host');
      expect(await runScript(status, 'readlink /proc/self/ns/net')).toBe(
        await readOwnNamespace('net'),
      );
      expect(await runScript(status, 'hostname')).toBe(
        readFileSync('/proc/sys/kernel/hostname', 'utf8').trim(),
      );
      const [found] = await (await machine.reopen()).list();
      expect(found).toEqual(status);
    });

    it('have a namespace and a host name of their own by default', async () => {
      const status = await start('sleep 3600', {});
      expect(await runScript(status, 'readlink /proc/self/ns/net')).not.toBe(
        await readOwnNamespace('net'),
      );
      expect(await runScript(status, 'hostname')).toBe(resolveHostname(status));
    });

    it('allow any user any port in a network of their own, but not in that of the machine', async () => {
      const security = { runAsUser: 1000, capabilitiesDrop: ['ALL'] };
      const { ip = '' } = await start(serveText('hello'), { security });
      expect(await readTcp(ip, 80)).toBe('hello');
      const shared = await start('exec sleep 3600', { network: { hostNetwork: true }, security });
      const first = '/proc/sys/net/ipv4/ip_unprivileged_port_start';
      expect(await runScript(shared, `cat ${first}`)).toBe(readFileSync(first, 'utf8').trim());
    });

    it('have the requested host name and name servers', async () => {
      const network = { hostname: 'shop-1', dnsServers: ['192.0.2.1', '2001:db8::1'] };
      const status = await start('sleep 3600', { network });
      expect(await runScript(status, 'hostname; cat /etc/hostname')).toBe('shop-1\nshop-1');
      expect(await runScript(status, 'grep nameserver /etc/resolv.conf')).toBe(
        'nameserver 192.0.2.1\nnameserver 2001:db8::1',
      );
    });

    it('end with the sweep after the exit of a container, which keeps its exit code and log', async () => {
      await machine.dispose();
      machine = await openRealCriMachine({ orphanAgeMs: 0 });
      const { containerId } = await start('echo last; exit 3', {});
      await machine.runtime.stop(containerId, 5_000);
      const client = new CriClient({ socketPath: machine.options.socketPath, clock: systemClock });
      const states = async (): Promise<readonly PodSandboxState[]> => {
        const filter = { labelSelector: { 'io.cloudless.container-id': containerId } };
        return (
          await client.callQuick('ListPodSandbox', (calls) => calls.listPodSandbox({ filter }))
        ).items.map(({ state }) => state);
      };
      expect(await states()).toEqual([PodSandboxState.SANDBOX_READY]);
      await machine.reopen();
      expect(await states()).toEqual([PodSandboxState.SANDBOX_NOTREADY]);
      const reopened = await machine.reopen();
      expect(await reopened.list()).toMatchObject([{ containerId, phase: 'exited', exitCode: 3 }]);
      const lines: string[] = [];
      for await (const { text } of reopened.logs(
        containerId,
        { follow: false },
        new AbortController().signal,
      )) {
        lines.push(Buffer.from(text).toString());
      }
      expect(lines).toEqual(['last']);
      await reopened.remove(containerId);
      expect(await states()).toEqual([]);
      client.close();
    });
  },
);

async function readOwnNamespace(kind: string): Promise<string> {
  const { readlink } = await import('node:fs/promises');
  return readlink(`/proc/self/ns/${kind}`);
}
