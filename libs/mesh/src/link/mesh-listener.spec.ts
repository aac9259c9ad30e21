import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { createSeededRandom } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import type { MeshAddressSource } from '../ports.js';
import { silentTestLog } from '../testing/silent-test-log.js';
import { MeshListener } from './mesh-listener.js';

const HOST = '127.0.0.1';
const open: { close(): void }[] = [];
afterEach(() => open.splice(0).forEach((each) => each.close()));

/** Listens at a real socket. */
async function listenTcp(host: string, port: number): Promise<Server> {
  const server = createServer();
  open.push(server);
  server.listen(port, host);
  await once(server, 'listening');
  return server;
}

async function takePort(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = await listenTcp(HOST, 0);
  return { server, port: (server.address() as AddressInfo).port };
}

function begin(): {
  readonly clock: ManualClock;
  readonly listener: MeshListener;
  readonly accepted: string[];
} {
  const clock = new ManualClock();
  const accepted: string[] = [];
  const listener = new MeshListener({
    ...{ sockets: { listenTcp }, clock, random: createSeededRandom(1), log: silentTestLog },
    onConnection: (socket) => {
      accepted.push(socket.remoteAddress ?? '');
      socket.destroy();
    },
  });
  open.push(listener);
  return { clock, listener, accepted };
}

const at = (port: number, host = HOST): MeshAddressSource => ({
  find: () => Promise.resolve({ host, port }),
  has: () => true,
});

/** Lets what sockets of this process do become visible. */
async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await new Promise((resolve) => setImmediate(resolve));
}

describe('the listener for other nodes', () => {
  it.each([HOST, '::1'])('accepts connections at the address that is found: %s', async (host) => {
    const { listener, accepted } = begin();
    await listener.follow(at(0, host));
    expect([listener.problem, listener.address?.address]).toEqual([undefined, host]);
    const client = connect(listener.address?.port ?? 0, host).on('error', () => undefined);
    await once(client, 'close');
    expect(accepted).toEqual([host]);
  });

  it('names a taken port, and listens within 75 s after the port is free', async () => {
    const { clock, listener } = begin();
    const { server, port } = await takePort();
    await listener.follow(at(port));
    expect(listener.address).toBeUndefined();
    expect(listener.problem).toMatch(
      new RegExp(
        `^no listener for the proxies of other nodes, .*: ${HOST}:${port} is not available \\(listen EADDRINUSE.*\\): free the port, or start the agent with --mesh-listen HOST:PORT or --mesh-listen none$`,
      ),
    );
    for (let passed = 0; passed < 600; passed += 10) await clock.advance(10_000);
    expect(listener.problem).toContain('EADDRINUSE');
    server.close();
    await once(server, 'close');
    await clock.advance(75_000);
    await until(() => listener.problem === undefined);
    expect(listener.address?.port).toBe(port);
  });

  it('waits longer after each failure', async () => {
    const { clock, listener } = begin();
    const tries: number[] = [];
    await listener.follow({
      find: () => {
        tries.push(clock.now());
        return Promise.reject(new Error('no route'));
      },
      has: () => true,
    });
    expect(listener.problem).toContain('the relay of the leader: no route');
    await clock.advance(600_000);
    const delays = tries.map((ms, index) => ms - (tries[index - 1] ?? 0)).slice(1);
    expect(delays[0]).toBeLessThan(1_500);
    expect(delays[1]).toBeGreaterThan(1_500);
    expect(Math.max(...delays)).toBeGreaterThan(45_000);
    expect(Math.max(...delays)).toBeLessThanOrEqual(75_000);
  });

  it('has no problem when other machines do not reach this one', async () => {
    const { listener } = begin();
    await listener.follow({ find: () => Promise.resolve(undefined), has: () => true });
    expect([listener.address, listener.problem]).toEqual([undefined, undefined]);
  });

  it('follows the address of the machine within 5 s, and not while the machine has it', async () => {
    const { clock, listener } = begin();
    let host = HOST;
    let finds = 0;
    const find = (): Promise<{ host: string; port: number }> => {
      finds += 1;
      return Promise.resolve({ host, port: 0 });
    };
    await listener.follow({ find, has: (address) => address === host });
    await clock.advance(60_000);
    expect(finds).toBe(1);
    const { port = 0 } = listener.address ?? {};
    host = '127.0.0.2';
    await clock.advance(5_000);
    await until(() => listener.address?.address === host);
    const refused = connect(port, HOST);
    await expect(once(refused, 'connect')).rejects.toThrow('ECONNREFUSED');
  });

  it('delays a start by 500 ms at most, and listens later', async () => {
    const { clock, listener } = begin();
    let resolve: (found: { host: string; port: number }) => void = () => undefined;
    const found = new Promise<{ host: string; port: number }>((done) => (resolve = done));
    let isStarted = false;
    const started = listener.follow({ find: () => found, has: () => true });
    void started.then(() => (isStarted = true));
    await clock.advance(499);
    expect(isStarted).toBe(false);
    await clock.advance(1);
    expect(isStarted).toBe(true);
    resolve({ host: HOST, port: 0 });
    await until(() => listener.address !== undefined);
  });

  it('does not listen after it was closed while an address was searched', async () => {
    const { clock, listener } = begin();
    let resolve: (found: { host: string; port: number }) => void = () => undefined;
    const found = new Promise<{ host: string; port: number }>((done) => (resolve = done));
    void listener.follow({ find: () => found, has: () => true });
    listener.close();
    resolve({ host: HOST, port: 0 });
    await settle();
    await clock.advance(600_000);
    expect([listener.address, clock.pendingTimers]).toEqual([undefined, 0]);
  });

  it('lets a fixed address fail', async () => {
    const { listener } = begin();
    const { port } = await takePort();
    await expect(listener.listen({ host: HOST, port })).rejects.toThrow('EADDRINUSE');
  });
});
