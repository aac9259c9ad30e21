import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { SETTINGS_FILE } from './control-messages.js';
import type { ControlRequest, ControlStatus, ProxySettings } from './control-messages.js';
import { ControlServer, type ControlHandler } from './control-server.js';
import { NodeNetwork, type NodeNetworkOptions } from './node-network.js';
import { NETWORK_FOLDER } from './proxy-program.js';
import { writeProxySettings } from './proxy-settings.js';

const before = process.cwd();
let dataDir: string;
let settings: ProxySettings;
let server: ControlServer | undefined;
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'cloudless-network-'));
  settings = {
    ...{ nodeId: 'node-1', zone: '', region: '', hostId: 'h', dataDir, usesTls: false },
    coordinators: ['http://127.0.0.1:8080'],
  };
  mkdirSync(join(dataDir, NETWORK_FOLDER));
  process.chdir(join(dataDir, NETWORK_FOLDER)); // as the process of a proxy does
});
afterEach(() => {
  server?.close();
  process.chdir(before);
  rmSync(dataDir, { recursive: true });
});

const openNetwork = (options: Partial<NodeNetworkOptions> = {}): NodeNetwork =>
  new NodeNetwork({
    ...{ settings, proxyCommand: ['/bin/false'], advertise: '', isRequired: false },
    ...{ clock: systemClock, random: systemRandom, log: silentLog },
    ...options,
  });

const listen = async (answer: ControlHandler['answer']): Promise<void> => {
  const handler = { settings: () => settings, answer, acceptRelay: () => undefined };
  server = await ControlServer.listen(handler, silentLog);
};

/** Waits for something that this process or its child does. */
const until = async (isTrue: () => boolean): Promise<void> => {
  while (!isTrue()) await new Promise(setImmediate);
};

// Writes to /dev/full, which Linux has, fail as on a full disk.
(existsSync('/dev/full') ? it : it.skip)(
  'an agent whose disk is full starts with a network proxy, which keeps its earlier settings',
  async () => {
    writeProxySettings({ ...settings, zone: 'earlier' });
    const file = join(dataDir, NETWORK_FOLDER, SETTINGS_FILE);
    symlinkSync('/dev/full', `${file}.draft`);
    const warnings: string[] = [];
    const network = openNetwork({
      log: { ...silentLog, warn: (message) => void warnings.push(message) },
    });
    await network.close(true);
    expect(warnings).toContain('the disk is full: the proxy keeps its settings');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ zone: 'earlier' });
  },
);

describe('an agent that stops while it connects to its network proxy', () => {
  it.each(['reload', 'status'] as const)('ends the proxy during "%s"', async (moment) => {
    const requests: ControlRequest['type'][] = [];
    let closed: (() => void) | undefined;
    const isClosed = new Promise<void>((resolve) => (closed = resolve));
    await listen(async ({ type }) => {
      requests.push(type);
      if (type === moment) void network.close(true).then(closed);
      if (type === 'shutdown') setImmediate(() => server?.close());
      return { type: 'done' };
    });
    const network = openNetwork();
    await isClosed;
    expect(requests.at(-1)).toBe('shutdown');
  });

  it.each([
    { name: 'ends the process that it has started', stopProxy: true, ended: 1 },
    { name: 'keeps the process for replicas that run on', stopProxy: false, ended: 0 },
  ])('$name, and starts no second process', async ({ stopProxy, ended }) => {
    let ends = 0;
    const terminate = (): void => void (ends += 1);
    const network = openNetwork({
      started: { terminate, hasExited: () => false, unref: () => undefined },
      proxyCommand: ['/bin/sh', '-c', 'touch "$1/second"', 'proxy'],
    });
    await network.close(stopProxy);
    expect(ends).toBe(ended);
    expect(existsSync('second')).toBe(false);
  });
});

describe('an agent whose network proxy has ended', () => {
  /** Opens a network, and ends its proxy `afterMs` milliseconds after it was reached. */
  const loseProxy = async (clock: ManualClock, afterMs: number): Promise<NodeNetwork> => {
    await listen(async () => ({ type: 'done' }));
    const messages: string[] = [];
    const log: Log = { ...silentLog, info: (text) => messages.push(text), child: () => log };
    const proxyCommand = ['/bin/sh', '-c', 'touch "$1/again"', 'proxy'];
    const network = openNetwork({ clock, log, proxyCommand });
    await until(() => messages.includes('network proxy connected'));
    await clock.advance(afterMs);
    server?.close();
    return network;
  };
  const hasStarted = (): boolean => existsSync('again');

  it('starts another one without a delay', async () => {
    const clock = new ManualClock(); // which stands still, so that no delay ends
    const network = await loseProxy(clock, 5_000);
    await until(hasStarted);
    await network.close(false);
  });

  it('waits before it starts another one when the proxy has ended within 5 s', async () => {
    const clock = new ManualClock();
    const network = await loseProxy(clock, 4_999);
    await until(() => clock.pendingTimers > 0);
    expect(hasStarted()).toBe(false);
    await clock.advance(1_000);
    await until(hasStarted);
    await network.close(false);
  });
});

