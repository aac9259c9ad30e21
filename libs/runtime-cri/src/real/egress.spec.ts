import { execFile } from 'node:child_process';
import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { ContainerStatus, EgressRule } from '@cloudless/runtime';
import { readDnsServers } from '../egress/dns-servers.js';
import { FILTER_SKIP_REASON } from '../testing/packet-filter.js';
import { execIn, aScriptRequest } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const skipReason = SKIP_REASON ?? FILTER_SKIP_REASON;
const describeReal = skipReason === undefined ? describe : describe.skip;
const run = promisify(execFile);
const never = new AbortController().signal;

/** IPv6 addresses that the test gives to a container, and that it connects to. */
const OWN_IPV6 = '2001:db8:77::2';
const ALLOWED_IPV6 = '2001:db8:77:1::1';
const OTHER_IPV6 = '2001:db8:77:2::1';

let machine: RealCriMachine;
/** Servers of the machine at two ports, which accept connections and send nothing. */
let servers: readonly Server[];
/** Ports of the servers: the rules of the limited container allow the first. */
let allowedPort: number;
let otherPort: number;
/** Address of the machine in the network of the containers, which the rules allow. */
let gateway: string;
/** Another address of the machine. */
let otherAddress: string;
/** A container with {@link getRules}. Its main process tries connections before all else. */
let limited: ContainerStatus;
/** A container without a limit. */
let free: ContainerStatus;

const getRules = (): readonly EgressRule[] => [
  { network: `${gateway}/32`, ports: [{ protocol: 'tcp', first: allowedPort, last: allowedPort }] },
  { network: `${ALLOWED_IPV6}/128`, ports: [{ protocol: 'udp', first: 1000, last: 2000 }] },
];

/** Shell command that connects to a server and prints whether the connection was accepted. */
const tryTcp = (address: string, port: number): string =>
  `if nc -w 5 ${address} ${port} < /dev/null > /dev/null 2>&1; then echo open; else echo refused; fi`;

const execute = async ({ containerId }: ContainerStatus, script: string): Promise<string[]> =>
  (await execIn(machine.runtime, containerId, script)).text.trim().split('\n');

/** A packet that a program sends from the network of a container. */
interface Attempt {
  readonly protocol: 'tcp' | 'udp';
  readonly address: string;
  readonly port: number;
}

/**
 * Makes attempts from the network of a container, one after the other.
 * @returns For each attempt `sent`, or the error of the system call and `late` when it took longer
 *   than half a second: the kernel tries a lost packet again after a second.
 */
