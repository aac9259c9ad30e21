import { mkdtempSync, readFileSync, rmSync, existsSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileAgentStore } from '../data/file-agent-store.js';
import { parseAgentConfig } from '../config.js';
import type { ProxySettings } from './control-messages.js';
import { abandonProxy, startEarlyProxy, type EarlyProxy } from './early-proxy.js';
import { NETWORK_FOLDER } from './proxy-program.js';
import { writeProxySettings } from './proxy-settings.js';

/** A program in the place of the proxy that runs until it is ended. */
const PROXY = ['/bin/sh', '-c', 'while :; do sleep 1; done', 'proxy'];

const linux = process.platform === 'linux' ? describe : describe.skip;

linux('startEarlyProxy', () => {
  let dataDir: string;
  let proxy: EarlyProxy | undefined;
  let running: net.Server | undefined;
  beforeEach(() => {
    dataDir = mkdtempSync(join(tmpdir(), 'cloudless-early-'));
    proxy = undefined;
    running = undefined;
  });
  afterEach(() => {
    proxy?.started?.terminate();
    running?.close();
    rmSync(dataDir, { recursive: true });
  });

  const start = async (
    values: Readonly<Record<string, string>> = {},
  ): Promise<EarlyProxy | undefined> => {
    const settings = { name: 'node-1', coordinator: 'http://127.0.0.1:1', dataDir, ...values };
    const config = parseAgentConfig([{ source: 'test', values: settings }]);
    return (proxy = await startEarlyProxy(config, PROXY));
  };
  const settingsFile = (): string => join(dataDir, NETWORK_FOLDER, 'settings.json');
  const saveIdentity = (clusterId?: string): Promise<void> =>
    new FileAgentStore(dataDir).saveIdentity({
      ...{ nodeId: 'node-1', instanceId: 'i', highestEpoch: 1n },
      coordinators: [{ id: 'c2', address: 'http://127.0.0.2:1' }],
      ...(clusterId === undefined ? {} : { clusterId }),
    });

  it('starts a proxy with the configured and the known coordinators', async () => {
    await saveIdentity('c');
    const { started, settings } = (await start({ ingressHttp: '127.0.0.1:80', zone: 'z' })) ?? {};
    expect(started?.hasExited()).toBe(false);
    expect(settings).toMatchObject({
      ...{ nodeId: 'node-1', zone: 'z', dataDir, usesTls: false },
      coordinators: ['http://127.0.0.1:1', 'http://127.0.0.2:1'],
      ingressHttp: { host: '127.0.0.1', port: 80 },
    });
    expect(JSON.parse(readFileSync(settingsFile(), 'utf8'))).toEqual(settings);
  });

  it.each([
    { meshListen: undefined, expected: { defaultMeshPort: 9_443 } },
    { meshListen: '10.0.0.5:9000', expected: { meshListen: { host: '10.0.0.5', port: 9_000 } } },
    { meshListen: 'none', expected: {} },
  ])('gives the proxy the listener for $meshListen', async ({ meshListen, expected }) => {
    const coordinator = 'https://192.0.2.1:1';
    await start({ coordinator, ...(meshListen === undefined ? {} : { meshListen }) });
    const written = JSON.parse(readFileSync(settingsFile(), 'utf8')) as ProxySettings;
    const { meshListen: listen, defaultMeshPort } = written;
    expect({ meshListen: listen, defaultMeshPort }).toEqual({
      ...{ meshListen: undefined, defaultMeshPort: undefined },
      ...expected,
    });
  });

  it('leaves a proxy that runs, with its settings, as it is', async () => {
    const settings = { dataDir, nodeId: 'of the earlier agent' } as never;
    writeProxySettings(settings);
    running = net.createServer().listen(join(dataDir, NETWORK_FOLDER, 'control'));
    await new Promise((resolve) => running?.once('listening', resolve));
    expect((await start())?.started).toBeUndefined();
    expect(JSON.parse(readFileSync(settingsFile(), 'utf8'))).toEqual(settings);
  });

  it('starts no proxy for a data directory of another node, nor without a network', async () => {
    await saveIdentity('c');
    expect(await start({ name: 'node-2' })).toBeUndefined();
    expect(await start({ network: 'off' })).toBeUndefined();
    expect(existsSync(settingsFile())).toBe(false);
  });

  const replica = {
    ...{ replicaId: 'r-1', workloadUid: 'w', heldRevision: 1n, bootId: 'b' },
    progress: {} as never,
  };
  const ingress = { ingressHttps: '127.0.0.1:443' };
  it.each([
    { name: 'a node that was never in a cluster', values: ingress, outlives: false },
    { name: 'a node without replicas', clusterId: 'c', outlives: false },
    { name: 'an ingress node', clusterId: 'c', values: ingress, outlives: true },
    { name: 'a node with replicas', clusterId: 'c', replica, outlives: true },
  ])('of $name: outlives a failed start: $outlives', async (given) => {
    const store = new FileAgentStore(dataDir);
    await store.load();
    await saveIdentity(given.clusterId);
    if (given.replica !== undefined) await store.saveReplica(given.replica);
    const { started, outlivesFailedStart } = (await start(given.values)) ?? {};
    expect(outlivesFailedStart).toBe(given.outlives);
    abandonProxy(proxy);
    while (started?.hasExited() === given.outlives) await new Promise(setImmediate);
    expect(started?.hasExited()).toBe(!given.outlives);
  });
});
