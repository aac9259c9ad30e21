import { aWorkload, runCli } from '../../testing/run-cli.js';

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