async function attempt(
  { pid }: ContainerStatus,
  attempts: readonly Attempt[],
): Promise<readonly string[]> {
  const script = `
    const { connect } = require('node:net');
    const { createSocket } = require('node:dgram');
    const tcp = ({ address, port }) => new Promise((resolve) => {
      const socket = connect(port, address, () => { socket.destroy(); resolve('sent'); });
      socket.on('error', ({ code }) => resolve(code));
    });
    const udp = ({ address, port }) => new Promise((resolve) => {
      const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
      socket.send('x', port, address, (error) => { socket.close(); resolve(error?.code ?? 'sent'); });
    });
    (async () => {
      const results = [];
      for (const each of JSON.parse(process.argv[1])) {
        const began = performance.now();
        const result = await (each.protocol === 'tcp' ? tcp : udp)(each);
        results.push(performance.now() - began > 500 ? result + ' late' : result);
      }
      console.log(JSON.stringify(results));
    })();`;
  const node = [process.execPath, '-e', script, JSON.stringify(attempts)];
  const { stdout } = await run('nsenter', ['--net', '--target', String(pid), ...node], {
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  return JSON.parse(stdout) as readonly string[];
}

async function listen(): Promise<Server> {
  const server = createServer((socket) => socket.on('error', () => undefined).end());
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  return server;
}

/** Reads the first lines that a container has written. */
async function readLog({ containerId }: ContainerStatus, count: number): Promise<string[]> {
  const lines: string[] = [];
  for await (const { text } of machine.runtime.logs(containerId, { follow: true }, never))
    if (lines.push(Buffer.from(text).toString()) === count) break;
  return lines;
}

/** Returns the next bytes of a connection as text. */
const readNext = (socket: Socket): Promise<string> =>
  new Promise((resolve) => socket.once('data', (data: Buffer) => resolve(data.toString())));

describeReal(
  `egress limits of real containers${skipReason === undefined ? '' : ` (${skipReason})`}`,
  () => {
    beforeAll(async () => {
      machine = await openRealCriMachine();
      servers = [await listen(), await listen()];
      [allowedPort = 0, otherPort = 0] = servers.map(
        (server) => (server.address() as AddressInfo).port,
      );
      free = await machine.runtime.start(aScriptRequest('exec sleep 3600'));
      [gateway = ''] = await execute(free, "ip route | awk '/^default/ { print $3 }'");
      otherAddress =
        Object.values(networkInterfaces())
          .flatMap((all) => all ?? [])
          .find(({ family, internal, address }) =>
            family === 'IPv4' ? !internal && address !== gateway : false,
          )?.address ?? '';
      const connections = [
        tryTcp(gateway, allowedPort),
        tryTcp(gateway, otherPort),
        tryTcp(otherAddress, allowedPort),
      ];
      const serve = 'while :; do echo web | nc -l -p 80 > /dev/null; done';
      limited = await machine.runtime.start(
        aScriptRequest([...connections, serve].join('\n'), {
          network: { egress: getRules() },
        }),
      );
      // The network of the containers has only IPv4. The plugin that removes the network must not
      // find an IPv6 address that it has not assigned, so an interface of the test has the address.
      const ip = (...args: readonly string[]): Promise<unknown> =>
        run('nsenter', ['--net', '--target', String(limited.pid), 'ip', ...args]);
      await ip('link', 'add', 'six', 'type', 'veth', 'peer', 'name', 'peer');
      for (const name of ['six', 'peer']) await ip('link', 'set', name, 'up');
      await ip('-6', 'addr', 'add', `${OWN_IPV6}/48`, 'dev', 'six', 'nodad');
    });
    afterAll(async () => {
      for (const server of servers ?? []) server.close();
      await machine?.dispose();
    });

    it('apply to the first instruction of the main process', async () => {
      expect(await readLog(limited, 3)).toEqual(['open', 'refused', 'refused']);
    });

    it('apply to commands, but to no other container', async () => {
      const script = [
        tryTcp(gateway, allowedPort),
        tryTcp(gateway, otherPort),
        tryTcp(otherAddress, allowedPort),
      ].join('\n');
      expect(await execute(limited, script)).toEqual(['open', 'refused', 'refused']);
      expect(await execute(free, script)).toEqual(['open', 'open', 'open']);
    });

    it('refuse other ports, addresses and protocols at once, in IPv4 and IPv6', async () => {
      const cases: readonly (Attempt & { readonly result: string })[] = [
        { protocol: 'tcp', address: gateway, port: allowedPort, result: 'sent' },
        { protocol: 'tcp', address: gateway, port: otherPort, result: 'ECONNREFUSED' },
        { protocol: 'udp', address: gateway, port: allowedPort, result: 'EPERM' },
        { protocol: 'tcp', address: otherAddress, port: allowedPort, result: 'ECONNREFUSED' },
        { protocol: 'tcp', address: '192.0.2.99', port: 53, result: 'ECONNREFUSED' },
        { protocol: 'udp', address: ALLOWED_IPV6, port: 1000, result: 'sent' },
        { protocol: 'udp', address: ALLOWED_IPV6, port: 2001, result: 'EPERM' },
        { protocol: 'udp', address: OTHER_IPV6, port: 1000, result: 'EPERM' },
        { protocol: 'tcp', address: ALLOWED_IPV6, port: 1000, result: 'ECONNREFUSED' },
        { protocol: 'tcp', address: OTHER_IPV6, port: 1000, result: 'ECONNREFUSED' },
      ];
      expect(await attempt(limited, cases)).toEqual(cases.map(({ result }) => result));
    });

    it('allow DNS, and nothing else, at the DNS servers of the machine', async () => {
      const found = (await readDnsServers()).filter((server) => !/^(127\.|::1$)/.test(server));
      for (const address of found) {
        const ports = [53, 54].map((port) => ({ protocol: 'udp' as const, address, port }));
        expect(await attempt(limited, ports)).toEqual(['sent', 'EPERM']);
      }
    });

    it('let the container answer connections from outside', async () => {
      const socket = connect({ host: limited.ip ?? '', port: 80 });
      expect(await readNext(socket)).toBe('web\n');
      socket.destroy();
    });

    it('are replaced for a running container, whose open connections continue', async () => {
      const { runtime } = machine;
      const { containerId } = limited;
      const echoServer = createServer();
      const accepted = new Promise<Socket>((resolve) =>
        echoServer.once('connection', (socket: Socket) => resolve(socket)),
      );
      await new Promise<void>((resolve) => echoServer.listen(0, '0.0.0.0', resolve));
      const { port } = echoServer.address() as AddressInfo;
      await runtime.limitEgress(containerId, [{ network: `${gateway}/32` }]);
      const echo = execute(limited, `nc ${gateway} ${port} -e cat`);
      const socket = await accepted;
      socket.write('before');
      expect(await readNext(socket)).toBe('before');
      await runtime.limitEgress(containerId, [{ network: `${otherAddress}/32` }]);
      socket.write('after');
      expect(await readNext(socket)).toBe('after');
      const both = [tryTcp(gateway, otherPort), tryTcp(otherAddress, otherPort)].join('\n');
      expect(await execute(limited, both)).toEqual(['refused', 'open']);
      await expect(runtime.limitEgress(containerId, [{ network: 'all' }])).rejects.toMatchObject({
        kind: 'invalid',
      });
      expect(await execute(limited, both)).toEqual(['refused', 'open']);
      socket.destroy();
      await echo;
      echoServer.close();
    });

    it('stay, and can be replaced, after a restart of the agent', async () => {
      const both = [tryTcp(gateway, otherPort), tryTcp(otherAddress, otherPort)].join('\n');
      await machine.runtime.limitEgress(limited.containerId, [{ network: `${gateway}/32` }]);
      const reopened = await machine.reopen();
      expect(await execute(limited, both)).toEqual(['open', 'refused']);
      await Promise.all([
        reopened.limitEgress(limited.containerId, [{ network: '0.0.0.0/0' }]),
        reopened.limitEgress(limited.containerId, getRules()),
      ]);
      expect(await execute(limited, both)).toEqual(['refused', 'refused']);
    });

    it('cannot be removed or evaded by root in the container', async () => {
      expect(
        await execute(
          limited,
          `id -u
ip route add 192.0.2.0/24 via ${gateway}
nsenter --net=/proc/1/ns/net true
echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_loose
echo 0 > /proc/sys/net/ipv4/ping_group_range
arping -c 1 -I eth0 ${gateway}`,
        ),
      ).toEqual([
        '0',
        expect.stringContaining('not permitted'),
        expect.stringMatching(/nsenter: .*(denied|not permitted)/),
        expect.stringMatching(/Read-only file system|nonexistent|denied/),
        expect.stringMatching(/Read-only file system/),
        expect.stringContaining('not permitted'),
      ]);
    });

    it('are refused with settings that evade them, and start nothing', async () => {
      const running = (await machine.runtime.list()).length;
      const request = aScriptRequest('exec sleep 3600', {
        network: { egress: [] },
        security: { capabilitiesAdd: ['NET_ADMIN'] },
      });
      await expect(machine.runtime.start(request)).rejects.toMatchObject({
        kind: 'invalid',
        message: expect.stringContaining('a container with NET_ADMIN evades the limit'),
      });
      expect(await machine.runtime.list()).toHaveLength(running);
    });
  },
);
