import { Code, ConnectError } from '@connectrpc/connect';
import { settle } from '@cloudless/base/testing';
import { aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';

const coordinator = {
  getWorkload: () =>
    aWorkload({ spec: { ports: [{ name: 'http', containerPort: 80 }, { containerPort: 9090 }] } }),
};

describe('cloudlessctl port-forward', () => {
  it.each([
    {
      ports: ['8080:web'],
      says: 'the workload declares no TCP port web; it has http (80), port-9090 (9090)',
    },
    {
      ports: ['1:2:3'],
      says: 'expected [LOCAL:]PORT, such as 8080:http, 8080:80 or http, got "1:2:3"',
    },
    { ports: ['70000:http'], says: 'expected [LOCAL:]PORT' },
    { ports: ['http', ':'], says: 'expected [LOCAL:]PORT' },
  ])('rejects the ports $ports: $says', async ({ ports, says }) => {
    expect(await runCli(['port-forward', 'web', ...ports], { coordinator })).toMatchObject({
      exitCode: 2,
      stdout: '',
      stderr: expect.stringContaining(says),
    });
  });

  it('says that the connection to the coordinator was lost when the coordinator dies', async () => {
    const stop = new AbortController();
    let onBroken = (): void => undefined;
    const broken = new Promise<void>((resolve) => (onBroken = resolve));
    const listen: CliOptions['listen'] = async (_, onConnection) => {
      onConnection({
        received: (async function* () {})(),
        write: async () => undefined,
        endSending: () => undefined,
        resetConnection: onBroken,
        closed: new AbortController().signal,
      });
      return { port: 4_711, close: () => undefined };
    };
    const crash = new ConnectError(
      'http/2 stream closed with error code CANCEL (0x8)',
      Code.Canceled,
    );
    const running = runCli(['port-forward', 'web', 'http'], {
      coordinator: {
        ...coordinator,
        portForward: async function* () {
          throw crash;
        },
      },
      listen,
      signal: stop.signal,
    });
    await broken;
    await settle();
    stop.abort();
    const result = await running;
    expect(result.stderr).toBe(
      'cloudlessctl: connection to port http: the connection to the coordinator was lost\n',
    );
  });

  it('names the local port that is in use, and closes the listeners it has already opened', async () => {
    const open = new Set<number>();
    const listen = async (port: number) => {
      if (port === 81) throw Object.assign(new Error('in use'), { code: 'EADDRINUSE' });
      open.add(port);
      return { port: 4_711, close: () => open.delete(port) };
    };
    const result = await runCli(['port-forward', 'web', 'http', '81:9090'], {
      coordinator,
      listen,
    });
    expect(result).toMatchObject({
      exitCode: 1,
      stdout: 'Forwarding 127.0.0.1:4711 -> web http\n',
    });
    expect(result.stderr).toContain(
      'cannot listen on 127.0.0.1:81: the port is in use; choose another port',
    );
    expect(open.size).toBe(0);
  });
});
