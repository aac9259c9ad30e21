import { connect } from 'node:net';
import { QUICK, RealCluster, SERVER_COMMAND } from './support/cluster.js';
import type { RunningProgram } from './support/processes.js';

let cluster: RealCluster;
let forwarding: RunningProgram;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
  await cluster.client.createWorkload({
    name: 'web',
    spec: {
      ...QUICK,
      command: SERVER_COMMAND,
      ports: [{ name: 'http', containerPort: 80 }],
      replicas: 2,
    },
  });
  await cluster.client.createWorkload({
    name: 'echo',
    spec: {
      ...QUICK,
      // answers after its client has ended its side, so the test needs half-closed connections
      command: [
        'node',
        '-e',
        `require('node:net').createServer({ allowHalfOpen: true }, (s) => {
           let size = 0;
           s.on('data', (chunk) => (size += chunk.length)).on('end', () => s.end(String(size))).on('error', () => undefined);
         }).listen(process.env.PORT);`,
      ],
      ports: [{ name: 'count', containerPort: 7 }],
      replicas: 1,
    },
  });
  await cluster.waitUntilSettled('web');
  await cluster.waitUntilSettled('echo');
  forwarding = cluster.startCtl('port-forward', 'web', 'http');
});
afterAll(async () => {
  await forwarding.kill('SIGTERM');
  await cluster.stop();
});

/** Returns the local address that a port-forward prints, as `host:port`. */
const readAddress = async (program: RunningProgram): Promise<string> =>
  /^Forwarding (127\.0\.0\.1:\d+) -> /.exec(
    await program.waitForLine((line) => line.startsWith('Forwarding')),
  )![1]!;

/** Connects, sends `bytes` bytes, ends its side, and returns the response. */
function exchange(address: string, bytes: number): Promise<string> {
  const [host = '', port = ''] = address.split(':');
  return new Promise((resolve, reject) => {
    let response = '';
    const socket = connect({ host, port: Number(port), allowHalfOpen: true });
    socket.setEncoding('utf8').on('data', (text: string) => (response += text));
    socket.once('error', reject).once('end', () => resolve(response));
    for (let sent = 0; sent < bytes; sent += 1024 * 1024) socket.write(Buffer.alloc(1024 * 1024));
    socket.end();
  });
}

describe('cloudlessctl port-forward', () => {
  it('distributes connections over all ready replicas', async () => {
    const url = `http://${await readAddress(forwarding)}`;
    const ids = (await cluster.waitUntilSettled('web')).status!.replicas.map(({ id }) => id).sort();
    const responses = new Set<string>();
    for (let count = 0; count < 4; count += 1) {
      responses.add(await (await fetch(url, { headers: { connection: 'close' } })).text());
    }
    expect([...responses].sort()).toEqual(ids);
  });

  it('forwards 25 MiB, and lets each direction of a connection end separately', async () => {
    const counting = cluster.startCtl('port-forward', 'echo', 'count', '0:7');
    const address = await readAddress(counting);
    const responses = await Promise.all(
      [8, 16, 1].map((size) => exchange(address, size * 1024 * 1024)),
    );
    expect(responses).toEqual([8, 16, 1].map((size) => String(size * 1024 * 1024)));
    expect(await counting.kill('SIGINT')).toBe(130);
  });

  it('resets connections to a lost agent, and forwards new connections to other replicas', async () => {
    const address = await readAddress(forwarding);
    const [host = '', port = ''] = address.split(':');
    const [first, second] = (await cluster.waitUntilSettled('web')).status!.replicas;
    let held: { socket: ReturnType<typeof connect>; replica: string } | undefined;
    while (held?.replica !== first!.id) {
      held?.socket.destroy();
      const socket = connect({ host, port: Number(port) });
      socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
      const [chunk] = (await new Promise<Buffer[]>((resolve) =>
        socket.once('data', (data: Buffer) => resolve([data])),
      )) as [Buffer];
      held = { socket, replica: chunk.toString().split('\r\n\r\n')[1] ?? '' };
    }
    const reset = new Promise<string>((resolve) =>
      held!.socket.once('error', (reason: NodeJS.ErrnoException) => resolve(reason.code ?? '')),
    );
    await cluster.requireAgent(first!.nodeId).kill('SIGKILL');
    expect(await reset).toBe('ECONNRESET');
    for (let count = 0; count < 3; count += 1) {
      expect(
        await (await fetch(`http://${address}`, { headers: { connection: 'close' } })).text(),
      ).toBe(second!.id);
    }
    await cluster.startAgent(first!.nodeId, 'zone-a');
    await cluster.waitUntilSettled('web');
  });

  it('rejects a port that the workload does not declare', async () => {
    const calls = cluster.client.portForward(
      (async function* () {
        yield { request: { case: 'start' as const, value: { name: 'web', port: '81' } } };
      })(),
    );
    await expect(calls[Symbol.asyncIterator]().next()).rejects.toThrow(
      /declares no TCP port 81; it has http \(80\)/,
    );
    expect(await cluster.runCtl('port-forward', 'web', '81')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('it has http (80)'),
    });
  });
});

describe('cloudlessctl exec', () => {
  it('passes piped input and the exit code', async () => {
    const input = 'x'.repeat(3_000_000);
    const { code, stdout } = await cluster.runCtlWithInput(
      input,
      'exec',
      '-i',
      'web',
      '--',
      'sh',
      '-c',
      'wc -c; exit 9',
    );
    expect({ code, stdout: stdout.trim() }).toEqual({ code: 9, stdout: '3000000' });
  });
});