describe('the address of a node for the proxies of other nodes', () => {
  const report = (meshAddress?: ControlStatus['meshAddress']): ControlStatus => ({
    ...{ revision: '1', complete: true, connected: true, services: 0, endpoints: 0 },
    ...{ openConnections: 0, listeners: 0, links: [], servesAddresses: true, problems: [] },
    ...(meshAddress === undefined ? {} : { meshAddress }),
  });

  it.each([
    { advertise: '', address: '10.0.0.5:9443', later: '[fd00::5]:9443' },
    { advertise: '203.0.113.7:1', address: '203.0.113.7:1', later: '203.0.113.7:1' },
  ])('is that of the default listener, while it is open: $address', async (given) => {
    const { advertise, address, later } = given;
    const clock = new ManualClock();
    let status = report();
    await listen(async ({ type }) =>
      type === 'status' ? { type: 'status', status } : { type: 'done' },
    );
    settings = { ...settings, usesTls: true, defaultMeshPort: 9_443 };
    const messages: string[] = [];
    const log: Log = { ...silentLog, info: (text) => messages.push(text), child: () => log };
    const network = openNetwork({ clock, log, settings, advertise });
    const announced = (): string => network.describe().address;
    await until(() => messages.includes('network proxy connected'));
    expect(announced()).toBe('');
    const poll = async (expected: string): Promise<void> => {
      await until(() => clock.pendingTimers > 0);
      await clock.advance(5_000);
      await until(() => announced() === expected);
    };
    status = report({ address: '10.0.0.5', port: 9_443 });
    await poll(address);
    status = report();
    await poll('');
    status = report({ address: 'fd00::5', port: 9_443 });
    await poll(later);
    await network.close(false);
  });

  it('delays the start of an agent by 2 s at most', async () => {
    const clock = new ManualClock();
    settings = { ...settings, usesTls: true, defaultMeshPort: 9_443 };
    const network = openNetwork({ clock, settings, proxyCommand: ['/bin/true'] });
    let isReady = false;
    const ready = network.waitUntilReady().then(() => (isReady = true));
    await clock.advance(1_900);
    expect(isReady).toBe(false);
    await clock.advance(200);
    await ready;
    expect(network.describe()).toEqual({ address: '', hostId: 'h' });
    await network.close(false);
  });
});

it('an agent that joins a cluster reloads the network proxy and does not replace it', async () => {
  const requests: ControlRequest['type'][] = [];
  await listen(async ({ type }) => {
    requests.push(type);
    return { type: 'done' };
  });
  const { coordinators } = settings;
  const messages: string[] = [];
  const log: Log = { ...silentLog, info: (text) => messages.push(text), child: () => log };
  const clock = new ManualClock();
  const network = openNetwork({ settings: { ...settings, clusterId: 'a' }, clock, log });
  await until(() => messages.includes('network proxy connected'));
  network.setCluster('a', coordinators);
  expect(requests).toEqual(['reload', 'status']);
  network.setCluster('b', coordinators);
  await until(() => requests.length > 2);
  expect(requests).toEqual(['reload', 'status', 'reload']);
  expect(JSON.parse(readFileSync(SETTINGS_FILE, 'utf8'))).toEqual({ ...settings, clusterId: 'b' });
  await network.close(false);
});

describe('the problems of the network proxy of an agent', () => {
  it('are those of its newest report, and that the proxy does not answer any more', async () => {
    const clock = new ManualClock();
    let problems = ['port 53 is taken'];
    let isSilent = false;
    const status = { revision: '1', complete: true, connected: true, services: 0, endpoints: 0 };
    await listen(async ({ type }) => {
      if (type !== 'status') return { type: 'done' };
      if (isSilent) return new Promise(() => undefined);
      const rest = { openConnections: 0, listeners: 0, links: [], servesAddresses: true };
      return { type: 'status', status: { ...status, ...rest, problems } };
    });
    const network = openNetwork({ clock });
    await until(() => network.findProblem() === 'port 53 is taken');
    problems = [];
    await clock.advance(5_000);
    await until(() => network.findProblem() === '');
    isSilent = true;
    await until(() => clock.pendingTimers > 0);
    await clock.advance(5_000); // asks again
    await clock.advance(1_000); // no answer
    await clock.advance(10_000);
    await until(() => network.findProblem().startsWith('the network proxy does not answer; see /'));
    await network.close(false);
  });
});
