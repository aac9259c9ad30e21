import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { parseCoordinatorConfig } from './config.js';
import { startCoordinator, type RunningCoordinator } from './coordinator.js';

let directory: string;
let store: StateStore;
let other: Server;
let usedPort: number;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'first-start-'));
  store = createMemoryStateStore({ clock: systemClock });
  other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  usedPort = (other.address() as AddressInfo).port;
});
afterEach(async () => {
  other.close();
  await store.close();
  await rm(directory, { recursive: true, force: true });
});

/** Starts a coordinator with TLS on a store that others could share. */
function start(ports: Readonly<Record<string, number>>): Promise<RunningCoordinator> {
  const values = { port: 0, opsPort: 0, state: 'memory', name: 'c1', dataDir: directory, ...ports };
  return startCoordinator(parseCoordinatorConfig([{ source: 'test', values }], directory), {
    ...{ clock: systemClock, random: systemRandom, log: silentLog },
    ...{ hostname: 'test', pid: process.pid, version: '0.0.0-test', sharedStore: store },
  });
}
const readTerm = () => store.get('/leader/leader');

describe('the first coordinator of a cluster', () => {
  it.each(['port', 'opsPort'])('never leads when its %s is in use', async (setting) => {
    await expect(start({ [setting]: usedPort })).rejects.toThrow(`port ${usedPort} on 127.0.0.1`);
    expect(await readTerm()).toBeUndefined();
  });

  it('leads before it serves, to create the certificate authority, and serves on its ports', async () => {
    await new Promise((resolve) => other.close(resolve));
    const coordinator = await start({ opsPort: usedPort });
    expect(await readTerm()).toBeDefined();
    expect((await fetch(`http://127.0.0.1:${usedPort}/health`)).status).toBe(200);
    await coordinator.close();
  });
});
